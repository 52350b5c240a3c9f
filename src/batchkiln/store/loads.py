"""The work left in each job, its prices and the durations of similar items: the input of a forecast."""

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from batchkiln.core.durations import Durations
from batchkiln.core.forecast import ItemClass, JobLoad, with_poll_delay
from batchkiln.core.polling import Kind
from batchkiln.core.rate_limits import Limits
from batchkiln.core.states import ItemState
from batchkiln.core.timestamps import from_milliseconds
from batchkiln.store.row_types import kind_of, output_seconds
from batchkiln.store.session import Row, Session
from batchkiln.store.sql import query
from batchkiln.store.usage import job_credits

if TYPE_CHECKING:
    from batchkiln.store.selected_items import Unselected

ATTEMPTS_LOOKED_AT: Final = 400

IMAGE_SECONDS: Final = 20.0
CLIP_SECONDS: Final = 90.0
"""Expected duration of an item while none of its model was seen."""


class QueuedLoad(Struct, frozen=True):
    """A job's load and its accounts. `accounts` is empty if it uses the profile's first account."""

    profile: str
    accounts: tuple[str, ...]
    load: JobLoad


class RecipeCount(Struct, frozen=True):
    """The number of a job's items with one recipe and state. `cost_credits` is the quote, None without one.

    `began_at` is when items under way were recorded, on average; None for queued ones.
    """

    recipe_id: int
    state: ItemState
    count: int
    model: str
    is_video: bool
    price_key: str
    cost_credits: int | None
    max_cost_credits: int | None
    output_seconds: float | None = None
    began_at: datetime | None = None

    @property
    def kind(self) -> Kind:
        """The properties that decide how long such an item takes."""
        return Kind(self.price_key, self.is_video, self.model, self.output_seconds)


class Loads:
    """Reads the loads of jobs."""

    def __init__(self, connection: Session) -> None:
        """Read from this connection."""
        self._connection = connection

    def queued(
        self, limits: Mapping[str, Limits], days: Mapping[str, datetime], unselected: "Unselected | None" = None
    ) -> list[QueuedLoad]:
        """Return the loads of all jobs that are not paused, in the queue's order, for the profiles in `limits`.

        `days` contains the start of each profile's current service day. Items that are `unselected` for a run are left
        out.
        """
        durations = self.durations()
        found: list[QueuedLoad] = []
        beside = unselected or {}
        for profile, limit in limits.items():
            known = durations.get(profile, Durations())
            rows = self._connection.execute(query("forecast_jobs"), {"profile": profile}).fetchall()
            found += [
                _load(self._connection, row, limit, known, days[profile], unselected=beside.get(row["name"], {}))
                for row in rows
            ]
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
                is_video=bool(row["is_video"]),
                price_key=row["price_key"],
                cost_credits=row["cost_credits"],
                max_cost_credits=row["max_cost_credits"],
                output_seconds=output_seconds(json.loads(row["parameters"]), bool(row["is_video"])),
                began_at=None if row["began_at"] is None else from_milliseconds(row["began_at"]),
            )
            for row in rows
        ]

    def durations(self) -> dict[str, Durations]:
        """Return the durations of the newest attempts, by profile: how long each occupied its account's slot."""
        seen: dict[str, list[tuple[Kind, float]]] = {}
        for row in self._connection.execute(query("recent_durations"), {"limit": ATTEMPTS_LOOKED_AT}):
            seen.setdefault(row["profile"], []).append((kind_of(row), row["milliseconds"] / 1000))
        return {profile: Durations(each) for profile, each in seen.items()}


def item_classes(counts: Iterable[RecipeCount], limits: Limits, durations: Durations) -> tuple[ItemClass, ...]:
    """Return the forecast's classes of equal items."""
    return tuple(_item_class(entry, limits, durations) for entry in counts)


def _item_class(entry: RecipeCount, limits: Limits, durations: Durations) -> ItemClass:
    kind = entry.kind
    usual = with_poll_delay(CLIP_SECONDS if kind.is_video else IMAGE_SECONDS, limits)
    return ItemClass(
        entry.count,
        entry.cost_credits,
        durations.expected(kind, usual),
        cap=entry.max_cost_credits,
        is_under_way=entry.state is not ItemState.QUEUED,
        kind=kind.price_key if durations.has_seen(kind) else kind.model,
        began_at=entry.began_at,
        model=entry.model,
    )


def _without(unselected: Mapping[tuple[int, ItemState], int], counts: Iterable[RecipeCount]) -> Iterator[RecipeCount]:
    """Yield the counts without so many items of each recipe and state. A recipe may have two: of ready and waiting."""
    rest = dict(unselected)
    for entry in counts:
        place = entry.recipe_id, entry.state
        taken = min(entry.count, rest.get(place, 0))
        rest[place] = rest.get(place, 0) - taken
        if entry.count > taken:
            yield replace(entry, count=entry.count - taken)


def _load(
    connection: Session,
    row: Row,
    limits: Limits,
    durations: Durations,
    day: datetime,
    *,
    unselected: Mapping[tuple[int, ItemState], int],
) -> QueuedLoad:
    counts = _without(unselected, Loads(connection).recipe_counts(row["id"], row["profile"]))
    classes = item_classes(counts, limits, durations)
    budget = row["budget_credits"]
    left = None if budget is None else budget - row["committed"]
    taken = job_credits(connection, row["id"], [day]).credits
    load = JobLoad(row["name"], classes, row["budget_credits_per_day"], taken, left)
    return QueuedLoad(row["profile"], tuple(json.loads(row["accounts"])), load)
