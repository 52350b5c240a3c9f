"""Comparison of a manifest with the queue: the differences, the items to send, and the missing prices.

Nothing is changed: the staging is a separate file, and the queue's connection is read-only.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from batchkiln.core.durations import Durations
from batchkiln.core.errors import Diagnostic
from batchkiln.core.forecast import JobLoad
from batchkiln.core.job import JobSpec, Recipe
from batchkiln.core.located_items import SimilarItems
from batchkiln.core.rate_limits import Limits
from batchkiln.core.request import price_key
from batchkiln.core.selection import Selection
from batchkiln.core.states import ItemState
from batchkiln.store.applied_contents import Contents
from batchkiln.store.apply import ApplyOptions, ApplyReport, DiagnosticAt, Placed, compared
from batchkiln.store.diff import Difference, DiffKind
from batchkiln.store.identity import SameRequest, paid_before
from batchkiln.store.items import NAMES_AT_MOST, output_names
from batchkiln.store.jobs import Jobs
from batchkiln.store.loads import Loads, QueuedLoad, RecipeCount, item_classes
from batchkiln.store.planned_items import PlannedItem, PlannedItems
from batchkiln.store.planner_snapshot import queued_heads
from batchkiln.store.references import PlannedChains, find_needs, planned_chains
from batchkiln.store.row_types import output_seconds, recipe_of
from batchkiln.store.session import Row, Session
from batchkiln.store.sql import query
from batchkiln.store.usage import job_credits

CHANGES_SHOWN: Final = 20
"""Number of named items for each kind of change; the others are only counted."""

_ALL_ITEMS: Final = Selection()


class ChangeKind(StrEnum):
    """The effect on an item of applying the manifest."""

    NEW = "new"
    UPDATED = "updated"
    REQUEUED = "requeued"
    REDONE = "redone"  # its request changed after it was sent: it is made again, and charged again
    REFUSED = "refused"  # its request changed after it was sent: applying is refused, or it is kept as sent
    PRUNED = "pruned"
    LEFT_ALONE = "left_alone"  # no longer in the manifest


class Change(Struct, frozen=True):
    """One new or differing item. `fields` are the differences; `reason` says why the item had ended."""

    kind: ChangeKind
    item: str
    state: ItemState | None = None
    fields: tuple[str, ...] = ()
    reason: str | None = None


class Uploads(Struct, frozen=True):
    """Images to upload, each content counted once."""

    files: int
    size_bytes: int
    largest_bytes: int


class PriceQuestion(Struct, frozen=True):
    """A missing price, and an item whose request is used for the quote. `urls` has an uploaded asset per image."""

    profile: str
    account: str
    price_key: str
    recipe: Recipe
    item: str
    prompt: str
    urls: tuple[str, ...]


class ManifestPlan(Struct, frozen=True):
    """The comparison of one manifest. `counts` are the items to send and those already under way.

    `recipes` are those of the items to send, by the id in `counts`. `numbers` counts the changes, each item once;
    `changes` names the first few of each kind. `committed` is the job's cost so far, `taken` its use of the current
    day. `new_names` are the relative output names of the first new items, with any extension. `paid_before` names the
    first new items whose requests equal those of items that are done or under way. `equal_requests` is the number of
    items that repeat the request of an earlier item of the manifest, and the first such pairs. `unselected` counts
    items to send that a selection leaves out; `counts` has the others, among them `needed` sources of selected items.
    `selected` names the first items that a selection would send. `shown` are the first items that would be sent, as far
    as they were asked for. `without_rows` are the manifest's tables that make no item.
    """

    spec: JobSpec
    profile: str
    report: ApplyReport
    numbers: Mapping[ChangeKind, int]
    changes: tuple[Change, ...]
    counts: tuple[RecipeCount, ...]
    recipes: Mapping[int, Recipe]
    questions: tuple[PriceQuestion, ...]
    uploads: Uploads
    is_paused: bool
    committed: int
    taken: int
    durations: Durations
    new_names: tuple[str, ...] = ()
    chains: PlannedChains = field(default_factory=PlannedChains)
    paid_before: tuple[SameRequest, ...] = ()
    equal_requests: tuple[int, tuple[tuple[str, str], ...]] = (0, ())
    needed: int = 0
    unselected: int = 0
    selected: tuple[str, ...] = ()
    shown: tuple[PlannedItem, ...] = ()
    without_rows: tuple[Diagnostic, ...] = ()

    def priced(self, prices: Mapping[str, int]) -> "ManifestPlan":
        """Return a copy with prices by price key; known prices remain."""
        counts = tuple(
            entry if entry.cost_credits is not None else replace(entry, cost_credits=prices.get(entry.price_key))
            for entry in self.counts
        )
        shown = tuple(
            item if item.cost_credits is not None else replace(item, cost_credits=prices.get(price_key(item.recipe)))
            for item in self.shown
        )
        return replace(self, counts=counts, shown=shown)

    def load(self, limits: Limits, *, is_new_day: bool = False) -> QueuedLoad:
        """Return the job's load for the forecast. `is_new_day` is true if `taken` belongs to the previous day."""
        budget = self.spec.budget_credits
        load = JobLoad(
            name=self.spec.name,
            classes=item_classes(self.counts, limits, self.durations),
            credits_per_day=self.spec.budget_credits_per_day,
            credits_taken=0 if is_new_day else self.taken,
            credits_left=None if budget is None else budget - self.committed,
        )
        return QueuedLoad(self.profile, self.spec.accounts, load)


