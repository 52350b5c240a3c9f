"""The interface of the store's database. Each transaction runs whole in the thread of one connection."""

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, suppress
from datetime import datetime
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from msgspec import Struct

from batchkiln.core.errors import QueueUnusable
from batchkiln.store.location import QueueLocation
from batchkiln.store.session import Session, snapshot_of

MAX_JOINED_WRITES: Final = 8
"""Maximum number of waiting writes that are committed together with an earlier one, which waits for all of them."""

P = ParamSpec("P")
T = TypeVar("T")


class Database(ABC):
    """One open queue. Functions passed to `write`, `read` or `run` run entirely in the connection's thread."""

    location: QueueLocation

    def __init__(self) -> None:
        """Initialize without waiting writes. Use a driver's `open_for_writing` or `open_for_reading` instead."""
        self._waiting: deque[PendingWrite] = deque()

    async def write(self, work: Callable[Concatenate[Session, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `work(connection, …)` in one durable transaction, which is on disk when this returns.

        Waiting writes are committed together, so that one sync serves all of them. A cancellation is delayed until the
        commit is over, so that its result is always known.
        """
        result: T = await self._write(PendingWrite(work, args, kwargs))
        return result

    async def write_and_then(
        self,
        follow: Callable[[Session, list[Any]], None],
        work: Callable[Concatenate[Session, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Run `work` as `write` does, then `follow(connection, [result])` after the commit, in the same call.

        If writes with an equal `follow` are committed together, it is called once with all their results. Its errors
        are raised here, but the commit is valid nevertheless.
        """
        result: T = await self._write(PendingWrite(work, args, kwargs, follow))
        return result

    async def _write(self, write: "PendingWrite") -> Any:  # noqa: ANN401  the caller knows its work's result
        self._waiting.append(write)
        try:
            result = await self._run_in_thread(_in_transaction, write, self._waiting)
        except asyncio.CancelledError:
            with suppress(QueueUnusable):  # closed in the meantime, after the work that was waited for
                await self._run_in_thread(_nothing)  # the thread works in order, so this runs after the write
            raise
        return result

    async def read(self, work: Callable[Concatenate[Session, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `work(connection, …)` on one consistent snapshot."""
        return await self._run_in_thread(in_snapshot, work, args, kwargs)

    async def run(self, work: Callable[Concatenate[Session, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `work(connection, …)`, which opens its own transactions."""
        return await self._run_in_thread(work, *args, **kwargs)

    def clock(self, session: Session) -> int:
        """Return the database's own time, in milliseconds since 1970, by which leases expire."""
        from batchkiln.store.leases import database_clock  # noqa: PLC0415  only workers of a fleet need it

        return database_clock(session)

    async def incarnation(self) -> str | None:
        """Return a text that changes when the server restores the database; None if this cannot be detected."""
        return None

    def may_take_leases(self, session: Session) -> bool:
        """Return whether no process has locked the whole queue. The answer holds until the end of the transaction."""
        del session
        return True

    async def reconnect(self) -> None:  # noqa: B027  a file has nothing to do
        """Open a lost connection again. A queue file has no connection to lose."""

    @abstractmethod
    async def close(self) -> None:
        """Close the connection."""

    @abstractmethod
    async def data_version(self) -> int:
        """Return a number that changes with each commit of other connections; this reads a few bytes."""

    @abstractmethod
    def notify(self) -> None:
        """Wake the process that drives the queue, if there is one."""

    @abstractmethod
    def listen(self, on_wakeup: Callable[[], None]) -> AbstractContextManager[None]:
        """Return a context in which `on_wakeup` is called whenever another process calls `notify`."""

    @abstractmethod
    def locked(self, *, command: str, now: datetime) -> AbstractAsyncContextManager[None]:
        """Lock the queue for driving it. Raise `QueueInUse` if another process drives it."""

    @abstractmethod
    def undriven(self) -> AbstractAsyncContextManager[None]:
        """Lock the queue for a change during which nothing may be sent.

        Raise `QueueInUse` if a process drives the queue.
        """

    @abstractmethod
    async def _run_in_thread(self, work: Callable[..., T], *args: object, **kwargs: object) -> T:
        """Run `work(session, …)` in the connection's thread, in the order of the calls, even for a cancelled caller."""


def _nothing(_: Session) -> None:
    pass


class PendingWrite(Struct):
    """A write that waits for its transaction, and its future result."""

    work: Callable[..., Any]
    args: tuple[object, ...]
    kwargs: dict[str, object]
    follow: Callable[[Session, list[Any]], None] | None = None
    is_over: bool = False
    result: Any = None
    error: BaseException | None = None

    def join(self, connection: Session) -> None:
        """Run the write inside another write's transaction, which stays valid if this write fails."""
        connection.execute("SAVEPOINT joined")
        try:
            self.result = self.work(connection, *self.args, **self.kwargs)
        except Exception as error:
            if not connection.in_transaction:  # a disk error has rolled back the whole transaction
                raise
            connection.execute("ROLLBACK TO joined")
            self.error = error  # the error belongs to this write's caller
        connection.execute("RELEASE joined")


def _in_transaction(connection: Session, write: PendingWrite, waiting: deque[PendingWrite]) -> Any:  # noqa: ANN401
    """Run the first waiting write, and those that arrived in the meantime, in one transaction."""
    if write.is_over:
        if write.error is not None:
            raise write.error
        return write.result
    first = waiting.popleft()  # outside the assertion, because `python -O` removes assertions
    assert first is write, "the thread takes them in the order in which they came"
    work, args, kwargs = write.work, write.args, write.kwargs
    joined: list[PendingWrite] = []
    try:
        connection.execute("BEGIN IMMEDIATE")  # PostgreSQL may have begun, and fail to get the lock
        result = work(connection, *args, **kwargs)
        while waiting and len(joined) < MAX_JOINED_WRITES:
            joined.append(waiting.popleft())
            joined[-1].join(connection)
        connection.execute("COMMIT")
    except BaseException as error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        for other in joined:
            other.error = error
        raise
    finally:
        for other in joined:
            other.is_over = True
    write.result = result
    _follow(connection, [write, *joined])
    if write.error is not None:
        raise write.error
    return result


def _follow(connection: Session, writes: list[PendingWrite]) -> None:
    """Call the functions that follow the commit: once for all writes that share the same function."""
    valid = [write for write in writes if write.error is None]
    for follow in dict.fromkeys(write.follow for write in valid if write.follow is not None):
        alike = [write for write in valid if write.follow == follow]
        try:
            follow(connection, [write.result for write in alike])
        except Exception as error:  # noqa: BLE001  it belongs to the callers of these writes
            for write in alike:
                write.error = error


def in_snapshot(connection: Session, work: Callable[..., T], args: tuple[object, ...], kwargs: dict[str, object]) -> T:
    """Run `work(connection, …)` on one consistent snapshot, in the connection's thread."""
    with snapshot_of(connection):
        return work(connection, *args, **kwargs)
