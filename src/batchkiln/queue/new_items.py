"""What applying a manifest has just put into a job."""

import sqlite3
from collections.abc import Iterator

from batchkiln.core.job import JobSpec
from batchkiln.core.naming import render
from batchkiln.queue.sql import query


def names_of_new(connection: sqlite3.Connection, job_id: int, job: JobSpec, *, new: int, limit: int) -> Iterator[str]:
    """Give the relative names of the first outputs of a job's newest `new` items, at most `limit`, in order.

    The extension is told by the bytes when they come; here it is any.
    """
    place = {"job_id": job_id, "new": new, "limit": limit}
    for name, index, file_name, model in connection.execute(query("first_new_items"), place).fetchall():
        pattern = file_name or job.filename
        yield render(pattern, job=job.name, item=name, index=index, output=1, model=model, ext="any")
