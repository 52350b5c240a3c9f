"""What the queue knows of each configured account, with which it may be asked for prices and the catalogue (Law 5)."""

import sqlite3
from collections.abc import Iterable, Mapping
from datetime import datetime

from batchkiln.api.app_context import AppContext, kept_seconds
from batchkiln.config import Profile
from batchkiln.planning.quotes import AccountState
from batchkiln.presentation.forecasts import usage_today
from batchkiln.store.driver_status import present_time
from batchkiln.store.jobs import AccountSummary, account_summaries
from batchkiln.store.usage import logged_requests


def known_accounts(connection: sqlite3.Connection, setting: AppContext) -> dict[tuple[str, str], AccountState]:
    """Return what there is of all accounts, by profile and name. For `Database.read`."""
    profiles = setting.config.profiles
    now = setting.surroundings.wall()
    times = {name: present_time(connection, name, now) for name in profiles}
    summaries = [account for account in account_summaries(connection) if account.profile in profiles]
    return known_of(connection, summaries, profiles, times)


def known_of(
    connection: sqlite3.Connection,
    accounts: Iterable[AccountSummary],
    profiles: Mapping[str, Profile],
    times: Mapping[str, datetime],
) -> dict[tuple[str, str], AccountState]:
    """Return it at these times of the services; `accounts` are those that the queue has."""
    known = {
        (name, account): AccountState(times[name]) for name in profiles for account in profiles[name].account_names
    }
    for summary in accounts:
        profile, now = profiles[summary.profile], times[summary.profile]
        known[summary.profile, summary.name] = AccountState(
            now=now,
            usage=usage_today(summary, profile, now),
            logged=tuple(logged_requests(connection, summary.profile, kept_seconds(profile.limits))),
            account_id=summary.id,
            reads_held=summary.reads_held,
        )
    return known