class _RecipeCounter:
    """The items that one staged and compared manifest would queue, by recipe."""

    def __init__(self, connection: Session, *, profile: str, account: str, selection: Selection) -> None:
        self._connection = connection
        self._report = ApplyReport(job_id=None)
        self._profile = profile
        self._account = account
        self._queued: Counter[int] = Counter()
        self._under_way: list[RecipeCount] = []
        self._examples: dict[int, int] = {}  # recipe -> a staged item with it
        self._numbers: Counter[ChangeKind] = Counter()
        self._named: list[Change] = []
        self._recipes: dict[int, Recipe] = {}
        self._price_keys: dict[int, str] = {}
        self._quotes: dict[str, int] = {}
        self._selection = selection
        self._requeued: set[int] = set()  # known items that a change queues again
        self.shown: tuple[PlannedItem, ...] = ()
        self.selected: tuple[str, ...] = ()
        self.needed = 0
        self.unselected = 0

    def observe(self, difference: Difference) -> None:
        """Record a differing item, and its old and new recipe."""
        change = _change_of(difference)
        if change is None or self._is_requeued_by_settings(difference):
            return
        self._numbers[change.kind] += 1
        if self._numbers[change.kind] <= CHANGES_SHOWN:
            self._named.append(change)
        if difference.kind not in {DiffKind.TAKE_OVER, DiffKind.SETTINGS, DiffKind.REDO}:
            return
        if difference.state is ItemState.QUEUED:
            self._queued[difference.old_recipe_id] -= 1
        if difference.requeues or difference.redoes:
            self._requeued.add(difference.item_id)
        if difference.state is ItemState.QUEUED or difference.requeues or difference.redoes:
            self._add(difference.new_recipe_id, 1, difference.seq)

    def count(self, report: ApplyReport, show: int) -> None:
        """Count the items to queue for each recipe, once all differences are known; keep the first `show` of them."""
        self._report = report
        if report.job_id is not None:
            for entry in Loads(self._connection).recipe_counts(report.job_id, self._profile):
                if entry.state is ItemState.QUEUED:
                    self._queued[entry.recipe_id] += entry.count
                else:
                    self._under_way.append(entry)
            self._count_moves()
        for row in self._connection.execute(query("planned_fresh")):
            self._add(row["recipe_id"], row["n"], row["seq"])
        find_needs(self._connection, report.job_id, self._requeued)
        planned = PlannedItems(self._connection, report.job_id, self._selection, requeued=self._requeued)
        if self._selection:
            total = sum(self._queued.values())
            needed = planned.count_selected(), planned.count_sources()
            self._queued, self.needed = needed[0] + needed[1], sum(needed[1].values())
            self.unselected = total - sum(self._queued.values())
        self._learn()
        first = tuple(planned.first(max(show, CHANGES_SHOWN if self._selection else 0), self._recipes, self._costs()))
        self.shown = first[:show]
        self.selected = tuple(item.name for item in first[:CHANGES_SHOWN]) if self._selection else ()

    def _costs(self) -> Mapping[int, int | None]:
        return {recipe_id: self._quotes.get(key) for recipe_id, key in self._price_keys.items()}

    def _is_requeued_by_settings(self, difference: Difference) -> bool:
        """Return whether only new settings queue the item again; such items are counted by `PlannedItems`."""
        if difference.state not in {ItemState.REJECTED, ItemState.HELD} or difference.requeues:
            return False
        params = {"item_id": difference.item_id}
        return self._connection.execute(query("is_requeued_by_settings"), params).fetchone() is not None

    def _count_moves(self) -> None:
        for row in self._connection.execute(query("planned_moves")).fetchall():
            if row["event"] == "cancel_requested":
                self._queued[row["old_recipe_id"]] -= row["n"]
            else:
                self._numbers[ChangeKind.REQUEUED] += row["n"]
                self._add(row["new_recipe_id"], row["n"], row["seq"])

    def _add(self, recipe_id: int, count: int, seq: int) -> None:
        self._queued[recipe_id] += count
        self._examples.setdefault(recipe_id, seq)

    def _learn(self) -> None:
        """Read the recipes of the items to queue, and their known quotes."""
        ids = [recipe_id for recipe_id, count in self._queued.items() if count > 0]
        for row in self._connection.execute(query("planned_recipes"), {"ids": json.dumps(ids)}):
            self._recipes[row["id"]] = recipe_of(row)
            self._price_keys[row["id"]] = row["price_key"]
        params = {"profile": self._profile, "price_keys": json.dumps(sorted(set(self._price_keys.values())))}
        self._quotes.update(self._connection.execute(query("planned_quotes"), params).fetchall())

    def counts(self) -> tuple[RecipeCount, ...]:
        """Return the counts of the items under way, then those of the items to queue."""
        queued = [
            RecipeCount(
                recipe_id=recipe_id,
                state=ItemState.QUEUED,
                count=self._queued[recipe_id],
                model=recipe.model,
                is_video=recipe.mode.makes_video,
                output_seconds=output_seconds(dict(recipe.parameters), recipe.mode.makes_video),
                price_key=self._price_keys[recipe_id],
                cost_credits=self._quotes.get(self._price_keys[recipe_id]),
                max_cost_credits=recipe.max_cost_credits,
            )
            for recipe_id, recipe in sorted(self._recipes.items(), key=_known_first)
        ]
        return (*self._under_way, *queued)

    def questions(self) -> Iterator[PriceQuestion]:
        """Yield one question for each unknown price."""
        asked = set(self._quotes)
        for recipe_id, recipe in sorted(self._recipes.items(), key=_known_first):
            price_key = self._price_keys[recipe_id]
            example = None if price_key in asked else self._example(recipe_id)
            if example is not None:
                asked.add(price_key)
                name, prompt = example
                yield PriceQuestion(
                    profile=self._profile,
                    account=self._account,
                    price_key=price_key,
                    recipe=recipe,
                    item=name,
                    prompt=prompt,
                    urls=self._asset_urls(recipe.inputs_count),
                )

    def _example(self, recipe_id: int) -> tuple[str, str] | None:
        """Return name and prompt of an item with a recipe; None if its last item has just been sent."""
        if recipe_id in self._examples:
            item = self._connection.execute(query("planned_item"), {"seq": self._examples[recipe_id]}).fetchone()
        else:
            heads = queued_heads(self._connection, self._report.job_id, recipe_id, 1)
            if heads:
                item = self._connection.execute(query("known_item"), {"item_id": heads[0]["id"]}).fetchone()
            else:
                params = {"job_id": self._report.job_id, "recipe_id": recipe_id}
                item = self._connection.execute(query("waiting_item"), params).fetchone()
        return None if item is None else (item["name"], item["prompt"])

    def _asset_urls(self, count: int) -> tuple[str, ...]:
        params = {"profile": self._profile, "account": self._account, "limit": count}
        return tuple(url for (url,) in self._connection.execute(query("asset_urls"), params))

    @property
    def recipes(self) -> Mapping[int, Recipe]:
        """The recipes of the items to queue, by the id in `counts`."""
        return self._recipes

    def uploads(self) -> Uploads:
        """Return the number and sizes of the files that would be uploaded."""
        params = {
            "job_id": self._report.job_id,
            "profile": self._profile,
            "account": self._account,
            "is_selected": int(bool(self._selection)),
            "redoes": int(self._report.redone > 0),
        }
        row = self._connection.execute(query("planned_uploads"), params).fetchone()
        return Uploads(row["files"], row["bytes"], row["largest"])

    def numbers(self) -> Mapping[ChangeKind, int]:
        """Return the number of items by kind of change."""
        report = self._report
        from_report = {
            ChangeKind.NEW: report.new,
            ChangeKind.PRUNED: report.pruned,
            ChangeKind.LEFT_ALONE: report.missing - report.pruned,
        }
        return {kind: from_report.get(kind, self._numbers[kind]) for kind in ChangeKind}

    def changes(self) -> Iterator[Change]:
        """Return the first few changes of each kind."""
        params = {"job_id": self._report.job_id, "limit": CHANGES_SHOWN}
        for row in self._connection.execute(query("fresh_names"), params):
            yield Change(ChangeKind.NEW, row["name"], fields=(row["model"], row["mode"]))
        yield from self._named
        for row in self._connection.execute(query("requeued_names"), params):
            yield Change(ChangeKind.REQUEUED, row["name"], ItemState(row["state"]), reason=row["error_code"])
        if self._report.missing:
            for row in self._connection.execute(query("missing_names"), params):
                kind = ChangeKind.PRUNED if row["is_pruned"] else ChangeKind.LEFT_ALONE
                yield Change(kind, row["name"], ItemState(row["state"]))


