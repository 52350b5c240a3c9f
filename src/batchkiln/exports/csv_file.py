"""CSV with a header, UTF-8: null is empty, booleans are `true` and `false`, whole numbers have no dot."""

import csv
from pathlib import Path

from batchkiln.exports.columns_inference import Columns, Record, Value


class CsvFile:
    """A CSV file, written row by row."""

    suffix = ".csv"

    def __init__(self, path: Path, columns: Columns) -> None:
        """Begin the file with its header."""
        self._file = path.open("w", encoding="utf-8", newline="")
        self._writer = csv.writer(self._file, lineterminator="\n")
        self._writer.writerow(columns.kinds)

    def add(self, record: Record) -> None:
        """Write a row."""
        self._writer.writerow([_cell(value) for value in record.values()])

    def close(self) -> None:
        """End the file."""
        self._file.close()


def _cell(value: Value) -> Value:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value
