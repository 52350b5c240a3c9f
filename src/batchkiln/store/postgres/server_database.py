"""A queue in PostgreSQL: one connection in its own thread, like the queue file's."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import datetime
from functools import partial
from typing import Any, Concatenate, Final, ParamSpec, Self, TypeVar

import psycopg

from batchkiln.core.errors import QueueBusy, QueueConnectionLost, QueueInUse, QueueUnusable
from batchkiln.core.timestamps import to_milliseconds
from batchkiln.store.database import Database
from batchkiln.store.leases import revoke
from batchkiln.store.location import DatabaseUrl
from batchkiln.store.lock import drop_lease, in_use, in_use_for_decision, record_lease
from batchkiln.store.postgres.connecting import ServerRefused, connect, translated
from batchkiln.store.postgres.postgres_session import PostgresSession
from batchkiln.store.postgres.schema_updates import check_schema
from batchkiln.store.session import Session

P = ParamSpec("P")
T = TypeVar("T")

DRIVE_LOCK: Final = 0x626B6C64
"""The first key of the advisory lock of the process that drives the queue, "bkld"; the second is the schema's."""

CHANNEL: Final = "batchkiln"
"""The channel of `NOTIFY`; a notice carries the key of its schema, since a database may hold several queues."""

_DATA_VERSION: Final = "SELECT hashtextextended(pg_current_snapshot()::text, 0)"

_INCARNATION: Final = """
    SELECT concat_ws('/', (SELECT system_identifier FROM pg_control_system()),
        left(pg_walfile_name(pg_current_wal_lsn()), 8),
        (SELECT oid FROM pg_database WHERE datname = current_database()), to_regclass('meta')::oid)
"""


