"""The database thread: jobs that are queued together are committed together.

A job is a function of the connection. It runs in a savepoint, so that a failing job is rolled back without affecting
others. Its result is delivered after the commit, which `synchronous=FULL` flushes to disk: a delivered result survives
a power cut.
"""

import asyncio
import os
import queue
import sqlite3
import threading
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import TypeVar, cast

from msgspec import Struct

from batchkiln_service.errors import PASSING_TROUBLES, DatabaseVersionError

Result = TypeVar("Result")
DatabaseError = sqlite3.Error
"""The exceptions that `LocalService` raises if the state folder cannot be used."""

Job = Callable[[sqlite3.Connection], Result]
# A larger batch would delay its first job noticeably.
MAX_BATCH = 128
# Increase it with every change of `schema.sql`. There are no migrations: the data is only for rehearsals.
SCHEMA_VERSION = 3
# SQLite's name for a database in memory.
IN_MEMORY = Path(":memory:")
# How long a command waits for another process's transaction; a server under load leaves only short gaps.
BUSY_SECONDS = 30.0
# A server's limit is shorter, because all clients wait with it and can retry.
SERVER_BUSY_SECONDS = 5.0
# SQLite's primary result codes of temporary errors: a lock, a full disk, a failing disk.
_PASSING = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_PROTOCOL,
    }
)


class _Queued(Struct, frozen=True):
    """A job and the future of its result, of a thread or of an event loop's task."""

    job: Job[object]
    future: "Future[object] | asyncio.Future[object]"

    def is_wanted(self) -> bool:
        """Return whether the result is still wanted; after that a thread's future cannot be cancelled."""
        if isinstance(self.future, asyncio.Future):
            return not self.future.cancelled()
        return self.future.set_running_or_notify_cancel()


class _Result(Struct, frozen=True):
    """The return value of a job, or its exception."""

    value: object = None
    error: Exception | None = None

    def settle(self, future: "Future[object] | asyncio.Future[object]") -> None:
        if self.error is None:
            future.set_result(self.value)
        else:
            future.set_exception(self.error)


def is_temporary(error: Exception) -> bool:
    """Return whether a full disk or a lock caused the error, so that a retry may succeed; other errors are bugs."""
    if isinstance(error, OSError):
        return error.errno in PASSING_TROUBLES
    code = getattr(error, "sqlite_errorcode", None)  # only set for errors that SQLite itself reports
    return code is not None and code & 0xFF in _PASSING


def connect(path: Path, schema: str) -> sqlite3.Connection:
    """Open the file, create the schema if the file is empty, and return the connection, which the caller closes.

    Raise sqlite3.Error or OSError if the file cannot be used, and `DatabaseVersionError`.
    """
    if path != IN_MEMORY:
        # A new file is readable by its owner only, whatever the umask; SQLite copies the permissions to the WAL.
        # An existing file is not opened: to close it would release SQLite's locks of this process on it.
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    connection = sqlite3.connect(path, isolation_level=None, timeout=BUSY_SECONDS)
    try:
        connection.row_factory = sqlite3.Row
        connection.executescript("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON;")
        _create_schema(connection, path, schema)
    except (sqlite3.Error, DatabaseVersionError):
        connection.close()
        raise
    return connection


def _create_schema(connection: sqlite3.Connection, path: Path, schema: str) -> None:
    """Create the schema in an empty file; check the version of any other."""
    if not connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]:
        # One transaction, so that a kill leaves either an empty file or a complete schema.
        connection.executescript(f"BEGIN IMMEDIATE; {schema}; PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;")
    else:
        check_version(connection, path)


def check_version(connection: sqlite3.Connection, path: Path) -> None:
    """Raise `DatabaseVersionError` unless the file has this version of the schema."""
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version != SCHEMA_VERSION:
        raise DatabaseVersionError(
            f"{path} was written by another version of the local service (schema {version}, this one has"
            f" {SCHEMA_VERSION}); nothing was changed: name another state folder, or delete this one"
        )


