"""Datasets with a table beside the media files: JSON Lines, CSV, Parquet, and Hugging Face image folders.

The loaders `imagefolder` and `videofolder` of Hugging Face `datasets` take each row of a `metadata.jsonl` for one kind
of media. A job that makes both kinds therefore gets two datasets, `images/` and `videos/`, each with its own splits.
"""

import csv
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Protocol

import orjson
from msgspec import Struct

from batchkiln.core.sample_names import DatasetRow
from batchkiln.exports.dataset_columns import Columns, ColumnType, Record
from batchkiln.exports.destinations import Destination
from batchkiln.exports.media_files import MediaFiles, OutputUnusable, file_name
from batchkiln.exports.result import ExportResult

ROWS_PER_GROUP: Final = 10_000  # held in memory by the Parquet writer
METADATA: Final = "metadata.jsonl"

_PARQUET_TYPES: Final[Mapping[ColumnType, str]] = {
    ColumnType.TEXT: "string",
    ColumnType.INTEGER: "int64",
    ColumnType.NUMBER: "float64",
    ColumnType.BOOLEAN: "bool",
}


class TableFile(Protocol):
    """A table file that is being written."""

    def add(self, record: Record) -> None:
        """Write a row."""

    def close(self) -> None:
        """Write the end of the file. A second call does nothing."""


class JsonlFile:
    """JSON Lines: one object per row."""

    def __init__(self, path: Path, columns: Columns) -> None:
        del columns  # each line names its own
        self._file = path.open("wb")

    def add(self, record: Record) -> None:
        """Write a row."""
        self._file.write(orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE))

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class CsvFile:
    """CSV in UTF-8 with a header: null is empty, booleans are `true` and `false`, integers have no decimal point."""

    def __init__(self, path: Path, columns: Columns) -> None:
        self._file = path.open("w", encoding="utf-8", newline="")
        self._writer = csv.writer(self._file, lineterminator="\n")
        self._writer.writerow(columns.types)

    def add(self, record: Record) -> None:
        """Write a row."""
        self._writer.writerow([str(value).lower() if isinstance(value, bool) else value for value in record.values()])

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class ParquetFile:
    """Parquet, written in row groups: memory holds one group, whatever the number of rows."""

    def __init__(self, path: Path, columns: Columns) -> None:
        import pyarrow as pa  # noqa: PLC0415  an extra, and slower to import than the rest of an export
        import pyarrow.parquet as pq  # noqa: PLC0415  likewise

        self._pa: Any = pa
        fields = [(name, pa.type_for_alias(_PARQUET_TYPES[kind])) for name, kind in columns.types.items()]
        self._schema = pa.schema(fields)
        self._writer = pq.ParquetWriter(path, self._schema, compression="zstd")
        self._group: list[Record] = []

    def add(self, record: Record) -> None:
        """Add a row to the group; write the group when it is full."""
        self._group.append(record)
        if len(self._group) == ROWS_PER_GROUP:
            self._write()

    def close(self) -> None:
        """Write the last group and the footer."""
        if self._group:
            self._write()
        self._writer.close()

    def _write(self) -> None:
        self._writer.write_table(self._pa.Table.from_pylist(self._group, schema=self._schema))
        self._group = []


class TableLocation(Struct, frozen=True):
    """The location of a row's table and media.

    `root` is the table's folder in the dataset, `table` its file name, and `media` the media's folder below `root`. A
    folder ends in a slash; an empty text is the enclosing folder itself.
    """

    root: str
    table: str
    media: str


def media_folder(row: DatasetRow) -> str:
    """Return the folder for media of the row's kind."""
    return "videos" if row.is_video else "images"


def imagefolder_location(row: DatasetRow, split: str, *, is_mixed: bool) -> TableLocation:
    """Return `train/` with media in `images/`, or `images/train/` if the job makes both kinds of media."""
    kind = media_folder(row)
    return (
        TableLocation(f"{kind}/{split}/", METADATA, "")
        if is_mixed
        else TableLocation(f"{split}/", METADATA, f"{kind}/")
    )


def imagefolder_tables(splits: Iterable[str], *, is_mixed: bool) -> list[str]:
    """Return the names of all tables that an image folder may have."""
    roots = ["images/", "videos/"] if is_mixed else [""]
    return [f"{root}{split}/{METADATA}" for split in splits for root in roots]


class TableWriter:
    """Adds media, and writes one table for each location that has rows. `finish` publishes the tables."""

    def __init__(
        self,
        destination: Destination,
        media: MediaFiles,
        *,
        location_of: Callable[[DatasetRow, str], TableLocation],
        columns_of: Callable[[DatasetRow], Columns],
        new_table: Callable[[Path, Columns], TableFile],
    ) -> None:
        """Store the layout of the format. `location_of` maps a row and its split to a table."""
        self._destination = destination
        self._media = media
        self._location_of = location_of
        self._columns_of = columns_of
        self._new_table = new_table
        self._open: dict[str, tuple[TableFile, Path]] = {}

    def add(self, row: DatasetRow, split: str, result: ExportResult) -> None:
        """Add the row's file and write the row, or record it in `result` as left out."""
        location, name = self._location_of(row, split), file_name(row)
        try:
            is_new = self._media.add(row, f"{location.root}{location.media}", name)
        except OutputUnusable as unusable:
            result.leave_out(row, str(unusable))
            return
        record = self._columns_of(row).record(row, f"{location.media}{name}")
        self._table(location, row).add(record)
        result.add(row, split, is_new=is_new)

    def finish(self, possible_tables: Iterable[str]) -> None:
        """Publish the tables after all media. Remove those of `possible_tables` that have no rows now."""
        for table, _ in self._open.values():
            table.close()
        self._destination.flush()
        for name, (_, staged) in self._open.items():
            self._destination.publish(staged, name)
        for name in possible_tables:
            if name not in self._open:
                self._destination.remove(name)

    def close(self) -> None:
        """Close the tables of an export that was interrupted."""
        for table, _ in self._open.values():
            with suppress(OSError):  # the disk may be full, which is why the export ended
                table.close()

    def _table(self, location: TableLocation, row: DatasetRow) -> TableFile:
        name = f"{location.root}{location.table}"
        if name not in self._open:
            self._destination.staging.mkdir(parents=True, exist_ok=True)
            staged = self._destination.staging / f"table-{len(self._open)}"
            self._open[name] = (self._new_table(staged, self._columns_of(row)), staged)
        return self._open[name][0]
