"""Print results to standard output and status to standard error, with control characters removed."""

import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from datetime import UTC
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, TextIO

from batchkiln.core.cell_widths import cell_width
from batchkiln.core.errors import BatchkilnError, InputError

_WORD: Final = re.compile(
    r"""\s* (?: `[^`\n]*`                                    # a command in backquotes is one word
        | (?<!\w) \d(?:[\d,.]{0,20}\d)? [ ] (?= [^\W\d_] | [%$€] )  # and so are a number and its unit
        | (?<=\d[ ]) (?: d|h|min ) [ ] (?= \d+[ ](?:h|min|s)\b )  # and all of a duration
        | \S )+ [^\S\n]* \n?""",
    re.VERBOSE,
)
_COLOUR: Final = re.compile("\x1b\\[[0-9;]*m")
_COLUMNS_WITHOUT_TERMINAL: Final = 1000  # a program reads rows that are neither folded nor cut
_ANSWER_COLUMNS: Final = len(" [y/N]: y")
_IS_JSON_LOG: Final[ContextVar[bool]] = ContextVar("batchkiln_is_json_log", default=False)
_QUEUE_OPTION: Final[ContextVar[str]] = ContextVar("batchkiln_queue_option", default="")
_NAMED_COMMAND: Final = re.compile(r"(`(?:[^`\s]*/)?batchkiln [a-z]+(?:-[a-z]+)*)(?=[ `])(?![^`]*--queue\b)(?=[^`]*`)")
"""The beginning of a command in backquotes that names no queue."""

_BEYOND_ASCII: Final = re.compile(r"[^\x00-\x7f]")


def print_json(document: Mapping[str, Any]) -> None:
    """Print one indented JSON document to standard output."""
    import orjson  # noqa: PLC0415  a command that prints a text for a person does without

    sys.stdout.write(_encodable(orjson.dumps(document, option=orjson.OPT_INDENT_2).decode()) + "\n")
    sys.stdout.flush()


def print_json_lines(documents: Sequence[Mapping[str, Any]]) -> None:
    """Print JSON documents to standard output, one per line."""
    import orjson  # noqa: PLC0415  as above

    if documents:
        # Each is decoded at once: many kept results of orjson would take much more memory than their texts, and time.
        lines = [orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE).decode() for document in documents]
        sys.stdout.write(_encodable("".join(lines)))
        sys.stdout.flush()


def _encodable(document: str) -> str:
    """Return the document with JSON escapes if the encoding of standard output lacks characters."""
    if (sys.stdout.encoding or "").lower().replace("-", "") == "utf8":
        return document
    return _BEYOND_ASCII.sub(lambda found: json.dumps(found[0])[1:-1], document)


def print_result(text: str = "", *, hanging: int | None = None) -> None:
    """Print a line of a command's result to standard output; on a terminal, it is wrapped as by `wrapped`."""
    sys.stdout.write(wrapped(printable(text), sys.stdout, hanging=hanging) + "\n")


def print_exact(text: str) -> None:
    """Print to standard output what a person copies as a whole or a shell reads: it is never wrapped."""
    sys.stdout.write(printable(text) + "\n")


def write_status_as_json(*, is_wanted: bool) -> None:
    """Let `print_status` write JSON objects from here on, for a log of JSON that goes to standard error as well."""
    _IS_JSON_LOG.set(is_wanted)


def print_status(text: str, *, event: str = "status", level: str = "info") -> None:
    """Print a line of progress, a warning or an error to standard error. In a log of JSON, it is an object `event`."""
    if not _IS_JSON_LOG.get():
        sys.stderr.write(wrapped(printable(text), sys.stderr) + "\n")
    elif message := printable(text).strip():
        from batchkiln.clock import machine_now  # noqa: PLC0415  only needed here

        at = machine_now().astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        line = json.dumps({"message": message, "event": event, "level": level, "timestamp": at})
        sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def print_error(error: BatchkilnError) -> None:
    """Print an error to standard error; each of several mistakes begins in the same way."""
    told = error.args[0] if error.args and isinstance(error.args[0], InputError) else error  # one may pass on another
    for text in told.paragraphs if isinstance(told, InputError) else (error,):
        print_status(f"batchkiln: {text}", event="error", level="error")


