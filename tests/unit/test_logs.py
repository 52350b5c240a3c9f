"""No key and no signed link reaches a log (Law 8)."""

import ast
import json
import logging
import os
import re
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import structlog

import batchkiln
from batchkiln.logs import ALLOWED, IS_LIVE, MAX_CHARACTERS, configure_logging

Stderr = Callable[[], str]

KEY = "lk_canary-5f2c9a"
CLOSED_AT_THE_END = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
"""For log files, which only the end of a process closes."""

LINK = f"https://media.example.invalid/a.png?signature={KEY}&expires=1"


@pytest.fixture
def stderr(capsys: pytest.CaptureFixture[str]) -> Stderr:
    return lambda: capsys.readouterr().err


def test_a_json_line_holds_one_event(stderr: Stderr) -> None:
    """With --log-format json each event is a line of JSON with its level and time."""
    configure_logging(verbosity=0, log_format="json")

    structlog.get_logger().warning("profile_missing", job="birds", profile="studio")

    (line,) = stderr().splitlines()
    event = json.loads(line)
    assert (event["event"], event["level"], event["job"]) == ("profile_missing", "warning", "birds")
    assert event["timestamp"].endswith("Z")


@pytest.mark.parametrize(("is_terminal", "verbosity", "lines"), [(True, 0, 1), (True, 1, 2), (False, 0, 2)])
def test_a_live_display_replaces_the_lines_of_what_it_shows(
    stderr: Stderr, monkeypatch: pytest.MonkeyPatch, *, is_terminal: bool, verbosity: int, lines: int
) -> None:
    """The block names the reason of a wait; -v and what is no terminal keep the lines."""
    monkeypatch.setattr("batchkiln.logs._is_terminal", lambda: is_terminal)
    configure_logging(verbosity=verbosity, log_format="auto")
    shown = IS_LIVE.set(True)

    structlog.get_logger().warning("request_troubled", reason="no answer")
    structlog.get_logger().warning("profile_missing", job="birds")

    IS_LIVE.reset(shown)
    assert len(stderr().splitlines()) == lines


def test_a_line_for_people_is_one_line(stderr: Stderr) -> None:
    """A value with line breaks does not become a second line."""
    configure_logging(verbosity=0, log_format="auto")

    structlog.get_logger().warning("reply_lost", reason="one\ntwo")

    (line,) = stderr().splitlines()
    assert "reply_lost" in line


