"""The plan of a run: changes to the queue, costs, coming days and warnings."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from math import inf
from typing import TYPE_CHECKING, BinaryIO, Final

from msgspec import Struct, field
from msgspec.structs import replace

from batchkiln.api.app_context import AppContext
from batchkiln.api.apply_manifests import (
    ReadManifest,
    read_manifest,
    refuse_second_of_job,
    watched_items,
    with_catalogue,
)
from batchkiln.api.service_clients import refuse_shared_keys
from batchkiln.config import Config, Profile
from batchkiln.core.budget import BudgetLimit
from batchkiln.core.errors import InputError, InputErrors
from batchkiln.core.forecast import JobLoad, Unpayable, never_payable
from batchkiln.core.rate_limits import Limits
from batchkiln.core.responses import ErrorInfo
from batchkiln.core.selection import Selection
from batchkiln.core.shown import Shown
from batchkiln.core.states import ItemState
from batchkiln.planning.bounds import UnpricedGroup, budget_left, unpriced_groups
from batchkiln.planning.catalogues import Catalogues
from batchkiln.planning.queue_access import QueueAccess
from batchkiln.planning.quotes import AccountState, Quotes, account_states, ask_quotes
from batchkiln.presentation.ends import End, JobEnd, end_of_all
from batchkiln.presentation.forecasts import JobForecast, job_forecasts, only_under_way, usage_today
from batchkiln.presentation.formatting import plural
from batchkiln.presentation.python_words import in_python_words
from batchkiln.store import (
    AccountSummary,
    ApplyOptions,
    ChangeKind,
    ManifestPlan,
    QueuedLoad,
    Reader,
    RecipeCount,
)

if TYPE_CHECKING:
    from batchkiln.manifest import Manifest


class ModelCost(Struct, frozen=True):
    """The cost of one model's items that can be sent.

    `unpriced` items have no price yet and are not included in the cost.
    """

    profile: str
    model: str
    items: int
    credits: int
    unpriced: int


class RefusedClass(Struct, frozen=True):
    """Items that the service refuses to price and would reject; `item` is the one that was used for the question."""

    model: str
    count: int
    item: str
    error: ErrorInfo


class AffectedItem(Struct, frozen=True):
    """An item that would be rejected, and its place in the manifest; `place` is that place as text for a person."""

    name: str
    file: str
    line: int
    place: str

    def __str__(self) -> str:
        return f"{self.name} ({self.place})"


_ALL_ITEMS: Final = Selection()


class JobPlan(Shown, Struct, frozen=True):
    """The plan of one manifest.

    `end` is empty if the job is paused. `most` is the maximum cost, with bounds for items without a price. `affected`
    names the first items of each group that would be rejected; it is empty for a plan of selected items.
    """

    manifest: ManifestPlan
    now: datetime
    end: JobEnd
    unpayable: tuple[Unpayable, ...]
    refused: tuple[RefusedClass, ...]
    unpriced: tuple[UnpricedGroup, ...]
    most: int
    affected: Mapping[Unpayable | RefusedClass, tuple[AffectedItem, ...]] = field(default_factory=dict)

    def _shown(self) -> Iterator[tuple[str, object]]:
        yield "job", self.manifest.spec.name
        yield "profile", self.manifest.profile
        yield "to send", self.to_send
        numbers = self.manifest.numbers.items()
        yield "changes", [f"{number:,} {kind.replace('_', ' ')}" for kind, number in numbers if number]
        yield "to be rejected", self.rejected or None
        yield "items without a known price", self.unpriced_items or None
        yield "credits at most", self.most

    def named(self, group: Unpayable | RefusedClass) -> tuple[AffectedItem, ...]:
        """Return the first items of a group that would be rejected."""
        return self.affected.get(group, ())

    @property
    def rejections(self) -> Mapping[str, str]:
        """The named items that would be rejected, each with its error code, or `refused` by the service."""
        return {
            item.name: group.obstacle.value if isinstance(group, Unpayable) else "refused"
            for group, items in self.affected.items()
            for item in items
        }

    @property
    def sufficient_budget(self) -> int | None:
        """The `budget.credits` that pays for all items within the other limits; None if an item has no price."""
        if self.unpriced:
            return None
        queued = [entry for entry in self.manifest.counts if entry.state is ItemState.QUEUED]
        cost = sum(entry.count * (entry.cost_credits or 0) for entry in queued)
        others = [each for each in self.unpayable if each.obstacle is not BudgetLimit.OVER_JOB_BUDGET]
        return self.manifest.committed + cost - sum(each.count * each.cost for each in others)

    @property
    def unpriced_items(self) -> int:
        """The number of items without a price."""
        return sum(group.items for group in self.unpriced)

    @property
    def to_make(self) -> int:
        """The number of items to queue whose input images are still to be made by other items."""
        return sum(self.manifest.chains.to_make.values())

    @property
    def to_make_unpriced(self) -> int:
        """The number of items of `to_make` that have no price."""
        priced = {entry.price_key for entry in self.manifest.counts if entry.cost_credits is not None}
        return sum(items for key, items in self.manifest.chains.to_make.items() if key not in priced)

    @property
    def has_changes(self) -> bool:
        """Whether applying the manifest would change the queue."""
        numbers = self.manifest.numbers
        return any(number for kind, number in numbers.items() if kind is not ChangeKind.LEFT_ALONE)

    @property
    def rejected(self) -> int:
        """The number of items of `to_send` that would be rejected."""
        return sum(each.count for each in self.unpayable) + sum(each.count for each in self.refused)

    def refusals(self, *, allows_duplicates: bool) -> Iterator[str]:
        """Yield why `run` would refuse the manifest, without enqueueing any of its items."""
        report = self.manifest.report
        if report.changed_count and not report.kept:
            yield f"{plural(report.changed_count, 'item')} changed after being sent"
        if report.paid_before and not allows_duplicates:
            yield f"{plural(report.paid_before, 'item')} would be paid for again under new ids"
        if report.redo_refusal is not None:
            yield report.redo_refusal.reason

    @property
    def to_send(self) -> int:
        """The number of items to queue."""
        return sum(entry.count for entry in self.manifest.counts if entry.state is ItemState.QUEUED)


class Plan(Shown, Struct, frozen=True):
    """The plan of a run.

    `others` are other jobs with queued items, which `run` does not send. `digests` maps the paths of the manifests to
    the digests of their texts. `catalogue_warnings` explain missing catalogues, by profile. `allows_duplicates` is that
    of the options.
    """

    jobs: tuple[JobPlan, ...]
    outlooks: tuple[JobForecast, ...]
    costs: tuple[ModelCost, ...]
    quotes: Quotes
    others: tuple[str, ...]
    profiles: Mapping[str, Profile]
    digests: Mapping[str, str]
    catalogue_warnings: Mapping[str, str]
    allows_duplicates: bool = False

    def _shown(self) -> Iterator[tuple[str, object]]:
        yield "jobs", [f"{job.manifest.spec.name}: {plural(job.to_send, 'item')} to send" for job in self.jobs]
        yield "credits", self.credits if self.credits or not self.unpriced else "not known"
        yield "items without a known price", self.unpriced or None
        yield "credits at most", self.most if self.unpriced else None
        yield "models", [f"{cost.model}: {plural(cost.items, 'item')}, {_price(cost)}" for cost in self.costs]
        yield "ends", end_of_all(end for job in self.jobs if (end := self.end_of(job)) is not None)
        yield "warnings", self.warnings

    def end_of(self, job: JobPlan) -> End | None:
        """Return the estimated end of one of the jobs; None if it cannot be estimated."""
        return job.end.seen_at(job.now, self.profiles[job.manifest.profile].time_scale)

    @property
    def warnings(self) -> list[str]:
        """The warnings as sentences for a Python program; those about losing money or results come first."""
        from batchkiln.planning.plan_warnings import warnings_of  # noqa: PLC0415  it reads plans

        return [in_python_words(warning.message) for warning in warnings_of(self)]

    @property
    def credits(self) -> int:
        """The cost of all items with a price, within the budgets."""
        return sum(day.credits for outlook in self.outlooks for day in outlook.forecast.days)

    @property
    def most(self) -> int:
        """The maximum cost; equal to `credits` if everything has a price."""
        return max(self.credits, sum(job.most for job in self.jobs)) if self.unpriced else self.credits

    @property
    def is_bounded(self) -> bool:
        """Whether a cap or budget of the user bounds each item without a price."""
        return all(group.is_set_by_user for job in self.jobs for group in job.unpriced)

    @property
    def unpriced(self) -> int:
        """The number of items without a price."""
        return sum(cost.unpriced for cost in self.costs)

    @property
    def rejected(self) -> int:
        """The number of items that would be rejected instead of sent. They cost nothing."""
        return sum(job.rejected for job in self.jobs)

    @property
    def refusals(self) -> list[str]:
        """Why `run` would refuse the manifests and end with exit code 2; empty if it would not. One text a job."""
        return [
            f"{job.manifest.spec.name}: {' and '.join(reasons)}"
            for job in self.jobs
            if (reasons := list(job.refusals(allows_duplicates=self.allows_duplicates)))
        ]

    @property
    def would_do_anything(self) -> bool:
        """Whether `run` would change or send anything."""
        return any(job.has_changes or job.to_send for job in self.jobs)


def _price(cost: ModelCost) -> str:
    if cost.unpriced and not cost.credits:
        return "price not known"
    return plural(cost.credits, "credit") + (f" and {cost.unpriced:,} without a known price" if cost.unpriced else "")


class _Comparison(Struct, frozen=True):
    """The queue and the manifests as read before any price is asked."""

    manifests: tuple[ManifestPlan, ...]
    times: Mapping[str, datetime]
    accounts: tuple[AccountSummary, ...]
    known: Mapping[tuple[str, str], AccountState]
    other_loads: tuple[QueuedLoad, ...]
    digests: Mapping[str, str]


async def make_plan(
    access: QueueAccess,
    paths: Sequence[str],
    *,
    options: ApplyOptions,
    stdin: BinaryIO,
    catalogues: Catalogues | None = None,
    selection: Selection = _ALL_ITEMS,
    show: int = 0,
    stdin_name: str = "<stdin>",
) -> Plan:
    """Plan manifests: check their items against the catalogue, and ask for prices that the queue does not know.

    Only the items of `selection` are to be sent; the first `show` of each job are described in full. Neither the queue
    nor the account changes. Raise `InputError` with the errors of all manifests, or if two define the same job.
    """
    if "-" in paths and len(paths) > 1:
        raise InputError("standard input cannot be combined with other manifests")
    if len(paths) != len(set(paths)):
        raise InputError("a manifest is named twice: name each once")
    store, app = access.store, access.app
    catalogues = catalogues or Catalogues(access)
    found: dict[str, tuple[Manifest, Profile]] = {}
    errors = InputErrors()
    for path in paths:
        with errors.collected():
            manifest, profile = await store.run_in_thread(read_manifest, app, path, stdin, stdin_name=stdin_name)
            refuse_second_of_job(path, manifest.job.name, {each.job.name: known for known, (each, _) in found.items()})
            found[path] = manifest, profile
    profiles = app.config.profiles
    for name in dict.fromkeys(profile.name for _, profile in found.values()):
        refuse_shared_keys(profiles, name)
    read = {path: await with_catalogue(each, catalogues.of) for path, each in found.items()}
    comparison = await store.run(_compare_manifests, app, read, options, errors=errors, selection=selection, show=show)
    known = dict(comparison.known)
    known.update((place, known[place].after_a_read()) for place in catalogues.asked)
    quotes = await ask_quotes(
        [question for manifest in comparison.manifests for question in manifest.questions],
        profiles=profiles,
        known=known,
        wants_balance=_paying_accounts(comparison.manifests, profiles),
        access=access,
    )
    plan = replace(
        _compose(comparison, quotes, app.config, catalogues.new_warnings()), allows_duplicates=options.allow_duplicates
    )
    if selection or not any(job.unpayable or job.refused for job in plan.jobs):
        return plan
    from batchkiln.planning.affected_items import with_affected_items  # noqa: PLC0415  it reads plans

    return await store.run(with_affected_items, plan, read)


def _compare_manifests(
    reader: Reader,
    app: AppContext,
    read: Mapping[str, ReadManifest],
    options: ApplyOptions,
    *,
    errors: InputErrors,
    selection: Selection,
    show: int,
) -> _Comparison:
    """Read the items of the manifests, and compare them with the queue, one manifest after the other.

    Raise `InputError` with their mistakes and those in `errors`.
    """
    now = app.environment.wall()
    profiles = app.config.profiles
    times = {name: reader.accounts.service_time(name, now) for name in profiles}
    manifests: list[ManifestPlan] = []
    earlier: tuple[str, ...] = ()
    for each in read.values():
        manifest, profile = each.manifest, each.profile
        with errors.collected():
            planned = reader.plans.compare(
                manifest.job,
                watched_items(app, each),
                profile=profile.name,
                account=(manifest.job.accounts or profile.account_names)[0],
                day=profile.day.start_of(times[profile.name]),
                options=replace(options, earlier_jobs=earlier),
                diagnostic_at=manifest.diagnostic_at,
                selection=selection,
                show=show,
                contents=manifest.contents(each.catalogue),
            )
            manifests.append(replace(planned, without_rows=manifest.warnings))
        earlier = (*earlier, manifest.job.name)
    errors.raise_found()
    digests = {path: manifest.report.digest for path, manifest in zip(read, manifests, strict=True)}
    accounts = tuple(account for account in reader.accounts.summaries() if account.profile in profiles)
    days = {name: profile.day.start_of(times[name]) for name, profile in profiles.items()}
    loads = reader.loads.queued({name: profile.limits for name, profile in profiles.items()}, days)
    named = {manifest.spec.name for manifest in manifests}
    return _Comparison(
        manifests=tuple(manifests),
        times=times,
        accounts=accounts,
        known=account_states(reader, accounts, profiles, times),
        other_loads=tuple(queued for queued in loads if queued.load.name not in named),
        digests=digests,
    )


def _paying_accounts(manifests: Iterable[ManifestPlan], profiles: Mapping[str, Profile]) -> list[tuple[str, str]]:
    """Return the accounts that would pay, without duplicates."""
    return list(
        dict.fromkeys(
            (manifest.profile, account)
            for manifest in manifests
            if any(entry.state is ItemState.QUEUED for entry in manifest.counts)
            for account in manifest.spec.accounts or profiles[manifest.profile].account_names[:1]
        )
    )


def _compose(comparison: _Comparison, quotes: Quotes, config: Config, catalogue_warnings: Mapping[str, str]) -> Plan:
    """Build the plan without side effects. The service's own time replaces the estimate."""
    times = {**comparison.times, **quotes.times}
    usages = {
        (account.profile, account.name): usage_today(account, config.profiles[account.profile], times[account.profile])
        for account in comparison.accounts
    }
    priced = [manifest.priced(quotes.of(manifest.profile)) for manifest in comparison.manifests]
    payable = [_without_refused(manifest, quotes) for manifest in priced]
    limits = {name: profile.limits for name, profile in config.profiles.items()}
    is_same_day = {
        name: profile.day.start_of(times[name]) == profile.day.start_of(comparison.times[name])
        for name, profile in config.profiles.items()
    }
    loads = {
        manifest.spec.name: manifest.load(limits[manifest.profile], is_new_day=not is_same_day[manifest.profile])
        for manifest in sorted(payable, key=_age)
    }
    ahead = only_under_way(comparison.other_loads)
    found = job_forecasts([*ahead, *loads.values()], profiles=config.profiles, times=times, usages=usages)
    unpayable = {name: outlook.forecast.unpayable for outlook in found for name in outlook.jobs}
    ends = {name: end for outlook in found for name, end in outlook.ends().items()}
    beyond = Counter({(each.job, each.cost): each.count for outlook in found for each in _over_budget(outlook)})
    jobs = [
        _job_plan(
            manifest,
            sendable,
            unpayable[manifest.spec.name],
            ends[manifest.spec.name],
            now=times[manifest.profile],
            quotes=quotes,
            profile=config.profiles[manifest.profile],
        )
        for manifest, sendable in zip(priced, payable, strict=True)
    ]
    return Plan(
        jobs=tuple(jobs),
        outlooks=tuple(outlook for outlook in found if loads.keys() & set(outlook.jobs)),
        costs=tuple(_costs(payable, loads, limits, beyond)),
        quotes=quotes,
        others=tuple(queued.load.name for queued in comparison.other_loads if _has_queued(queued.load)),
        profiles=config.profiles,
        digests=comparison.digests,
        catalogue_warnings=catalogue_warnings,
    )