def typed_path(path: str) -> str:
    """Return a path as a person types it: relative to the working directory if it is inside, otherwise as it is."""
    try:
        return str(Path(path).relative_to(Path.cwd()))
    except (OSError, ValueError):  # the working directory may be gone
        return path


def question_text(text: str) -> str:
    """Return a question for standard error with line breaks between words, and room for the answer."""
    return wrapped(printable(text), sys.stderr, reserved=_ANSWER_COLUMNS)


def wrapped(text: str, stream: TextIO, *, reserved: int = 0, hanging: int | None = None) -> str:
    """Return the text with line breaks between words if the stream is a terminal. A line above a mark `^` stays whole.

    `reserved` columns stay free. A continuation begins with `hanging` spaces. The default is the indent of its line
    and two more, or none without an indent.
    """
    if not is_terminal(stream):
        return text
    try:
        width = os.get_terminal_size(stream.fileno()).columns - reserved
    except (OSError, ValueError):  # not a real terminal: its width is unknown
        return text
    return "\n".join(
        line if is_marked else _wrapped_line(line, width, hanging) for line, is_marked in _with_marks(text.split("\n"))
    )


def _with_marks(lines: list[str]) -> Iterator[tuple[str, bool]]:
    """Yield each line, and whether it has a mark below it, which would point elsewhere if the line were wrapped."""
    for line, below in zip(lines, [*lines[1:], ""], strict=True):
        yield line, below.strip() == "^"


def columns_of_output() -> int:
    """Return the columns of standard output. Without a terminal, they are the same many under all circumstances."""
    if not is_terminal(sys.stdout):
        return _COLUMNS_WITHOUT_TERMINAL
    import shutil  # noqa: PLC0415  slow to import

    return shutil.get_terminal_size().columns


def _visible_length(text: str) -> int:
    """Return the columns of a text, without the sequences that colour it."""
    return cell_width(_COLOUR.sub("", text))


def _wrapped_line(line: str, width: int, hanging: int | None) -> str:
    indent = len(line) - len(line.lstrip(" "))
    spaces = hanging if hanging is not None else indent + 2 if indent else 0
    breaks = [0, *line_breaks(line, width, _visible_length, hanging=spaces), len(line)]
    return f"\n{' ' * spaces}".join(line[start:end].rstrip(" ") for start, end in pairwise(breaks))


def name_queue_in_commands(option: str) -> None:
    """Let each command that is printed from here on name the queue that was given: its default is another one."""
    _QUEUE_OPTION.set(option)


def printable(text: str) -> str:
    """Replace control and formatting characters except newlines and tabs by spaces; name the queue in commands.

    A prompt, a file name or a message of the service could otherwise control the terminal.
    """
    if (option := _QUEUE_OPTION.get()) and "batchkiln " in text:
        text = _NAMED_COMMAND.sub(lambda found: f"{found[1]}{option}", text)
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() or character in "\n\t" else " " for character in text)


def line_breaks(text: str, width: int, length: Callable[[str], int] = len, *, hanging: int = 0) -> list[int]:
    """Return the places of the line breaks in a text wrapped at `width`, with an indent of `hanging` columns.

    A word that is too long, such as a path, and a command in backquotes are left whole, so that they can be copied. A
    number stays with its unit, and a duration is not broken.
    """
    breaks, column = list[int](), 0
    for word in _WORD.finditer(text) if width > hanging else ():
        if column and column + length(word[0].rstrip()) > width:
            breaks.append(word.start())
            column = hanging
        column = 0 if word[0].endswith("\n") else column + length(word[0])
    return breaks


def is_dumb_terminal() -> bool:
    """Return whether the terminal is known to move no cursor, so that nothing can be redrawn on it."""
    return os.environ.get("TERM", "").lower() in {"dumb", "unknown"}


def is_terminal(stream: TextIO) -> bool:
    """Return whether a stream is an open terminal."""
    try:
        return stream.isatty()
    except ValueError:  # closed
        return False


def can_redraw() -> bool:
    """Return whether standard error is a terminal on which lines can be drawn again, and has no log of JSON."""
    return is_terminal(sys.stderr) and not is_dumb_terminal() and not _IS_JSON_LOG.get()
