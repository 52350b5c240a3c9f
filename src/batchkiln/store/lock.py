"""The record of the process that runs the queue. The driver holds the lock itself; a crash releases it."""

import os
from datetime import datetime

from msgspec import Struct

from batchkiln.core.timestamps import from_milliseconds
from batchkiln.store.meta import refuse_moved
from batchkiln.store.session import Session
from batchkiln.store.sql import query


class Lease(Struct, frozen=True):
    """The process that runs the queue, or that was killed while it ran the queue."""

    pid: int
    host: str
    command: str
    started_at: datetime

    @property
    def is_alive(self) -> bool:
        """Whether the process is alive as far as this machine knows.

        A process of another host counts as alive.
        """
        import socket  # noqa: PLC0415  few commands see a lease

        if self.host != socket.gethostname():
            return True
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        return True


def in_use(connection: Session, place: object) -> str:
    """Return the error that a process already drives the queue; `place` names the queue."""
    row = connection.execute(query("get_lease")).fetchone()
    who = "another process"
    if row is not None:
        since = from_milliseconds(row["started_at"]).strftime("%Y-%m-%d %H:%M:%S UTC")
        who = f"process {row['pid']} on {row['host']} ({row['command']}, since {since})"
    return (
        f"{place}: {who} runs this queue; nothing was sent or changed. `batchkiln enqueue` adds to it, and `batchkiln "
        "status` shows its progress"
    )


def in_use_for_decision(place: object) -> str:
    """Return the error that refuses a decision about an item, because a running process may be sending it."""
    return (
        f"{place}: a process runs this queue, and may be sending this request; nothing was changed. Stop it with "
        "Ctrl-C, which is safe, then repeat the command"
    )


def record_lease(connection: Session, command: str, now: int) -> None:
    """Record this process as the one that runs the queue. Raise `QueueUnusable` for a queue that was moved."""
    import socket  # noqa: PLC0415  as above

    refuse_moved(connection, "this queue")  # it may have been moved since it was opened
    holder = {"pid": os.getpid(), "host": socket.gethostname(), "command": command, "now": now}
    connection.execute(query("set_lease"), holder)


def drop_lease(connection: Session) -> None:
    """Delete the record that this process runs the queue."""
    connection.execute(query("drop_lease"), {"pid": os.getpid()})


def lease(connection: Session) -> Lease | None:
    """Return the recorded process that runs the queue."""
    row = connection.execute(query("get_lease")).fetchone()
    if row is None:
        return None
    return Lease(row["pid"], row["host"], row["command"], from_milliseconds(row["started_at"]))
