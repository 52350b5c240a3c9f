"""Sets up logging: one event per line on standard error, with known fields only (Law 8).

Fields that are not listed are dropped and named, so that a new log call cannot leak a key or a signed URL by accident.
Values of listed fields are cut to a maximum length, and URLs with queries and tokens in them are removed.
"""

import logging
import os
import re
import sys
import traceback
from collections.abc import Callable, MutableMapping
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, TextIO

import structlog

from batchkiln.core.errors import InputError

ALLOWED: Final = frozenset(
    {
        "account", "attempt", "attempts", "bytes", "call", "code", "command", "cost_credits", "credits", "dropped",
        "duration_ms", "duration_seconds", "egress", "error", "event", "exit", "fault", "file", "folder", "frames",
        "generation_id", "ip",
        "hosts", "item", "items", "job", "kind", "level", "line", "message", "method", "model",
        "notifier", "number", "path", "pid", "port",
        "profile", "queue", "reason", "remedy", "retry_after_seconds", "sends", "sha256", "signal", "size_bytes",
        "state", "status", "timestamp", "until", "worker",
    }
)  # fmt: skip
"""The fields that may be logged."""

MAX_CHARACTERS: Final = 300
_PERSONS_TIME: Final = "%Y-%m-%d %H:%M:%S %Z"  # with the zone's name
_SERVICE: Final = "batchkiln_service"  # its logger of the standard library; fields are in `extra`
_STANDARD_ATTRIBUTES: Final = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}
_SEARCHED_MAX_CHARACTERS: Final = 5_000
_URL_WITH_QUERY: Final = re.compile(r"[a-z][a-z0-9+.-]{1,20}://[^\s\"'<>]*[?#][^\s\"'<>]*", re.IGNORECASE)
_USER_IN_URL: Final = re.compile(r"[a-z][a-z0-9+.-]{1,20}://[^\s/\"'<>]*@[^\s\"'<>]*", re.IGNORECASE)
_BEARER: Final = re.compile(
    r"\b(bearer|authorization|api[_-]?key|x-amz-[a-z-]+)\b[\s:=]+(bearer\s+)?[^\s\"'<>]+", re.IGNORECASE
)

EventDict = MutableMapping[str, Any]


def configure_logging(
    *,
    verbosity: int,
    log_format: Literal["auto", "json"],
    is_server: bool = False,
    level_name: str | None = None,
    path: Path | None = None,
    wrap: Callable[[str], str] = str,
) -> None:
    """Set up logging for this process.

    The default level is WARNING; `verbosity` raises or lowers the amount, and `level_name` takes precedence. A server
    also logs each request by default. Lines are appended to the file `path`, or go to standard error. Raise
    `InputError` if the file cannot be written.

    On a terminal, times are in the person's zone, and `wrap` breaks each line between words.
    """
    level = _level(verbosity + is_server) if level_name is None else logging.getLevelNamesMapping()[level_name.upper()]
    is_for_people = log_format == "auto" and path is None and _is_terminal()
    output = _StandardError(wrap if is_for_people else str) if path is None else _LogFile(path)
    last = structlog.dev.ConsoleRenderer(
        colors=is_for_people and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "").lower() != "dumb",
        pad_event_to=0,
        sort_keys=False,
        exception_formatter=structlog.dev.plain_traceback,
    )
    structlog.configure(
        processors=[
            *([drop_if_shown] if is_for_people and level == logging.WARNING else []),
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt=_PERSONS_TIME if is_for_people else "iso", utc=not is_for_people),
            keep_known_fields,
            redact_values,
            structlog.processors.JSONRenderer() if log_format == "json" else last,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=lambda *_: output,
        cache_logger_on_first_use=False,
    )
    logging.root.handlers[:] = [_StructlogHandler()]
    logging.root.setLevel(max(level, logging.WARNING))
    logging.getLogger(_SERVICE).setLevel(level if is_server else logging.NOTSET)
    # An unreachable collector is logged once by us, not by the SDK for each retry.
    logging.getLogger("opentelemetry").setLevel(logging.NOTSET if level == logging.DEBUG else logging.CRITICAL)


def use_standard_logging(words: Callable[[str], str]) -> None:
    """Log through `logging.getLogger("batchkiln")`, for programs that import batchkiln; fields are filtered as well.

    `words` puts reasons and remedies into words of such a program. One that has configured structlog itself keeps its
    configuration.
    """
    if structlog.is_configured():
        return
    structlog.configure(
        processors=[
            drop_if_silent,
            partial(_with_words, words),
            keep_known_fields,
            redact_values,
            structlog.processors.LogfmtRenderer(key_order=["event"]),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG),
        logger_factory=lambda *_: logging.getLogger("batchkiln"),
        cache_logger_on_first_use=False,
    )


def _with_words(words: Callable[[str], str], logger: object, name: str, event: EventDict) -> EventDict:
    del logger, name
    for field in ("reason", "remedy"):
        if isinstance(event.get(field), str):
            event[field] = words(event[field])
    return event


