"""A queue without its own thread, for an event loop in virtual time."""

import asyncio
import sqlite3
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Self, TypeVar

from batchkiln.store.sqlite.file_database import SqliteDatabase
from batchkiln.store.sqlite.file_session import BUSY_SECONDS, translated

T = TypeVar("T")


class InlineDatabase(SqliteDatabase):
    """A queue whose work runs synchronously in the caller. Its writes are not durable."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        """Use `open_for_writing`."""
        self._raw = connection
        self._waiting = deque()
        self.path = path
        self.location = path

    @staticmethod
    async def _connect(uri: str) -> sqlite3.Connection:
        return sqlite3.connect(uri, uri=True, isolation_level=None, timeout=BUSY_SECONDS)

    @classmethod
    async def _open(cls, uri: str, path: Path, prepare: Callable[[sqlite3.Connection, Path], None]) -> Self:
        database = await super()._open(uri, path, prepare)
        database._raw.execute("PRAGMA synchronous = OFF")  # noqa: SLF001  its own
        return database

    async def close(self) -> None:
        """Close the connection."""
        self._is_closed = True
        self._raw.close()

    async def _run_in_thread(self, work: Callable[..., T], *args: object, **kwargs: object) -> T:
        try:
            result = work(self._raw, *args, **kwargs)
        except sqlite3.DatabaseError as error:
            raise translated(error, self.path) from error
        await asyncio.sleep(0)  # noqa: TID251  no time passes; a thread would answer with the next turn at the earliest
        return result
