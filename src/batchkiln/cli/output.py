"""Print results to standard output and status to standard error, with control characters removed."""

import json
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final, TextIO

import orjson

_BEYOND_ASCII: Final = re.compile(r"[^\x00-\x7f]")


def print_json(document: Mapping[str, Any]) -> None:
    """Print one indented JSON document to standard output."""
    sys.stdout.write(_encodable(orjson.dumps(document, option=orjson.OPT_INDENT_2).decode()) + "\n")
    sys.stdout.flush()


def print_json_lines(documents: Sequence[Mapping[str, Any]]) -> None:
    """Print JSON documents to standard output, one per line."""
    if documents:
        sys.stdout.write(_encodable("".join(orjson.dumps(document).decode() + "\n" for document in documents)))
        sys.stdout.flush()


def _encodable(document: str) -> str:
    """Return the document with JSON escapes if the encoding of standard output lacks characters."""
    if (sys.stdout.encoding or "").lower().replace("-", "") == "utf8":
        return document
    return _BEYOND_ASCII.sub(lambda found: json.dumps(found[0])[1:-1], document)


def print_result(text: str = "") -> None:
    """Print a line of a command's result to standard output."""
    sys.stdout.write(printable(text) + "\n")


def print_status(text: str) -> None:
    """Print a line of progress, a warning or an error to standard error."""
    sys.stderr.write(printable(text) + "\n")
    sys.stderr.flush()


def printable(text: str) -> str:
    """Replace control and formatting characters except newlines and tabs by spaces.

    A prompt, a file name or a message of the service could otherwise control the terminal.
    """
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() or character in "\n\t" else " " for character in text)


def is_terminal(stream: TextIO) -> bool:
    """Return whether a stream is an open terminal."""
    try:
        return stream.isatty()
    except ValueError:  # closed
        return False
