"""The open queue: the only way in which the rest of the program reads and changes it."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Concatenate, ParamSpec, Self, TypeVar

from batchkiln.core.rate_limits import ServiceDay
from batchkiln.store.attempt_journal import AttemptJournal
from batchkiln.store.database import Database, data_version
from batchkiln.store.lock import QueueLock
from batchkiln.store.preflight import check_file, check_there
from batchkiln.store.reader import Reader
from batchkiln.store.session import Session
from batchkiln.store.wakeup import listen, notify

if TYPE_CHECKING:
    from batchkiln.store.worker_store import ChangeNotifier, WorkerStore
    from batchkiln.store.writer import Writer

P = ParamSpec("P")
T = TypeVar("T")


class Store:
    """One open queue file. Work given to it runs whole in the thread of its connection."""

    def __init__(self, database: Database) -> None:
        """Wrap an open connection; use one of the `open_` methods."""
        self._database = database
        self.path = database.path
        self.is_there = True
        self._journal: AttemptJournal | None = None
        self._keeps_journal = True

    @classmethod
    async def open_for_writing(cls, path: Path) -> Self:
        """Open the queue, made if it is missing, and bring its schema up to date.

        Raise `QueueUnusable` for a file that is no queue, is damaged or comes from a newer version, and `QueueBusy`
        where the disk or a lock refuses.
        """
        return cls(await Database.open_for_writing(path))

    @classmethod
    async def open_for_reading(cls, path: Path) -> Self:
        """Open an existing queue without the right to change it; readers never block the writer."""
        return cls(await Database.open_for_reading(path))

    @classmethod
    async def open_if_there(cls, path: Path) -> Self:
        """Open an existing queue for reading; in place of a missing one, an empty one in memory. Nothing is made."""
        if check_file(path):
            return await cls.open_for_reading(path)
        store = cls(await Database.open_empty(path))
        store.is_there = False
        return store

    @classmethod
    async def open_inline(cls, path: Path) -> Self:
        """Open the queue without a thread, for an event loop in virtual time. A power cut loses it."""
        from batchkiln.store.sync_database import InlineDatabase  # noqa: PLC0415  for simulations alone

        store = cls(await InlineDatabase.open_for_writing(path))
        store._keeps_journal = False  # nothing is paid in a simulation
        return store

    @classmethod
    @asynccontextmanager
    async def open_for_update(cls, path: Path) -> AsyncIterator[Self]:
        """Open an existing queue for a person's change, and wake its driver afterwards."""
        check_there(path)  # a mistyped path makes no new queue
        store = await cls.open_for_writing(path)
        try:
            yield store
        finally:
            await store.close()
        store.notify()

    async def close(self) -> None:
        """Close the connection; the last one folds the write-ahead log back into the file."""
        await self._database.close()

    async def read(self, work: Callable[Concatenate[Reader, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `work(reader, …)` on one consistent snapshot."""
        return await self._database.read(_reading, work, args, kwargs)

    async def write(self, work: "Callable[Concatenate[Writer, P], T]", *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `work(writer, …)` inside one durable transaction, committed when this returns."""
        return await self._database.write(_writing, work, args, kwargs)

    async def run(self, work: "Callable[Concatenate[Writer, P], T]", *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `work(writer, …)` outside of a transaction: each read is a snapshot, and a change commits itself."""
        return await self._database.run(_writing, work, args, kwargs)

    async def run_in_thread(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `work(…)`, which needs no queue, in the connection's thread: an interrupt does not wait for its end."""
        return await self._database.run(_working, work, args, kwargs)

    async def data_version(self) -> int:
        """Return a number that changes with each commit of other connections; this reads a few bytes."""
        return await self._database.run(data_version)

    def notify(self) -> None:
        """Wake the process that drives the queue, if there is one."""
        notify(self.path)

    def listen(self, heard: Callable[[], None]) -> AbstractContextManager[None]:
        """Return a context in which `heard` is called whenever another process calls `notify`."""
        return listen(self.path, heard)

    @asynccontextmanager
    async def locked(self, *, command: str, now: datetime) -> AsyncIterator[None]:
        """Hold the right to drive the queue, with the journal of attempts open.

        Raise `QueueInUse` where another process has the right.
        """
        from batchkiln.store.lost_attempts import open_journal  # noqa: PLC0415  only who drives needs it

        lock = QueueLock(self.path)
        await lock.acquire(self._database, command=command, now=now)
        try:
            if self._keeps_journal:
                self._journal = AttemptJournal(self.path)
                await open_journal(self._database, self._journal, now)
            yield
        finally:
            if self._journal is not None:
                self._journal.close()
                self._journal = None
            await lock.release(self._database)

    def for_workers(
        self, changes: "ChangeNotifier", *, profile: str, day: ServiceDay, keep_requests_seconds: float
    ) -> "WorkerStore":
        """Return the port of the workers of a profile; requests older than `keep_requests_seconds` are dropped."""
        from batchkiln.store.worker_store import WorkerStore  # noqa: PLC0415  only who drives needs it

        return WorkerStore(
            self._database,
            changes,
            profile=profile,
            day=day,
            keep_requests_seconds=keep_requests_seconds,
            journal=self._journal,
        )


def _reading(connection: Session, work: Callable[..., T], args: tuple[object, ...], kwargs: dict[str, object]) -> T:
    return work(Reader(connection), *args, **kwargs)


def _writing(connection: Session, work: Callable[..., T], args: tuple[object, ...], kwargs: dict[str, object]) -> T:
    from batchkiln.store.writer import Writer  # noqa: PLC0415  who only reads needs none of it

    return work(Writer(connection), *args, **kwargs)


def _working(connection: Session, work: Callable[..., T], args: tuple[object, ...], kwargs: dict[str, object]) -> T:
    del connection
    return work(*args, **kwargs)