class Database:
    """A connection that is used by its own thread only."""

    def __init__(self, path: Path, schema: str) -> None:
        self._path = path
        self._schema = schema
        self._queue: queue.SimpleQueue[_Queued | None] = queue.SimpleQueue()
        self._opened: Future[None] = Future()
        self._thread = threading.Thread(target=self._serve, name="service-database", daemon=True)
        self._thread.start()

    def submit(self, job: Job[Result]) -> "Future[Result]":
        """Queue a job and return the future of its result, set after the commit. Thread-safe."""
        future: Future[Result] = Future()
        self._queue.put(_Queued(job, cast("Future[object]", future)))  # each future has the type of its job's result
        return future

    async def run(self, job: Job[Result]) -> Result:
        """Queue a job and wait for its result; cheaper than `submit` for a task of an event loop."""
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._queue.put(_Queued(job, future))
        return cast("Result", await future)

    def open(self) -> None:
        """Wait until the schema exists. Raise as `connect` does."""
        self._opened.result()

    def close(self) -> None:
        """Run the queued jobs, and close the file."""
        self._queue.put(None)
        self._thread.join()

    def _serve(self) -> None:
        try:
            connection = connect(self._path, self._schema)
        except (sqlite3.Error, OSError, DatabaseVersionError) as error:
            self._opened.set_exception(error)
            return
        connection.execute(f"PRAGMA busy_timeout = {round(SERVER_BUSY_SECONDS * 1000)}")
        self._opened.set_result(None)
        try:
            while batch := self._next_batch():
                _run_batch(connection, batch)
        finally:
            connection.close()

    def _next_batch(self) -> list[_Queued]:
        """Wait for jobs and return them; an empty list means that the database is being closed."""
        first = self._queue.get()
        if first is None:
            return []
        batch = [first]
        while len(batch) < MAX_BATCH:
            try:
                queued = self._queue.get_nowait()
            except queue.Empty:
                break
            if queued is None:
                self._queue.put(None)
                break
            batch.append(queued)
        return batch


def _run_batch(connection: sqlite3.Connection, batch: list[_Queued]) -> None:
    """Run jobs in one transaction, then deliver their results."""
    running = [queued for queued in batch if queued.is_wanted()]
    try:
        connection.execute("BEGIN IMMEDIATE")
        results = [_run_job(connection, queued.job) for queued in running]
        connection.execute("COMMIT")
    except sqlite3.Error as error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        results = [_Result(error=error)] * len(running)
    _deliver(running, results)


def _run_job(connection: sqlite3.Connection, job: Job[object]) -> "_Result":
    """Run a job in a savepoint and return its result or exception."""
    connection.execute("SAVEPOINT job")
    try:
        result = _Result(job(connection))
    except Exception as error:
        if isinstance(error, sqlite3.Error) and not connection.in_transaction:
            raise  # SQLite rolled back the whole transaction, as it may on a disk error
        connection.execute("ROLLBACK TO job")
        result = _Result(error=error)
    connection.execute("RELEASE job")
    return result


def _deliver(ran: list[_Queued], results: list["_Result"]) -> None:
    """Resolve the futures; wake each event loop only once."""
    of_loops: defaultdict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[object], _Result]]] = defaultdict(list)
    for queued, result in zip(ran, results, strict=True):
        if isinstance(queued.future, asyncio.Future):
            of_loops[queued.future.get_loop()].append((queued.future, result))
        else:
            result.settle(queued.future)
    for loop, settled in of_loops.items():
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(_settle, settled)


def _settle(settled: list[tuple["asyncio.Future[object]", "_Result"]]) -> None:
    for future, result in settled:
        if not future.done():  # cancelled by the waiting task
            result.settle(future)


class InlineDatabase(Database):
    """Runs each job in its own transaction when it is submitted. Nothing is flushed to disk."""

    def __init__(self, path: Path, schema: str) -> None:
        """Take the path of the file; `open` opens it."""
        self._path = path
        self._schema = schema
        self._connection: sqlite3.Connection | None = None

    def open(self) -> None:
        """Create or check the schema. Raise as `connect` does."""
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
