"""Streams the rows of csv, tsv, jsonl and txt files, and of .gz of these, with their line numbers."""

import codecs
import csv
import re
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Final

import orjson

from batchkiln.manifest.diagnostics import Diagnostics, Location, quoted

KINDS: Final = ("csv", "tsv", "jsonl", "txt")
MAX_LINE_SIZE_BYTES: Final = 8 << 20
MAX_FIELD_LENGTH: Final = 1 << 20
MAX_COLUMNS: Final = 10_000
# The size of a decompressed file, in multiples of its own. Rows that share a long text reach hundreds; gzip itself
# reaches 1,032 for a single repeated character.
MAX_EXPANSION: Final = 1000
FREE_EXPANSION_SIZE_BYTES: Final = 8 << 20
# Possessive quantifiers: a quoted field is never matched in a second way.
_TSV_FIELD: Final = re.compile(r'(?:"((?:[^"]++|"")*+)"|([^\t]*))(?:\t|$)')


class SourceUnreadable(Exception):
    """Raised when the rest of a source cannot be read. `line` and `column` count from 1."""

    def __init__(
        self, reason: str, *, line: int | None = None, column: int | None = None, remedy: str | None = None
    ) -> None:
        self.reason = reason
        self.line = line
        self.column = column
        self.remedy = remedy
        super().__init__(reason)


Row = tuple[int, int, dict[str, Any]]
"""The first line of a row, its number, and its columns. Both count from 1; the header has no number."""


@dataclass(frozen=True, slots=True)
class Source:
    """A file of rows. `shown_name` is its name in messages; `kind` is one of `KINDS`."""

    path: Path
    shown_name: str
    kind: str
    stem: str


def source_for(path: Path, shown_name: str) -> Source | None:
    """Return the source for a path, by its extension; None if that is unknown."""
    name = path.name[: -len(".gz")] if path.name.lower().endswith(".gz") else path.name
    stem, dot, kind = name.rpartition(".")
    return Source(path, shown_name, kind.lower(), stem) if dot and stem and kind.lower() in KINDS else None


class Rows:
    """The rows of a source. `columns` is None if each row has its own (jsonl). Invalid rows add diagnostics."""

    def __init__(self, source: Source, stream: BinaryIO, diagnostics: Diagnostics) -> None:
        self._source = source
        self._diagnostics = diagnostics
        self._lines = _Lines(stream, _size_allowed(source))
        self.columns: tuple[str, ...] | None = ("prompt",) if source.kind == "txt" else None
        self._records: Iterator[tuple[int, list[str]]] | None = None
        self._record_line = 1
        if source.kind in {"csv", "tsv"}:
            self._records = self._csv_records() if source.kind == "csv" else self._tsv_records()
            self.columns = self._header(self._records)

    def __iter__(self) -> Iterator[Row]:
        """Yield the rows. Raises `SourceUnreadable`."""
        if self._records is not None:
            return self._table(self._records, self.columns or ())
        return self._json_rows() if self._source.kind == "jsonl" else self._text_rows()

    def _header(self, records: Iterator[tuple[int, list[str]]]) -> tuple[str, ...]:
        line, names = next(records, (1, []))
        if not names:
            raise SourceUnreadable("the file is empty", line=None, remedy="its first line names the columns")
        if len(names) > MAX_COLUMNS:
            raise SourceUnreadable(f"{len(names):,} columns; at most {MAX_COLUMNS:,}", line=line)
        twice = [name for name, count in Counter(names).items() if name and count > 1]
        if twice:
            raise SourceUnreadable(
                f"the column `{quoted(twice[0])}` appears twice", line=line, remedy="rename one of them"
            )
        return tuple(names)

    def _table(self, records: Iterator[tuple[int, list[str]]], columns: tuple[str, ...]) -> Iterator[Row]:
        count, number = len(columns), 0
        for line, fields in records:
            number += 1
            if len(fields) != count:
                self._diagnostics.add(
                    Location(self._source.shown_name, line),
                    f"{len(fields)} column{'s' * (len(fields) != 1)}, where the header has {count}",
                    f"they are: {_listed(columns)}",
                )
                continue
            yield line, number, dict(zip(columns, fields, strict=True))

    def _csv_records(self) -> Iterator[tuple[int, list[str]]]:
        csv.field_size_limit(MAX_FIELD_LENGTH)
        reader = csv.reader(self._record_lines(), strict=True)
        line = self._record_line = 1
        try:
            for fields in reader:
                self._lines.record_size_bytes = 0
                if fields:
                    yield line, fields
                line = self._record_line = reader.line_num + 1
        except csv.Error as error:
            remedy = "quote a field with a comma, a quote or a line break, and double the quotes in it"
            raise SourceUnreadable(f"not valid CSV: {error}", line=line, remedy=remedy) from error

    def _record_lines(self) -> Iterator[str]:
        """Yield the lines of a record, up to a size. An unclosed quote would make one record of the whole file."""
        for text in self._lines:
            self._lines.record_size_bytes += len(text)
            if self._lines.record_size_bytes > MAX_LINE_SIZE_BYTES:
                raise SourceUnreadable(f"a row of more than {MAX_LINE_SIZE_BYTES >> 20} MiB", line=self._record_line)
            yield text

    def _tsv_records(self) -> Iterator[tuple[int, list[str]]]:
        for line, text in enumerate(self._lines, 1):
            text = text.rstrip("\r\n")  # noqa: PLW2901  without its line end
            if text:
                yield line, _quoted_fields(text) if '"' in text else text.split("\t")

    def _json_rows(self) -> Iterator[Row]:
        for line, text in enumerate(self._lines, 1):
            if not text.strip():
                continue
            try:
                columns = orjson.loads(text)
            except orjson.JSONDecodeError as error:
                self._invalid(f"not valid JSON: {error.msg}", "each line is one JSON object", line, error.colno)
                continue
            if isinstance(columns, dict):
                yield line, line, columns
            else:
                self._invalid("not a JSON object", 'each line is one object: {"prompt": "…"}', line)

    def _invalid(self, reason: str, remedy: str, line: int, column: int | None = None) -> None:
        self._diagnostics.add(Location(self._source.shown_name, line, column), reason, remedy)

    def _text_rows(self) -> Iterator[Row]:
        for line, text in enumerate(self._lines, 1):
            if text.strip():
                yield line, line, {"prompt": text.rstrip("\r\n")}