IS_SILENT: ContextVar[bool] = ContextVar("batchkiln_is_silent", default=False)
"""Whether a program's log leaves out the events of this context. A rehearsal's result lists its incidents."""


def drop_if_silent(logger: object, name: str, event: EventDict) -> EventDict:
    """Drop the events of a silent context."""
    del logger, name
    if IS_SILENT.get():
        raise structlog.DropEvent
    return event


IS_LIVE: ContextVar[bool] = ContextVar("batchkiln_is_live", default=False)
"""Whether a live display on the terminal shows the state of the run."""

_SHOWN_LIVE: Final = frozenset({"request_troubled", "run_paused"})  # the display names the reason and the remedy


def drop_if_shown(logger: object, name: str, event: EventDict) -> EventDict:
    """Drop the events that the live display shows itself; -v, a log file and other outputs keep them."""
    del logger, name
    if IS_LIVE.get() and event["event"] in _SHOWN_LIVE:
        raise structlog.DropEvent
    return event


def keep_known_fields(logger: object, name: str, event: EventDict) -> EventDict:
    """Drop every field that is not listed, and add the names of the dropped ones."""
    del logger, name
    dropped = sorted(field for field in event if field not in ALLOWED)
    for field in dropped:
        del event[field]
    if dropped:
        event["dropped"] = [_redact(field) for field in dropped]
    return event


def redact_values(logger: object, name: str, event: EventDict) -> EventDict:
    """Cut every value to one bounded line, without URLs with a query and without bearer tokens."""
    del logger, name
    for field, value in event.items():
        if value is not None and not isinstance(value, bool | int | float) and field != "dropped":
            event[field] = _redact(str(value))
    return event


def _redact(text: str) -> str:
    text = text[:_SEARCHED_MAX_CHARACTERS]
    for pattern in (_URL_WITH_QUERY, _USER_IN_URL, _BEARER):
        text = pattern.sub("[redacted]", text)
    text = "".join(character if character.isprintable() else " " for character in text)
    return text if len(text) <= MAX_CHARACTERS else text[: MAX_CHARACTERS - 1] + "…"


def _level(verbosity: int) -> int:
    """Return the level for a number of -v minus the number of -q. A single -q leaves what may need a person."""
    if verbosity < -1:
        return logging.ERROR
    return (logging.WARNING, logging.INFO, logging.DEBUG)[min(max(verbosity, 0), 2)]


def _is_terminal() -> bool:
    return sys.stderr.isatty()


class _StandardError:
    """Writes lines to the current standard error, which a live display may have replaced."""

    def __init__(self, wrap: Callable[[str], str]) -> None:
        self._wrap = wrap

    def msg(self, line: str) -> None:
        sys.stderr.write(self._wrap(line) + "\n")
        sys.stderr.flush()

    debug = info = warning = error = critical = exception = log = msg


class _LogFile:
    """Appends lines to a file. A line that cannot be written, as on a full disk, is lost: a log ends no run.

    After the file was renamed or removed, as by logrotate, the next line goes to a new file of its name.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._opened()
        except OSError as error:
            raise InputError(f"--log-file: {path} cannot be written: {error.strerror}; nothing was done") from error

    def msg(self, line: str) -> None:
        with suppress(OSError):  # the old file is better than none
            if not self._is_in_place():
                self._file, old = self._opened(), self._file
                old.close()
        with suppress(OSError):
            self._file.write(line + "\n")

    debug = info = warning = error = critical = exception = log = msg

    def _opened(self) -> TextIO:
        return self._path.open("a", encoding="utf-8", buffering=1)

    def _is_in_place(self) -> bool:
        try:
            return os.path.samestat(self._path.stat(), os.fstat(self._file.fileno()))
        except FileNotFoundError:
            return False


def _frames(trace: TracebackType | None) -> str:
    """Return file, line and function of each frame of an error, innermost first, because a long text loses its end."""
    places = [
        f"{Path(frame.f_code.co_filename).name}:{line} in {frame.f_code.co_name}"
        for frame, line in traceback.walk_tb(trace)
    ]
    return ", from ".join(reversed(places))


class _StructlogHandler(logging.Handler):
    """Forwards records of the standard library's logging to structlog.

    Of an exception only the type is logged, because texts may contain links. For the local service's errors, files,
    lines and functions are logged too.
    """

    def emit(self, record: logging.LogRecord) -> None:
        """Forward one record."""
        error = record.exc_info[0].__name__ if record.exc_info and record.exc_info[0] else None
        fields: dict[str, Any] = {"error": error} if error else {}
        if record.name.startswith(_SERVICE):
            if record.exc_info and (frames := _frames(record.exc_info[2])):
                fields["frames"] = frames
            fields |= {name: value for name, value in record.__dict__.items() if name not in _STANDARD_ATTRIBUTES}
        structlog.get_logger().log(record.levelno, record.getMessage(), **fields)
