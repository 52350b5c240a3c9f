"""Reviews: a person keeps or drops done items, or takes a verdict back. Each has a time, an author and a version.

Changes run inside the caller's transaction (for `Store.write`), which also fills or opens the inputs of items that are
made from the reviewed one. `now` is milliseconds of service time. Unknown names raise `InputError` before anything is
changed.
"""

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Final

from msgspec import Struct

from batchkiln.core.errors import InputError, command_arguments
from batchkiln.core.job import InputFile, Recipe, Verdict
from batchkiln.core.shown import Shown
from batchkiln.core.states import RETRYABLE, ItemState
from batchkiln.store.chains import dependents, fill_dependents
from batchkiln.store.item_sources import ItemSource
from batchkiln.store.items import LOOKED_AT, Filter, Items, ItemSummary, matching_ids
from batchkiln.store.jobs import Jobs
from batchkiln.store.operations import Skipped
from batchkiln.store.row_types import recipe_of
from batchkiln.store.session import Row, Session
from batchkiln.store.sql import query
from batchkiln.store.transitions import Detail, log_event


class Decided(StrEnum):
    """A decision of a person about an item."""

    KEEP = "keep"
    DROP = "drop"
    UNDO = "undo"


LEFT_AT_MOST: Final = 500
"""The remaining steps are counted up to this number, so that the time of a step does not grow with the job."""

KnownPrice = Callable[[str, Recipe, str], int | None]
"""Returns the price of a recipe with a prompt on a profile's service if it is known without a quote, else None."""

_ANY: Final = Filter()
_NOT_ENDED_BADLY: Final = frozenset(ItemState) - RETRYABLE
_VERDICTS: Final = {Decided.KEEP: Verdict.KEPT, Decided.DROP: Verdict.DROPPED, Decided.UNDO: None}
_STATEMENTS: Final = {
    ("next", True): "next_done",
    ("next", False): "next_to_review",
    ("previous", True): "previous_done",
    ("previous", False): "previous_reviewable",
}
_EVENTS: Final = {Decided.KEEP: "kept", Decided.DROP: "dropped", Decided.UNDO: "verdict_undone"}


class ReviewReport(Shown, Struct, frozen=True):
    """The items whose verdict changed, and the reasons why other named items stay unchanged.

    `made_ready` counts the queued items that waited only for these verdicts.
    """

    changed: tuple[str, ...]
    skipped: tuple[Skipped, ...]
    made_ready: int

    def _shown(self) -> Iterator[tuple[str, object]]:
        yield "changed", list(self.changed) or 0
        yield "made ready", self.made_ready or None
        yield "unchanged", [f"{each.name}: {each.reason}" for each in self.skipped]


class MadeItem(Struct, frozen=True):
    """An item that was sent with a reviewed one. `is_done`: a redo can make it again. `credits` are net of refunds."""

    job: str
    name: str
    made_from: str
    credits: int
    is_done: bool


class Release(Struct, frozen=True):
    """Queued items that a verdict lets begin, by their names.

    `credits` is the sum of their known prices, and None without any; `unpriced` of them have none.
    """

    items: tuple[str, ...] = ()
    credits: int | None = None
    unpriced: int = 0


class KeptBeyond(Struct, frozen=True):
    """A group of which too many items are kept: others are made from `used`, and not from `unused`."""

    job: str
    group: str
    used: tuple[str, ...]
    unused: tuple[str, ...]


class ReviewEffects(Struct, frozen=True):
    """What the current verdicts about some items mean for the items that are made from them.

    `ready` can begin now. `begun` items were sent with a kept file and are not done yet. `outdated` ones were sent with
    a file that is no longer the chosen one; `is_open` is true if none is chosen now. `beyond` are the groups of kept
    items that have too many of them. `ready_jobs` are the jobs of the items that can begin.
    """

    ready: Release = Release()
    begun: tuple[MadeItem, ...] = ()
    outdated: tuple[MadeItem, ...] = ()
    is_open: bool = False
    beyond: tuple[KeptBeyond, ...] = ()
    ready_jobs: tuple[str, ...] = ()


