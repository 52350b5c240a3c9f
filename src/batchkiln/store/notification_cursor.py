"""What notifications need of the queue: whom a job names, how far each notifier was told, what is about to expire.

All of it stands in `meta`, a row a job that names notifiers and a row a notifier: names only, never an address.
"""

import json
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from batchkiln.core.polling import RETENTION
from batchkiln.core.timestamps import to_milliseconds
from batchkiln.store.events import Events
from batchkiln.store.meta import read_meta, write_meta
from batchkiln.store.sql import query

TOLD_KEPT: Final = 200
"""Ids of notices that a notifier was told of: more than accounts and jobs have to tell at a time."""


EXPIRING_SHOWN: Final = 1000


@dataclass(frozen=True, slots=True)
class NotificationCursor:
    """How far a notifier was told: the history up to an event; and notices, by their ids, the newest last."""

    cursor: int
    ids: tuple[str, ...] = ()

    def also(self, notice_id: str) -> "NotificationCursor":
        """Return this with one more that was told."""
        return NotificationCursor(self.cursor, (*self.ids, notice_id)[-TOLD_KEPT:])

    def at(self, cursor: int) -> "NotificationCursor":
        """Return this with the history told up to an event."""
        return NotificationCursor(cursor, self.ids)


@dataclass(frozen=True, slots=True)
class Expiring:
    """A paid item that is not fetched yet."""

    job: str
    item: str
    created_at: int


class Notifications:
    """Reads what notifications were delivered, and to whom."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        """Read on this connection."""
        self._connection = connection

    def audience(self, jobs: Iterable[str]) -> frozenset[str] | None:
        """Return the notifiers that any of these jobs names; None, all of them, where one of the jobs does not say."""
        names: set[str] = set()
        for job in jobs:
            text = read_meta(self._connection, f"audience/{job}")
            if text is None:
                return None
            names.update(json.loads(text))
        return frozenset(names)

    def cursor(self, notifier: str) -> NotificationCursor:
        """Return how far a notifier was told; a new one is told from now on."""
        text = read_meta(self._connection, f"told/{notifier}")
        if text is None:
            return NotificationCursor(Events(self._connection).last_id())
        kept = json.loads(text)
        return NotificationCursor(kept["cursor"], tuple(kept["ids"]))

    def near_expiry(self, profile: str, ends_before: datetime) -> list[Expiring]:
        """Return the paid items of a profile that are not fetched and whose retention ends before a moment."""
        before = to_milliseconds(ends_before - RETENTION)
        params = {"profile": profile, "before": before, "limit": EXPIRING_SHOWN}
        rows = self._connection.execute(query("near_expiry"), params)
        return [Expiring(row["job"], row["item"], row["generation_created_at"]) for row in rows]


def remember_audience(connection: sqlite3.Connection, job: str, names: tuple[str, ...] | None) -> None:
    """Keep which notifiers a job names; None takes back what was kept. Inside the caller's transaction."""
    value = None if names is None else json.dumps(list(names), ensure_ascii=False)
    write_meta(connection, f"audience/{job}", value)


def write_cursor(connection: sqlite3.Connection, notifier: str, told: NotificationCursor) -> None:
    """Store how much of the event log a notifier has delivered."""
    value = json.dumps({"cursor": told.cursor, "ids": told.ids})
    write_meta(connection, f"told/{notifier}", value)
