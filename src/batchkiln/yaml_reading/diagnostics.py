"""Collects the errors of a YAML file with their locations, and reports them in the order of the text."""

import gzip
import io
import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Final, Protocol, cast

from msgspec import Struct
from msgspec.structs import replace

from batchkiln.core.cell_widths import cell_width, fitting
from batchkiln.core.errors import Diagnostic, InputError
from batchkiln.core.urls import redacted
from batchkiln.yaml_reading.program_places import ENTRY_START, ProgramPlaces

MAX_DIAGNOSTICS: Final = 50
SHOWN_WIDTH: Final = 56  # with its indentation, it fits a terminal of 60 columns, so that the mark is below its place
MAX_LINE_BYTES: Final = 4 << 20  # of a longer line, only the beginning is shown

# Line ends of YAML other than a line feed.
_OTHER_BREAKS: Final = re.compile("\r(?!\n|$)|[\x85\u2028\u2029]")
_UNPRINTABLE: Final = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")

Remedy = str | Callable[[], str] | None
"""The way to correct an error, or a function that computes it. The function is called only for a kept error."""


class Mark(Protocol):
    """A position in a text, counted from 0."""

    @property
    def line(self) -> int:
        """The line, counted from 0."""

    @property
    def column(self) -> int:
        """The column in characters, counted from 0."""


class Unreadable(Exception):
    """Raised when a file cannot be read any further. Its diagnostic has been added already."""


class InvalidValue(Exception):
    """Raised for an invalid value, with the reason and the remedy."""

    def __init__(self, reason: str, remedy: Remedy = None) -> None:
        self.reason = reason
        self.remedy = remedy
        super().__init__(reason)


class Location(Struct, frozen=True):
    """A place in a file. `file` is the name as the person wrote it; line and column count from 1."""

    file: str
    line: int | None = None
    column: int | None = None


class _Kept(Struct, frozen=True):
    location: Location
    reason: str
    remedy: str | None
    entry_line: int


class Diagnostics:
    """The errors found so far. The first 50 are kept; further ones are only counted.

    `file` is the file's name as the person wrote it. `paths` maps such names to paths. `program` names the places of a
    manifest that a program gave as Python objects.
    """

    def __init__(self, file: str, path: Path, program: ProgramPlaces | None = None) -> None:
        self.file = file
        self.program = program
        self.paths: dict[str, Path] = {file: path}
        self.entry_line = 0  # the line of the current entry, where the errors of its source file are reported
        self.omitted = 0
        self.is_partial = False  # whether a mistake ended the search for others
        self._kept: dict[tuple[Location, str], _Kept] = {}

    def __bool__(self) -> bool:
        return bool(self._kept)

    def copy(self) -> "Diagnostics":
        """Return a copy that shares `paths`."""
        copied = Diagnostics(self.file, self.paths[self.file], self.program)
        copied.paths, copied.omitted, copied._kept = self.paths, self.omitted, dict(self._kept)
        copied.is_partial = self.is_partial
        return copied

    @property
    def is_full(self) -> bool:
        """Whether further errors are only counted."""
        return len(self._kept) >= MAX_DIAGNOSTICS

    def at(self, mark: Mark, reason: str, remedy: Remedy = None, *, context: str = "") -> None:
        """Add an error at a mark of the file."""
        self.add(Location(self.file, mark.line + 1, mark.column + 1), reason, remedy, context=context)

    def at_line(self, line: int | None, reason: str, remedy: Remedy = None, *, column: int | None = None) -> None:
        """Add an error at a line of the file (from 1), or about the file as a whole."""
        self.add(Location(self.file, line, column), reason, remedy)

    def add(self, location: Location, reason: str, remedy: Remedy = None, *, context: str = "") -> None:
        """Add an error. The same reason at the same location is kept once, with the first `context`, its last words."""
        key = location, reason.replace("`defaults.", "`")  # an item inherits the errors of the defaults
        if key in self._kept:
            return
        if self.is_full:
            self.omitted += 1
            return
        entry_line = (location.line or 0) if location.file == self.file else self.entry_line
        self._kept[key] = _Kept(location, reason + context, remedy() if callable(remedy) else remedy, entry_line)

    def error(self) -> InputError:
        """Return the exception that reports all diagnostics, each with its source line."""
        ordered = sorted(
            self._kept.values(),
            key=lambda one: (
                one.entry_line,
                one.location.file != self.file,
                one.location.line or 0,
                one.location.column or 0,
            ),
        )
        wanted: dict[str, set[int]] = {}
        for entry in ordered:
            if entry.location.line is not None:
                wanted.setdefault(entry.location.file, set()).add(entry.location.line)
        lines = {file: read_lines(self.paths[file], numbers) for file, numbers in wanted.items() if file in self.paths}
        found = [self._diagnostic(entry, lines) for entry in ordered]
        return InputError(found, omitted=self.omitted, is_partial=self.is_partial)

    def item_at(self, line: int) -> str:
        """Return the place of an item of the file, in words for a reason. `line` counts from 1."""
        return f"the item in line {line}" if self.program is None else self.program.item(line)

    def shown(self, diagnostic: Diagnostic, text: str | None) -> Diagnostic:
        """Return a diagnostic with its source line, `text`, or the relevant part of it, and the names of its places."""
        line, column, start = diagnostic.line, diagnostic.column, 0
        if self.program is not None:
            diagnostic = self.program.named(diagnostic, text or "")
            start = len(ENTRY_START) if diagnostic.field is not None and (text or "").startswith(ENTRY_START) else 0
        if text is None or line is None:
            return diagnostic
        source_line, mark = excerpt(text[start:], None if column is None else max(column - start, 1))
        return replace(diagnostic, source_line=source_line, mark=mark)

    def _diagnostic(self, entry: _Kept, lines: dict[str, dict[int, str]]) -> Diagnostic:
        location = entry.location
        text = lines.get(location.file, {}).get(location.line or 0)
        column = location.column
        if column is None and location.line is not None:  # the whole line: point at its first character
            column = 1 if text is None else len(text) - len(text.lstrip()) + 1
        found = Diagnostic(
            reason=quoted(entry.reason, 600),
            file=location.file,
            line=location.line,
            column=column,
            remedy=None if entry.remedy is None else quoted(entry.remedy, 600),
        )
        return self.shown(found, text)


