"""The lock that lets one process run a queue. The operating system holds it, so any crash releases it."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from batchkiln.core.errors import QueueBusy, QueueInUse
from batchkiln.core.timestamps import from_milliseconds, to_milliseconds
from batchkiln.store.database import Database
from batchkiln.store.preflight import PRIVATE_MODE
from batchkiln.store.session import Session
from batchkiln.store.sql import query


@dataclass(frozen=True, slots=True)
class Lease:
    """The process that runs the queue, or was killed while it did."""

    pid: int
    host: str
    command: str
    started_at: datetime

    @property
    def is_alive(self) -> bool:
        """Whether the process is alive as far as this machine knows; a process of another host counts as alive."""
        if self.host != socket.gethostname():
            return True
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        return True


class QueueLock:
    """The exclusive right to run a queue. The holder is also recorded in the queue, for display."""

    def __init__(self, path: Path) -> None:
        """Prepare the lock of a queue file without acquiring it."""
        from filelock import FileLock  # noqa: PLC0415  slow to import, and only who drives or resolves needs it

        self._lock = FileLock(f"{path}.lock", timeout=0, mode=PRIVATE_MODE)
        self._path = path

    async def acquire(self, database: Database, *, command: str, now: datetime) -> None:
        """Acquire the lock. Raises `QueueInUse`, which names the holder."""
        from filelock import Timeout  # noqa: PLC0415  as above

        try:
            self._lock.acquire()
        except Timeout:
            raise QueueInUse(await database.read(_holder, self._path)) from None
        try:
            await database.write(_write_lease, command, to_milliseconds(now))
        except BaseException:  # a cancellation arrives after the holder is recorded, and must not leave it there
            await self.release(database)
            raise

    async def release(self, database: Database) -> None:
        """Release the lock. A full disk keeps the holder's name, as a kill does, but not the lock."""
        try:
            with suppress(QueueBusy):
                await database.write(_drop_lease)
        finally:
            self._lock.release()


@contextmanager
def undriven(path: Path) -> Iterator[None]:
    """Hold the lock for a change that no send may be under way beside. Raise `QueueInUse` where somebody drives."""
    from filelock import FileLock, Timeout  # noqa: PLC0415  as above

    lock = FileLock(f"{path}.lock", timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise QueueInUse(
            f"{path}: a process runs this queue, and may be sending this request; nothing was changed. Stop it with "
            "Ctrl-C, which is safe, then repeat the command"
        ) from None
    try:
        yield
    finally:
        lock.release()


def _holder(connection: Session, path: Path) -> str:
    row = connection.execute(query("get_lease")).fetchone()
    who = "another process"
    if row is not None:
        since = from_milliseconds(row["started_at"]).strftime("%Y-%m-%d %H:%M:%S UTC")
        who = f"process {row['pid']} on {row['host']} ({row['command']}, since {since})"
    return (
        f"{path}: {who} runs this queue; nothing was sent or changed. `batchkiln enqueue` adds to it, and `batchkiln "
        "status` shows its progress"
    )


def _write_lease(connection: Session, command: str, now: int) -> None:
    holder = {"pid": os.getpid(), "host": socket.gethostname(), "command": command, "now": now}
    connection.execute(query("set_lease"), holder)


def _drop_lease(connection: Session) -> None:
    connection.execute(query("drop_lease"), {"pid": os.getpid()})


def lease(connection: Session) -> Lease | None:
    """Return the recorded process that runs the queue."""
    row = connection.execute(query("get_lease")).fetchone()
    if row is None:
        return None
    return Lease(row["pid"], row["host"], row["command"], from_milliseconds(row["started_at"]))
