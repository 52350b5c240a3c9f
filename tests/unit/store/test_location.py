"""The location of a queue as given by the user, and that no text shows a password."""

from pathlib import Path

import pytest

from batchkiln.store import DatabaseUrl, hide_passwords, local_path, parse_location


@pytest.mark.parametrize(
    "text", ["queue.db", ".batchkiln/queue.db", "/a/postgresql", "postgresql:odd", "http://host/x"]
)
def test_what_is_no_database_url_is_a_path(text: str) -> None:
    """Only the schemes of PostgreSQL's own URLs name a database."""
    assert parse_location(text) == Path(text)


@pytest.mark.parametrize("text", ["postgresql://host/kiln", "postgres://host/kiln", "PostgreSQL:///?service=kiln"])
def test_a_database_is_named_by_its_url(text: str) -> None:
    """The letter case of the scheme does not matter."""
    assert parse_location(text) == DatabaseUrl(text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://batch@db.example/kiln", "postgresql://batch@db.example/kiln"),
        ("postgresql://batch:hush@db.example:5432/kiln", "postgresql://batch:…@db.example:5432/kiln"),
        ("postgresql://batch:@db.example/kiln", "postgresql://batch:…@db.example/kiln"),
        ("postgresql://batch:hu@sh@a,b/kiln", "postgresql://batch:…@a,b/kiln"),
        ("postgresql://batch:hu/s?h@db.example/kiln", "postgresql://batch:…@db.example/kiln"),
        ("postgresql://batch:hu%40sh@[::1]/kiln", "postgresql://batch:…@[::1]/kiln"),
        ("postgresql:///kiln?user=batch&password=hush&x=1", "postgresql:///kiln?user=batch&password=…&x=1"),
        ("postgresql://db/kiln?sslpassword=hush", "postgresql://db/kiln?sslpassword=…"),
        ("postgresql://db/kiln?options=a@b&password=hush", "postgresql://db/kiln?options=a@b&password=…"),
    ],
)
def test_a_url_is_shown_without_its_password(text: str, shown: str) -> None:
    """Law 8: also where the person forgot to escape a mark."""
    url = DatabaseUrl(text)

    assert str(url) == shown
    assert "hush" not in repr(url)
    assert hide_passwords(f"work --queue={text} -v") == f"work --queue={shown} -v"


def test_a_password_is_found_as_it_is_written_and_as_it_is_meant() -> None:
    """The driver's messages hold the one or the other."""
    assert set(DatabaseUrl("postgresql://batch:hu%40sh@db/kiln?sslpassword=more").secrets()) == {
        "hu%40sh",
        "hu@sh",
        "more",
    }


def test_the_name_of_a_database_is_the_title_of_pages() -> None:
    """It is the last part of the path, without the settings."""
    assert DatabaseUrl("postgresql://batch:hush@db/kiln?sslmode=require").name == "kiln"
    assert DatabaseUrl("postgresql:///?service=kiln").name == "postgresql"


def test_a_machine_keeps_its_own_files_apart_by_database(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A new password leaves the place as it is; a queue file is its own place."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    first, again, other = (
        local_path(DatabaseUrl(f"postgresql://batch:{password}@db/{name}"))
        for password, name in (("hush", "a"), ("new", "a"), ("hush", "b"))
    )

    assert first == again != other
    assert first.is_relative_to(tmp_path)
    assert local_path(tmp_path / "queue.db") == tmp_path / "queue.db"


def test_the_suite_keeps_the_files_of_queues_in_a_folder_of_its_own() -> None:
    """A test never writes a journal or a token to the person's own folders."""
    place = local_path(DatabaseUrl("postgresql://batch@db/kiln"))

    assert any(part.startswith("batchkiln-state-") for part in place.parts)
