"""SQLite without threads: aiosqlite's worker, and the local service's, do their work at once, in the loop's step."""

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from unittest import mock

import aiosqlite.core

from batchkiln.service.books.database import Database, Job, connect

Result = TypeVar("Result")
_Call = tuple["asyncio.Future[Any] | None", Callable[[], Any]]


class _Inline:
    """In place of the queue to aiosqlite's thread: what is put in is done, and answered with the next step."""

    pass_by: Callable[[str], None]
    after: Callable[[Callable[[], Any]], None]
    opened: Callable[[sqlite3.Connection], None]

    def put_nowait(self, call: _Call) -> None:
        future, function = call
        settle: Callable[[], None]
        try:
            self.pass_by("before database")
            result = function()
        except Exception as error:  # noqa: BLE001 - it belongs to whoever waits
            settle = partial(_fail, future, error)
        else:
            settle = partial(_give, future, result)
            if isinstance(result, sqlite3.Connection):
                self.opened(result)
        self.after(function)
        self.pass_by("after database")
        if future is not None:
            future.get_loop().call_soon(settle)


def _give(future: "asyncio.Future[Any] | None", result: object) -> None:
    if future is not None and not future.done():
        future.set_result(result)


def _fail(future: "asyncio.Future[Any] | None", error: Exception) -> None:
    if future is not None and not future.done():
        future.set_exception(error)


class _NoThread:
    def __init__(self, **_: object) -> None:
        """Take what a thread takes."""

    def start(self) -> None:
        """There is nothing to start."""


@contextmanager
def inline_aiosqlite(
    pass_by: Callable[[str], None] = lambda _: None,
    after: Callable[[Callable[[], Any]], None] = lambda _: None,
    opened: Callable[[sqlite3.Connection], None] = lambda _: None,
) -> Iterator[None]:
    """Let every connection that is opened within run inline. aiosqlite has no public way to ask for that.

    `pass_by` is told before and after each call, `after` what was called, `opened` of each connection.
    """
    core = aiosqlite.core
    told = {"pass_by": staticmethod(pass_by), "after": staticmethod(after), "opened": staticmethod(opened)}
    queue = type("InlineQueue", (_Inline,), told)
    with mock.patch.object(core, "SimpleQueue", queue), mock.patch.object(core, "Thread", _NoThread):
        yield


class InlineDatabase(Database):
    """The local service's database without its thread: each job is a transaction of its own, done when submitted."""

    def __init__(self, path: Path, schema: str) -> None:
        self._path = path
        self._schema = schema
        self._connection: sqlite3.Connection | None = None

    def open(self) -> None:
        self._connection = connect(self._path, self._schema)

    def submit(self, job: Job[Result]) -> "Future[Result]":
        future: Future[Result] = Future()
        try:
            future.set_result(self._committed(job))
        except Exception as error:  # noqa: BLE001 - it belongs to whoever waits
            future.set_exception(error)
        return future

    async def run(self, job: Job[Result]) -> Result:
        future = self.submit(job)
        await asyncio.sleep(0)  # who waits for a thread is never answered within the same step
        return future.result()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def _committed(self, job: Job[Result]) -> Result:
        connection = self._connection
        assert connection is not None
        connection.execute("BEGIN IMMEDIATE")
        try:
            result = job(connection)
        except Exception:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")
        return result


class InlineExecutor(Executor):
    """In place of a pool of threads: what is submitted is done at once."""

    def __init__(self, *_: object, **__: object) -> None:
        """Take what a pool takes."""

    def submit(self, fn: Callable[..., Result], /, *args: Any, **kwargs: Any) -> "Future[Result]":  # noqa: ANN401
        future: Future[Result] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - it belongs to whoever waits
            future.set_exception(error)
        return future


@contextmanager
def inline_service() -> Iterator[None]:
    """Let each local service that is made within run without threads."""
    with (
        mock.patch("batchkiln.service.books.opening.Database", InlineDatabase),
        mock.patch("batchkiln.service.media.workshop.ThreadPoolExecutor", InlineExecutor),
    ):
        yield
