"""Streams the rows of csv, tsv, jsonl, json, parquet and txt files, and of .gz of texts, with their line numbers."""

import codecs
import csv
import itertools
import re
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

import orjson
from msgspec import Struct

from batchkiln.manifest.json_arrays import ArrayReader, InvalidJson
from batchkiln.yaml_reading.diagnostics import Diagnostics, Location, quoted

KINDS: Final = ("csv", "tsv", "jsonl", "json", "parquet", "txt")
MAX_LINE_SIZE_BYTES: Final = 8 << 20
MAX_FIELD_LENGTH: Final = 1 << 20
MAX_COLUMNS: Final = 10_000
MAX_ROW_GROUP_SIZE_BYTES: Final = 1 << 30
PARQUET: Final = "parquet"
_PARQUET_ROWS: Final = 64  # few: each may have long texts
_BLOCK_SIZE_BYTES: Final = 1 << 18
_PIECE_SIZE_BYTES: Final = 1 << 16
_CSV_ROWS: Final = 500
# The size of a decompressed file, in multiples of its own. Rows that share a long text reach hundreds; gzip itself
# reaches 1,032 for a single repeated character.
MAX_EXPANSION: Final = 1000
FREE_EXPANSION_SIZE_BYTES: Final = 8 << 20
# Possessive quantifiers: a quoted field is never matched in a second way.
_TSV_FIELD: Final = re.compile(r'(?:"((?:[^"]++|"")*+)"|([^\t]*))(?:\t|$)')


class Readable(Protocol):
    """A stream of bytes."""

    def read(self, size: int = ..., /) -> bytes:
        """Return the next bytes."""


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
"""The first line of a row, its number, and its columns. Both count from 1; the header has no number.

A row of parquet has its number in place of a line.
"""


class Records(Struct, frozen=True):
    """Some rows of a table: the texts of each column, and the rows' first lines and their numbers, from 1."""

    lines: Sequence[int]
    numbers: Sequence[int]
    columns: Sequence[Sequence[str]]


class Source(Struct, frozen=True):
    """A file of rows. `shown_name` is its name in messages; `kind` is one of `KINDS`."""

    path: Path
    shown_name: str
    kind: str
    stem: str

    @property
    def is_text(self) -> bool:
        """Whether the file has lines to show."""
        return self.kind != PARQUET


def source_for(name: str, path: Path, shown_name: str) -> Source | None:
    """Return the source for a path, by the extension of its name; None if that is unknown."""
    is_packed = name.lower().endswith(".gz")
    stem, dot, kind = (name[: -len(".gz")] if is_packed else name).rpartition(".")
    if not dot or not stem or kind.lower() not in KINDS or (is_packed and kind.lower() == PARQUET):
        return None
    return Source(path, shown_name, kind.lower(), stem)


