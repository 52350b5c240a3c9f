"""What traces tell of an attempt or an item: names, figures and instants; never a prompt, a body or a key.

Only reading, by key, on a connection with a snapshot (for `Database.read`).
"""

import sqlite3
from dataclasses import dataclass
from datetime import datetime

from batchkiln.core.job import AttemptState
from batchkiln.core.states import ItemState
from batchkiln.core.timestamps import from_milliseconds
from batchkiln.store.sql import query


@dataclass(frozen=True, slots=True)
class TracedItem:
    """An item by its names."""

    id: int
    job: str
    name: str
    state: ItemState
    model: str
    mode: str


@dataclass(frozen=True, slots=True)
class TracedAttempt:
    """An attempt and its item."""

    item: TracedItem
    number: int
    state: AttemptState
    profile: str
    account: str
    idempotency_key: str
    generation_id: str | None
    quote_credits: int
    cost_credits: int | None
    is_refunded: bool
    sends: int
    recorded_at: datetime
    has_ended: bool

    @property
    def is_over(self) -> bool:
        """Whether nothing more is to come of it: a success is over once its files are here, or gone."""
        if self.state is AttemptState.SUCCEEDED:
            return self.item.state in {ItemState.DONE, ItemState.EXPIRED}
        return self.has_ended


def traced_attempt(connection: sqlite3.Connection, attempt_id: int) -> TracedAttempt:
    """Return an attempt as it stands."""
    row = connection.execute(query("traced_attempt"), {"attempt_id": attempt_id}).fetchone()
    return TracedAttempt(
        item=_item(row),
        number=row["number"],
        state=AttemptState(row["attempt_state"]),
        profile=row["profile"],
        account=row["account"],
        idempotency_key=row["idempotency_key"],
        generation_id=row["generation_id"],
        quote_credits=row["quote_credits"],
        cost_credits=row["cost_credits"],
        is_refunded=bool(row["is_refunded"]),
        sends=row["sends"],
        recorded_at=from_milliseconds(row["recorded_at"]),
        has_ended=row["ended_at"] is not None,
    )


def traced_item(connection: sqlite3.Connection, item_id: int) -> TracedItem:
    """Return an item as it stands."""
    return _item(connection.execute(query("traced_item"), {"item_id": item_id}).fetchone())


def _item(row: sqlite3.Row) -> TracedItem:
    return TracedItem(
        id=row["item_id"],
        job=row["job"],
        name=row["item"],
        state=ItemState(row["item_state"]),
        model=row["model"],
        mode=row["mode"],
    )
