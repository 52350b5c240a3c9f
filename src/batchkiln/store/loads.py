"""The work left in each job, its prices and the durations of similar items: the input of a forecast."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from batchkiln.core.forecast import ItemClass, JobLoad, with_poll_delay
from batchkiln.core.job import Mode
from batchkiln.core.rate_limits import Limits
from batchkiln.core.states import ItemState
from batchkiln.store.session import Row, Session
from batchkiln.store.sql import query
from batchkiln.store.usage import job_credits

ATTEMPTS_LOOKED_AT: Final = 400


IMAGE_SECONDS: Final = 20.0


CLIP_SECONDS: Final = 90.0
"""Expected duration of an item without comparable observations; it counts as `PRIOR_WEIGHT` observations."""


PRIOR_WEIGHT: Final = 1


@dataclass(frozen=True, slots=True)
class QueuedLoad:
    """A job's load and its accounts. `accounts` is empty if it uses the profile's first account."""

    profile: str
    accounts: tuple[str, ...]
    load: JobLoad


@dataclass(frozen=True, slots=True)
class RecipeCount:
    """The number of a job's items with one recipe and state. `cost_credits` is the quote, None without one."""

    recipe_id: int
    state: ItemState
    count: int
    model: str
    mode: Mode
    price_key: str
    cost_credits: int | None
    max_cost_credits: int | None


@dataclass(frozen=True, slots=True)
class Means:
    """The number of successes among each recipe's newest attempts, and their average duration in seconds."""

    by_recipe: Mapping[int, tuple[int, float]]

    def expected(self, recipe_id: int, mode: Mode, limits: Limits) -> float:
        """Return the seconds that an item occupies the slot: its recipe's average, weighted with the overall one."""
        usual = with_poll_delay(CLIP_SECONDS if mode.makes_video else IMAGE_SECONDS, limits)
        count, mean = self.by_recipe.get(recipe_id, (0, 0.0))
        return (PRIOR_WEIGHT * usual + count * mean) / (PRIOR_WEIGHT + count)


class Loads:
    """Reads the loads of jobs."""

    def __init__(self, connection: Session) -> None:
        """Read from this connection."""
        self._connection = connection

    def queued(self, limits: Mapping[str, Limits], days: Mapping[str, datetime]) -> list[QueuedLoad]:
        """Return the loads of all jobs that are not paused, in the queue's order, for the profiles in `limits`.

        `days` contains the start of each profile's current service day.
        """
        means = self.means()
        found: list[QueuedLoad] = []
        for profile, limit in limits.items():
            rows = self._connection.execute(query("forecast_jobs"), {"profile": profile}).fetchall()
            found += [_load(self._connection, row, limit, means, days[profile]) for row in rows]
        return found

    def recipe_counts(self, job_id: int, profile: str) -> list[RecipeCount]:
        """Return a job's queued items and items under way, by recipe; quotes are those of the profile."""
        rows = self._connection.execute(query("forecast_classes"), {"job_id": job_id, "profile": profile})
        return [
            RecipeCount(
                recipe_id=row["recipe_id"],
                state=ItemState(row["state"]),
                count=row["n"],
                model=row["model"],
                mode=Mode(row["mode"]),
                price_key=row["price_key"],
                cost_credits=row["cost_credits"],
                max_cost_credits=row["max_cost_credits"],
            )
            for row in rows
        ]

    def means(self) -> Means:
        """Return the average durations of the newest attempts, by recipe."""
        rows = self._connection.execute(query("recent_durations"), {"limit": ATTEMPTS_LOOKED_AT})
        return Means({row["recipe_id"]: (row["n"], row["mean_ms"] / 1000) for row in rows})


def item_classes(counts: Iterable[RecipeCount], limits: Limits, means: Means) -> tuple[ItemClass, ...]:
    """Return the forecast's classes of equal items. An item under way is assumed to need half its time."""
    return tuple(_item_class(entry, means.expected(entry.recipe_id, entry.mode, limits)) for entry in counts)


def _item_class(entry: RecipeCount, seconds: float) -> ItemClass:
    is_under_way = entry.state is not ItemState.QUEUED
    return ItemClass(
        count=entry.count,
        cost=entry.cost_credits,
        seconds=seconds / 2 if is_under_way else seconds,
        cap=entry.max_cost_credits,
        is_under_way=is_under_way,
    )


def _load(connection: Session, row: Row, limits: Limits, means: Means, day: datetime) -> QueuedLoad:
    classes = item_classes(Loads(connection).recipe_counts(row["id"], row["profile"]), limits, means)
    budget = row["budget_credits"]
    left = None if budget is None else budget - row["committed"]
    taken = job_credits(connection, row["id"], [day])
    load = JobLoad(row["name"], classes, row["budget_credits_per_day"], taken, left)
    return QueuedLoad(row["profile"], tuple(json.loads(row["accounts"])), load)
