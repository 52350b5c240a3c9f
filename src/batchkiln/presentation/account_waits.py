"""The wait of an account and the usage of its windows, computed by the planner from the queue alone.

This works whether or not a process runs the queue. Facts that only the running process knows, such as the latest error,
are in `dashboard/live_state.py`.
"""

from datetime import datetime, timedelta
from math import isinf
from typing import Final

from msgspec import Struct

from batchkiln.config import Profile
from batchkiln.core.account_view import account_view
from batchkiln.core.planner import choose_action
from batchkiln.core.queue_types import Scope, Viewpoint
from batchkiln.core.rate_limits import RateLimits
from batchkiln.core.timestamps import ClockReading
from batchkiln.core.waits import NotBefore, WaitReason
from batchkiln.presentation.overview import AccountView
from batchkiln.store import Reader

_HALF_A_SECOND: Final = timedelta(seconds=0.5)
UNREPORTED_WAITS: Final = frozenset({WaitReason.NOW, WaitReason.POLL_INTERVAL, WaitReason.NOTHING})
"""Waits that no page shows."""


class Wait(Struct, frozen=True):
    """The wait of an account's only slot. `until` is None if only a change of the queue can end the wait."""

    reason: WaitReason
    until: datetime | None

    @property
    def is_reportable(self) -> bool:
        """Whether the wait is worth showing to a person."""
        return self.reason not in UNREPORTED_WAITS


class Minute(Struct, frozen=True):
    """The used places of the minute's windows: creates and reads of the account, all requests of the machine."""

    creates: int
    reads: int
    machine: int


class AccountStatus(Struct, frozen=True):
    """An account at one moment: its wait, its minute, and whether a generation occupies its slot."""

    wait: Wait
    minute: Minute
    is_busy: bool


def account_status(reader: Reader, account: AccountView, profile: Profile) -> AccountStatus:
    """Return an account's status, as the planner of a newly started process would compute it."""
    name, limits = account.summary.name, profile.limits
    now = ClockReading(monotonic=0.0, instant=account.now, latest=account.now)
    viewpoint = Viewpoint(
        account_id=account.summary.id,
        profile=profile.name,
        account=name,
        is_first=name == profile.account_names[0],
        scope=Scope(),
    )
    rates = RateLimits.of_log(
        limits,
        profile.day,
        reader.accounts.logged_requests(profile.name, limits.minute_seconds),
        account_id=account.summary.id,
        now=now,
        recent_seconds=0.0,
    )
    seen = reader.accounts.snapshot(viewpoint, rates.days(now))
    touched_at = now.monotonic_of(seen.last_read_at) if seen.last_read_at is not None else None
    due = choose_action(seen.queue, account_view(seen, rates, now, last_touched_at=touched_at), now).due
    minute = Minute(
        creates=rates.creates.window.used(now.monotonic),
        reads=rates.reads.window.used(now.monotonic),
        machine=rates.host.window.used(now.monotonic),
    )
    return AccountStatus(wait_of(due, now), minute, seen.queue.unresolved is not None)


def wait_of(due: NotBefore, now: ClockReading) -> Wait:
    """Return the planner's wait, with its end as an instant of service time, rounded to the second."""
    if isinf(due.at):
        return Wait(due.reason, None)
    exact = now.instant_of(max(due.at, now.monotonic))
    return Wait(due.reason, (exact + _HALF_A_SECOND).replace(microsecond=0))  # a reset is at midnight, not just before
