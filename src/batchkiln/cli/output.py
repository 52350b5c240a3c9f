"""Standard output for results, standard error for the rest, and texts made fit for a terminal."""

import json
import re
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, TextIO

import orjson

_BEYOND_ASCII: Final = re.compile(r"[^\x00-\x7f]")


def print_json(document: Mapping[str, Any]) -> None:
    """Write one document, indented, to standard output."""
    sys.stdout.write(_escaped(orjson.dumps(document, option=orjson.OPT_INDENT_2).decode()) + "\n")
    sys.stdout.flush()


def print_json_lines(documents: list[dict[str, Any]]) -> None:
    """Write a line a document to standard output."""
    if documents:
        sys.stdout.write(_escaped("".join(orjson.dumps(document).decode() + "\n" for document in documents)))
        sys.stdout.flush()


def _escaped(document: str) -> str:
    """Keep JSON valid where standard output cannot spell every character: JSON has escapes of its own."""
    if (sys.stdout.encoding or "").lower().replace("-", "") == "utf8":
        return document
    return _BEYOND_ASCII.sub(lambda found: json.dumps(found[0])[1:-1], document)


def print_result(text: str = "") -> None:
    """Write a result for a person to standard output."""
    sys.stdout.write(printable(text) + "\n")


def print_status(text: str) -> None:
    """Write what is no result to standard error."""
    sys.stderr.write(printable(text) + "\n")
    sys.stderr.flush()


def printable(text: str) -> str:
    """Put a space for whatever would move a terminal's cursor or turn its writing; lines and tabs stay.

    A prompt, a file's name or a service's word may hold such things; here is the last place to stop them.
    """
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() or character in "\n\t" else " " for character in text)


def is_terminal(stream: TextIO) -> bool:
    """Tell whether a person is at the other end of a stream."""
    try:
        return stream.isatty()
    except ValueError:  # closed
        return False


def iso(instant: datetime | None) -> str | None:
    """Write an instant as ISO 8601 with milliseconds and a Z."""
    if instant is None:
        return None
    return instant.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
