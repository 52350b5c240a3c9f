"""The order of all work, as tables."""

# ruff: noqa: ANN401  tables name whatever field they are about

from typing import Any

import pytest

from batchkiln.core.budget import JobCredits
from batchkiln.core.calls import Call, Misunderstood
from batchkiln.core.job import AttemptState, Order
from batchkiln.core.planner import (
    Poll,
    Replay,
    Submit,
    WaitUntil,
    choose_action,
)
from batchkiln.core.queue_types import QueueView
from batchkiln.core.rate_limits import DayUsage
from batchkiln.core.sliding_window import SlidingWindow
from batchkiln.core.timestamps import EPOCH
from batchkiln.core.waits import NotBefore, WaitReason
from support.builders import NEVER, account_view, attempt, candidate, filled, now_at

NOW = now_at(1000.0)
SENT = attempt(state=AttemptState.SENT)
ACTIVE = attempt(state=AttemptState.ACTIVE, generation_id="gen-1")
READY = candidate()


def queue(*candidates: Any, **fields: Any) -> QueueView:
    return QueueView(fields.pop("unresolved", None), candidates, **fields)


def chosen(view: QueueView, **account: Any) -> tuple[type, int | None, float, WaitReason]:
    """Return what is chosen: its kind, the item or attempt, when, and what it waits for."""
    action = choose_action(view, account_view(**account), NOW)
    subject = getattr(action, "candidate", None) or getattr(action, "attempt", None)
    return type(action), getattr(subject, "item_id", None), action.due.at, action.due.reason


@pytest.mark.parametrize("is_slot_held", [False, True])
@pytest.mark.parametrize("may_start", [False, True])
def test_unresolved_attempt_is_replayed_before_anything(may_start: bool, is_slot_held: bool) -> None:  # noqa: FBT001
    """Law 2: an unknown outcome comes first, also when nothing new may begin. Service rule 4.2."""
    view = queue(READY, unresolved=SENT, is_slot_held=is_slot_held)

    assert chosen(view, may_start=may_start, credits_left=0) == (Replay, 1, 1000.0, WaitReason.NOW)


def test_active_generation_is_polled_not_before_the_interval() -> None:
    """Law 3: the known id is read, ten seconds after the last request about it. Service rule 4.4."""
    view = queue(READY, unresolved=ACTIVE)

    assert chosen(view, last_touched_at=995.0) == (Poll, 1, 1005.0, WaitReason.POLL_INTERVAL)
    assert chosen(view, last_touched_at=None) == (Poll, 1, 1000.0, WaitReason.NOW)
    assert chosen(view, last_touched_at=900.0, may_start=False)[0] is Poll


@pytest.mark.parametrize(
    ("fields", "at", "reason"),
    [
        ({}, 1000.0, WaitReason.NOW),
        ({"creates": filled(SlidingWindow(limit=1, span_seconds=60), 990.0)}, 1050.0, WaitReason.MINUTE_WINDOW),
        ({"machine": filled(SlidingWindow(limit=1, span_seconds=60), 990.0)}, 1050.0, WaitReason.MINUTE_WINDOW),
        ({"creates_held": NotBefore(1200.0, WaitReason.THROTTLED)}, 1200.0, WaitReason.THROTTLED),
        ({"machine_held": NotBefore(1060.0, WaitReason.EDGE_FIREWALL)}, 1060.0, WaitReason.EDGE_FIREWALL),
        ({"usage": DayUsage(creates=1000)}, 43_200.0, WaitReason.DAY_REQUESTS),
        ({"reads_held": NotBefore(1200.0, WaitReason.THROTTLED)}, 1000.0, WaitReason.NOW),
        ({"usage": DayUsage(reads=20_000)}, 1000.0, WaitReason.NOW),
    ],
)
@pytest.mark.parametrize("view", [queue(READY), queue(unresolved=SENT)])
def test_create_and_replay_wait_for_the_same_windows(
    view: QueueView, fields: dict[str, Any], at: float, reason: WaitReason
) -> None:
    """Law 5: replays count toward the limits like any create. Service section 8."""
    assert chosen(view, **fields)[2:] == (at, reason)


@pytest.mark.parametrize(
    ("fields", "at", "reason"),
    [
        ({"reads": filled(SlidingWindow(limit=1, span_seconds=60), 990.0)}, 1050.0, WaitReason.MINUTE_WINDOW),
        ({"reads_held": NotBefore(1200.0, WaitReason.THROTTLED)}, 1200.0, WaitReason.THROTTLED),
        ({"machine_held": NotBefore(1060.0, WaitReason.EDGE_FIREWALL)}, 1060.0, WaitReason.EDGE_FIREWALL),
        ({"usage": DayUsage(reads=20_000)}, 43_200.0, WaitReason.DAY_REQUESTS),
        ({"creates_held": NotBefore(1200.0, WaitReason.THROTTLED)}, 1000.0, WaitReason.NOW),
    ],
)
def test_poll_waits_for_the_windows_of_reads(fields: dict[str, Any], at: float, reason: WaitReason) -> None:
    """Law 5: polls are reads, and no creates."""
    assert chosen(queue(unresolved=ACTIVE), **fields)[2:] == (at, reason)