class Rows:
    """The rows of a source. `columns` is None if each row has its own (jsonl). Invalid rows add diagnostics."""

    def __init__(self, source: Source, stream: Readable, diagnostics: Diagnostics) -> None:
        self._source = source
        self._diagnostics = diagnostics
        self._lines = _Lines(stream, _size_allowed(source))
        self.columns: tuple[str, ...] | None = ("prompt",) if source.kind == "txt" else None
        self._portions: Iterator[_Portion] | None = None
        self._record_line = 1
        self._table_file: Any = None
        if source.kind == PARQUET:
            self._table_file = _opened_parquet(stream)
            self.columns = tuple(self._table_file.schema_arrow.names)
            _check_columns(self.columns, line=None)
        if source.kind in {"csv", "tsv"}:
            portions = self._csv_portions() if source.kind == "csv" else self._tsv_portions()
            first = next((portion for portion in portions if portion.lines), None)
            self.columns = _header(first)
            assert first is not None
            self._portions = itertools.chain((first.without_first(),), portions)

    def __iter__(self) -> Iterator[Row]:
        """Yield the rows. Raise `SourceUnreadable`."""
        if self._portions is not None:
            return self._table()
        if self._table_file is not None:
            return self._parquet_rows()
        if self._source.kind == "json":
            return self._array_rows()
        return self._json_rows() if self._source.kind == "jsonl" else self._text_rows()

    @property
    def file(self) -> str:
        """The name of the source in messages."""
        return self._source.shown_name

    @property
    def has_records(self) -> bool:
        """Whether the rows can be read as `records`."""
        return self._portions is not None

    def records(self) -> Iterator[Records]:
        """Yield the rows of a csv or tsv file in portions. Raise `SourceUnreadable`."""
        columns = self.columns or ()
        number = 0
        for portion in self._portions or ():
            found = portion.columns(len(columns))
            lines = portion.lines
            numbers: Sequence[int] = range(number + 1, number + 1 + len(lines))
            number += len(lines)
            if found is None:
                rows = portion.rows()
                whole = [place for place, row in enumerate(rows) if self._is_whole(row, columns, lines[place])]
                lines, numbers = [lines[place] for place in whole], [numbers[place] for place in whole]
                found = list(zip(*(rows[place] for place in whole), strict=True))
            if lines:
                yield Records(lines, numbers, found)

    def _table(self) -> Iterator[Row]:
        columns = self.columns or ()
        number = 0
        for portion in self._portions or ():
            for line, fields in zip(portion.lines, portion.rows(), strict=True):
                number += 1
                if self._is_whole(fields, columns, line):
                    yield line, number, dict(zip(columns, fields))  # noqa: B905  their numbers are equal

    def _is_whole(self, fields: Sequence[str], columns: Sequence[str], line: int) -> bool:
        """Return whether a row has as many fields as the header has columns; add a diagnostic if not."""
        count = len(fields)
        if count == len(columns):
            return True
        self._diagnostics.add(
            Location(self._source.shown_name, line),
            f"{count} column{'s' * (count != 1)}, where the header has {len(columns)}",
            f"they are: {_listed(columns)}",
        )
        return False

    def _csv_portions(self) -> Iterator["_Portion"]:
        csv.field_size_limit(MAX_FIELD_LENGTH)
        reader = csv.reader(self._record_lines(), strict=True)
        line = self._record_line = 1
        portion = _Portion([], [])
        try:
            for fields in reader:
                self._lines.record_size_bytes = 0
                if fields:
                    portion.lines.append(line)
                    portion.fields.append(fields)
                    if len(portion.fields) == _CSV_ROWS:
                        yield portion
                        portion = _Portion([], [])
                line = self._record_line = reader.line_num + 1
        except csv.Error as error:
            yield portion
            remedy = "quote a field with a comma, a quote or a line break, and double the quotes in it"
            raise SourceUnreadable(f"not valid CSV: {error}", line=line, remedy=remedy) from error
        except SourceUnreadable:
            yield portion
            raise
        yield portion

    def _record_lines(self) -> Iterator[str]:
        """Yield the lines of a record, up to a size. An unclosed quote would make one record of the whole file."""
        for text in self._lines:
            self._lines.record_size_bytes += len(text)
            if self._lines.record_size_bytes > MAX_LINE_SIZE_BYTES:
                raise SourceUnreadable(f"a row of more than {MAX_LINE_SIZE_BYTES >> 20} MiB", line=self._record_line)
            yield text

    def _tsv_portions(self) -> Iterator["_Portion"]:
        first = 1
        for block in self._lines.blocks():
            number = self._lines.block_lines
            lines: Sequence[int] = range(first, first + number)
            first += number
            is_plain = '"' not in block and "\r" not in block
            if is_plain and "\n\n" not in block and block[:1] not in {"", "\n"} and block[-1] != "\n":
                yield _Portion(lines, [], block)
                continue
            texts = [text.rstrip("\r") for text in block.split("\n")]
            lines = [line for line, text in zip(lines, texts, strict=True) if text]
            fields = [_quoted_fields(text) if '"' in text else text.split("\t") for text in texts if text]
            yield _Portion(lines, fields)

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

    def _array_rows(self) -> Iterator[Row]:
        """Yield the elements of an array: objects, or texts that are prompts."""
        reader = ArrayReader(self._lines.pieces())
        number = 0
        try:
            for line, value in reader.elements():
                number += 1
                if isinstance(value, dict):
                    yield line, number, value
                elif isinstance(value, str):
                    yield line, number, {"prompt": value}
                else:
                    self._invalid(f"element {number:,} is no object", 'as in [{"prompt": "…"}]', line)
        except InvalidJson as error:
            remedy = "the file is one array of objects; one object a line is `jsonl`"
            raise SourceUnreadable(error.reason, line=error.line, column=error.column, remedy=remedy) from error

    def _parquet_rows(self) -> Iterator[Row]:
        number = 0
        try:
            for batch in self._table_file.iter_batches(batch_size=_PARQUET_ROWS, use_threads=False):
                for columns in batch.to_pylist():
                    number += 1
                    yield number, number, columns
        except (OSError, ValueError, TypeError, NotImplementedError) as error:  # pyarrow's errors are among these
            raise SourceUnreadable(f"the file cannot be read: {_one_line(error)}", line=number + 1) from error

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

    def __init__(self, stream: Readable, allowed_size_bytes: int | None) -> None:
        self.record_size_bytes = 0
        self.block_lines = 0
        """The number of lines in the block that was read last, so that nobody counts them again."""
        self._number = 0  # of lines read
        self._stream = stream
        self._left_size_bytes = allowed_size_bytes

    def __iter__(self) -> Iterator[str]:
        """Yield the lines with their ends."""
        for block in self.blocks():
            for text in block.split("\n"):
                yield text + "\n"

    def blocks(self) -> Iterator[str]:
        """Yield some lines at a time, as one text without the end of its last line."""
        try:
            for block in self._blocks():
                try:
                    text = block.decode()
                except UnicodeDecodeError:
                    self.block_lines = 1
                    for raw in block.split(b"\n"):  # up to the line with the error
                        self._number += 1
                        yield raw.decode()
                    continue
                ends = text.count("\n")
                self.block_lines = ends + (text[-1] != "\n")
                yield text.removesuffix("\n")
                self._number += ends
        except UnicodeDecodeError as error:
            column = len(error.object[: error.start].decode("utf-8", "replace")) + 1
            reason = f"the byte 0x{error.object[error.start]:02X} is not UTF-8"
            raise SourceUnreadable(reason, line=self._number, column=column, remedy="save the file as UTF-8") from error
        except (OSError, EOFError, zlib.error) as error:
            raise SourceUnreadable(f"the file cannot be read: {error}", line=self._number or None) from error

    def _blocks(self) -> Iterator[bytes]:
        """Yield the text in blocks of whole lines, without the mark. Reading single lines takes three times as long."""
        rest = b""
        while piece := self._stream.read(_BLOCK_SIZE_BYTES):
            block = rest + piece
            if self._number == 0:
                block = block.removeprefix(codecs.BOM_UTF8)
            longest = block.find(b"\n") if b"\n" in piece else len(block)
            if longest >= MAX_LINE_SIZE_BYTES:
                reason = f"a line of more than {MAX_LINE_SIZE_BYTES >> 20} MiB"
                raise SourceUnreadable(reason, line=self._number + 1)
            if self._left_size_bytes is not None:
                self._expand(len(piece), self._number + 1)
            end = block.rfind(b"\n") + 1
            rest = block[end:]
            if end:
                yield block[:end]
        if rest:
            yield rest

    def pieces(self) -> Iterator[str]:
        """Yield the text in pieces of any length, for a reader that counts lines itself."""
        decoder = codecs.getincrementaldecoder("utf-8-sig")()
        line = 1
        try:
            while raw := self._stream.read(_PIECE_SIZE_BYTES):
                if self._left_size_bytes is not None:
                    self._expand(len(raw), line)
                line += raw.count(b"\n")
                yield decoder.decode(raw)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError as error:
            reason = f"the byte 0x{error.object[error.start]:02X} is not UTF-8"
            raise SourceUnreadable(reason, line=line, remedy="save the file as UTF-8") from error
        except (OSError, EOFError, zlib.error) as error:
            raise SourceUnreadable(f"the file cannot be read: {error}", line=line) from error

    def _expand(self, size_bytes: int, line: int) -> None:
        assert self._left_size_bytes is not None
        self._left_size_bytes -= size_bytes
        if self._left_size_bytes < 0:
            reason = f"the file decompresses to more than {MAX_EXPANSION} times its size"
            raise SourceUnreadable(
                reason, line=line, remedy="rows do not compress so well; to use the file anyway, decompress it"
            )


