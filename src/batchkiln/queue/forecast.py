"""What a forecast needs from the queue: the work left per job, its prices, and how long such items took."""

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from batchkiln.core.forecast import ItemClass, JobLoad, with_poll_delay
from batchkiln.core.instants import to_milliseconds
from batchkiln.core.job import Mode
from batchkiln.core.windows import Limits
from batchkiln.queue.sql import query

ATTEMPTS_LOOKED_AT: Final = 400
IMAGE_SECONDS: Final = 20.0
CLIP_SECONDS: Final = 90.0
"""What is expected of an item while nothing like it was made yet; it counts as `PRIOR_WEIGHT` observations."""

PRIOR_WEIGHT: Final = 1


@dataclass(frozen=True, slots=True)
class QueuedLoad:
    """A job's load, and where it is carried. `accounts` is empty where the profile's first account is meant."""

    profile: str
    accounts: tuple[str, ...]
    load: JobLoad


def queued_loads(
    connection: sqlite3.Connection, limits: Mapping[str, Limits], days: Mapping[str, datetime]
) -> list[QueuedLoad]:
    """Return the loads of all jobs that are not paused, in the queue's order, for the profiles in `limits`.

    `days` tells, by profile, when the service's present day began.
    """
    means = _means(connection)
    found: list[QueuedLoad] = []
    for profile, limit in limits.items():
        place = {"day": to_milliseconds(days[profile]), "profile": profile}
        rows = connection.execute(query("forecast_jobs"), place).fetchall()
        found += [_load(connection, row, limit, means) for row in rows]
    return found


def _load(
    connection: sqlite3.Connection, row: sqlite3.Row, limits: Limits, means: Mapping[int, tuple[int, float]]
) -> QueuedLoad:
    place = {"job_id": row["id"], "profile": row["profile"]}
    classes = []
    for entry in connection.execute(query("forecast_classes"), place):
        seconds = _expected(entry, limits, means)
        is_queued = entry["state"] == "queued"
        cost = entry["cost_credits"] if is_queued else 0
        classes.append(ItemClass(entry["n"], cost, seconds if is_queued else seconds / 2))
    load = JobLoad(row["name"], tuple(classes), row["budget_credits_per_day"], row["taken"])
    return QueuedLoad(row["profile"], tuple(json.loads(row["accounts"])), load)


def _expected(entry: sqlite3.Row, limits: Limits, means: Mapping[int, tuple[int, float]]) -> float:
    """Return how long an item holds the slot: what was seen of its recipe, tempered by what is usual."""
    usual = with_poll_delay(CLIP_SECONDS if Mode(entry["mode"]).makes_video else IMAGE_SECONDS, limits)
    count, mean = means.get(entry["recipe_id"], (0, 0.0))
    return (PRIOR_WEIGHT * usual + count * mean) / (PRIOR_WEIGHT + count)


def _means(connection: sqlite3.Connection) -> dict[int, tuple[int, float]]:
    rows = connection.execute(query("recent_durations"), {"limit": ATTEMPTS_LOOKED_AT})
    return {row["recipe_id"]: (row["n"], row["mean_ms"] / 1000) for row in rows}
