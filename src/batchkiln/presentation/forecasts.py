"""Forecasts of when jobs end, shared by `status`, `plan` and the confirmation of `run`."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from batchkiln.config import Profile
from batchkiln.core.forecast import Forecast, forecast
from batchkiln.core.rate_limits import DayUsage
from batchkiln.store import AccountSummary, QueuedLoad


@dataclass(frozen=True, slots=True)
class JobForecast:
    """The forecast of the jobs on one set of accounts; jobs are assumed to run one after the other."""

    profile: str
    accounts: tuple[str, ...]
    jobs: tuple[str, ...]
    forecast: Forecast


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
