"""The open queue: the only way in which the rest of the program reads and changes it."""

import sqlite3
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Concatenate, ParamSpec, Self, TypeVar

from batchkiln.core.job import JobSpec
from batchkiln.core.rate_limits import ServiceDay
from batchkiln.core.timestamps import to_milliseconds
from batchkiln.store import misunderstood, operations
from batchkiln.store.apply import ApplyOptions, ApplyReport, apply_manifest
from batchkiln.store.database import Database, data_version
from batchkiln.store.generations import name_queue
from batchkiln.store.lock import QueueLock
from batchkiln.store.misunderstood import AskedAgain
from batchkiln.store.notification_cursor import NotificationCursor, write_cursor
from batchkiln.store.operations import CancelReport, RetryReport
from batchkiln.store.preflight import check_file, check_there
from batchkiln.store.preparations import keep_quotes
from batchkiln.store.reader import Reader
from batchkiln.store.resolution import Decision, Resolved, resolve
from batchkiln.store.staging import MistakeAt, Placed
from batchkiln.store.store import ChangeNotifier, service_time
from batchkiln.store.store import Store as WorkerStore
from batchkiln.store.sync_database import InlineDatabase
from batchkiln.store.wakeup import listen, notify

P = ParamSpec("P")
T = TypeVar("T")


class Writer(Reader):
    """Changes the queue as a person asks. A change is recorded at the service's time, as far as it is known.

    `apply_manifest`, `retry` and `cancel` commit in portions, for `Store.run`; the others belong in `Store.write`.
    Unknown names raise `InputError` before anything is changed.
    """

    def apply_manifest(
        self,
        spec: JobSpec,
        placed: Iterable[Placed],
        *,
        profile: str,
        machine_now: datetime,
        options: ApplyOptions,
        mistake_at: MistakeAt,
    ) -> ApplyReport:
        """Make a job as its manifest says. Raise `InputError` with all mistakes of the manifest."""
        now = max(to_milliseconds(machine_now), service_time(self._connection, profile) or 0)
        return apply_manifest(
            self._connection, spec, placed, profile=profile, now=now, options=options, mistake_at=mistake_at
        )

    def retry(self, job_name: str, item_names: Sequence[str], machine_now: datetime) -> RetryReport:
        """Queue ended items again; without names, all that failed, were rejected or expired."""
        return operations.retry(self._connection, job_name, item_names, self._now(job_name, machine_now))

    def cancel(self, job_name: str, item_names: Sequence[str], machine_now: datetime) -> CancelReport:
        """Cancel queued items; without names, all of the job."""
        return operations.cancel(self._connection, job_name, item_names, self._now(job_name, machine_now))

    def pause(self, job_name: str, machine_now: datetime) -> bool:
        """Pause a job: nothing new of it is sent. Return whether it was not paused."""
        return operations.pause(self._connection, job_name, self._now(job_name, machine_now))

    def unpause(self, job_name: str, machine_now: datetime) -> bool:
        """Unpause a job. Return whether it was paused."""
        return operations.unpause(self._connection, job_name, self._now(job_name, machine_now))

    def resolve(
        self,
        job_name: str,
        item_name: str,
        decision: Decision,
        *,
        generation_id: str | None = None,
        is_undriven: bool = False,
        machine_now: datetime,
    ) -> Resolved:
        """End the hold of an item. `is_undriven`: the caller holds the queue's lock, so a sent item may be ended too.

        Raise `InputError` where the decision does not apply.
        """
        return resolve(
            self._connection,
            job_name,
            item_name,
            decision,
            generation_id=generation_id,
            is_undriven=is_undriven,
            now=self._now(job_name, machine_now),
        )

    def ask_again(self, account: str | None = None) -> tuple[AskedAgain, ...]:
        """Forget which replies were not understood, of one account (PROFILE/NAME) or of all; return them."""
        return misunderstood.ask_again(self._connection, account)

    def end_waits(self, account: str | None = None) -> tuple[str, ...]:
        """End the stored waits of one account (PROFILE/NAME) or of all; return the accounts that had one."""
        return misunderstood.end_waits(self._connection, account)

    def keep_quotes(self, *, profile: str, prices: Mapping[str, int], now: int) -> None:
        """Store prices in credits by price key."""
        keep_quotes(self._connection, profile=profile, prices=prices, now=now)

    def write_cursor(self, notifier: str, cursor: NotificationCursor) -> None:
        """Store how much of the event log a notifier has delivered."""
        write_cursor(self._connection, notifier, cursor)

    def name_queue(self, uid: str) -> None:
        """Set the id of a new queue, so that a rehearsal derives the same idempotency keys each time."""
        name_queue(self._connection, uid)

    def _now(self, job_name: str, machine_now: datetime) -> int:
        return to_milliseconds(self.jobs.service_time(job_name, machine_now))


class Store:
    """One open queue file. Work given to it runs whole in the thread of its connection."""

    def __init__(self, database: Database) -> None:
        """Wrap an open connection; use one of the `open_` methods."""
        self._database = database
        self.path = database.path
        self.is_there = True

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
        return cls(await InlineDatabase.open_for_writing(path))

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

    async def write(self, work: Callable[Concatenate[Writer, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `work(writer, …)` inside one durable transaction, committed when this returns."""
        return await self._database.write(_writing, work, args, kwargs)

    async def run(self, work: Callable[Concatenate[Writer, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
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
        """Hold the right to drive the queue. Raise `QueueInUse` where another process has it."""
        lock = QueueLock(self.path)
        await lock.acquire(self._database, command=command, now=now)
        try:
            yield
        finally:
            await lock.release(self._database)

    def for_workers(
        self, changes: ChangeNotifier, *, profile: str, day: ServiceDay, keep_requests_seconds: float
    ) -> WorkerStore:
        """Return the port of the workers of a profile; requests older than `keep_requests_seconds` are dropped."""
        return WorkerStore(
            self._database, changes, profile=profile, day=day, keep_requests_seconds=keep_requests_seconds
        )


def _reading(
    connection: sqlite3.Connection, work: Callable[..., T], args: tuple[object, ...], kwargs: dict[str, object]
) -> T:
    return work(Reader(connection), *args, **kwargs)


def _writing(
    connection: sqlite3.Connection, work: Callable[..., T], args: tuple[object, ...], kwargs: dict[str, object]
) -> T:
    return work(Writer(connection), *args, **kwargs)


def _working(
    connection: sqlite3.Connection, work: Callable[..., T], args: tuple[object, ...], kwargs: dict[str, object]
) -> T:
    del connection
    return work(*args, **kwargs)
