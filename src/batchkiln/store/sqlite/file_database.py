"""A connection to the queue file, whose transactions run in its thread."""

import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import aiosqlite

from batchkiln.core.errors import QueueUnusable
from batchkiln.store.database import Database, PendingWrite
from batchkiln.store.session import Session
from batchkiln.store.sqlite.file_lock import QueueLock, undriven
from batchkiln.store.sqlite.file_session import (
    BUSY_SECONDS,
    prepare_empty,
    prepare_for_reading,
    prepare_for_writing,
    translated,
)
from batchkiln.store.sqlite.file_watch import FileWatch
from batchkiln.store.sqlite.preflight import check_file, check_there, corruption_error, make_folder, make_private
from batchkiln.store.sqlite.wakeup import listen, notify

SQLITE_VERSION: Final = sqlite3.sqlite_version_info
OLDEST_SQLITE: Final = (3, 37, 0)  # STRICT tables

T = TypeVar("T")


class SqliteDatabase(Database):
    """One open queue file. Functions passed to `write` or `read` run entirely in the connection's thread.

    aiosqlite has no public way to run several statements in one call to its thread. One call for each statement would
    halve the rate (5,190 to 2,770 transactions a second), so this class uses its internal method.
    """

    _is_closed = False
    _watch: FileWatch | None = None  # of the queue that is written to

    def __init__(self, connection: aiosqlite.Connection, path: Path) -> None:
        """Use `open_for_writing` or `open_for_reading`."""
        super().__init__()
        self._connection = connection
        self.path = path
        self.location = path

    @classmethod
    async def open_for_writing(cls, path: Path) -> Self:
        """Open the queue, create it if it is missing, and update its schema.

        Raise `QueueUnusable` for a file that is not a queue, is damaged or has a newer version, and `QueueBusy` if the
        disk or a lock fails.
        """
        if SQLITE_VERSION < OLDEST_SQLITE:
            raise QueueUnusable(f"SQLite {sqlite3.sqlite_version} is too old: 3.37 or later is needed")
        check_file(path)  # before the connection creates an empty file, which looks like a queue that lost its content
        try:
            make_folder(path.parent)
        except OSError as error:
            reason = f"the queue's folder cannot be created: {error.strerror}"
            remedy = "nothing was sent: run it in a folder that can be written, or name a queue in one with --queue"
            raise QueueUnusable(f"{path.parent}: {reason}; {remedy}") from error
        make_private(path)
        database = await cls._open(f"{path.absolute().as_uri()}?mode=rwc", path, prepare_for_writing)
        database._watch = FileWatch(path)  # noqa: SLF001  its own
        return database

    @classmethod
    async def open_for_reading(cls, path: Path) -> Self:
        """Open an existing queue read-only; readers never block the writer."""
        check_there(path)
        return await cls._open(f"{path.absolute().as_uri()}?mode=ro", path, prepare_for_reading)

    @classmethod
    async def open_empty(cls, path: Path) -> Self:
        """Open an empty in-memory queue in place of a missing one. Create nothing at `path`."""
        return await cls._open("file::memory:", path, prepare_empty)

    @staticmethod
    async def _connect(uri: str) -> Any:  # noqa: ANN401  what the constructor takes
        return await aiosqlite.connect(uri, uri=True, isolation_level=None, timeout=BUSY_SECONDS)

    @classmethod
    async def _open(cls, uri: str, path: Path, prepare: Callable[[sqlite3.Connection, Path], None]) -> Self:
        try:
            connection = await cls._connect(uri)
        except sqlite3.Error as error:
            raise QueueUnusable(f"{path}: cannot be opened as a queue: {error}") from error
        database = cls(connection, path)
        try:
            await database._run_in_thread(prepare, path)
        except BaseException:
            await database.close()
            raise
        return database

    async def close(self) -> None:
        """Close the connection; the last connection merges the write-ahead log into the file."""
        self._is_closed = True
        with nullcontext() if self._watch is None else self._watch.without_merge():
            await self._connection.close()

    async def _write(self, write: PendingWrite) -> Any:  # noqa: ANN401  the caller knows its work's result
        try:
            return await super()._write(write)
        finally:  # also after an error, which may be due to a removed log
            self._check_files()

    async def data_version(self) -> int:
        """Return a number that changes with each commit of other connections; it reads only a few bytes."""
        self._check_files()
        return await self.run(_data_version)

    def _check_files(self) -> None:
        if self._watch is not None and not self._is_closed:
            self._watch.check()

    def notify(self) -> None:
        """Wake the process that drives the queue, if there is one."""
        notify(self.path)

    def listen(self, on_wakeup: Callable[[], None]) -> AbstractContextManager[None]:
        """Return a context in which `on_wakeup` is called whenever another process calls `notify`."""
        return listen(self.path, on_wakeup)

    @asynccontextmanager
    async def locked(self, *, command: str, now: datetime) -> AsyncIterator[None]:
        """Lock the queue for driving it. Raise `QueueInUse` if another process drives it."""
        lock = QueueLock(self.path)
        await lock.acquire(self, command=command, now=now)
        try:
            yield
        finally:
            await lock.release(self)

    @asynccontextmanager
    async def undriven(self) -> AsyncIterator[None]:
        """Lock the queue for a change during which nothing may be sent.

        Raise `QueueInUse` if a process drives the queue.
        """
        with undriven(self.path):
            yield

    async def _run_in_thread(self, work: Callable[..., T], *args: object, **kwargs: object) -> T:
        if self._is_closed:
            raise QueueUnusable(f"{self.path}: the queue was closed; open it again")
        try:
            raw = self._connection._conn  # noqa: SLF001  see the class: one hop, many statements
            result: T = await self._connection._execute(work, raw, *args, **kwargs)  # type: ignore[no-untyped-call]  # noqa: SLF001
        except sqlite3.DatabaseError as error:
            raise translated(error, self.path) from error
        except UnicodeDecodeError as error:  # raised by the sqlite3 module for SQLite's message about a damaged schema
            raise corruption_error(self.path, "a text in it is not UTF-8") from error
        return result


def _data_version(connection: Session) -> int:
    return int(connection.execute("PRAGMA data_version").fetchone()[0])