class _Portion(NamedTuple):
    """Some rows of a table: the line of each, and either its fields, or the lines of all rows as one text."""

    lines: Any  # Sequence[int], and a list where rows are appended
    fields: list[list[str]]
    block: str | None = None

    def rows(self) -> list[list[str]]:
        """Return the fields of each row."""
        return self.fields if self.block is None else [text.split("\t") for text in self.block.split("\n")]

    def columns(self, number: int) -> Sequence[Sequence[str]] | None:
        """Return the texts of each column; None if a row has another number of fields.

        Splitting the rows together, with a mark between them, takes half of the time of splitting each.
        """
        if self.block is None:
            return None if {*map(len, self.fields)} - {number} else list(zip(*self.fields, strict=True))
        texts = self.block.replace("\n", "\t\n\t").split("\t")
        marks = len(self.lines) - 1
        if len(texts) != len(self.lines) * number + marks or texts[number :: number + 1].count("\n") != marks:
            return None
        return [texts[place :: number + 1] for place in range(number)]

    def without_first(self) -> "_Portion":
        """Return the portion without its first row."""
        if self.block is None:
            return _Portion(self.lines[1:], self.fields[1:])
        if len(self.lines) == 1:
            return _Portion([], [])
        return _Portion(self.lines[1:], [], self.block.partition("\n")[2])


