"""What a rehearsal asks of its own queue: a name that its seed gives, and what was paid in the end."""

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from batchkiln.core.states import ItemState
from batchkiln.store.sql import query


@dataclass(frozen=True, slots=True)
class Paid:
    """What the whole queue has paid: generations known, those not refunded, and the items that have one of those."""

    generations: int
    kept: int
    items: int
    credits: int


def paid(connection: sqlite3.Connection) -> Paid:
    """Count what was paid; reads all attempts."""
    return Paid(**connection.execute(query("paid")).fetchone())


def states_by_generation(connection: sqlite3.Connection, generation_ids: Sequence[str]) -> dict[str, ItemState]:
    """Return how the items stand whose attempts made these generations."""
    rows = connection.execute(query("states_by_generation"), {"ids": json.dumps(list(generation_ids))})
    return {row["generation_id"]: ItemState(row["state"]) for row in rows}


def name_queue(connection: sqlite3.Connection, uid: str) -> None:
    """Give a new queue the name that its idempotency keys are derived from, so that a run can be repeated."""
    connection.execute(query("name_queue"), {"uid": uid})
