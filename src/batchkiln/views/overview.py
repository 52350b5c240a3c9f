"""What `status`, `run` and `work` show of the queue, read at once from one snapshot."""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime

from batchkiln.config import Config, Profile
from batchkiln.core.forecast import DayAhead, days_ahead, finishing_times
from batchkiln.core.states import ItemState
from batchkiln.core.windows import DayUsage, Limits
from batchkiln.queue.forecast import QueuedLoad, queued_loads
from batchkiln.queue.lookup import job_id_of
from batchkiln.queue.overview import Lease, latest_time, lease, trouble_items
from batchkiln.queue.summaries import (
    AccountSummary,
    JobSummary,
    account_summaries,
    job_names,
    job_summary,
)


@dataclass(frozen=True, slots=True)
class JobView:
    """A job with what else a person wants to know. `now` is service time; `examples` name an item a trouble."""

    summary: JobSummary
    now: datetime
    estimated_end_at: datetime | None
    examples: Mapping[tuple[ItemState, str], str]


@dataclass(frozen=True, slots=True)
class AccountView:
    """An account with what it used today; `limits` is None where its profile is not configured here."""

    summary: AccountSummary
    usage: DayUsage
    limits: Limits | None
    now: datetime


@dataclass(frozen=True, slots=True)
class Overview:
    """Jobs, accounts, and who drives the queue; None where nobody does."""

    jobs: tuple[JobView, ...]
    accounts: tuple[AccountView, ...]
    lease: Lease | None


def read_overview(
    connection: sqlite3.Connection,
    config: Config,
    names: Sequence[str] | None,
    machine_now: datetime,
    observed: Mapping[str, datetime] | None = None,
) -> Overview:
    """Read all jobs, or those named. Raises `InputError` for one that is not there.

    `observed` is the service time of profiles that are in use here; of others the best guess is taken.
    """
    wanted = list(names) if names is not None else list(job_names(connection))
    summaries = [_summary(connection, name) for name in wanted]
    profiles = {summary.profile for summary in summaries} | set(config.profiles)
    account_views, times = read_accounts(connection, config, machine_now, observed, profiles)
    ends = estimated_ends(connection, config, times, account_views)
    jobs = tuple(
        JobView(
            summary=summary,
            now=times[summary.profile],
            estimated_end_at=ends.get(summary.name),
            examples=trouble_items(connection, summary.name) if summary.troubles else {},
        )
        for summary in summaries
    )
    held = lease(connection)
    return Overview(jobs, account_views, held if held is not None and held.is_alive else None)


def read_accounts(
    connection: sqlite3.Connection,
    config: Config,
    machine_now: datetime,
    observed: Mapping[str, datetime] | None = None,
    profiles: AbstractSet[str] = frozenset(),
) -> tuple[tuple[AccountView, ...], dict[str, datetime]]:
    """Read the accounts, and what time it is for each profile: theirs, those configured, and `profiles`."""
    accounts = account_summaries(connection)
    names = {account.profile for account in accounts} | set(config.profiles) | profiles
    times = {name: _now(connection, name, machine_now) for name in names} | dict(observed or {})
    return tuple(_account(account, config, times[account.profile]) for account in accounts), times


def _summary(connection: sqlite3.Connection, name: str) -> JobSummary:
    summary = job_summary(connection, name)
    if summary is None:
        job_id_of(connection, name)
        raise AssertionError("a job that is there has a summary")
    return summary


def _now(connection: sqlite3.Connection, profile: str, machine_now: datetime) -> datetime:
    known = latest_time(connection, profile)
    return machine_now if known is None else max(machine_now, known)


def _account(account: AccountSummary, config: Config, now: datetime) -> AccountView:
    profile = config.profiles.get(account.profile)
    is_today = profile is None or account.day == profile.day.start_of(now)
    return AccountView(account, account.usage if is_today else DayUsage(), profile.limits if profile else None, now)


@dataclass(frozen=True, slots=True)
class _Group:
    """Jobs that are carried by the same accounts of a profile, one after the other, and what these used today."""

    profile: Profile
    now: datetime
    queued: tuple[QueuedLoad, ...]
    usage: DayUsage
    accounts: int


def estimated_ends(
    connection: sqlite3.Connection,
    config: Config,
    times: Mapping[str, datetime],
    accounts: Sequence[AccountView],
) -> dict[str, datetime]:
    """Return when each job ends, by name; jobs on the same accounts are taken to go one after the other."""
    ends: dict[str, datetime] = {}
    for group in _groups(connection, config, times, accounts):
        ends |= finishing_times(
            [queued.load for queued in group.queued],
            now=group.now,
            day=group.profile.day,
            limits=group.profile.limits,
            usage=group.usage,
            accounts=group.accounts,
        )
    return ends


def coming_days(
    connection: sqlite3.Connection,
    config: Config,
    times: Mapping[str, datetime],
    accounts: Sequence[AccountView],
    *,
    most: int,
) -> dict[str, list[DayAhead]]:
    """Return what the coming days will take, by profile, as `estimated_ends` sees them."""
    days: dict[str, dict[datetime, DayAhead]] = {}
    for group in _groups(connection, config, times, accounts):
        found = days.setdefault(group.profile.name, {})
        for ahead in days_ahead(
            [queued.load for queued in group.queued],
            now=group.now,
            day=group.profile.day,
            limits=group.profile.limits,
            usage=group.usage,
            accounts=group.accounts,
            most=most,
        ):
            other = found.get(ahead.starts_at, DayAhead(ahead.starts_at, 0, 0))
            found[ahead.starts_at] = DayAhead(ahead.starts_at, other.items + ahead.items, other.credits + ahead.credits)
    return {name: [found[at] for at in sorted(found)] for name, found in days.items()}


def _groups(
    connection: sqlite3.Connection,
    config: Config,
    times: Mapping[str, datetime],
    accounts: Sequence[AccountView],
) -> Iterator[_Group]:
    profiles = config.profiles
    days = {name: profile.day.start_of(times[name]) for name, profile in profiles.items()}
    groups: dict[tuple[str, tuple[str, ...]], list[QueuedLoad]] = {}
    for queued in queued_loads(connection, {name: profile.limits for name, profile in profiles.items()}, days):
        carried = queued.accounts or profiles[queued.profile].account_names[:1]
        groups.setdefault((queued.profile, carried), []).append(queued)
    for (profile, names), group in groups.items():
        used = [view.usage for view in accounts if view.summary.profile == profile and view.summary.name in names]
        usage = DayUsage(
            creates=sum(entry.creates for entry in used),
            reads=sum(entry.reads for entry in used),
            credits=sum(entry.credits for entry in used),
        )
        yield _Group(profiles[profile], times[profile], tuple(group), usage, len(names))
