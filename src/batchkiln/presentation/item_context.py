"""The wait of an item, computed by the planner from the queue alone.

Only the process that runs the queue knows its minute windows and its next poll. Those waits last seconds, so they are
ignored here.
"""

import json
from datetime import datetime, timedelta
from math import inf, isfinite

from msgspec import Struct
from msgspec.structs import replace

from batchkiln.config import Config, Profile
from batchkiln.core.account_view import account_view
from batchkiln.core.calls import Call
from batchkiln.core.job import Order
from batchkiln.core.planner import choose_action
from batchkiln.core.queue_types import Candidate, QueueView
from batchkiln.core.rate_limits import RateLimits
from batchkiln.core.states import UNDER_WAY, WITH_SERVICE, ItemState
from batchkiln.core.timestamps import ClockReading
from batchkiln.core.waits import NotBefore, WaitReason
from batchkiln.presentation.overview import service_time
from batchkiln.store import AccountStanding, ItemDetail, JobSummary, Reader, SlotHolder


class Wait(Struct, frozen=True):
    """The wait of an item on one account. `until` is None if unknown; `holder` is the item that occupies the slot."""

    reason: WaitReason
    account: str
    until: datetime | None = None
    holder: SlotHolder | None = None


class ItemContext(Struct, frozen=True):
    """The facts outside an item that explain its state. `wait` is None if no account can continue the item.

    `is_configured` is true if the configuration contains the job's profile. `now` is service time.
    `time_scale` is service seconds per real second.
    """

    now: datetime
    is_driven: bool
    is_configured: bool = True
    wait: Wait | None = None
    time_scale: float = 1.0


def read_item_context(
    reader: Reader, config: Config, detail: ItemDetail, summary: JobSummary, machine_now: datetime
) -> ItemContext:
    """Read the context of an item."""
    now = service_time(reader, config, summary.profile, machine_now)
    is_driven = reader.is_driven()
    profile = config.profiles.get(summary.profile)
    if profile is None:
        return ItemContext(now, is_driven, is_configured=False)
    waits = [
        _wait(reader, standing, detail, summary, profile=profile, now=now)
        for standing in _accounts(reader, detail, profile, now)
    ]
    soonest = min(waits, key=lambda entry: entry[0], default=(0.0, None))
    return ItemContext(now, is_driven, wait=soonest[1], time_scale=profile.time_scale)


def _accounts(reader: Reader, detail: ItemDetail, profile: Profile, now: datetime) -> list[AccountStanding]:
    """Return the accounts that can continue the item: after a send, only the account of the attempt (Law 2)."""
    if detail.item.state is ItemState.QUEUED:
        names = json.loads(reader.jobs.account_names(detail.job)) or profile.account_names[:1]
    elif detail.item.state in UNDER_WAY:
        names = [detail.attempts[-1].account]
    else:
        names = []
    day = profile.day.start_of(now)
    return [
        reader.accounts.standing(profile=profile.name, name=name, item_id=detail.item.id, day=day) for name in names
    ]


def _wait(
    reader: Reader,
    standing: AccountStanding,
    detail: ItemDetail,
    summary: JobSummary,
    *,
    profile: Profile,
    now: datetime,
) -> tuple[float, Wait]:
    """Return the seconds until the item continues on an account, and the wait, as if it were the only queued item."""
    if standing.outage is not None:
        return _timed(NotBefore(inf, WaitReason.UNREACHABLE), replace(standing, holder=None), now)
    reading = ClockReading(0.0, now, now)
    if standing.key_missing is not None and detail.item.state is ItemState.QUEUED and reader.is_driven():
        return _timed(NotBefore(inf, WaitReason.NO_KEY), replace(standing, holder=None), now)
    if standing.refused is not None and detail.item.state is ItemState.QUEUED and reader.is_driven():
        return _timed(NotBefore(inf, WaitReason.ACCOUNT_BLOCKED), replace(standing, holder=None), now)
    account = account_view(standing, RateLimits.of(profile.limits, profile.day), reading)
    if detail.item.state is not ItemState.QUEUED:
        call = Call.CREATE if detail.item.state is ItemState.SUBMITTING else Call.READ
        due = (account.rates.creates if call.is_create else account.rates.reads).held
        if any(entry.call is call for entry in standing.misunderstood):
            due = NotBefore(inf, WaitReason.NOT_UNDERSTOOD)
        return _timed(due, replace(standing, holder=None), now)
    candidate = Candidate(
        item_id=detail.item.id,
        job_id=0,
        recipe_id=0,
        priority=detail.priority,
        index=detail.item.index,
        order=Order.MANIFEST,
        cost=detail.quote_credits,
        cap=detail.recipe.max_cost_credits,
        money=reader.jobs.credits(detail.job, profile.day.start_of(now), for_item=detail.item.id),
        job_is_working=any(entry.state in WITH_SERVICE for entry in summary.under_way),
        is_ready=standing.is_ready,
    )
    is_held = standing.holder is not None and standing.holder.state is ItemState.HELD
    view = QueueView(None, (candidate,), is_slot_held=is_held)
    return _timed(choose_action(view, account, reading).due, standing, now)


def _timed(due: NotBefore, standing: AccountStanding, now: datetime) -> tuple[float, Wait]:
    if due.at <= 0:
        return 0.0, Wait(WaitReason.NOW, standing.account, holder=standing.holder)
    until = now + timedelta(seconds=due.at) if isfinite(due.at) else None
    wait = Wait(due.reason, standing.account, until)
    return due.at, replace(wait, holder=standing.holder) if due.reason is WaitReason.HELD else wait
