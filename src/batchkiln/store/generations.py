"""Attempts and their generations, for traces, rehearsals and charts.

Nothing read here contains a prompt, a request's body or an API key.
"""

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct

from batchkiln.core.queue_types import ItemNames
from batchkiln.core.states import ItemState
from batchkiln.core.timestamps import from_milliseconds, to_milliseconds
from batchkiln.store.meta import new_key
from batchkiln.store.session import Session
from batchkiln.store.sql import query


class Paid(Struct, frozen=True):
    """The paid generations of the whole queue. `kept` are those not refunded; `items` and `credits` are theirs."""

    generations: int
    kept: int
    items: int
    credits: int


ATTEMPTS_LOOKED_AT: Final = 5000
"""More than an account's five days of a thousand creates (Service section 8)."""


class Hour(Struct, frozen=True):
    """The generations that ended in an hour: successes, others, and the credits that were not refunded."""

    starts_at: datetime
    succeeded: int
    otherwise: int
    credits: int


class Generations:
    """Reads attempts and their generations."""

    def __init__(self, connection: Session) -> None:
        """Read from this connection."""
        self._connection = connection

    def paid(self) -> Paid:
        """Count the paid generations, by a read of all attempts."""
        return Paid(**self._connection.execute(query("paid")).fetchone())

    def item_states(self, generation_ids: Sequence[str]) -> dict[str, ItemState]:
        """Return the states of the items with these generations, by generation id."""
        rows = self._connection.execute(
            query("states_by_generation"), {"generation_ids": json.dumps(list(generation_ids))}
        )
        return {row["generation_id"]: ItemState(row["state"]) for row in rows}

    def item_names(self, item_id: int) -> ItemNames:
        """Return the names of an item, and the keys of its attempts and of its next one."""
        item = self._connection.execute(query("item_names"), {"item_id": item_id}).fetchone()
        attempts = self._connection.execute(query("attempt_keys"), {"item_id": item_id})
        keys = {row["number"]: row["idempotency_key"] for row in attempts}
        next_number = max(item["last_number"], item["refused_number"]) + 1
        keys[next_number] = new_key(self._connection, item, next_number)
        return ItemNames(item["job_name"], item["item_name"], item["model"], keys)

    def ended_by_hour(self, since: datetime, *, length: timedelta) -> list[Hour]:
        """Return the ended generations from an instant on, by periods of `length`. Empty periods are left out."""
        milliseconds = length // timedelta(milliseconds=1)
        params = {"length": milliseconds, "since": to_milliseconds(since), "looked_at": ATTEMPTS_LOOKED_AT}
        return [
            Hour(from_milliseconds(row["hour"] * milliseconds), row["succeeded"], row["otherwise"], row["credits"])
            for row in self._connection.execute(query("ended_by_hour"), params)
        ]


def name_queue(connection: Session, uid: str) -> None:
    """Set the id of a new queue. Idempotency keys are derived from it, so that a run can be repeated exactly."""
    connection.execute(query("name_queue"), {"uid": uid})
