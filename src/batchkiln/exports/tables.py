"""Datasets of a table beside media files: jsonl, csv, parquet, and the folders that Hugging Face loads."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from batchkiln.core.sample_names import DatasetRow
from batchkiln.exports.columns_inference import Columns, Record
from batchkiln.exports.destinations import Destination
from batchkiln.exports.media_files import MediaFiles, file_name
from batchkiln.exports.result import Outcome


class TableFile(Protocol):
    """A table that is being written."""

    def add(self, record: Record) -> None:
        """Write a row."""

    def close(self) -> None:
        """End the file; again does nothing."""


@dataclass(frozen=True, slots=True)
class Spot:
    """Where a row belongs: `table` is the table's name, `home` the media's folder as the table's rows name it.

    `root` is the folder, with a slash at its end, in which the table stands, empty for the dataset's own.
    """

    root: str
    table: str
    home: str


class Tables:
    """Writes a table for each spot that has rows, and gives all of them their names at the end."""

    def __init__(
        self,
        place: Destination,
        media: MediaFiles,
        *,
        spot_of: Callable[[DatasetRow, str], Spot],
        columns_of: Callable[[DatasetRow], Columns],
        new_table: Callable[[Path, Columns], TableFile],
    ) -> None:
        """Take how the format lays out its files; `spot_of` takes the row and its split."""
        self._place = place
        self._media = media
        self._spot_of = spot_of
        self._columns_of = columns_of
        self._new_table = new_table
        self._open: dict[str, tuple[TableFile, Path]] = {}

    def add(self, row: DatasetRow, split: str, outcome: Outcome) -> None:
        """Bring the row's file, and write the row."""
        spot = self._spot_of(row, split)
        brought = self._media.bring(row, f"{spot.root}{spot.home}")
        if isinstance(brought, str):
            outcome.left(row, brought)
            return
        record = self._columns_of(row).record(row, f"{spot.home}{file_name(row)}")
        self._table(spot, row).add(record)
        outcome.exported(row, split, brought)

    def finish(self, earlier: Iterable[str]) -> None:
        """Publish the tables, once all that they name is there; those of `earlier` that have no row any more go."""
        for table, _ in self._open.values():
            table.close()
        self._place.settle()
        for name, (_, staged) in self._open.items():
            self._place.publish(staged, name)
        for name in earlier:
            if name not in self._open:
                self._place.withdraw(name)

    def close(self) -> None:
        """Let go of tables that did not come to their end."""
        for table, _ in self._open.values():
            with suppress(OSError):  # a full disk is what ended them
                table.close()

    def _table(self, spot: Spot, row: DatasetRow) -> TableFile:
        name = f"{spot.root}{spot.table}"
        if name not in self._open:
            self._place.staging.mkdir(parents=True, exist_ok=True)
            staged = self._place.staging / f"table-{len(self._open)}"
            self._open[name] = (self._new_table(staged, self._columns_of(row)), staged)
        return self._open[name][0]
