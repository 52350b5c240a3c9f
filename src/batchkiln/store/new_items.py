"""What applying a manifest has just put into a job."""

import sqlite3
from collections.abc import Iterable, Iterator
from typing import Final

from batchkiln.core.filenames import render
from batchkiln.core.job import JobSpec
from batchkiln.store.sql import query

NAMES_AT_MOST: Final = 10_000
"""How many new items' names are given: whoever made some of a job before began with its first."""


def names_of_new(connection: sqlite3.Connection, job_id: int, job: JobSpec, *, new: int) -> Iterator[str]:
    """Give the relative names of the outputs of the first of a job's newest `new` items, in order.

    The extension is told by the bytes when they come; here it is any.
    """
    place = {"job_id": job_id, "new": new, "limit": NAMES_AT_MOST}
    return _names(job, connection.execute(query("first_new_items"), place).fetchall())


def names_of_staged(connection: sqlite3.Connection, job_id: int | None, job: JobSpec) -> Iterator[str]:
    """Give the names that staged new items would have; as `names_of_new`."""
    place = {"job_id": job_id, "limit": NAMES_AT_MOST}
    return _names(job, connection.execute(query("fresh_outputs"), place).fetchall())


def _names(job: JobSpec, rows: Iterable[sqlite3.Row]) -> Iterator[str]:
    for name, index, file_name, model in rows:
        pattern = file_name or job.filename
        yield render(pattern, job=job.name, item=name, index=index, output=1, model=model, ext="any")