class ReviewStep(Shown, Struct, frozen=True):
    """The items that are reviewed together: one item, or a group of variants. `at` is the place for paging.

    `choose` is the number of items to keep of the group. `inputs` are the images that the items are made from.
    `next_at` is the place of the next step, and `previous_at` that of the previous one; None at the ends.
    """

    job: str
    at: int
    group: str | None
    choose: int | None
    items: tuple[ItemSummary, ...]
    inputs: tuple[tuple[int, InputFile], ...]
    next_at: int | None
    previous_at: int | None

    def _shown(self) -> Iterator[tuple[str, object]]:
        yield "job", self.job
        yield "group", self.group
        if self.choose is not None:
            yield "choose", f"{self.choose:,} of {len(self.items):,}, {self.kept:,} kept"
        for item in self.items:
            yield item.name, [item.verdict or item.state, *(output.path for output in item.outputs)]
        names = [item.name for item in self.items if item.state is ItemState.DONE]
        if self.surplus:
            yield "decide", f"`queue.drop({self.job!r}, [ID])` of one that is kept: {', '.join(self.surplus)} too many"
        elif names and not self.is_decided:
            chosen = names[: self.choose or 1]
            yield "decide", f"`queue.keep({self.job!r}, {chosen!r})`, or `drop`"
        yield "next at", self.next_at

    @property
    def kept(self) -> int:
        """The number of the items that are kept."""
        return len(self._kept)

    @property
    def surplus(self) -> tuple[str, ...]:
        """The kept items of a group that are not used, because earlier ones are, and no more are to be chosen."""
        return () if self.choose is None else self._kept[self.choose :]

    @property
    def _kept(self) -> tuple[str, ...]:
        return tuple(item.name for item in self.items if item.verdict is Verdict.KEPT and item.state is ItemState.DONE)

    @property
    def is_decided(self) -> bool:
        """Whether nothing is left to decide: as many of the group are kept as are used, or each has a verdict."""
        if self.surplus:
            return False
        if self.choose is not None and self.kept == self.choose:
            return True
        return all(item.verdict is not None for item in self.items if item.state is ItemState.DONE)


def review(
    connection: Session, job_name: str, named: Mapping[str, int | None], decided: Decided, *, by: str, now: int
) -> ReviewReport:
    """Keep or drop done items, or take a verdict back.

    `named` has the version of each item that the person saw, from 1; None for the current one. An item stays unchanged
    if it is not done, or if another version is current. `by` is the name of the person who decided.
    """
    job_id = Jobs(connection).id_of(job_name)
    found = Jobs(connection).items_named(job_id, job=job_name, names=list(named))
    skipped: list[Skipped] = []
    changed: dict[int, str] = {}
    for name, (item_id, _) in found.items():
        row = connection.execute(query("reviewed_item"), {"item_id": item_id}).fetchone()
        reason = _objection(row, named[name], decided, command_arguments(job_name, name))
        if reason is not None:
            skipped.append(Skipped(name, reason))
            continue
        connection.execute(query("set_verdict"), {"item_id": item_id, "verdict": _VERDICTS[decided]})
        detail: Detail = {"by": by, "version": row["version"]}
        version_id = row["version_id"]
        log_event(connection, _EVENTS[decided], item_id=item_id, now=now, attempt_id=version_id, detail=detail)
        changed[item_id] = name
    made_ready = fill_dependents(connection, list(changed), now) if changed else 0
    return ReviewReport(tuple(changed.values()), tuple(skipped), made_ready)


def _objection(row: Row, version: int | None, decided: Decided, arguments: str) -> str | None:
    """Return the reason why a verdict about an item is refused, or None."""
    if row["state"] != ItemState.DONE:
        return f"it is {row['state']}, and only a done item can be reviewed"
    if version is not None and version != row["version"]:
        return (
            f"the verdict is about version {version}, and version {row['version']} is current now; "
            f"`batchkiln show {arguments}` lists the versions"
        )
    verdict = _VERDICTS[decided]
    if row["verdict"] == verdict:
        return "it has no verdict" if verdict is None else f"it is {verdict} already"
    return None