def test_a_line_on_a_terminal_has_the_persons_time_and_whole_words(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The hours are those of the person's zone, with its name; lines break as the program's other messages do."""
    monkeypatch.setattr("batchkiln.logs._is_terminal", lambda: True)
    configure_logging(verbosity=0, log_format="auto", wrap=lambda line: f"<{line}>")

    structlog.get_logger().warning("request_troubled", account="main", reason="could not connect")

    line = re.sub("\x1b\\[[0-9;]*m", "", capsys.readouterr().err)
    assert re.fullmatch(r"<\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \S+ \[warning.*could not connect'>\n", line)


def test_fields_that_are_not_known_are_dropped_and_named(stderr: Stderr) -> None:
    """A new call site cannot leak by accident: its field's name is told, its value is not. Law 8."""
    configure_logging(verbosity=0, log_format="json")

    structlog.get_logger().warning("sent", authorization=f"Bearer {KEY}", job="birds")

    told = stderr()
    assert KEY not in told
    assert json.loads(told)["dropped"] == ["authorization"]


@pytest.mark.parametrize("log_format", ["json", "auto"])
@pytest.mark.parametrize(
    "text",
    [
        LINK,
        f"see {LINK} there",
        f"Bearer {KEY}",
        f"Authorization: Bearer {KEY}",
        f"https://user:{KEY}@host/x",
        f"api_key={KEY}",
    ],
)
def test_secrets_in_known_fields_are_cut_out(stderr: Stderr, log_format: str, text: str) -> None:
    """Signed links and bearer tokens are redacted wherever they stand. Law 8."""
    configure_logging(verbosity=0, log_format="json" if log_format == "json" else "auto")

    structlog.get_logger().warning(f"event {text}", reason=text, error=ValueError(text))

    told = stderr()
    assert KEY not in told
    assert "redacted" in told


def test_values_are_bounded(stderr: Stderr) -> None:
    """A hostile text cannot flood the log."""
    configure_logging(verbosity=0, log_format="json")

    structlog.get_logger().warning("refused", reason="x" * 100_000)

    assert len(json.loads(stderr())["reason"]) == MAX_CHARACTERS


@pytest.mark.parametrize(
    ("verbosity", "told"),
    [
        (-2, ["error"]),
        (-1, ["warning", "error"]),
        (0, ["warning", "error"]),
        (1, ["info", "warning", "error"]),
        (2, ["debug", "info", "warning", "error"]),
    ],
)
def test_verbosity_chooses_the_levels(stderr: Stderr, verbosity: int, told: list[str]) -> None:
    """-q leaves what may need a person, -qq errors, -v adds what is going on, -vv everything."""
    configure_logging(verbosity=verbosity, log_format="json")

    for level in ("debug", "info", "warning", "error"):
        getattr(structlog.get_logger(), level)("happened")

    assert [json.loads(line)["level"] for line in stderr().splitlines()] == told


def test_what_libraries_log_comes_in_the_same_form(stderr: Stderr) -> None:
    """A record of the standard library's logging is one line as well, with the exception's type and no text."""
    configure_logging(verbosity=0, log_format="json")

    try:
        int(LINK)
    except ValueError:
        logging.getLogger("aiohttp.server").exception("Error handling request")

    told = stderr()
    assert json.loads(told)["event"] == "Error handling request"
    assert json.loads(told)["error"] == "ValueError"
    assert KEY not in told


def _fail_with_a_secret() -> None:
    secret = LINK
    raise ValueError(secret)


def test_accidents_of_the_local_service_tell_where_they_happened(stderr: Stderr) -> None:
    """File, line and function, the innermost first; neither the text nor what the variables held. Law 8."""
    configure_logging(verbosity=0, log_format="json", is_server=True)

    try:
        _fail_with_a_secret()
    except ValueError:
        logging.getLogger("batchkiln_service.api.middleware").exception("request_failed")

    told = stderr()
    frames = json.loads(told)["frames"]
    first = _fail_with_a_secret.__code__.co_firstlineno + 2
    assert frames.startswith(f"test_logs.py:{first} in _fail_with_a_secret, from test_logs.py:")
    assert KEY not in told


def test_every_field_that_the_program_logs_is_known() -> None:
    """No call site uses a field that would be dropped."""
    sources = (path.read_text("utf-8") for path in Path(batchkiln.__file__).parents[1].rglob("*.py"))
    calls = [
        call
        for source in sources
        if "log." in source
        for call in ast.walk(ast.parse(source))
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and isinstance(call.func.value, ast.Name)
        and call.func.value.id in {"log", "_log"}
        and call.func.attr in {"debug", "info", "warning", "error", "exception"}
    ]
    given = [keyword for call in calls for keyword in call.keywords]
    # The local service logs by the standard library, whose fields are the keys of `extra`.
    extra = [key for one in given if isinstance(one.value, ast.Dict) for key in one.value.keys]
    used = {one.arg for one in given} | {key.value for key in extra if isinstance(key, ast.Constant)}

    assert "ip" in used
    assert used - {"exc_info", "extra"} <= ALLOWED


def test_server_says_which_requests_it_served(stderr: Stderr) -> None:
    """A line a request, with the fields of the record; other commands say nothing of them, and `-q` silences them."""
    served = partial(logging.getLogger("batchkiln_service.access").info, "request", extra={"status": 202, "ip": "::1"})

    configure_logging(verbosity=0, log_format="json")
    served()
    assert stderr() == ""
    configure_logging(verbosity=0, log_format="json", is_server=True)
    served()
    told = json.loads(stderr())
    assert (told["event"], told["status"], told["ip"]) == ("request", 202, "::1")
    configure_logging(verbosity=-1, log_format="json", is_server=True)
    served()
    assert stderr() == ""


@CLOSED_AT_THE_END
@pytest.mark.parametrize("is_kept_by_copying", [False, True])
def test_log_file_can_be_rotated(tmp_path: Path, *, is_kept_by_copying: bool) -> None:
    """By renaming it, after which the next line makes a new one, or by copying and emptying it; no line is lost."""
    file, kept = tmp_path / "logs" / "work.log", tmp_path / "work.log.1"
    configure_logging(verbosity=0, log_format="json", path=file)
    log = structlog.get_logger()

    log.warning("first")
    if is_kept_by_copying:
        kept.write_bytes(file.read_bytes())
        os.truncate(file, 0)
    else:
        file.rename(kept)
    log.warning("second")

    assert [json.loads(path.read_bytes())["event"] for path in (kept, file)] == ["first", "second"]


@CLOSED_AT_THE_END
def test_log_goes_on_where_its_folder_is_gone(tmp_path: Path) -> None:
    """A log ends no run: what cannot be written any more is lost, until the folder is back."""
    file = tmp_path / "logs" / "work.log"
    configure_logging(verbosity=0, log_format="json", path=file)
    log = structlog.get_logger()

    log.warning("first")
    shutil.rmtree(file.parent)
    log.warning("lost")
    file.parent.mkdir()
    log.warning("second")

    assert json.loads(file.read_bytes())["event"] == "second"