@pytest.mark.parametrize(
    ("candidates", "account", "expected"),
    [
        ([], {}, (WaitUntil, None, NEVER, WaitReason.NOTHING)),
        ([candidate(cost=None)], {}, (WaitUntil, None, NEVER, WaitReason.PREPARING)),
        ([candidate(is_ready=False)], {}, (WaitUntil, None, NEVER, WaitReason.PREPARING)),
        ([READY], {"may_start": False}, (WaitUntil, None, NEVER, WaitReason.ENOUGH)),
        ([READY], {"credits_left": 9}, (WaitUntil, None, NEVER, WaitReason.ENOUGH)),
        ([READY], {"credits_left": 10}, (Submit, 1, 1000.0, WaitReason.NOW)),
        ([READY], {"usage": DayUsage(credits=1991)}, (WaitUntil, None, 43_200.0, WaitReason.DAY_CREDITS)),
        ([READY], {"usage": DayUsage(credits=1990)}, (Submit, 1, 1000.0, WaitReason.NOW)),
        (
            [candidate(money=JobCredits(budget_per_day=15, today=6))],
            {},
            (WaitUntil, None, 43_200.0, WaitReason.JOB_DAY_CREDITS),
        ),
        (
            [candidate(money=JobCredits(budget=15, reserved=6), job_is_working=True)],
            {},
            (WaitUntil, None, NEVER, WaitReason.SETTLING),
        ),
        ([candidate(cap=9)], {}, (WaitUntil, None, NEVER, WaitReason.SETTLING)),
        (
            [candidate(item_id=1, cost=60), candidate(item_id=2, index=2, cost=10)],
            {"usage": DayUsage(credits=1950)},
            (Submit, 2, 1000.0, WaitReason.NOW),
        ),
        (
            [candidate(item_id=1, cost=60), candidate(item_id=2, index=2, cost=10)],
            {},
            (Submit, 1, 1000.0, WaitReason.NOW),
        ),
        (
            [candidate(item_id=1, cost=None), candidate(item_id=2, index=2)],
            {},
            (Submit, 2, 1000.0, WaitReason.NOW),
        ),
        (
            [candidate(item_id=1), candidate(item_id=2, index=2, priority=1)],
            {},
            (Submit, 2, 1000.0, WaitReason.NOW),
        ),
        (
            [candidate(item_id=1, job_id=2, index=0), candidate(item_id=2, index=2, priority=0)],
            {},
            (Submit, 2, 1000.0, WaitReason.NOW),
        ),
        (
            [candidate(item_id=1, order=Order.PACK), candidate(item_id=2, index=2, cost=20, order=Order.PACK)],
            {},
            (Submit, 2, 1000.0, WaitReason.NOW),
        ),
        (  # the dearer one is over its cap, and about to be rejected
            [candidate(item_id=1, order=Order.PACK), candidate(item_id=2, index=2, cost=20, cap=19, order=Order.PACK)],
            {},
            (Submit, 1, 1000.0, WaitReason.NOW),
        ),
    ],
)
def test_new_work(candidates: list[Any], account: dict[str, Any], expected: tuple[Any, ...]) -> None:
    """Only what is quoted, ready and payable is sent; what does not fit lets others go. Contract, section 7."""
    assert chosen(queue(*candidates), **account) == expected


def test_held_slot_rests() -> None:
    """Law 4: an attempt that a person has to end still takes the account's one place."""
    assert chosen(queue(READY, is_slot_held=True)) == (WaitUntil, None, NEVER, WaitReason.HELD)


def not_understood(*calls: Call) -> dict[str, Any]:
    return {"misunderstood": tuple(Misunderstood(call, EPOCH, "lacks it", "{}", 200) for call in calls)}


def test_what_is_paid_never_rests() -> None:
    """Law 3: reads and replays go on, understood or not; nothing new is begun while creates are not understood."""
    account = not_understood(Call.READ, Call.CREATE)

    assert chosen(queue(unresolved=ACTIVE), **account)[0] is Poll
    assert chosen(queue(unresolved=SENT), **account)[0] is Replay


def test_nothing_new_is_sent_where_creates_are_not_understood() -> None:
    """Law 10: the next one may be paid, and not be understood either. Reads that are not understood stop nothing."""
    assert chosen(queue(READY), **not_understood(Call.CREATE))[2:] == (NEVER, WaitReason.NOT_UNDERSTOOD)
    assert chosen(queue(READY), **not_understood(Call.READ))[0] is Submit
