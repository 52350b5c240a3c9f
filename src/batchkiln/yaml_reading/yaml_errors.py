"""Turns YAML syntax errors into messages for people, and quickly detects keys below `items`."""

import codecs
import re
from pathlib import Path
from typing import Final

import yaml

from batchkiln.yaml_reading.diagnostics import Diagnostics, Location

_CHUNK_SIZE_BYTES: Final = 1 << 20
# A line may be a key of the root if it starts in the first column, except with a comment or with a hyphen and a space.
# There is one pattern for each kind of line end, because a literal beginning makes the search many times faster.
_KEY_BELOW: Final = {
    end: re.compile(re.escape(end) + rb"(?:[^\s#\-]|-[^ \t\r\n])")
    for end in (b"\n", b"\r", b"\xc2\x85", b"\xe2\x80\xa8", b"\xe2\x80\xa9")
}
_LINE_END: Final = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
# Characters that YAML does not allow, even in quotes.
_NOT_PRINTABLE: Final = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")

_REMEDIES: Final = (
    ("cannot start any token", "indent with spaces, not tabs; quote a text that begins with a sign such as @, ` or %"),
    ("mapping values are not allowed", "quote a text that contains ': '"),
    ("could not find expected ':'", "a key is followed by a colon and a space"),
    ("did not find expected key", "check the indentation, and the quotes of the line above"),
    ("did not find expected '-' indicator", "check the indentation: the items of a list start in the same column"),
    ("found undefined tag handle", "remove the tag"),
    ("found unexpected end of stream", "a quote or a bracket is not closed"),
    ("found unexpected document indicator", "a quote is not closed"),
    ("did not find expected ',' or", "a bracket is not closed, or a comma is missing"),
    ("alphabetic or numeric", "quote a text that begins with * or &"),
    ("maximum nesting depth", "no field is nested that deeply"),  # a limit of libyaml, which scans far ahead
    ("unknown escape", "double the backslash, or use single quotes"),
)


def may_have_root_keys_after(path: Path, characters: int) -> bool:
    """Return whether a root key may follow after this many characters. False is certain, True is only possible."""
    with path.open(encoding="utf-8", errors="surrogateescape", newline="") as text:
        skipped = len(text.read(characters).encode("utf-8", "surrogateescape"))
    with path.open("rb") as stream:
        stream.seek(skipped)
        kept = b""
        while chunk := stream.read(_CHUNK_SIZE_BYTES):
            part = kept + chunk
            if any(end in part and pattern.search(part) for end, pattern in _KEY_BELOW.items()):
                return True
            kept = chunk[-4:]
    return False


def encoding_error(path: Path) -> str | None:
    """Return the error of a file whose first bytes are not UTF-8; None for other files."""
    with path.open("rb") as stream:
        start = stream.read(4)
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "the file is UTF-16 (it begins with that byte order mark)"
    if start[:1] == b"\0" or start[1:2] == b"\0":
        return "the file is UTF-16 or UTF-32, or is not text"
    return None


def report_syntax(error: yaml.YAMLError, path: Path, diagnostics: Diagnostics) -> None:
    """Add a parser's error to the diagnostics."""
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        if error.context_mark is not None and "end of stream" in (error.problem or ""):
            mark = error.context_mark  # the unclosed quote or bracket, and not the end of the file
        problem = (error.problem or "the YAML cannot be read").strip()
        context = f" {error.context.strip()}" if error.context else ""
        start = error.context_mark
        is_elsewhere = start is not None and mark is not None and start.line != mark.line
        since = f" (started in line {start.line + 1})" if start is not None and is_elsewhere else ""
        reason = f"not YAML: {problem}{context}{since}"
        remedy = next((advice for part, advice in _REMEDIES if part in problem), None)
        if mark is None:
            diagnostics.at_line(None, reason, remedy)
        else:
            diagnostics.at(mark, reason, remedy)
        return
    location, reason, remedy = _bad_character(path, diagnostics.file)
    diagnostics.add(location, reason or f"not YAML: {getattr(error, 'reason', error)}", remedy)


def _bad_character(path: Path, file: str) -> tuple[Location, str, str]:
    """Report the first byte that is not UTF-8, or character that YAML does not allow, with its line."""
    decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
    line, column = 1, 1
    with path.open("rb") as stream:
        raw = stream.read(len(codecs.BOM_UTF8)).removeprefix(codecs.BOM_UTF8)
        is_at_end = False
        while not is_at_end:
            chunk = stream.read(_CHUNK_SIZE_BYTES)
            is_at_end = not chunk
            text = decoder.decode(raw + chunk, final=is_at_end)  # an incomplete character at the end is an error
            raw = b""
            found = _NOT_PRINTABLE.search(text)
            before = _LINE_END.split(text[: found.start()] if found else text)
            line, column = line + len(before) - 1, len(before[-1]) + (column if len(before) == 1 else 1)
            if found:
                return Location(file, line, column), *_named(found[0])
    return Location(file), "", "save the file as UTF-8"


def _named(character: str) -> tuple[str, str]:
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # noqa: PLR2004  the bytes of surrogateescape
        return f"the byte 0x{code - 0xDC00:02X} is not UTF-8", "save the file as UTF-8"
    if code == 0xFEFF:  # noqa: PLR2004  the byte order mark
        return "a byte order mark is inside the text", "remove it"
    return (
        f"the control character U+{code:04X} is in the text",
        "remove it, or write it as an escape in double quotes",
    )
