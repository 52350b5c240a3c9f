"""The file lock that lets one process run a queue file. The operating system holds it, so any crash releases it."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

from batchkiln.core.errors import QueueBusy, QueueInUse
from batchkiln.core.timestamps import to_milliseconds
from batchkiln.store.database import Database
from batchkiln.store.lock import drop_lease, in_use, in_use_for_decision, record_lease
from batchkiln.store.sqlite.preflight import PRIVATE_MODE


class QueueLock:
    """The exclusive right to run a queue. The holder is also recorded in the queue, for display."""

    def __init__(self, path: Path) -> None:
        """Prepare the lock of a queue file without acquiring it."""
        from filelock import FileLock  # noqa: PLC0415  slow to import, and only who drives or resolves needs it

        self._lock = FileLock(f"{path}.lock", timeout=0, mode=PRIVATE_MODE)
        self._path = path

    async def acquire(self, database: Database, *, command: str, now: datetime) -> None:
        """Acquire the lock. Raise `QueueInUse`, which names the holder, if another process has it."""
        from filelock import Timeout  # noqa: PLC0415  as above

        try:
            self._lock.acquire()
        except Timeout:
            raise QueueInUse(await database.read(in_use, self._path)) from None
        try:
            await database.write(record_lease, command, to_milliseconds(now))
        except BaseException:  # a cancellation arrives after the holder is recorded, and must not leave it there
            await self.release(database)
            raise

    async def release(self, database: Database) -> None:
        """Release the lock. If the disk is full, the record of the holder remains, as after a kill."""
        try:
            with suppress(QueueBusy):
                await database.write(drop_lease)
        finally:
            self._lock.release()


@contextmanager
def undriven(path: Path) -> Iterator[None]:
    """Lock the queue for a change during which nothing may be sent.

    Raise `QueueInUse` if a process drives the queue.
    """
    from filelock import FileLock, Timeout  # noqa: PLC0415  as above

    lock = FileLock(f"{path}.lock", timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise QueueInUse(in_use_for_decision(path)) from None
    try:
        yield
    finally:
        lock.release()
