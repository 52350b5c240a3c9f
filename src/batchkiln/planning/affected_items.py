"""Names the items that would be rejected according to a plan, with their places in the manifest.

The groups come from the forecast and from quotes. If there are any, a second pass over the manifest finds their items.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from batchkiln.api.apply_manifests import ReadManifest
from batchkiln.core.budget import BudgetLimit
from batchkiln.core.forecast import Unpayable
from batchkiln.core.request import price_key
from batchkiln.manifest import LocatedItem, Manifest
from batchkiln.planning.plan import AffectedItem, JobPlan, Plan, RefusedClass
from batchkiln.store import Reader

NAMED: Final = 20
_CANDIDATES: Final = 1000
"""Items of a group that are kept until the queue's states are known."""


class _Group(Struct, frozen=True):
    """A group of a job's items, and those of the manifest that may belong to it."""

    key: Unpayable | RefusedClass
    price_keys: frozenset[str]
    is_last: bool  # whether the last items of the manifest are meant: the budget pays for the first ones
    found: deque[AffectedItem] = field(default_factory=lambda: deque(maxlen=_CANDIDATES))

    def add(self, located: LocatedItem, key: str, manifest: Manifest) -> None:
        """Keep the item of the manifest if it belongs to the group."""
        if key not in self.price_keys or (not self.is_last and len(self.found) == _CANDIDATES):
            return
        cap = located.spec.recipe.max_cost_credits
        is_capped = isinstance(self.key, Unpayable) and self.key.obstacle is BudgetLimit.OVER_CAP
        if is_capped and isinstance(self.key, Unpayable) and cap != self.key.limit:
            return
        self.found.append(
            AffectedItem(located.spec.name, located.file, located.line, manifest.place(located.file, located.line))
        )

    def items(self, unsent: frozenset[str]) -> tuple[AffectedItem, ...]:
        """Return the first items of the group that are not under way and have not ended."""
        found = [item for item in self.found if item.name in unsent]
        if self.is_last:
            found = found[-self.key.count :]
        return tuple(found[: min(NAMED, self.key.count)])


def with_affected_items(reader: Reader, plan: Plan, read: Mapping[str, ReadManifest]) -> Plan:
    """Return the plan with the names and places of items that would be rejected."""
    by_job = {each.manifest.job.name: each for each in read.values()}
    return replace(plan, jobs=tuple(_named(reader, job, by_job[job.manifest.spec.name], plan) for job in plan.jobs))


def _named(reader: Reader, job: JobPlan, read: ReadManifest, plan: Plan) -> JobPlan:
    groups = list(_groups(job, plan))
    if not groups:
        return job
    for located in read.manifest.items(read.catalogue):
        key = price_key(located.spec.recipe)
        for group in groups:
            group.add(located, key, read.manifest)
    names = [item.name for group in groups for item in group.found]
    unsent = reader.plans.unsent(job.manifest.spec.name, names)
    return replace(job, affected={group.key: group.items(unsent) for group in groups})


def _groups(job: JobPlan, plan: Plan) -> Iterator[_Group]:
    costs: dict[int, set[str]] = {}
    refused: dict[RefusedClass, set[str]] = {}
    for entry in job.manifest.counts:
        if entry.cost_credits is not None:
            costs.setdefault(entry.cost_credits, set()).add(entry.price_key)
        error = plan.quotes.refused.get((job.manifest.profile, entry.price_key))
        for each in job.refused:
            if error is each.error and entry.model == each.model:
                refused.setdefault(each, set()).add(entry.price_key)
    for unpayable in job.unpayable:
        is_last = unpayable.obstacle is BudgetLimit.OVER_JOB_BUDGET
        yield _Group(unpayable, frozenset(costs.get(unpayable.cost, ())), is_last)
    for each, keys in refused.items():
        yield _Group(each, frozenset(keys), is_last=False)
