"""Each configured account's state in the queue, needed to request prices and catalogues within its limits (Law 5)."""

from collections.abc import Iterable, Mapping
from datetime import datetime

from batchkiln.api.app_context import AppContext, kept_seconds
from batchkiln.config import Profile
from batchkiln.planning.quotes import AccountState
from batchkiln.presentation.forecasts import usage_today
from batchkiln.store import AccountSummary, Reader


def known_accounts(reader: Reader, setting: AppContext) -> dict[tuple[str, str], AccountState]:
    """Return the state of the accounts by profile and name."""
    profiles = setting.config.profiles
    now = setting.surroundings.wall()
    times = {name: reader.accounts.service_time(name, now) for name in profiles}
    summaries = [account for account in reader.accounts.summaries() if account.profile in profiles]
    return account_states(reader, summaries, profiles, times)


def account_states(
    reader: Reader,
    accounts: Iterable[AccountSummary],
    profiles: Mapping[str, Profile],
    times: Mapping[str, datetime],
) -> dict[tuple[str, str], AccountState]:
    """Return the state of all accounts at the given service times.

    `accounts` are the accounts recorded in the queue; other accounts get an empty state.
    """
    known = {
        (name, account): AccountState(times[name]) for name in profiles for account in profiles[name].account_names
    }
    for summary in accounts:
        profile, now = profiles[summary.profile], times[summary.profile]
        known[summary.profile, summary.name] = AccountState(
            now=now,
            usage=usage_today(summary, profile, now),
            logged=tuple(reader.accounts.logged_requests(summary.profile, kept_seconds(profile.limits))),
            account_id=summary.id,
            reads_held=summary.reads_held,
        )
    return known
