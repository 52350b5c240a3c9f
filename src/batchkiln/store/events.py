"""The event log: forward for `run --json` and to find items that have ended, backward for a page of the newest."""

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

from msgspec import Struct

from batchkiln.core.shown import Shown
from batchkiln.core.states import AT_REST, ItemState
from batchkiln.core.timestamps import from_milliseconds
from batchkiln.store.jobs import Jobs
from batchkiln.store.session import Row, Session
from batchkiln.store.sql import query

EXAMINED: Final = 20_000
"""The number of events that one page examines at most. It takes some tens of milliseconds."""


class LoggedEvent(Shown, Struct, frozen=True):
    """One event. `item` and `state` are None for an event of the whole job."""

    id: int
    at: datetime
    job: str
    item: str | None
    kind: str
    state: str | None
    detail: dict[str, Any]

    def _shown(self) -> Iterator[tuple[str, object]]:
        yield "event", self.kind
        yield "at", self.at.strftime("%Y-%m-%d %H:%M:%S %Z")
        yield "job", self.job
        yield "item", self.item
        yield "state", self.state


class EventPage(Struct, frozen=True):
    """Some events, the newest first.

    `older` is the id before which the next page begins; None at the beginning of the log. `is_cut` is true if the page
    ends because enough events were examined, and not because it is full.
    """

    events: tuple[LoggedEvent, ...]
    older: int | None
    is_cut: bool


class ItemEnded(Struct, frozen=True):
    """An item's transition into a state that only a person can change."""

    event_id: int
    job_id: int
    item_id: int
    state: ItemState


class Events:
    """Reads the event log forward."""

    def __init__(self, connection: Session) -> None:
        """Read from this connection."""
        self._connection = connection

    def after(self, after: int, limit: int = 1000) -> list[LoggedEvent]:
        """Return the next events, in order."""
        rows = self._connection.execute(query("events_after"), {"after": after, "limit": limit})
        return [_logged(row) for row in rows]

    def before(
        self,
        before: int | None = None,
        *,
        job: str | None = None,
        state: ItemState | None = None,
        kind: str | None = None,
        limit: int = 100,
    ) -> EventPage:
        """Return the newest events before one, of a job, that led to a state, or of a kind.

        At most `EXAMINED` events are examined, so that no page is slow; it may be short or empty then.
        Raise `InputError` for an unknown job.
        """
        if job is not None:
            Jobs(self._connection).id_of(job)
        place = {"before": self.last_id() + 1 if before is None else before, "read": EXAMINED}
        wanted = {"job": job, "state": state, "kind": kind, "limit": limit + 1}
        rows = self._connection.execute(query("events_before"), place | wanted).fetchall()
        found = tuple(_logged(row) for row in rows[:limit])
        if len(rows) > limit:
            return EventPage(found, found[-1].id, is_cut=False)
        floor = self._connection.execute(query("events_floor"), place).fetchone()
        is_cut = floor["n"] == EXAMINED
        return EventPage(found, floor["id"] if is_cut else None, is_cut)

    def last_id(self) -> int:
        """Return the newest event's id, or 0."""
        newest: int = self._connection.execute(query("last_event")).fetchone()[0]
        return newest

    def ended_after(self, after: int, limit: int = 1000) -> tuple[list[ItemEnded], int]:
        """Return the items that ended within the next `limit` events, and the id of the last event read."""
        rows = self._connection.execute(query("moves_after"), {"after": after, "limit": limit}).fetchall()
        ended = [
            ItemEnded(row["id"], row["job_id"], row["item_id"], ItemState(row["state"]))
            for row in rows
            if row["state"] in AT_REST
        ]
        return ended, rows[-1]["id"] if rows else after


def _logged(row: Row) -> LoggedEvent:
    return LoggedEvent(
        id=row["id"],
        at=from_milliseconds(row["at"]),
        job=row["job"],
        item=row["item"],
        kind=row["kind"],
        state=row["state"],
        detail=json.loads(row["detail"]) if row["detail"] else {},
    )
