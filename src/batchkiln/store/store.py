"""The open queue. The rest of the program reads and changes it only through this module."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Concatenate, ParamSpec, Self, TypeVar

from batchkiln.core.rate_limits import ServiceDay
from batchkiln.core.timestamps import from_milliseconds, to_milliseconds
from batchkiln.store import drivers
from batchkiln.store.database import Database
from batchkiln.store.location import DatabaseUrl, QueueLocation, journal_place
from batchkiln.store.reader import Reader
from batchkiln.store.session import Session

if TYPE_CHECKING:
    from batchkiln.store.attempt_journal import AttemptJournal
    from batchkiln.store.known_journals import Machine
    from batchkiln.store.leases import Leases, StoreClock
    from batchkiln.store.worker_store import ChangeNotifier, WorkerStore
    from batchkiln.store.writer import Writer

P = ParamSpec("P")
T = TypeVar("T")


class Store:
    """One open queue. Each function passed to it runs whole in the connection's thread."""

    def __init__(self, database: Database) -> None:
        """Wrap an open connection; use one of the `open_` methods."""
        self._database = database
        self.location = database.location
        self.is_there = True
        self._journal: AttemptJournal | None = None
        self._keeps_journal = True
        self._shared_place: Path | None = None  # of the journals, where several machines drive the queue
        self._machine: Machine | None = None

    @classmethod
    async def open_for_writing(cls, location: QueueLocation) -> Self:
        """Open the queue. A missing file is created, and its schema updated.

        Raise `QueueUnusable` if it is not a queue, is damaged or has another version, and `QueueBusy` if the disk, the
        server or a lock fails.
        """
        return cls(await drivers.open_for_writing(location))

    @classmethod
    async def open_for_reading(cls, location: QueueLocation) -> Self:
        """Open an existing queue read-only. Readers never block the writer."""
        return cls(await drivers.open_for_reading(location))

    @classmethod
    async def open_if_there(cls, location: QueueLocation) -> Self:
        """Open an existing queue for reading, or an empty one in memory if there is none. No file is created."""
        if isinstance(location, DatabaseUrl) or not drivers.is_file_missing(location):
            return await cls.open_for_reading(location)
        store = cls(await drivers.open_empty(location))
        store.is_there = False
        return store

    @classmethod
    async def open_inline(cls, path: Path) -> Self:
        """Open a queue file without a thread, for an event loop in virtual time. Its writes are not durable."""
        store = cls(await drivers.open_inline(path))
        store._keeps_journal = False  # nothing is paid in a simulation
        return store

    @classmethod
    @asynccontextmanager
    async def open_for_update(cls, location: QueueLocation) -> AsyncIterator[Self]:
        """Open an existing queue for a person's change, and wake its driver afterwards."""
        drivers.check_there(location)  # a mistyped path must not create a queue
        store = await cls.open_for_writing(location)
        try:
            yield store
        finally:
            store.notify()
            await store.close()

    async def close(self) -> None:
        """Close the connection; the last connection merges the write-ahead log into the file."""
        await self._database.close()

    async def read(self, work: Callable[Concatenate[Reader, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `work(reader, …)` on one consistent snapshot."""
        return await self._database.read(_reading, work, args, kwargs)

    async def write(self, work: "Callable[Concatenate[Writer, P], T]", *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `work(writer, …)` inside one durable transaction, committed when this returns."""
        return await self._database.write(_writing, work, args, kwargs)

    async def run(self, work: "Callable[Concatenate[Writer, P], T]", *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `work(writer, …)` outside of a transaction.

        Each read is a snapshot, and each change commits by itself.
        """
        return await self._database.run(_writing, work, args, kwargs)

    async def run_in_thread(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `work(…)`, which does not use the queue, in the connection's thread. An interrupt does not await it."""
        return await self._database.run(_working, work, args, kwargs)

    async def data_version(self) -> int:
        """Return a number that changes with each commit of other connections; this reads a few bytes."""
        return await self._database.data_version()

    def notify(self) -> None:
        """Wake the process that drives the queue, if there is one."""
        self._database.notify()

    def listen(self, on_wakeup: Callable[[], None]) -> AbstractContextManager[None]:
        """Return a context in which `on_wakeup` is called whenever another process calls `notify`."""
        return self._database.listen(on_wakeup)

    @asynccontextmanager
    async def locked(self, *, command: str, now: datetime) -> AsyncIterator[None]:
        """Lock the queue for driving it, with the journal of attempts open.

        Raise `QueueInUse` if another process drives it.
        """
        async with self._database.locked(command=command, now=now):
            if self._keeps_journal:
                await self._open_journal(to_milliseconds(now))
            try:
                yield
            finally:
                if self._journal is not None:
                    self._journal.close()
                    self._journal = None

    @asynccontextmanager
    async def shared(self) -> AsyncIterator[None]:
        """Share the queue with other processes by leases, with a journal of attempts that no other process has open."""
        if not isinstance(self.location, DatabaseUrl):
            yield
            return
        async with self._sharing(journal_place(self.location, await self.read(Reader.queue_uid))):
            yield

    @asynccontextmanager
    async def _sharing(self, place: Path) -> AsyncIterator[None]:
        """Keep a journal at a place, beside the journals of this machine's other processes."""
        self._shared_place = place
        with self._own_journal(place) as journal:
            await self._open_journal(await self._database.read(self._database.clock), journal)
            try:
                yield
            finally:
                journal.close()
                self._journal = self._shared_place = None

    @contextmanager
    def _own_journal(self, place: Path) -> "Iterator[AttemptJournal]":
        """Yield the first journal of this machine that no other process uses. A crash releases it."""
        from batchkiln.store.attempt_journal import AttemptJournal  # noqa: PLC0415  only who drives needs it

        for number in count(1):
            journal = AttemptJournal(place.with_name(f"{place.name}-{number}"))
            with journal.claimed() as is_claimed:
                if is_claimed:
                    yield journal
                    return

    async def _open_journal(self, now: int, journal: "AttemptJournal | None" = None) -> None:
        from batchkiln.store.attempt_journal import AttemptJournal  # noqa: PLC0415  only who drives needs it
        from batchkiln.store.known_journals import machine_at  # noqa: PLC0415  as above
        from batchkiln.store.lost_attempts import open_journal  # noqa: PLC0415  as above

        if journal is None:
            uid = await self.read(Reader.queue_uid)
            journal = AttemptJournal(journal_place(self.location, uid))
        machine = None
        if self._shared_place is not None:
            machine = self._machine = machine_at(self._shared_place, await self._database.incarnation())
        await open_journal(self._database, journal, now, machine)
        self._journal = journal

    async def _compare_again(self) -> None:
        """Compare the journals with the database again, because another machine has marked it as restored."""
        if self._journal is not None:
            await self._open_journal(await self._database.read(self._database.clock), self._journal)

    def undriven(self) -> AbstractAsyncContextManager[None]:
        """Lock the queue for a change during which nothing may be sent.

        Raise `QueueInUse` if a process drives the queue.
        """
        return self._database.undriven()

    def leases(self, clock: "StoreClock | None" = None) -> "Leases":
        """Return the leases of accounts and addresses, by the database's clock unless another one is given."""
        from batchkiln.store.leases import Leases  # noqa: PLC0415  only workers of a fleet need it

        return Leases(
            self._database,
            clock or self._database.clock,
            self._database.may_take_leases,
            machine=self._machine,
            compare=self._compare_again,
        )

    async def now(self) -> datetime:
        """Return the database's time."""
        return from_milliseconds(await self._database.read(self._database.clock))

    async def reconnect(self) -> None:
        """Open the connection again after it was lost. Raise `QueueBusy` if the database is still unreachable.

        After a failover, the database may be an older copy, so it is compared with the journal again.
        """
        await self._database.reconnect()
        await self._compare_again()

    def for_workers(
        self, changes: "ChangeNotifier", *, profile: str, day: ServiceDay, keep_requests_seconds: float
    ) -> "WorkerStore":
        """Return the queue for a profile's workers. Requests older than `keep_requests_seconds` are deleted."""
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