class JobRecipe(Struct, frozen=True):
    """A recipe of queued items; `question` asks for its price if that is missing."""

    recipe: Recipe
    price_key: str
    items: int
    cost_credits: int | None
    question: PriceQuestion | None


class Plans:
    """Compares manifests with the queue without changing it."""

    def __init__(self, connection: Session) -> None:
        """Read from this connection."""
        self._connection = connection

    def compare(
        self,
        spec: JobSpec,
        placed: Iterable[Placed | SimilarItems],
        *,
        profile: str,
        account: str,
        day: datetime,
        options: ApplyOptions,
        diagnostic_at: DiagnosticAt,
        selection: Selection = _ALL_ITEMS,
        show: int = 0,
        contents: Contents | None = None,
    ) -> ManifestPlan:
        """Compare a manifest with its job without changing anything. For `Store.run`.

        `account` is the account whose uploads count, `day` the start of the current service day. Only selected items
        are counted as to send; the first `show` of them are described. Raise `InputError` as
        `apply_manifest` does, but not for items that changed after they were sent.
        """
        counter = _RecipeCounter(self._connection, profile=profile, account=account, selection=selection)
        with compared(
            self._connection,
            spec,
            placed,
            profile=profile,
            now=0,
            options=replace(options, dry_run=True),
            diagnostic_at=diagnostic_at,
            observe=counter.observe,
            contents=contents,
        ) as application:
            counter.count(application.report, show)
            job_id = application.report.job_id
            job = self._connection.execute(query("planned_job"), {"job_id": job_id}).fetchone()
            return ManifestPlan(
                spec=spec,
                profile=profile,
                report=application.report,
                numbers=counter.numbers(),
                changes=tuple(counter.changes()),
                counts=counter.counts(),
                recipes=counter.recipes,
                questions=tuple(counter.questions()),
                uploads=counter.uploads(),
                is_paused=job is not None and bool(job["is_paused"]),
                committed=0 if job is None else job["committed"],
                taken=0 if job_id is None else job_credits(self._connection, job_id, [day]).credits,
                durations=Loads(self._connection).durations().get(profile, Durations()),
                new_names=tuple(names_of_staged(self._connection, job_id, spec)),
                chains=planned_chains(self._connection, job_id, is_selected=bool(selection)),
                paid_before=tuple(paid_before(self._connection)),
                equal_requests=application.equal_requests(),
                needed=counter.needed,
                unselected=counter.unselected,
                selected=counter.selected,
                shown=counter.shown,
            )

    def unsent(self, job: str, names: Sequence[str]) -> frozenset[str]:
        """Return which of these items are new to a job, or queued in it."""
        params = {"keys": json.dumps(list(names)), "job": job}
        begun = {name for (name,) in self._connection.execute(query("begun_names"), params)}
        return frozenset(names) - begun

    def job_recipes(self, job: str, first_accounts: Mapping[str, str]) -> tuple[str, str, tuple[JobRecipe, ...]]:
        """Return a job's profile, the account that requests its prices, and its recipes.

        `first_accounts` maps each profile to the account of jobs that name none. Raise `InputError` for an unknown job.
        """
        job_id = Jobs(self._connection).id_of(job)
        home = self._connection.execute(query("job_home"), {"job_id": job_id}).fetchone()
        profile: str = home["profile"]
        account: str = next(iter(json.loads(home["accounts"])), first_accounts.get(profile, "main"))
        rows = self._connection.execute(query("job_recipes"), {"job_id": job_id, "profile": profile}).fetchall()
        return profile, account, tuple(_job_recipe(self._connection, row, profile, account) for row in rows)


