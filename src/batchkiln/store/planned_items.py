"""The items of a job after a manifest would be applied: the selected ones, and the first ones to send."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from heapq import nsmallest
from itertools import count, islice
from typing import Final

from msgspec import Struct

from batchkiln.core.job import Recipe
from batchkiln.core.selection import Selectable, Selection
from batchkiln.core.states import ItemState
from batchkiln.store.session import Session
from batchkiln.store.sql import query

_AT_ONCE: Final = 10_000
_ENDED: Final = -1  # the step of selected items that are not to be queued: they need nothing
_BEHIND: Final = 1 << 62  # added to the numbers of new items, which have no ids yet


class PlannedItem(Struct, frozen=True):
    """An item that would be sent: its prompt, its recipe, what its images are, in order, and its price if known."""

    name: str
    prompt: str
    recipe: Recipe
    inputs: tuple[str, ...]
    cost_credits: int | None


class PlannedItems:
    """The items of a compared manifest and its job. `requeued` contains known items that a change queues again."""

    def __init__(
        self, connection: Session, job_id: int | None, selection: Selection, *, requeued: Collection[int]
    ) -> None:
        """Read from `connection`, whose temporary tables contain the staged manifest."""
        self._connection = connection
        self._job_id = job_id
        self._selection = selection
        self._requeued = requeued

    def count_selected(self) -> Counter[int]:
        """Return the numbers of selected items to send, by recipe, and stage the names of the selected items."""
        found: Counter[int] = Counter()
        chosen = self._selection.chosen(self._to_be())
        while portion := list(islice(chosen, _AT_ONCE)):
            found.update(item.recipe_id for item in portion if item.state == ItemState.QUEUED)
            steps = [(item.name, 0 if item.state == ItemState.QUEUED else _ENDED) for item in portion]
            self._connection.executemany(query("stage_chosen_name"), steps)
        return found

    def count_sources(self) -> Counter[int]:
        """Return the numbers of sources that the selected items need, by recipe, and stage their names.

        A source counts if it is to be sent and is not selected itself. Chains of sources are followed to their
        beginning.
        """
        found: Counter[int] = Counter()
        for step in count():
            params = {"job_id": self._job_id, "step": step}
            rows = self._connection.execute(query("sources_to_be"), params).fetchall()
            queued = [row for row in rows if row["state"] == ItemState.QUEUED or row["id"] in self._requeued]
            if not queued:
                break
            found.update(row["recipe_id"] for row in queued)
            self._connection.executemany(query("stage_chosen_name"), [(row["name"], step + 1) for row in queued])
        return found

    def first(
        self, number: int, recipes: Mapping[int, Recipe], costs: Mapping[int, int | None]
    ) -> Iterator[PlannedItem]:
        """Yield the first items that would be sent."""
        if not number:
            return
        queued = (item for item in self._selection.chosen(self._to_be()) if item.state == ItemState.QUEUED)
        for item in nsmallest(number, queued, key=lambda each: each.order):
            params = {"name": item.name, "job_id": self._job_id}
            row = self._connection.execute(query("planned_request"), params).fetchone()
            yield PlannedItem(
                name=item.name,
                prompt=row["prompt"],
                recipe=recipes[item.recipe_id],
                inputs=self._inputs_of(params, recipes[item.recipe_id].inputs_count),
                cost_credits=costs[item.recipe_id],
            )

    def _inputs_of(self, params: Mapping[str, object], number: int) -> tuple[str, ...]:
        """Return what each image of a request is: an uploaded file, or the file of an item that may not be made yet."""
        files = dict(self._connection.execute(query("planned_images"), params).fetchall())
        sources = (name for (name,) in self._connection.execute(query("planned_sources"), params).fetchall())
        return tuple(
            f"the uploaded {files[place]}" if place in files else f"the file of {next(sources, 'an item')}"
            for place in range(number)
        )

    def _to_be(self) -> Iterator[Selectable]:
        yield from self._pages("known_to_be", 0)
        yield from self._pages("fresh_to_be", _BEHIND)

    def _pages(self, name: str, offset: int) -> Iterator[Selectable]:
        after, is_over = 0, False
        while not is_over:
            params = {"job_id": self._job_id, "after": after, "limit": _AT_ONCE}
            rows = self._connection.execute(query(name), params).fetchall()
            for row in rows:
                state = ItemState.QUEUED if not offset and row["id"] in self._requeued else row["state"]
                if state != ItemState.CANCELED:
                    yield Selectable(row["id"] + offset, row["name"], row["recipe_id"], row["priority"], state)
            is_over = len(rows) < _AT_ONCE
            after = rows[-1]["id"] if rows else after
