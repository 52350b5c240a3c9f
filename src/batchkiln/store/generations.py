"""Attempts and their generations, as traces, rehearsals and charts read them.

Nothing read here holds a prompt, a request's body or an API key.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from batchkiln.core.job import AttemptState
from batchkiln.core.states import ItemState
from batchkiln.core.timestamps import from_milliseconds, to_milliseconds
from batchkiln.store.session import Row, Session
from batchkiln.store.sql import query


@dataclass(frozen=True, slots=True)
class Paid:
    """What the whole queue has paid: generations known, those not refunded, and the items that have one of those."""

    generations: int
    kept: int
    items: int
    credits: int


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
    key_before: str | None  # the idempotency key of the item's attempt before

    @property
    def is_over(self) -> bool:
        """Whether nothing more is to come of it: a success is over once its files are here, or gone."""
        if self.state is AttemptState.SUCCEEDED:
            return self.item.state in {ItemState.DONE, ItemState.EXPIRED}
        return self.has_ended


ATTEMPTS_LOOKED_AT: Final = 5000
"""More than an account's five days of a thousand creates (Service section 8)."""


@dataclass(frozen=True, slots=True)
class Hour:
    """What ended in an hour: generations that succeeded, others, and the credits that stay spent."""

    starts_at: datetime
    succeeded: int
    otherwise: int
    credits: int


class Generations:
    """Reads attempts and their generations."""

    def __init__(self, connection: Session) -> None:
        """Read on this connection."""
        self._connection = connection

    def paid(self) -> Paid:
        """Count what was paid; reads all attempts."""
        return Paid(**self._connection.execute(query("paid")).fetchone())

    def item_states(self, generation_ids: Sequence[str]) -> dict[str, ItemState]:
        """Return how the items stand whose attempts made these generations."""
        rows = self._connection.execute(query("states_by_generation"), {"ids": json.dumps(list(generation_ids))})
        return {row["generation_id"]: ItemState(row["state"]) for row in rows}

    def traced_attempt(self, attempt_id: int) -> TracedAttempt:
        """Return an attempt as it stands."""
        row = self._connection.execute(query("traced_attempt"), {"attempt_id": attempt_id}).fetchone()
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
            key_before=row["key_before"],
        )

    def traced_item(self, item_id: int) -> TracedItem:
        """Return an item as it stands."""
        return _item(self._connection.execute(query("traced_item"), {"item_id": item_id}).fetchone())

    def ended_by_hour(self, since: datetime, *, length: timedelta) -> list[Hour]:
        """Return what ended from an instant on, by hours (or whatever `length` is), without the empty ones."""
        milliseconds = length // timedelta(milliseconds=1)
        params = {"length": milliseconds, "since": to_milliseconds(since), "looked_at": ATTEMPTS_LOOKED_AT}
        return [
            Hour(from_milliseconds(row["hour"] * milliseconds), row["succeeded"], row["otherwise"], row["credits"])
            for row in self._connection.execute(query("ended_by_hour"), params)
        ]


def name_queue(connection: Session, uid: str) -> None:
    """Set the id of a new queue, from which its idempotency keys are derived, so that a run can be repeated."""
    connection.execute(query("name_queue"), {"uid": uid})


def _item(row: Row) -> TracedItem:
    return TracedItem(
        id=row["item_id"],
        job=row["job"],
        name=row["item"],
        state=ItemState(row["item_state"]),
        model=row["model"],
        mode=row["mode"],
    )
