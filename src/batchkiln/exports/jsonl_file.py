"""JSON lines: one object a row."""

from pathlib import Path

import orjson

from batchkiln.exports.columns_inference import Columns, Record


class JsonlFile:
    """A file of JSON lines, written row by row."""

    suffix = ".jsonl"

    def __init__(self, path: Path, columns: Columns) -> None:
        """Begin the file."""
        del columns  # each line names its own
        self._file = path.open("wb")

    def add(self, record: Record) -> None:
        """Write a row."""
        self._file.write(orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE))

    def close(self) -> None:
        """End the file."""
        self._file.close()
