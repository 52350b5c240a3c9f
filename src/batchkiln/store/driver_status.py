"""What `status` tells beside the summaries: who drives the queue, what time it is there, an item for each trouble."""

import os
import socket
import sqlite3
from dataclasses import dataclass
from datetime import datetime

from batchkiln.core.states import ItemState
from batchkiln.core.timestamps import from_milliseconds
from batchkiln.store.sql import query


@dataclass(frozen=True, slots=True)
class Lease:
    """The process that drives the queue, or that was killed while it did."""

    pid: int
    host: str
    command: str
    started_at: datetime

    @property
    def is_alive(self) -> bool:
        """Whether the process is still there, as far as this machine can tell; one of another host counts so."""
        if self.host != socket.gethostname():
            return True
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        return True


def lease(connection: sqlite3.Connection) -> Lease | None:
    """Return who has written down that they drive the queue."""
    row = connection.execute(query("get_lease")).fetchone()
    if row is None:
        return None
    return Lease(row["pid"], row["host"], row["command"], from_milliseconds(row["started_at"]))


def latest_time(connection: sqlite3.Connection, profile: str | None) -> datetime | None:
    """Return the latest instant that a profile's service is known to have reached: by what it said, or was asked."""
    place = {"profile": profile, "key": f"service_time/{profile}"}
    newest = connection.execute(query("latest_time"), place).fetchone()[0]
    return None if newest is None else from_milliseconds(int(newest))


def present_time(connection: sqlite3.Connection, profile: str, machine_now: datetime) -> datetime:
    """Return the best guess at a service's time while nobody talks to it."""
    known = latest_time(connection, profile)
    return machine_now if known is None else max(machine_now, known)


def trouble_items(connection: sqlite3.Connection, job_name: str) -> dict[tuple[ItemState, str], str]:
    """Return an item's name for each (state, error code) of a job's troubles: the latest one."""
    rows = connection.execute(query("trouble_items"), {"job": job_name})
    return {(ItemState(row["state"]), row["error_code"]): row["name"] for row in rows}


def job_time(connection: sqlite3.Connection, job_name: str, machine_now: datetime) -> datetime:
    """Return what time it is, as far as is known, for the service of a job; an unknown job's is this machine's."""
    row = connection.execute(query("job_by_name"), {"name": job_name}).fetchone()
    return machine_now if row is None else present_time(connection, row["profile"], machine_now)
