"""SQLite in one thread of its own; jobs that wait together are committed together.

A job is a function of the connection. It runs inside a savepoint, so that one that raises leaves
nothing behind and takes no other with it. Its result is handed out only after the commit, and with
`synchronous=FULL` a commit is on disk: whoever has a result can rely on it after a power cut.
"""

import queue
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar

Result = TypeVar("Result")
Job = Callable[[sqlite3.Connection], Result]
_Queued = tuple[Job[object], "Future[object]"]
# More would let the first of a batch wait noticeably for the last.
MAX_BATCH = 128


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
        self._queue.put((job, future))  # type: ignore[arg-type]  # each future gets its own job's result
        return future

    def open(self) -> None:
        """Wait until the schema stands. Raises sqlite3.Error when the file cannot be used."""
        self._opened.result()

    def close(self) -> None:
        """Finish what is queued, and close the file."""
        self._queue.put(None)
        self._thread.join()

    def _serve(self) -> None:
        try:
            connection = sqlite3.connect(self._path, isolation_level=None)
        except sqlite3.Error as error:
            self._opened.set_exception(error)
            return
        try:
            connection.row_factory = sqlite3.Row
            connection.executescript("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON;")
            connection.executescript(self._schema)
        except sqlite3.Error as error:
            connection.close()
            self._opened.set_exception(error)
            return
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
    """Run jobs in one transaction, then settle their futures."""
    settled: list[Callable[[], None]] = []
    running = [(job, future) for job, future in batch if future.set_running_or_notify_cancel()]
    try:
        connection.execute("BEGIN IMMEDIATE")
        settled = [_run_job(connection, job, future) for job, future in running]
        connection.execute("COMMIT")
    except sqlite3.Error as error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        for _, future in running:
            future.set_exception(error)
        return
    for settle in settled:
        settle()


def _run_job(connection: sqlite3.Connection, job: Job[object], future: "Future[object]") -> Callable[[], None]:
    """Run one job in a savepoint; return what hands out its result or its exception."""
    connection.execute("SAVEPOINT job")
    try:
        result = job(connection)
    except Exception as raised:  # noqa: BLE001 - it belongs to whoever waits for the job
        error = raised
        connection.execute("ROLLBACK TO job")
        connection.execute("RELEASE job")
        return lambda: future.set_exception(error)
    connection.execute("RELEASE job")
    return lambda: future.set_result(result)