def _job_plan(
    manifest: ManifestPlan,
    sendable: ManifestPlan,
    unpayable: Iterable[Unpayable],
    end: JobEnd,
    *,
    now: datetime,
    quotes: Quotes,
    profile: Profile,
) -> JobPlan:
    """Build one manifest's part of the plan; `sendable` excludes items that the service refuses."""
    name = manifest.spec.name
    accounts = manifest.spec.accounts or profile.account_names[:1]
    unpriced = tuple(unpriced_groups(sendable, quotes, profile.limits, accounts))
    ours = tuple(each for each in unpayable if each.job == name)
    return JobPlan(
        manifest=replace(manifest, chains=sendable.chains),
        now=now,
        end=JobEnd() if manifest.is_paused else end,
        unpayable=ours,
        refused=tuple(_refused(manifest, quotes)),
        unpriced=unpriced,
        most=_most(sendable, unpriced, ours),
    )


def _most(sendable: ManifestPlan, unpriced: Iterable[UnpricedGroup], unpayable: Iterable[Unpayable]) -> int:
    """Return a job's maximum cost: prices and bounds, limited by the job's budget."""
    priced = sum(
        entry.count * (entry.cost_credits or 0) for entry in sendable.counts if entry.state is ItemState.QUEUED
    )
    priced -= sum(each.count * each.cost for each in unpayable)
    most = priced + sum(group.items * group.bound for group in unpriced)
    left = budget_left(sendable)
    return most if left is None else min(most, left)


