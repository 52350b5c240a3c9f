"""Collecting a person's mistakes with their places, so that all are reported at once, in the order of the text."""

import gzip
import io
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, Protocol, cast

from batchkiln.core.errors import Diagnostic, InputError

MISTAKES_KEPT: Final = 50
SHOWN_WIDTH: Final = 160
LINE_SIZE_BYTES: Final = 4 << 20  # a longer line is shown by its beginning

# What the YAML parser counts as the end of a line besides a line feed.
_OTHER_BREAKS: Final = re.compile("\r(?!\n|$)|[\x85\u2028\u2029]")
_UNPRINTABLE: Final = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")


# What would be right; a function where finding it out takes long, asked only for a mistake that is kept.
Remedy = str | Callable[[], str] | None


class Mark(Protocol):
    """A place in a text, counted from 0."""

    @property
    def line(self) -> int:
        """Lines before it."""

    @property
    def column(self) -> int:
        """Characters before it in its line."""


class Unreadable(Exception):
    """Reading cannot go on; the reason was added to the findings before."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where something stands: the file as shown to the person, line and column from 1."""

    file: str
    line: int | None = None
    column: int | None = None


@dataclass(frozen=True, slots=True)
class _Finding:
    place: Place
    reason: str
    remedy: str | None
    entry_line: int


class Diagnostics:
    """The mistakes found so far: the first 50 are kept, the others counted.

    `file` is the manifest as the person named it; `paths` tells where each shown file is read from.
    """

    def __init__(self, file: str, path: Path) -> None:
        self.file = file
        self.paths: dict[str, Path] = {file: path}
        self.entry_line = 0  # the manifest's line of the entry being read: rows of its source are sorted there
        self.omitted = 0
        self._kept: dict[tuple[Place, str], _Finding] = {}

    def __bool__(self) -> bool:
        return bool(self._kept)

    def copy(self) -> "Diagnostics":
        """Give findings of their own that begin with these, and share the known files."""
        twin = Diagnostics(self.file, self.paths[self.file])
        twin.paths, twin.omitted, twin._kept = self.paths, self.omitted, dict(self._kept)
        return twin

    @property
    def is_full(self) -> bool:
        """Whether further mistakes are only counted."""
        return len(self._kept) >= MISTAKES_KEPT

    def at(self, mark: Mark, reason: str, remedy: Remedy = None) -> None:
        """Add a mistake at a mark of the manifest."""
        self.add(Place(self.file, mark.line + 1, mark.column + 1), reason, remedy)

    def add(self, place: Place, reason: str, remedy: Remedy = None) -> None:
        """Add a mistake; the same one at the same place is kept once."""
        key = place, reason.replace("`defaults.", "`")  # an item inherits what is wrong in the defaults
        if key in self._kept:
            return
        if self.is_full:
            self.omitted += 1
            return
        entry_line = (place.line or 0) if place.file == self.file else self.entry_line
        self._kept[key] = _Finding(place, reason, remedy() if callable(remedy) else remedy, entry_line)

    def error(self) -> InputError:
        """Give the error that reports them, in the order of the text, each with its line."""
        ordered = sorted(
            self._kept.values(),
            key=lambda one: (one.entry_line, one.place.file != self.file, one.place.line or 0, one.place.column or 0),
        )
        wanted: dict[str, set[int]] = {}
        for finding in ordered:
            if finding.place.line is not None:
                wanted.setdefault(finding.place.file, set()).add(finding.place.line)
        lines = {file: read_lines(self.paths[file], numbers) for file, numbers in wanted.items() if file in self.paths}
        return InputError([_mistake(finding, lines) for finding in ordered], omitted=self.omitted)


def _mistake(finding: _Finding, lines: dict[str, dict[int, str]]) -> Diagnostic:
    place = finding.place
    text = lines.get(place.file, {}).get(place.line or 0)
    column = place.column
    if column is None and place.line is not None:  # a whole line is meant: its text begins there
        column = 1 if text is None else len(text) - len(text.lstrip()) + 1
    source_line, mark = (None, None) if text is None else excerpt(text, column)
    return Diagnostic(
        reason=quoted(finding.reason, 600),
        file=place.file,
        line=place.line,
        column=column,
        source_line=source_line,
        mark=mark,
        remedy=None if finding.remedy is None else quoted(finding.remedy, 600),
    )


def excerpt(line: str, column: int | None) -> tuple[str, int | None]:
    """Give a line fit for a terminal, and where the column then is.

    What does not print is replaced; a long line is cut around the column.
    """
    line = line.replace("\t", "→")  # to be seen, and one character wide, so that the mark stands under its place
    if len(line) <= SHOWN_WIDTH:
        return _UNPRINTABLE.sub("\ufffd", line), column
    start = 0 if column is None or column < SHOWN_WIDTH - 20 else column - SHOWN_WIDTH // 2
    part = line[start : start + SHOWN_WIDTH - 2]
    more = "…" if start + len(part) < len(line) else ""
    mark = column - start + 1 if column is not None and start else column
    return _UNPRINTABLE.sub("\ufffd", f"{'…' if start else ''}{part}{more}"), mark


def quoted(text: str, width: int = 60) -> str:
    """Give a text of the person's for use inside a sentence: bounded, and without control characters."""
    cut = text if len(text) <= width else text[: width - 1] + "…"
    return _UNPRINTABLE.sub("\ufffd", cut)


def read_lines(path: Path, wanted: set[int]) -> dict[int, str]:
    """Read the lines of these numbers (from 1), as the parser counts lines. Those that cannot be read are left out."""
    found: dict[int, str] = {}
    last = max(wanted)
    try:
        with open_bytes(path) as stream:
            for number, line in _numbered_lines(stream):
                if number in wanted:
                    found[number] = line
                if number >= last:  # before the rest of a line without end is passed over
                    break
    except (OSError, EOFError, ValueError, zlib.error):
        return found
    return found


def open_bytes(path: Path) -> BinaryIO:
    """Open a file for reading; the content of a `.gz` file."""
    if path.suffix.lower() == ".gz":
        return cast("BinaryIO", io.BufferedReader(cast("io.RawIOBase", gzip.open(path, "rb")), 1 << 16))
    return path.open("rb")


def _numbered_lines(stream: BinaryIO) -> Iterator[tuple[int, str]]:
    number = 1
    while raw := stream.readline(LINE_SIZE_BYTES):
        is_whole = raw.endswith(b"\n")
        text = raw.decode("utf-8", "replace")
        for piece in _OTHER_BREAKS.split(text.rstrip("\r\n") if is_whole else text):
            yield number, piece
            number += 1
        if not is_whole:
            _skip_line(stream)


def _skip_line(stream: BinaryIO) -> None:
    while (raw := stream.readline(LINE_SIZE_BYTES)) and not raw.endswith(b"\n"):
        pass