def _header(portion: _Portion | None) -> tuple[str, ...]:
    """Return the columns, which the first row of a table names."""
    names = [] if portion is None else portion.rows()[0]
    if portion is None or not names:
        raise SourceUnreadable("the file is empty", line=None, remedy="its first line names the columns")
    _check_columns(names, line=portion.lines[0])
    return tuple(names)


def _check_columns(names: Sequence[str], *, line: int | None) -> None:
    if len(names) > MAX_COLUMNS:
        raise SourceUnreadable(f"{len(names):,} columns; at most {MAX_COLUMNS:,}", line=line)
    twice = [name for name, count in Counter(names).items() if name and count > 1]
    if twice:
        raise SourceUnreadable(f"the column `{quoted(twice[0])}` appears twice", line=line, remedy="rename one of them")


def _opened_parquet(stream: Readable) -> Any:  # noqa: ANN401  pyarrow has no types
    try:
        import pyarrow.parquet as pq  # noqa: PLC0415  an extra, and slow to import
    except ImportError as error:
        remedy = "pip install 'batchkiln[datasets]'"
        raise SourceUnreadable("parquet needs packages that are not installed", remedy=remedy) from error
    try:
        file = pq.ParquetFile(stream, pre_buffer=False, buffer_size=_PIECE_SIZE_BYTES)
    except (OSError, ValueError) as error:  # pyarrow's errors are among these
        raise SourceUnreadable(f"not a parquet file: {_one_line(error)}") from error
    sizes = (file.metadata.row_group(number).total_byte_size for number in range(file.metadata.num_row_groups))
    if any(size > MAX_ROW_GROUP_SIZE_BYTES for size in sizes):
        reason = f"a row group of more than {MAX_ROW_GROUP_SIZE_BYTES >> 20} MiB"
        raise SourceUnreadable(reason, remedy="write the file with smaller row groups")
    return file


def _one_line(error: Exception) -> str:
    return quoted(" ".join(str(error).split()), 200)


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


def _listed(columns: Sequence[str]) -> str:
    return ", ".join(quoted(name) for name in columns[:40])
