"""SQLite without threads: aiosqlite's worker does its work at once, in the loop's step."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any
from unittest import mock

import aiosqlite.core

if TYPE_CHECKING:
    import asyncio

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