def _over_budget(outlook: JobForecast) -> Iterator[Unpayable]:
    """Yield the groups of items that the job's budget does not cover once it has paid for others."""
    return (each for each in outlook.forecast.unpayable if each.obstacle is BudgetLimit.OVER_JOB_BUDGET)


def _age(manifest: ManifestPlan) -> float:
    """Return the sort key of the queue's job order: by id, with new jobs last."""
    return inf if manifest.report.job_id is None else manifest.report.job_id


def _has_queued(load: JobLoad) -> bool:
    return any(entry.count and not entry.is_under_way for entry in load.classes)


def _without_refused(manifest: ManifestPlan, quotes: Quotes) -> ManifestPlan:
    """Return the manifest without items that the service refuses: they cost neither time nor credits."""
    kept = tuple(entry for entry in manifest.counts if not _is_refused(entry, manifest, quotes))
    to_make = {
        key: items for key, items in manifest.chains.to_make.items() if (manifest.profile, key) not in quotes.refused
    }
    return replace(manifest, counts=kept, chains=replace(manifest.chains, to_make=to_make))


def _is_refused(entry: RecipeCount, manifest: ManifestPlan, quotes: Quotes) -> bool:
    return entry.state is ItemState.QUEUED and (manifest.profile, entry.price_key) in quotes.refused


