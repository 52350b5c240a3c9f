"""Forecasts of when jobs end, shared by `status`, `plan` and the confirmation of `run`."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from batchkiln.config import Profile
from batchkiln.core.budget import BudgetLimit
from batchkiln.core.forecast import Forecast, Unpriced, forecast
from batchkiln.core.rate_limits import DayUsage
from batchkiln.presentation.ends import JobEnd
from batchkiln.presentation.formatting import plural, sanitize
from batchkiln.store import AccountSummary, QueuedLoad


class JobForecast(Struct, frozen=True):
    """The forecast of the jobs on one set of accounts; jobs are assumed to run one after the other."""

    profile: str
    accounts: tuple[str, ...]
    jobs: tuple[str, ...]
    forecast: Forecast

    def ends(self) -> dict[str, JobEnd]:
        """Return what is known of the end of each job, in the order of the jobs."""
        told = self.forecast
        unpriced: dict[str, list[Unpriced]] = {}
        for entry in told.unpriced:
            unpriced.setdefault(entry.job, []).append(entry)
        found: dict[str, JobEnd] = {}
        earlier: list[Unpriced] = []  # the first few are named, and all counted: a queue may have many jobs
        count = 0
        for job in self.jobs:
            own = unpriced.get(job, [])
            count += sum(entry.count for entry in own)
            if job in told.ends:
                found[job] = JobEnd(told.ends[job], told.ranges.get(job))
            elif job in told.not_before:
                reason = _unknown_prices(job, [*own, *earlier], count)
                found[job] = JobEnd(not_before=told.not_before[job], reason=reason)
            else:
                found[job] = JobEnd(reason=_ENDLESS)
            earlier += own[: max(0, _UNPRICED_SHOWN - len(earlier))]
        beyond = Counter[str]()
        for each in told.unpayable:
            if each.obstacle in _JOB_BUDGETS:
                beyond[each.job] += each.count
        return {job: replace(end, beyond_budget=beyond[job]) for job, end in found.items()}


_JOB_BUDGETS: Final = frozenset({BudgetLimit.OVER_JOB_BUDGET, BudgetLimit.OVER_JOB_DAY})
_ENDLESS: Final = "under its limits and budgets, it takes more than fifty years"
_UNPRICED_SHOWN: Final = 2


def _unknown_prices(job: str, unpriced: Sequence[Unpriced], count: int) -> str:
    """Return the reason why the prices of `count` items leave the end of a job open; `unpriced` has the first ones."""
    parts = []
    for entry in unpriced[:_UNPRICED_SHOWN]:
        items = plural(entry.count, "item") + (f" of {entry.job}" if entry.job != job else "")
        parts.append(f"{items} ({sanitize(entry.model)})")
    if rest := count - sum(entry.count for entry in unpriced[:_UNPRICED_SHOWN]):
        parts.append(f"{rest:,} more")
    what = f"{', '.join(parts[:-1])} and {parts[-1]}" if len(parts) > 1 else parts[0]
    has = "has" if count == 1 else "have"
    return f"{what} {has} no price yet, and may need another day's credits; a run asks for the price"


def only_under_way(loads: Iterable[QueuedLoad], except_of: Collection[str] = ()) -> Iterator[QueuedLoad]:
    """Yield the loads of a run of some jobs: of all others, only items under way occupy slots."""
    for queued in loads:
        if queued.load.name in except_of:
            yield queued
        elif classes := tuple(entry for entry in queued.load.classes if entry.is_under_way):
            yield replace(queued, load=replace(queued.load, classes=classes))


def job_forecasts(
    loads: Iterable[QueuedLoad],
    *,
    profiles: Mapping[str, Profile],
    times: Mapping[str, datetime],
    usages: Mapping[tuple[str, str], DayUsage],
    has_range: bool = True,
) -> list[JobForecast]:
    """Return the forecasts of the queued work.

    `times` maps profiles to service time; `usages` maps profile and account name to today's usage. Work of profiles
    that are not configured is left out. Without `has_range`, the earliest and latest ends are left out.
    """
    groups: dict[tuple[str, tuple[str, ...]], list[QueuedLoad]] = {}
    for queued in loads:
        if queued.profile in profiles:
            accounts = queued.accounts or profiles[queued.profile].account_names[:1]
            groups.setdefault((queued.profile, accounts), []).append(queued)
    return [
        JobForecast(
            profile=name,
            accounts=accounts,
            jobs=tuple(queued.load.name for queued in group),
            forecast=forecast(
                [queued.load for queued in group],
                now=times[name],
                day=profiles[name].day,
                limits=profiles[name].limits,
                usage=_sum(usages[name, account] for account in accounts if (name, account) in usages),
                accounts=len(accounts),
                has_range=has_range,
            ),
        )
        for (name, accounts), group in groups.items()
    ]


def usage_today(account: AccountSummary, profile: Profile, now: datetime) -> DayUsage:
    """Return an account's usage on the current service day."""
    return account.usage if account.day == profile.day.start_of(now) else DayUsage()


def _sum(usages: Iterable[DayUsage]) -> DayUsage:
    listed = list(usages)
    return DayUsage(
        creates=sum(usage.creates for usage in listed),
        reads=sum(usage.reads for usage in listed),
        credits=sum(usage.credits for usage in listed),
    )