def excerpt(line: str, column: int | None) -> tuple[str, int | None]:
    """Return a line for a terminal, and the column in it.

    Unprintable characters are replaced. A line that takes more than `SHOWN_WIDTH` columns is cut around the column.
    """
    if "://" in line:
        line = redacted(line)  # a URL may hold a password or a signature (Law 8)
    line = _UNPRINTABLE.sub("\ufffd", line.replace("\t", "→"))  # one column wide, so that the mark is below its place
    if len(line) <= SHOWN_WIDTH and cell_width(line) <= SHOWN_WIDTH:
        return line, column
    before = line[: (column or 1) - 1]
    is_near = len(before) < SHOWN_WIDTH and cell_width(before) < SHOWN_WIDTH - 21
    start = 0 if is_near else len(before) - len(fitting(before[:-SHOWN_WIDTH:-1], SHOWN_WIDTH // 2 - 1))
    part = fitting(line[start : start + SHOWN_WIDTH], SHOWN_WIDTH - 2)
    more = "…" if start + len(part) < len(line) else ""
    mark = column - start + 1 if column is not None and start else column
    return f"{'…' if start else ''}{part}{more}", mark


def quoted(text: str, width: int = 60) -> str:
    """Return a person's text for use in a sentence: at most `width` characters, none of them unprintable."""
    cut = text if len(text) <= width else text[: width - 1] + "…"
    return _UNPRINTABLE.sub("\ufffd", cut)


def read_lines(path: Path, wanted: set[int]) -> dict[int, str]:
    """Return lines by their numbers (from 1), counted as by the YAML parser. Unreadable lines are left out."""
    found: dict[int, str] = {}
    last = max(wanted)
    try:
        with open_bytes(path) as stream:
            for number, line in _numbered_lines(stream):
                if number in wanted:
                    found[number] = line
                if number >= last:  # without reading the rest of an endless line
                    break
    except (OSError, EOFError, ValueError, zlib.error):
        return found
    return found


def open_bytes(path: Path) -> BinaryIO:
    """Open a file for reading; a `.gz` file is decompressed. Raise `OSError`."""
    if path.suffix.lower() == ".gz":
        return cast("BinaryIO", io.BufferedReader(cast("io.RawIOBase", gzip.open(path, "rb")), 1 << 16))
    return path.open("rb")


def _numbered_lines(stream: BinaryIO) -> Iterator[tuple[int, str]]:
    number = 1
    while raw := stream.readline(MAX_LINE_BYTES):
        is_whole = raw.endswith(b"\n")
        text = raw.decode("utf-8", "replace")
        for piece in _OTHER_BREAKS.split(text.rstrip("\r\n") if is_whole else text):
            yield number, piece
            number += 1
        if not is_whole:
            _skip_line(stream)


def _skip_line(stream: BinaryIO) -> None:
    while (raw := stream.readline(MAX_LINE_BYTES)) and not raw.endswith(b"\n"):
        pass
