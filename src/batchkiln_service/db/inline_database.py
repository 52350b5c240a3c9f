"""The books without a thread of their own: for an event loop in virtual time, in which a thread would be lost."""

import asyncio
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING

from batchkiln_service.db.database import Database, Job, Result, connect

if TYPE_CHECKING:
    import sqlite3


class InlineDatabase(Database):
    """Each job is a transaction of its own, done when it is submitted. A power cut takes the books with it."""

    def __init__(self, path: Path, schema: str) -> None:
        """Name the file; `open` opens it."""
        self._path = path
        self._schema = schema
        self._connection: sqlite3.Connection | None = None

    def open(self) -> None:
        """Lay down or check the schema. Raises what `connect` does."""
        self._connection = connect(self._path, self._schema)
        self._connection.execute("PRAGMA synchronous = OFF")

    def submit(self, job: Job[Result]) -> "Future[Result]":
        """Do a job; its result is there when this returns."""
        future: Future[Result] = Future()
        try:
            future.set_result(self._committed(job))
        except Exception as error:  # noqa: BLE001 - it belongs to whoever waits
            future.set_exception(error)
        return future

    async def run(self, job: Job[Result]) -> Result:
        """Do a job, and return its result with the next turn of the loop, as a thread would at the earliest."""
        future = self.submit(job)
        await asyncio.sleep(0)  # noqa: TID251 - no time passes
        return future.result()

    def close(self) -> None:
        """Close the file."""
        if self._connection is not None:
            self._connection.close()

    def _committed(self, job: Job[Result]) -> Result:
        connection = self._connection
        assert connection is not None, "opened before it is used"
        connection.execute("BEGIN IMMEDIATE")
        try:
            result = job(connection)
        except Exception:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")
        return result
