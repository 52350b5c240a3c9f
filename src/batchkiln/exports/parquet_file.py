"""Parquet, a row group at a time, so that a million rows need no more memory than one group."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from batchkiln.exports.columns_inference import Columns, Kind, Record

ROWS_PER_GROUP: Final = 10_000

_TYPES: Final[Mapping[Kind, str]] = {
    Kind.TEXT: "string",
    Kind.INTEGER: "int64",
    Kind.NUMBER: "float64",
    Kind.BOOLEAN: "bool",
}


class ParquetFile:
    """A Parquet file, written group by group."""

    suffix = ".parquet"

    def __init__(self, path: Path, columns: Columns) -> None:
        """Begin the file; pyarrow takes longer to import than the rest of an export."""
        import pyarrow as pa  # noqa: PLC0415  an extra, which only this format needs
        import pyarrow.parquet as pq  # noqa: PLC0415  likewise

        self._pa: Any = pa
        self._schema = pa.schema([(name, pa.type_for_alias(_TYPES[kind])) for name, kind in columns.kinds.items()])
        self._writer = pq.ParquetWriter(path, self._schema, compression="zstd")
        self._group: list[Record] = []

    def add(self, record: Record) -> None:
        """Take a row; a full group is written."""
        self._group.append(record)
        if len(self._group) == ROWS_PER_GROUP:
            self._write()

    def close(self) -> None:
        """Write the last group and the file's end."""
        if self._group:
            self._write()
        self._writer.close()

    def _write(self) -> None:
        self._writer.write_table(self._pa.Table.from_pylist(self._group, schema=self._schema))
        self._group = []
