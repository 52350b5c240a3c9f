"""The queue's data for notifications: the notifiers of jobs, the position of each notifier, and expiring results.

It is stored in `meta`, one row for each job that names notifiers and one for each notifier: names only, never an
address.
"""

import json
from collections.abc import Iterable
from datetime import datetime
from typing import Final

from msgspec import Struct

from batchkiln.core.polling import RETENTION
from batchkiln.core.timestamps import to_milliseconds
from batchkiln.store.events import Events
from batchkiln.store.meta import read_meta, write_meta
from batchkiln.store.session import Session
from batchkiln.store.sql import query

DELIVERED_IDS_KEPT: Final = 200
"""Maximum number of delivered ids kept for a notifier: more than accounts and jobs produce at a time."""


EXPIRING_SHOWN: Final = 1000


class NotificationPosition(Struct, frozen=True):
    """A notifier's position: the last delivered event, and the ids of delivered notifications, the newest last."""

    cursor: int
    ids: tuple[str, ...] = ()

    def with_delivered(self, notification_id: str) -> "NotificationPosition":
        """Return a copy with one more delivered notification."""
        return NotificationPosition(self.cursor, (*self.ids, notification_id)[-DELIVERED_IDS_KEPT:])

    def moved_to(self, cursor: int) -> "NotificationPosition":
        """Return a copy with a later event as its position."""
        return NotificationPosition(cursor, self.ids)


class Expiring(Struct, frozen=True):
    """A paid item that is not downloaded yet."""

    job: str
    item: str
    created_at: int


class Notifications:
    """Reads the deliveries and their recipients."""

    def __init__(self, connection: Session) -> None:
        """Read from this connection."""
        self._connection = connection

    def audience(self, jobs: Iterable[str]) -> frozenset[str] | None:
        """Return the notifiers named by these jobs; None (all notifiers) if one of the jobs names none."""
        names: set[str] = set()
        for job in jobs:
            text = read_meta(self._connection, f"audience/{job}")
            if text is None:
                return None
            names.update(json.loads(text))
        return frozenset(names)

    def cursor(self, notifier: str) -> NotificationPosition:
        """Return a notifier's position; a new notifier starts at the current event."""
        text = read_meta(self._connection, f"told/{notifier}")
        if text is None:
            return NotificationPosition(Events(self._connection).last_id())
        kept = json.loads(text)
        return NotificationPosition(kept["cursor"], tuple(kept["ids"]))

    def near_expiry(self, profile: str, ends_before: datetime) -> list[Expiring]:
        """Return a profile's paid items that are not downloaded and whose retention ends before an instant."""
        before = to_milliseconds(ends_before - RETENTION)
        params = {"profile": profile, "before": before, "limit": EXPIRING_SHOWN}
        rows = self._connection.execute(query("near_expiry"), params)
        return [Expiring(row["job"], row["item"], row["generation_created_at"]) for row in rows]


def remember_audience(connection: Session, job: str, names: tuple[str, ...] | None) -> None:
    """Store a job's notifiers; None deletes them. Runs inside the caller's transaction."""
    value = None if names is None else json.dumps(list(names), ensure_ascii=False)
    write_meta(connection, f"audience/{job}", value)


def write_cursor(connection: Session, notifier: str, position: NotificationPosition) -> None:
    """Store how much of the event log a notifier has delivered."""
    value = json.dumps({"cursor": position.cursor, "ids": position.ids})
    write_meta(connection, f"told/{notifier}", value)
