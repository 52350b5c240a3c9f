"""Who is let in, and which requests could not have come from our own pages."""

from pathlib import Path

import pytest

from batchkiln.dashboard.auth import Access, is_own_form, kept_token, read_token, token_file
from batchkiln.dashboard.server_names import is_loopback
from batchkiln.store.location import DatabaseUrl


@pytest.mark.parametrize(
    ("host", "is_own_form"),
    [
        ("127.0.0.1:8642", True),
        ("localhost:9000", True),
        ("[::1]:8642", True),
        ("localhost", True),
        ("evil.example:8642", False),
        ("localhost.evil.example:8642", False),
        ("127.0.0.1.evil.example", False),
        ("127.0.0.1:8642:80", False),
        ("user@127.0.0.1:8642", False),
        ("", False),
    ],
)
def test_only_names_of_this_machine_are_answered(host: str, *, is_own_form: bool) -> None:
    """A name that somebody else's DNS points to 127.0.0.1 is not one of ours."""
    assert is_loopback(host) is is_own_form


def test_a_token_stays_and_is_for_its_owner_alone(tmp_path: Path) -> None:
    """A bookmark outlives a restart; nobody else on the machine can read the file."""
    queue = tmp_path / "queue.db"

    token = read_token(queue)

    assert read_token(queue) == token
    assert token_file(queue).stat().st_mode & 0o777 == 0o600


def test_a_token_that_others_could_read_is_replaced(tmp_path: Path) -> None:
    """What was readable once may be known to somebody."""
    queue = tmp_path / "queue.db"
    token = read_token(queue)
    token_file(queue).chmod(0o644)

    assert read_token(queue) != token
    assert token_file(queue).stat().st_mode & 0o777 == 0o600


def test_a_token_of_a_database_is_kept_in_a_folder_for_its_owner_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else makes the folder where a machine only serves the dashboard."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    queue = DatabaseUrl("postgresql://batch:hush@db.example/kiln")

    token = read_token(queue)

    path = token_file(queue)
    assert kept_token(queue) == read_token(queue) == token
    assert [each.stat().st_mode & 0o777 for each in (path, path.parent)] == [0o600, 0o700]


def test_a_token_that_cannot_be_kept_is_known_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It signs in while the process lives; no file is named that does not hold it."""
    (tmp_path / "state").write_text("a file, and no folder", "utf-8")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    queue = DatabaseUrl("postgresql://batch:hush@db.example/kiln")

    assert len(read_token(queue)) >= 32
    assert kept_token(queue) is None


@pytest.mark.parametrize("content", ["", "short", "é" * 40])
def test_a_broken_token_is_replaced(tmp_path: Path, content: str) -> None:
    """An empty file is no password."""
    queue = tmp_path / "queue.db"
    token_file(queue).write_text(content, "utf-8")
    token_file(queue).chmod(0o600)

    assert len(read_token(queue)) >= 32


def test_values_that_are_not_text_are_refused() -> None:
    """Bytes that are no UTF-8 reach us as halves of characters."""
    access = Access("t" * 43)

    assert not access.authenticated(cookie="\udcff", authorization="Bearer \udcff")
    assert not access.accepts_link({"token": "\udcff"})
    assert not is_own_form(access.owner, origin="http://localhost", own_origin="http://localhost", csrf_token="\udcff")


def test_a_one_time_link_works_once() -> None:
    """A link that is read from a command line later no longer works."""
    access = Access("t" * 43)
    code = access.one_time_query().partition("=")[2]

    assert access.accepts_link({"once": code})
    assert not access.accepts_link({"once": code})


def test_empty_credentials_are_refused() -> None:
    """Empty tokens, cookies and marks are refused."""
    access = Access("t" * 43)

    assert not access.accepts_link({})
    assert not access.authenticated(cookie="", authorization="")
    assert not access.authenticated(cookie="", authorization="Bearer ")
    assert not is_own_form(access.owner, origin="http://127.0.0.1:1", own_origin="http://127.0.0.1:1", csrf_token="")


def test_the_cookie_is_not_the_token_nor_the_mark() -> None:
    """Neither a page nor a browser stores anything that reveals the link."""
    access = Access("t" * 43)

    assert len({access.owner.cookie, access.owner.csrf_token, "t" * 43}) == 3
    assert "t" * 43 not in repr(access)
    assert access.authenticated(cookie=access.owner.cookie, authorization="")
    assert not access.authenticated(cookie=access.owner.csrf_token, authorization="")
    assert access.authenticated(cookie="", authorization="Bearer " + "t" * 43)


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        ("http://evil.example", "127.0.0.1:1"),
        ("null", "127.0.0.1:1"),
        ("", "127.0.0.1:1"),
        ("http://127.0.0.1:2", "127.0.0.1:1"),
    ],
)
def test_a_form_from_elsewhere_is_not_ours(origin: str, host: str) -> None:
    """It is refused even with a valid mark, because the browser names the origin."""
    access = Access("t" * 43)

    assert not is_own_form(access.owner, origin=origin, own_origin=f"http://{host}", csrf_token=access.owner.csrf_token)
    assert is_own_form(
        access.owner, origin=f"http://{host}", own_origin=f"http://{host}", csrf_token=access.owner.csrf_token
    )