class Reviews:
    """Reads the steps of reviews. Unknown jobs raise `InputError`."""

    def __init__(self, connection: Session) -> None:
        """Read from this connection."""
        self._connection = connection

    def step(
        self, job_name: str, at: int | None = None, *, is_all: bool = False, wanted: Filter = _ANY
    ) -> ReviewStep | None:
        """Return the step at a place, or the first one with something to review; None if there is none.

        With `is_all`, the steps are all done items, reviewed or not. The steps before and after it, and the first one,
        are those with an item that matches `wanted`, without its `state`.
        """
        job_id = Jobs(self._connection).id_of(job_name)
        if at is None:
            at = self._other("next", job_id, 0, None, wanted, is_all=is_all)
        if at is None:
            return None
        place = self._connection.execute(query("review_place"), {"job_id": job_id, "item_id": at}).fetchone()
        if place is None:
            raise InputError(f"the job {job_name!r} has no item at the place {at} of its review")
        group_id = place["group_id"]
        ids = [at]
        if group_id is not None:
            ids = [row["id"] for row in self._connection.execute(query("members"), {"group_id": group_id})] or ids
        items = Items(self._connection)
        return ReviewStep(
            job=job_name,
            at=at,
            group=place["group_name"],
            choose=place["choose"],
            items=tuple(items.of_ids(ids)),
            inputs=tuple(items.shown_inputs_of(at)),
            next_at=self._other("next", job_id, at, group_id, wanted, is_all=is_all),
            previous_at=self._other("previous", job_id, at, group_id, wanted, is_all=is_all),
        )

    def group(self, job_name: str, name: str) -> ReviewStep | None:
        """Return the step of a group of variants by its name, also before any of them is done; None if there is none.

        Without `is_all`, the steps before and after it are those with something to review.
        """
        params = {"job_id": Jobs(self._connection).id_of(job_name), "name": name}
        row = self._connection.execute(query("first_member"), params).fetchone()
        return None if row is None else self.step(job_name, row["id"])

    def left(self, job_name: str, *, at: int = 0, wanted: Filter = _ANY) -> int:
        """Return how many matching steps from a place on have something to review, counted up to `LEFT_AT_MOST`.

        With conditions, they are counted among the next `LOOKED_AT` steps; with a verdict, decided ones count as well.
        """
        job_id = Jobs(self._connection).id_of(job_name)
        if wanted.is_by_content:
            params = {"job_id": job_id, "after": at - 1, "group_id": None, "limit": LOOKED_AT}
            statement = _STATEMENTS["next", wanted.verdict is not None]
            rows = self._connection.execute(query(statement), params).fetchall()
            return min(len(self._matching([row["id"] for row in rows], wanted)), LEFT_AT_MOST)
        params = {"job_id": job_id, "at": at, "limit": LEFT_AT_MOST}
        return int(self._connection.execute(query("count_left"), params).fetchone()["n"])

    def awaiting(self, step: ReviewStep, known_price: KnownPrice) -> Release:
        """Return the first `LEFT_AT_MOST` queued items that wait for a verdict about a step."""
        found, wanted = self._made_from([item.id for item in step.items]), {step.group or step.items[0].name}
        wanted |= {item.name for item in step.items}
        return self._release(
            {
                item.id: item.name
                for _, item in found
                if any(source.is_open and source.job == step.job and source.item in wanted for source in item.sources)
            },
            known_price,
        )

    def effects(self, job_name: str, names: Sequence[str], known_price: KnownPrice) -> ReviewEffects:
        """Return what the verdicts about these items mean for the first `LEFT_AT_MOST` items made from them."""
        job_id = Jobs(self._connection).id_of(job_name)
        found = Jobs(self._connection).items_named(job_id, job=job_name, names=names)
        reviewed = {item_id for item_id, _ in found.values()}
        groups = {item.group for item in Items(self._connection).of_ids(list(reviewed))}
        ready: dict[int, str] = {}
        ready_jobs: set[str] = set()
        begun, outdated, is_open = [], [], False
        for job, item in self._made_from(reviewed):
            for source in item.sources:
                if source.job != job_name or source.made_from is None or source.item not in {*names, *groups}:
                    continue
                if source.is_stale or source.is_withdrawn:
                    outdated.append(_made(job, item, source))
                    is_open = is_open or source.is_withdrawn
                elif source.made_from in found and item.state is not ItemState.QUEUED:
                    begun += [_made(job, item, source)] if item.state is not ItemState.DONE else []
                elif source.made_from in found and not any(one.is_open for one in item.sources):
                    ready[item.id] = item.name
                    ready_jobs.add(job)
        beyond = tuple(self._kept_beyond(job_name, reviewed))
        return ReviewEffects(
            self._release(ready, known_price), tuple(begun), tuple(outdated), is_open, beyond, tuple(sorted(ready_jobs))
        )

    def _made_from(self, ids: Collection[int]) -> Iterator[tuple[str, ItemSummary]]:
        """Yield the first items that are made from these items or their groups, each with the name of its job."""
        jobs = dependents(self._connection, ids, _NOT_ENDED_BADLY, LEFT_AT_MOST)
        for item in Items(self._connection).of_ids(list(jobs)):
            yield jobs[item.id], item

    def _release(self, queued: Mapping[int, str], known_price: KnownPrice) -> Release:
        """Return what queued items, by their ids, may cost."""
        rows = self._connection.execute(query("recipes_of_queued"), {"ids": json.dumps(list(queued))}).fetchall()
        prices = [
            (known_price(row["profile"], recipe_of(row), row["prompt"]) if quoted is None else quoted, row["n"])
            for row in rows
            for quoted in [row["cost_credits"]]
        ]
        known = [price * count for price, count in prices if price is not None]
        unpriced = sum(count for price, count in prices if price is None)
        return Release(tuple(queued.values()), sum(known) if known else None, unpriced)

    def _kept_beyond(self, job_name: str, ids: Collection[int]) -> Iterator[KeptBeyond]:
        """Yield the groups of kept ones of these items of which more are kept than are to be chosen."""
        groups: dict[tuple[str, int], list[str]] = {}
        for row in self._connection.execute(query("kept_of_groups"), {"ids": json.dumps(sorted(ids))}):
            groups.setdefault((row["group_name"], row["choose"]), []).append(row["name"])
        for (group, choose), kept in groups.items():
            if len(kept) > choose:
                yield KeptBeyond(job_name, group, tuple(kept[:choose]), tuple(kept[choose:]))

    def item(self, job_name: str, item_id: int) -> ItemSummary | None:
        """Return an item of a job by its id; None if the job has none with this id."""
        params = {"job_id": Jobs(self._connection).id_of(job_name), "item_id": item_id}
        is_there = self._connection.execute(query("review_place"), params).fetchone() is not None
        return Items(self._connection).of_ids([item_id])[0] if is_there else None

    def waiting(self, job_name: str, *, is_all: bool = False) -> Iterator[ReviewStep]:
        """Yield all steps with something to review, or all steps. In `Store.run`, each comes from its own snapshot."""
        step = self.step(job_name, is_all=is_all)
        while step is not None:
            yield step
            step = None if step.next_at is None else self.step(job_name, step.next_at, is_all=is_all)

    def _other(
        self, way: str, job_id: int, at: int, group_id: int | None, wanted: Filter, *, is_all: bool
    ) -> int | None:
        """Return the place of the next or previous step that matches, and is not about a group; None at the end."""
        bound = "after" if way == "next" else "before"
        limit = LOOKED_AT if wanted.is_by_content else 1
        while True:
            params = {"job_id": job_id, bound: at, "group_id": group_id, "limit": limit}
            places = [row["id"] for row in self._connection.execute(query(_STATEMENTS[way, is_all]), params)]
            if found := self._matching(places, wanted):
                return found[0]
            if len(places) < limit:
                return None
            at = places[-1]

    def _matching(self, places: Sequence[int], wanted: Filter) -> list[int]:
        """Return the places of the steps with a done item that matches."""
        if not wanted.is_by_content or not places:
            return list(places)
        shown = {place: place for place in places}  # by the item: a group's step has one place, and several items
        for row in self._connection.execute(query("step_members"), {"ids": json.dumps(places)}):
            shown[row["id"]] = row["at"]
        found = {shown[item_id] for item_id in matching_ids(self._connection, list(shown), wanted, len(shown))}
        return [place for place in places if place in found]


def _made(job: str, item: ItemSummary, source: ItemSource) -> MadeItem:
    return MadeItem(job, item.name, source.made_from or source.item, item.credits, item.state is ItemState.DONE)
