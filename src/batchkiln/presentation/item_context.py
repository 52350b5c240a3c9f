"""What an item waits for, by the planner's own judgement on what is in the queue.

Only the process that drives the queue knows its minute windows and when it polls next. These are waits of seconds,
which a person who asks has no use for; here they count as none.
"""

import json
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from math import inf, isfinite
from typing import Final

from batchkiln.config import Config, Profile
from batchkiln.core.calls import Call
from batchkiln.core.job import Order
from batchkiln.core.planner import AccountView, Candidate, NotBefore, QueueView, WaitReason, choose_action
from batchkiln.core.queue_types import HeldUntil
from batchkiln.core.rate_limits import CurrentDay, SlidingWindow
from batchkiln.core.states import ItemState
from batchkiln.core.timestamps import ClockReading
from batchkiln.store import AccountStanding, ItemDetail, JobSummary, Reader, SlotHolder

_UNDER_WAY: Final = frozenset({ItemState.SUBMITTING, ItemState.ACTIVE})


@dataclass(frozen=True, slots=True)
class Wait:
    """What an item waits for on an account, until when where that is known; `holder` has the account's place."""

    reason: WaitReason
    account: str
    until: datetime | None = None
    holder: SlotHolder | None = None


@dataclass(frozen=True, slots=True)
class ItemContext:
    """What matters for an item beside itself. `wait` is None for one that waits for nothing but a person.

    `is_configured`: the service of its job is known here. `now` is service time.
    """

    now: datetime
    is_driven: bool
    is_configured: bool = True
    wait: Wait | None = None


def read_item_context(
    reader: Reader, config: Config, story: ItemDetail, summary: JobSummary, machine_now: datetime
) -> ItemContext:
    """Tell how things stand around an item."""
    now = reader.jobs.service_time(story.job, machine_now)
    held = reader.lease()
    is_driven = held is not None and held.is_alive
    profile = config.profiles.get(summary.profile)
    if profile is None:
        return ItemContext(now, is_driven, is_configured=False)
    waits = [
        _wait(reader, standing, story, summary, profile=profile, now=now)
        for standing in _accounts(reader, story, profile, now)
    ]
    soonest = min(waits, key=lambda entry: entry[0], default=(0.0, None))
    return ItemContext(now, is_driven, wait=soonest[1])


def _accounts(reader: Reader, story: ItemDetail, profile: Profile, now: datetime) -> list[AccountStanding]:
    """Return the accounts that may move the item on: of one that was sent, only the attempt's own (Law 2)."""
    if story.item.state is ItemState.QUEUED:
        names = json.loads(reader.jobs.account_names(story.job)) or profile.account_names[:1]
    elif story.item.state in _UNDER_WAY | {ItemState.DOWNLOADING}:
        names = [story.attempts[-1].account]
    else:
        names = []
    day = profile.day.start_of(now)
    return [reader.accounts.standing(profile=profile.name, name=name, item_id=story.item.id, day=day) for name in names]


def _wait(  # the planner is asked what it would do had this item alone its turn
    reader: Reader,
    standing: AccountStanding,
    story: ItemDetail,
    summary: JobSummary,
    *,
    profile: Profile,
    now: datetime,
) -> tuple[float, Wait]:
    creates, reads = (_due(held, now) for held in (standing.creates_held, standing.reads_held))
    if story.item.state is not ItemState.QUEUED:
        is_sent = story.item.state is ItemState.SUBMITTING
        due = creates if is_sent else reads
        if any(entry.call is (Call.CREATE if is_sent else Call.READ) for entry in standing.misunderstood):
            due = NotBefore(inf, WaitReason.NOT_UNDERSTOOD)
        return _timed(due, replace(standing, holder=None), now)
    limits = profile.limits
    minute = SlidingWindow(limit=1, span_seconds=limits.minute_seconds)
    account = AccountView(
        limits=limits,
        creates=minute,
        reads=minute,
        machine=minute,
        today=CurrentDay(standing.usage, (profile.day.reset_after(now) - now).total_seconds()),
        creates_held=creates,
        reads_held=reads,
        misunderstood=standing.misunderstood,
    )
    candidate = Candidate(
        item_id=story.item.id,
        job_id=0,
        recipe_id=0,
        priority=story.priority,
        index=story.item.index,
        order=Order.MANIFEST,
        cost=story.quote_credits,
        cap=story.recipe.max_cost_credits,
        money=reader.jobs.credits(story.job, profile.day.start_of(now)),
        job_is_working=any(entry.state in _UNDER_WAY for entry in summary.under_way),
        is_ready=standing.is_ready,
    )
    is_held = standing.holder is not None and standing.holder.state is ItemState.HELD
    view = QueueView(None, (candidate,), is_slot_held=is_held)
    return _timed(choose_action(view, account, ClockReading(0.0, now, now)).due, standing, now)


def _due(held: HeldUntil | None, now: datetime) -> NotBefore:
    return NotBefore(0.0) if held is None else NotBefore((held.until - now).total_seconds(), held.reason)


def _timed(due: NotBefore, standing: AccountStanding, now: datetime) -> tuple[float, Wait]:
    if due.at <= 0:
        return 0.0, Wait(WaitReason.NOW, standing.account, holder=standing.holder)
    until = now + timedelta(seconds=due.at) if isfinite(due.at) else None
    wait = Wait(due.reason, standing.account, until)
    return due.at, replace(wait, holder=standing.holder) if due.reason is WaitReason.HELD else wait