class _Lines:
    """Lines of UTF-8 text, of limited size, without a byte order mark at the start.

    A reader whose records span lines counts the bytes of the current record in `record_size_bytes`.
    """

    def __init__(self, stream: BinaryIO, allowed_size_bytes: int | None) -> None:
        self.record_size_bytes = 0
        self._stream = stream
        self._left_size_bytes = allowed_size_bytes

    def __iter__(self) -> Iterator[str]:
        number = 0
        try:
            for raw in iter(partial(self._stream.readline, MAX_LINE_SIZE_BYTES), b""):
                number += 1
                if number == 1:
                    raw = raw.removeprefix(codecs.BOM_UTF8)  # noqa: PLW2901  without the mark
                if len(raw) >= MAX_LINE_SIZE_BYTES:
                    raise SourceUnreadable(f"a line of more than {MAX_LINE_SIZE_BYTES >> 20} MiB", line=number)
                if self._left_size_bytes is not None:
                    self._expand(len(raw), number)
                yield raw.decode()
        except UnicodeDecodeError as error:
            column = len(error.object[: error.start].decode("utf-8", "replace")) + 1
            reason = f"the byte 0x{error.object[error.start]:02X} is not UTF-8"
            raise SourceUnreadable(reason, line=number, column=column, remedy="save the file as UTF-8") from error
        except (OSError, EOFError, zlib.error) as error:
            raise SourceUnreadable(f"the file cannot be read: {error}", line=number or None) from error

    def _expand(self, size_bytes: int, line: int) -> None:
        assert self._left_size_bytes is not None
        self._left_size_bytes -= size_bytes
        if self._left_size_bytes < 0:
            reason = f"the file decompresses to more than {MAX_EXPANSION} times its size"
            raise SourceUnreadable(
                reason, line=line, remedy="rows do not compress so well; to use the file anyway, decompress it"
            )


def _size_allowed(source: Source) -> int | None:
    """Return the maximum decompressed size; None for a file that is not compressed."""
    if source.path.suffix.lower() != ".gz":
        return None
    return max(source.path.stat().st_size * MAX_EXPANSION, FREE_EXPANSION_SIZE_BYTES)


def _quoted_fields(text: str) -> list[str]:
    """Split a line at its tabs. Quotes are literal, except around a whole field."""
    fields: list[str] = []
    at, end = 0, len(text)
    while at <= end:
        match = _TSV_FIELD.match(text, at)
        assert match is not None
        quoted = match[1]
        fields.append(match[2] if quoted is None else quoted.replace('""', '"'))
        if match.end() == end and not match[0].endswith("\t"):
            break
        at = match.end()
    return fields


def _listed(columns: tuple[str, ...]) -> str:
    return ", ".join(quoted(name) for name in columns[:40])