def _refused(manifest: ManifestPlan, quotes: Quotes) -> Iterator[RefusedClass]:
    items = {question.price_key: question.item for question in manifest.questions}
    refused = [entry for entry in manifest.counts if _is_refused(entry, manifest, quotes)]
    for key in dict.fromkeys(entry.price_key for entry in refused):
        alike = [entry for entry in refused if entry.price_key == key]  # with different caps
        count = sum(entry.count for entry in alike)
        error = quotes.refused[manifest.profile, key]
        yield RefusedClass(alike[0].model, count, items.get(key, "another job's item"), error)


def _costs(
    manifests: Iterable[ManifestPlan],
    loads: Mapping[str, QueuedLoad],
    limits: Mapping[str, Limits],
    beyond: Counter[tuple[str, int]],
) -> Iterator[ModelCost]:
    """Yield the costs by model, the highest first; items that can never be paid are excluded.

    `beyond` has the number of items that a job's budget does not cover, by job and cost.
    """
    found: dict[tuple[str, str], ModelCost] = {}
    for manifest in manifests:
        load = loads[manifest.spec.name].load
        for entry, alike in zip(manifest.counts, load.classes, strict=True):
            cost = entry.cost_credits
            is_hopeless = cost is not None and never_payable(load, alike, cost, limits[manifest.profile])
            if entry.state is not ItemState.QUEUED or is_hopeless:
                continue
            covered = entry.count
            if cost is not None:
                place_of_cost = (manifest.spec.name, cost)
                covered -= (taken := min(covered, beyond[place_of_cost]))
                beyond[place_of_cost] -= taken
            if not covered:
                continue
            place = (manifest.profile, entry.model)
            before = found.get(place, ModelCost(*place, items=0, credits=0, unpriced=0))
            found[place] = replace(
                before,
                items=before.items + covered,
                credits=before.credits + covered * (cost or 0),
                unpriced=before.unpriced + (entry.count if cost is None else 0),
            )
    yield from sorted(found.values(), key=lambda cost: (-cost.credits, cost.model))