def _known_first(entry: tuple[int, Recipe]) -> tuple[bool, int]:
    """Return the sort key of a recipe: known recipes come before new ones, as in the order of their later ids."""
    recipe_id = entry[0]
    return recipe_id < 0, abs(recipe_id)


def _change_of(difference: Difference) -> Change | None:
    match difference.kind:
        case DiffKind.SAME:
            return None
        case DiffKind.SENT:
            kind, fields = ChangeKind.REFUSED, difference.request_fields
        case DiffKind.METADATA:
            kind, fields = (
                ChangeKind.UPDATED,
                difference.choice + (("metadata",) if difference.metadata_differs else ()),
            )
        case DiffKind.REDO:
            kind, fields = ChangeKind.REDONE if difference.redoes else ChangeKind.UPDATED, difference.fields
        case DiffKind.SETTINGS | DiffKind.TAKE_OVER:
            kind, fields = ChangeKind.REQUEUED if difference.requeues else ChangeKind.UPDATED, difference.fields
    return Change(kind, difference.name, difference.state, fields)


def _job_recipe(connection: Session, row: Row, profile: str, account: str) -> JobRecipe:
    recipe = recipe_of(row)
    question = None
    if row["cost_credits"] is None and row["item_id"] is not None:
        item = connection.execute(query("known_item"), {"item_id": row["item_id"]}).fetchone()
        params = {"profile": profile, "account": account, "limit": recipe.inputs_count}
        question = PriceQuestion(
            profile=profile,
            account=account,
            price_key=row["price_key"],
            recipe=recipe,
            item=item["name"],
            prompt=item["prompt"],
            urls=tuple(url for (url,) in connection.execute(query("asset_urls"), params)),
        )
    return JobRecipe(recipe, row["price_key"], row["n"], row["cost_credits"], question)


def names_of_staged(connection: Session, job_id: int | None, job: JobSpec) -> Iterator[str]:
    """Yield the relative file names of staged new items; see `Items.new_file_names`."""
    params = {"job_id": job_id, "limit": NAMES_AT_MOST}
    return output_names(job, connection.execute(query("fresh_outputs"), params).fetchall())
