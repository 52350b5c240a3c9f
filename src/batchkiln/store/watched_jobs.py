"""What a watched folder asks of the queue: which jobs are open, and which there are."""

import sqlite3
from collections.abc import Collection

from batchkiln.store.sql import query


def open_jobs(connection: sqlite3.Connection) -> frozenset[str]:
    """Return the jobs that have an item queued or under way, also those that are paused."""
    return frozenset(row["name"] for row in connection.execute(query("open_jobs")))


def known_jobs(connection: sqlite3.Connection, names: Collection[str]) -> frozenset[str]:
    """Return those of these names that are jobs of the queue."""
    found = (connection.execute(query("find_job"), {"name": name}).fetchone() for name in names)
    return frozenset(name for name, row in zip(names, found, strict=True) if row is not None)