class PostgresDatabase(Database):
    """One open queue. A lost connection stays lost until `reconnect`; pending work must then begin again.

    A read-only user, such as the dashboard, connects again at its next read, because it has no pending work.
    """

    def __init__(
        self, session: PostgresSession, url: DatabaseUrl, thread: ThreadPoolExecutor, *, is_reader: bool = False
    ) -> None:
        """Use `open_for_writing` or `open_for_reading`."""
        super().__init__()
        self.location = url
        self._url = url
        self._session = session
        self._thread = thread
        self._is_reader = is_reader
        self._is_closed = False

    @classmethod
    async def open_for_writing(cls, url: DatabaseUrl) -> Self:
        """Open a queue that `batchkiln migrate` created. Raise `QueueUnusable` and `QueueBusy` as `connect` does."""
        return await cls._open(url, is_reader=False)

    @classmethod
    async def open_for_reading(cls, url: DatabaseUrl) -> Self:
        """Open a queue read-only; readers never block a writer."""
        return await cls._open(url, is_reader=True)

    @classmethod
    async def _open(cls, url: DatabaseUrl, *, is_reader: bool) -> Self:
        thread = ThreadPoolExecutor(1, thread_name_prefix="batchkiln-postgres")
        try:
            session = await asyncio.get_running_loop().run_in_executor(
                thread, partial(_checked, url, is_reader=is_reader)
            )
        except BaseException:
            thread.shutdown(wait=False)
            raise
        return cls(session, url, thread, is_reader=is_reader)

    async def read(self, work: Callable[Concatenate[Session, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `work(connection, …)` on one consistent snapshot.

        A reader whose connection was lost since its last read connects again, and reads once more.
        """
        try:
            return await super().read(work, *args, **kwargs)
        except QueueConnectionLost:
            if not self._is_reader:
                raise
            return await super().read(work, *args, **kwargs)

    async def reconnect(self) -> None:
        """Open the connection again. Raise `QueueBusy` and `QueueUnusable` as `connect` does."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._connect_again)

    def _connect_again(self) -> None:
        """Replace the session, inside the thread. Earlier work has failed with the old session."""
        with suppress(psycopg.Error):
            self._session.close()
        try:
            self._session = _checked(self._url, is_reader=self._is_reader)
        except ServerRefused as error:  # it passed before: during a failover, the next attempt may find it fit again
            raise QueueBusy(str(error)) from error

    async def close(self) -> None:
        """Close the connection after the earlier work of its thread."""
        self._is_closed = True
        await asyncio.get_running_loop().run_in_executor(self._thread, self._end)
        self._thread.shutdown(wait=False)

    async def data_version(self) -> int:
        """Return a number that changes with each commit of other connections, also in other databases of the server."""
        return await self._run_in_thread(_data_version)

    def notify(self) -> None:
        """Wake the listening processes after the earlier work of the thread."""
        self._thread.submit(_notify, self._session)

    @contextmanager
    def listen(self, on_wakeup: Callable[[], None]) -> Iterator[None]:
        """Call `on_wakeup` in the running loop at each `notify`, until the listening connection is lost."""
        loop = asyncio.get_running_loop()
        listener = connect(self._url, is_reader=True)
        try:
            listener.script(f"LISTEN {CHANNEL}")
            descriptor = listener.connection.fileno()
            loop.add_reader(descriptor, _receive, loop, descriptor, listener, on_wakeup)
            try:
                yield
            finally:
                if not listener.is_lost:  # else the number may be another connection's by now
                    loop.remove_reader(descriptor)
        finally:
            listener.close()

    @asynccontextmanager
    async def locked(self, *, command: str, now: datetime) -> AsyncIterator[None]:
        """Hold the lock for driving the queue, which ends with the connection. Raise `QueueInUse`."""
        if not await self._run_in_thread(try_lock):
            raise QueueInUse(await self.read(in_use, self._url))
        try:
            await self._refuse_workers()
            await self.write(record_lease, command, to_milliseconds(now))
            yield
        finally:
            with suppress(QueueBusy, QueueUnusable):
                await self.write(drop_lease)
                await self._run_in_thread(unlock)

    @asynccontextmanager
    async def undriven(self) -> AsyncIterator[None]:
        """Lock the queue for a change during which nothing may be sent. Raise `QueueInUse` if a worker drives it."""
        if not await self._run_in_thread(try_lock):
            raise QueueInUse(in_use_for_decision(self._url))
        try:
            await self._refuse_workers()
            yield
        finally:
            with suppress(QueueBusy, QueueUnusable):
                await self._run_in_thread(unlock)

    async def incarnation(self) -> str | None:
        """Return cluster, timeline, database and table. A promoted standby or a restored dump has different ones.

        Loading data into the same tables, or restoring the files of the whole cluster, does not change them.
        """
        return await self._run_in_thread(_incarnation)

    def may_take_leases(self, session: Session) -> bool:
        """Return whether no process has locked the whole queue. None can lock it before the end of the transaction."""
        assert isinstance(session, PostgresSession)
        return bool(session.scalar(f"SELECT pg_try_advisory_xact_lock_shared({DRIVE_LOCK}, {session.schema_key})"))

    async def _refuse_workers(self) -> None:
        """Raise `QueueInUse` while a worker drives an account; none can take one, because this process has the lock.

        From now on, the writes of a worker whose lease expired while it was frozen are refused.
        """
        if worker := await self.write(revoke):
            raise QueueInUse(
                f"{self._url}: the worker {worker} drives accounts of this queue, and may be sending; nothing was sent"
                " or changed. `batchkiln workers` lists the workers, and `batchkiln workers drain NAME` ends one"
            )

    async def _run_in_thread(self, work: Callable[..., T], *args: object, **kwargs: object) -> T:
        if self._is_closed:
            raise QueueUnusable(f"{self._url}: the queue was closed; open it again")
        loop = asyncio.get_running_loop()
        future = loop.run_in_executor(self._thread, self._run, work, args, kwargs)
        future.add_done_callback(_retrieve_error)
        return await asyncio.shield(future)  # what is canceled before the thread comes to it runs nevertheless

    def _end(self) -> None:
        self._session.close()

    def _run(self, work: Callable[..., T], args: tuple[object, ...], kwargs: dict[str, object]) -> T:
        if self._is_reader and self._session.is_lost:
            self._connect_again()
        try:
            return work(self._session, *args, **kwargs)
        except psycopg.Error as error:
            raise translated(error, self._url) from error


def _retrieve_error(future: asyncio.Future[Any]) -> None:
    """Retrieve an error that no caller awaits any more, so that the event loop does not log it."""
    if not future.cancelled():
        future.exception()


def _checked(url: DatabaseUrl, *, is_reader: bool) -> PostgresSession:
    session = connect(url, is_reader=is_reader)
    try:
        check_schema(session, url)
    except psycopg.Error as error:
        session.close()
        raise translated(error, url) from error
    except BaseException:
        session.close()
        raise
    return session


def _data_version(session: PostgresSession) -> int:
    return int(session.scalar(_DATA_VERSION))


def _incarnation(session: PostgresSession) -> str | None:
    try:
        return str(session.scalar(_INCARNATION))
    except psycopg.errors.InsufficientPrivilege:  # a hosted server may keep it to itself
        return None


def try_lock(session: PostgresSession) -> bool:
    """Take the lock for driving the queue, which ends with the connection; return whether it was free."""
    return bool(session.scalar(f"SELECT pg_try_advisory_lock({DRIVE_LOCK}, {session.schema_key})"))


def unlock(session: PostgresSession) -> None:
    """Release the lock for driving the queue."""
    session.scalar(f"SELECT pg_advisory_unlock({DRIVE_LOCK}, {session.schema_key})")


def _notify(session: PostgresSession) -> None:
    with suppress(psycopg.Error):  # a lost notification is harmless: listeners also check at intervals
        session.script(f"NOTIFY {CHANNEL}, '{session.schema_key}'")


def _receive(
    loop: asyncio.AbstractEventLoop, descriptor: int, listener: PostgresSession, on_wakeup: Callable[[], None]
) -> None:
    pgconn, key = listener.connection.pgconn, str(listener.schema_key).encode()
    try:
        pgconn.consume_input()
        is_ours = False
        while notice := pgconn.notifies():
            is_ours = is_ours or notice.extra == key
    except psycopg.Error:
        loop.remove_reader(descriptor)
        is_ours = True  # something may have been missed
    if is_ours:
        on_wakeup()
