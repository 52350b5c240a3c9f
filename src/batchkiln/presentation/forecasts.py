"""Forecasts of when jobs end, shared by `status`, `plan` and the confirmation of `run`."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from batchkiln.config import Profile
from batchkiln.core.forecast import Forecast, Unpriced, forecast
from batchkiln.core.rate_limits import DayUsage
from batchkiln.presentation.ends import JobEnd
from batchkiln.presentation.formatting import plural, sanitize
from batchkiln.store import AccountSummary, QueuedLoad


@dataclass(frozen=True, slots=True)
class JobForecast:
    """The forecast of the jobs on one set of accounts; jobs are assumed to run one after the other."""

    profile: str
    accounts: tuple[str, ...]
    jobs: tuple[str, ...]
    forecast: Forecast

    def end_of(self, job: str) -> JobEnd:
        """Return what is known of the end of one of the jobs."""
        told = self.forecast
        if job in told.ends:
            return JobEnd(told.ends[job], told.ranges.get(job))
        if job not in told.not_before:
            return JobEnd(reason=_ENDLESS)
        before = set(self.jobs[: self.jobs.index(job) + 1])
        unpriced = sorted((entry for entry in told.unpriced if entry.job in before), key=lambda one: one.job != job)
        return JobEnd(not_before=told.not_before[job], reason=_unknown_prices(job, unpriced))


_ENDLESS: Final = "under its limits and budgets, it takes more than fifty years"
_UNPRICED_SHOWN: Final = 2


def _unknown_prices(job: str, unpriced: list[Unpriced]) -> str:
    """Return the reason why the prices of items leave the end of a job open."""
    parts = []
    for entry in unpriced[:_UNPRICED_SHOWN]:
        items = plural(entry.count, "item") + (f" of {entry.job}" if entry.job != job else "")
        parts.append(f"{items} ({sanitize(entry.model)})")
    if rest := sum(entry.count for entry in unpriced[_UNPRICED_SHOWN:]):
        parts.append(f"{rest:,} more")
    what = f"{', '.join(parts[:-1])} and {parts[-1]}" if len(parts) > 1 else parts[0]
    has = "has" if sum(entry.count for entry in unpriced) == 1 else "have"
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
