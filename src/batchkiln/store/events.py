"""The event log, read forward: for `run --json`, and to find items that have ended."""

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from batchkiln.core.states import AT_REST, ItemState
from batchkiln.core.timestamps import from_milliseconds
from batchkiln.store.session import Session
from batchkiln.store.sql import query


@dataclass(frozen=True, slots=True)
class LoggedEvent:
    """One event. `item` and `state` are None for an event of the whole job."""

    id: int
    at: datetime
    job: str
    item: str | None
    kind: str
    state: str | None
    detail: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ItemEnded:
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
        return [
            LoggedEvent(
                id=row["id"],
                at=from_milliseconds(row["at"]),
                job=row["job"],
                item=row["item"],
                kind=row["kind"],
                state=row["state"],
                detail=json.loads(row["detail"]) if row["detail"] else {},
            )
            for row in rows
        ]

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
