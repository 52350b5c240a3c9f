"""SQLite in one thread of its own; jobs that wait together are committed together.

A job is a function of the connection. It runs inside a savepoint, so that one that raises leaves
nothing behind and takes no other with it. Its result is handed out only after the commit, and with
`synchronous=FULL` a commit is on disk: whoever has a result can rely on it after a power cut.
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
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar, cast

from batchkiln_service.errors import PASSING_TROUBLES, DatabaseVersionError

Result = TypeVar("Result")
DatabaseError = sqlite3.Error
"""What a caller of `LocalService` catches when the state folder cannot be used."""

Job = Callable[[sqlite3.Connection], Result]
# More would let the first of a batch wait noticeably for the last.
MAX_BATCH = 128
# Grows with every change of `schema.sql`: these books are for rehearsals, and are not carried over.
SCHEMA_VERSION = 3
# What SQLite calls a database without a file.
IN_MEMORY = Path(":memory:")
# How long one process waits for another's transaction: a server under load leaves only short gaps to a command.
BUSY_SECONDS = 30.0
# A server's wait: all its clients wait with it, and should rather hear in time that they are to come again.
SERVER_BUSY_SECONDS = 5.0
# Primary result codes of SQLite for what a later try may not meet: another process, a full disk, one that fails.
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


@dataclass(frozen=True, slots=True)
class _Queued:
    """A job and who waits for its result: a thread, or a task of an event loop."""

    job: Job[object]
    future: "Future[object] | asyncio.Future[object]"

    def is_wanted(self) -> bool:
        """Say whether anybody still waits; from here on the future of a thread cannot be cancelled."""
        if isinstance(self.future, asyncio.Future):
            return not self.future.cancelled()
        return self.future.set_running_or_notify_cancel()


@dataclass(frozen=True, slots=True)
class _Result:
    """What a job has returned or raised."""

    value: object = None
    error: Exception | None = None

    def settle(self, future: "Future[object] | asyncio.Future[object]") -> None:
        if self.error is None:
            future.set_result(self.value)
        else:
            future.set_exception(self.error)


def is_passing(error: Exception) -> bool:
    """Say whether disk or books are only unavailable for now; any other error is a mistake of the program."""
    if isinstance(error, OSError):
        return error.errno in PASSING_TROUBLES
    code = getattr(error, "sqlite_errorcode", None)  # absent where it is not SQLite that complains
    return code is not None and code & 0xFF in _PASSING


def connect(path: Path, schema: str) -> sqlite3.Connection:
    """Open the file and lay down the schema; the caller closes it.

    Raises sqlite3.Error or OSError when it cannot be used, and `DatabaseVersionError`.
    """
    if path != IN_MEMORY:
        # A new file is its owner's alone, whatever the umask; SQLite gives its log beside it the same permissions.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    connection = sqlite3.connect(path, isolation_level=None, timeout=BUSY_SECONDS)
    try:
        connection.row_factory = sqlite3.Row
        connection.executescript("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON;")
        _lay_down(connection, path, schema)
    except (sqlite3.Error, DatabaseVersionError):
        connection.close()
        raise
    return connection


def _lay_down(connection: sqlite3.Connection, path: Path, schema: str) -> None:
    """Lay down the schema in an empty file; in another, see that it is this one."""
    if not connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]:
        # In one transaction, so that a kill in the middle leaves an empty file.
        connection.executescript(f"BEGIN IMMEDIATE; {schema}; PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;")
    else:
        check_version(connection, path)


def check_version(connection: sqlite3.Connection, path: Path) -> None:
    """Raise `DatabaseVersionError` unless a file has the schema of this version."""
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version != SCHEMA_VERSION:
        raise DatabaseVersionError(
            f"{path} was written by another version of the local service (books {version}, this one has"
            f" {SCHEMA_VERSION}); nothing was changed: name another state folder, or delete this one"
        )


class Database:
    """A connection that only its own thread touches."""

    def __init__(self, path: Path, schema: str) -> None:
        self._path = path
        self._schema = schema
        self._queue: queue.SimpleQueue[_Queued | None] = queue.SimpleQueue()
        self._opened: Future[None] = Future()
        self._thread = threading.Thread(target=self._serve, name="service-database", daemon=True)
        self._thread.start()

    def submit(self, job: Job[Result]) -> "Future[Result]":
        """Queue a job; its result appears after it is committed. May be called from any thread."""
        future: Future[Result] = Future()
        self._queue.put(_Queued(job, cast("Future[object]", future)))  # each future gets its own job's result
        return future

    async def run(self, job: Job[Result]) -> Result:
        """Queue a job and wait for its result: as `submit`, with less ado, for a task of an event loop."""
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._queue.put(_Queued(job, future))
        return cast("Result", await future)

    def open(self) -> None:
        """Wait until the schema stands. Raises what `connect` does."""
        self._opened.result()

    def close(self) -> None:
        """Finish what is queued, and close the file."""
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
        """Wait for work; an empty list means that the database is to be closed."""
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
    """Run jobs in one transaction, then hand their results out."""
    running = [queued for queued in batch if queued.is_wanted()]
    try:
        connection.execute("BEGIN IMMEDIATE")
        results = [_run_job(connection, queued.job) for queued in running]
        connection.execute("COMMIT")
    except sqlite3.Error as error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        results = [_Result(error=error)] * len(running)
    _hand_out(running, results)


def _run_job(connection: sqlite3.Connection, job: Job[object]) -> "_Result":
    """Run one job in a savepoint; what it raises belongs to whoever waits for it."""
    connection.execute("SAVEPOINT job")
    try:
        result = _Result(job(connection))
    except Exception as error:
        if isinstance(error, sqlite3.Error) and not connection.in_transaction:
            raise  # SQLite has undone the whole batch, as it may when the disk fails
        connection.execute("ROLLBACK TO job")
        result = _Result(error=error)
    connection.execute("RELEASE job")
    return result


def _hand_out(ran: list[_Queued], results: list["_Result"]) -> None:
    """Settle the futures; each event loop is woken once for all that is its own."""
    of_loops: defaultdict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[object], _Result]]] = defaultdict(list)
    for queued, result in zip(ran, results, strict=True):
        if isinstance(queued.future, asyncio.Future):
            of_loops[queued.future.get_loop()].append((queued.future, result))
        else:
            result.settle(queued.future)
    for loop, settled in of_loops.items():
        with suppress(RuntimeError):  # the loop has ended, and nobody waits any more
            loop.call_soon_threadsafe(_settle, settled)


def _settle(settled: list[tuple["asyncio.Future[object]", "_Result"]]) -> None:
    for future, result in settled:
        if not future.done():  # cancelled, when who waited has gone
            result.settle(future)
