"""What an account waits for, until when, and how full its windows are: by the planner, from the queue alone.

So it can be told of a queue that another process drives, or none. What only that process knows, such as the
service's last words, it tells itself.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from math import inf, isinf
from typing import Final

from batchkiln.config import Profile
from batchkiln.core.planner import AccountView as PlannersView
from batchkiln.core.planner import NotBefore, WaitReason, choose_action
from batchkiln.core.queue_types import HeldUntil, Scope, Viewpoint
from batchkiln.core.rate_limits import CurrentDay, SlidingWindow, day_starts
from batchkiln.core.timestamps import ClockReading
from batchkiln.presentation.overview import AccountView
from batchkiln.store import Reader

_HALF_A_SECOND: Final = timedelta(seconds=0.5)
NOT_WORTH_SAYING: Final = frozenset({WaitReason.NOW, WaitReason.POLL_INTERVAL, WaitReason.NOTHING})


@dataclass(frozen=True, slots=True)
class Wait:
    """What an account's one slot waits for. `until` is None where only news can change it."""

    reason: WaitReason
    until: datetime | None

    @property
    def is_worth_saying(self) -> bool:
        """Whether a person may wonder."""
        return self.reason not in NOT_WORTH_SAYING


@dataclass(frozen=True, slots=True)
class Minute:
    """How many requests of the sliding minute are taken: of the account, and of all accounts of this machine."""

    creates: int
    reads: int
    machine: int


@dataclass(frozen=True, slots=True)
class AccountStatus:
    """An account at a moment: what it waits for, its minute, and whether a generation has its slot."""

    wait: Wait
    minute: Minute
    is_busy: bool


def account_status(reader: Reader, account: AccountView, profile: Profile) -> AccountStatus:
    """Tell what an account does next, as the planner of a process that begins now would choose."""
    name, limits = account.summary.name, profile.limits
    now = ClockReading(monotonic=0.0, instant=account.now, latest=account.now)
    viewpoint = Viewpoint(
        account_id=account.summary.id,
        profile=profile.name,
        account=name,
        is_first=name == profile.account_names[0],
        scope=Scope(),
    )
    seen = reader.accounts.snapshot(viewpoint, day_starts(profile.day, now))
    creates, reads, machine = _minute(reader, account, profile, now)
    view = PlannersView(
        limits=limits,
        creates=creates,
        reads=reads,
        machine=machine,
        today=CurrentDay(seen.usages[-1], now.monotonic_of(profile.day.reset_after(account.now))),
        creates_held=_due(seen.creates_held, now),
        reads_held=_due(seen.reads_held, now),
        misunderstood=seen.misunderstood,
        last_touched_at=now.monotonic_of(seen.last_read_at) if seen.last_read_at is not None else None,
    )
    due = choose_action(seen.queue, view, now).due
    minute = Minute(creates.used(0.0), reads.used(0.0), machine.used(0.0))
    return AccountStatus(wait_of(due, now), minute, seen.queue.unresolved is not None)


def wait_of(due: NotBefore, now: ClockReading) -> Wait:
    """Give a wait of the planner as a person is told of it."""
    if isinf(due.at):
        return Wait(due.reason, None)
    exact = now.instant_of(max(due.at, now.monotonic))
    return Wait(due.reason, (exact + _HALF_A_SECOND).replace(microsecond=0))  # a reset is at midnight, not just before


def _minute(
    reader: Reader, account: AccountView, profile: Profile, now: ClockReading
) -> tuple[SlidingWindow, SlidingWindow, SlidingWindow]:
    """Give the windows of the minute: creates, reads, and the machine's."""
    limits, span = profile.limits, profile.limits.minute_seconds
    sent = [
        (request.kind, request.account_id, now.monotonic_of(request.sent_at))
        for request in reader.accounts.logged_requests(profile.name, span)
    ]
    ours = [(kind, at) for kind, account_id, at in sent if account_id == account.summary.id]
    return (
        SlidingWindow(
            limit=limits.creates_per_minute, span_seconds=span, settled_at=[at for kind, at in ours if kind.is_create]
        ),
        SlidingWindow(
            limit=limits.reads_per_minute, span_seconds=span, settled_at=[at for kind, at in ours if kind.is_read]
        ),
        SlidingWindow(limit=limits.requests_per_minute_per_ip, span_seconds=span, settled_at=[at for _, _, at in sent]),
    )


def _due(held: HeldUntil | None, now: ClockReading) -> NotBefore:
    return NotBefore(-inf) if held is None else NotBefore(now.monotonic_of(held.until), held.reason)
