"""What the queue gives to a dataset: what its items look like, then a row an output.

Only reading, page by page, each on a snapshot of its own (for `Database.run`): a driver never waits for an export,
however long that takes. Items that a manifest adds meanwhile are left for the next one.
"""

import json
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from batchkiln.core.job import Mode
from batchkiln.core.sample_names import DatasetRow
from batchkiln.core.states import ItemState
from batchkiln.core.timestamps import from_milliseconds
from batchkiln.store.name_lookup import job_id_of
from batchkiln.store.sql import query

PAGE: Final = 1000


@dataclass(frozen=True, slots=True)
class ItemShape:
    """What decides a dataset's columns, of an item in whatever state."""

    makes_video: bool
    parameters: Mapping[str, Any]
    metadata: Mapping[str, Any]


def items_now(connection: sqlite3.Connection, job_name: str) -> int:
    """Return how many items a job has had: all have an index below. Raises `InputError` for an unknown job."""
    job_id_of(connection, job_name)
    return int(connection.execute(query("job_by_name"), {"name": job_name}).fetchone()["items"])


def iter_shapes(connection: sqlite3.Connection, job_name: str, *, below: int) -> Iterator[ItemShape]:
    """Give the shape of each item with an index below, in the manifest's order."""
    for ids in _pages(connection, job_name, "item_ids"):
        rows = connection.execute(query("export_shapes"), {"ids": json.dumps(ids)}).fetchall()
        for row in sorted(rows, key=lambda row: int(row["id"])):
            if row["position"] < below:
                makes_video = Mode(row["mode"]).makes_video
                yield ItemShape(makes_video, _parameters(row["parameters"]), json.loads(row["metadata"] or "{}"))


def iter_rows(connection: sqlite3.Connection, job_name: str, *, below: int) -> Iterator[DatasetRow]:
    """Give the outputs of the items that are done and have an index below, by index and number."""
    for ids in _pages(connection, job_name, "items_in_state"):
        rows = connection.execute(query("export_rows"), {"ids": json.dumps(ids)}).fetchall()
        for row in sorted(rows, key=lambda row: (row["position"], row["number"])):
            if row["position"] < below:
                yield _row(row)


def _pages(connection: sqlite3.Connection, job_name: str, statement: str) -> Iterator[list[int]]:
    place = {"job_id": job_id_of(connection, job_name), "state": ItemState.DONE.value, "after": 0, "limit": PAGE}
    while ids := [int(row[0]) for row in connection.execute(query(statement), place)]:
        yield ids
        place["after"] = ids[-1]


def _row(row: sqlite3.Row) -> DatasetRow:
    return DatasetRow(
        item=row["name"],
        index=row["position"],
        output=row["number"],
        path=row["path"],
        size_bytes=row["size_bytes"],
        sha256=row["sha256"],
        media_type=row["media_type"],
        saved_at=from_milliseconds(row["saved_at"]),
        prompt=row["prompt"],
        model=row["model"],
        mode=Mode(row["mode"]),
        parameters=_parameters(row["parameters"]),
        generation_id=row["generation_id"],
        metadata=json.loads(row["metadata"] or "{}"),
    )


@lru_cache(maxsize=1024)
def _parameters(text: str) -> Mapping[str, Any]:
    found: dict[str, Any] = json.loads(text)
    return found
