"""The database without a thread, for an event loop in virtual time."""

import asyncio
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING

from batchkiln_service.db.database import Database, Job, Result, connect

if TYPE_CHECKING:
    import sqlite3


class InlineDatabase(Database):
    """Runs each job in its own transaction when it is submitted. Nothing is flushed to disk."""

    def __init__(self, path: Path, schema: str) -> None:
        """Take the path of the file; `open` opens it."""
        self._path = path
        self._schema = schema
        self._connection: sqlite3.Connection | None = None

    def open(self) -> None:
        """Create or check the schema. Raises as `connect` does."""
        self._connection = connect(self._path, self._schema)
        self._connection.execute("PRAGMA synchronous = OFF")

    def submit(self, job: Job[Result]) -> "Future[Result]":
        """Run a job and return its finished future."""
        future: Future[Result] = Future()
        try:
            future.set_result(self._committed(job))
        except Exception as error:  # noqa: BLE001 - it belongs to whoever waits
            future.set_exception(error)
        return future

    async def run(self, job: Job[Result]) -> Result:
        """Run a job and return its result after one turn of the event loop, as with a thread."""
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
