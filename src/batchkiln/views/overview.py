"""What `status`, `run` and `work` show of the queue, read at once from one snapshot."""

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from batchkiln.config import Config, Profile
from batchkiln.core.forecast import finishing_times
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
    accounts = account_summaries(connection)
    profiles = {summary.profile for summary in summaries} | {account.profile for account in accounts}
    profiles |= set(config.profiles)
    times = {name: _now(connection, name, machine_now) for name in profiles} | dict(observed or {})
    account_views = tuple(_account(account, config, times[account.profile]) for account in accounts)
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


def estimated_ends(
    connection: sqlite3.Connection,
    config: Config,
    times: Mapping[str, datetime],
    accounts: Sequence[AccountView],
) -> dict[str, datetime]:
    """Return when each job ends, by name; jobs on the same accounts are taken to go one after the other."""
    profiles = config.profiles
    days = {name: profile.day.start_of(times[name]) for name, profile in profiles.items()}
    groups: dict[tuple[str, tuple[str, ...]], list[QueuedLoad]] = {}
    for queued in queued_loads(connection, {name: profile.limits for name, profile in profiles.items()}, days):
        carried = queued.accounts or profiles[queued.profile].account_names[:1]
        groups.setdefault((queued.profile, carried), []).append(queued)
    ends: dict[str, datetime] = {}
    for (profile, names), group in groups.items():
        used = [view.usage for view in accounts if view.summary.profile == profile and view.summary.name in names]
        ends |= _group_ends(group, profiles[profile], times[profile], used, len(names))
    return ends


def _group_ends(
    group: Sequence[QueuedLoad], profile: Profile, now: datetime, used: Sequence[DayUsage], accounts: int
) -> Mapping[str, datetime]:
    usage = DayUsage(
        creates=sum(entry.creates for entry in used),
        reads=sum(entry.reads for entry in used),
        credits=sum(entry.credits for entry in used),
    )
    return finishing_times(
        [queued.load for queued in group],
        now=now,
        day=profile.day,
        limits=profile.limits,
        usage=usage,
        accounts=accounts,
    )
