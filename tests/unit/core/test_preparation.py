"""What is made ready while the slot is busy, as tables."""

# ruff: noqa: ANN401  tables name whatever field they are about

from typing import Any

import pytest

from batchkiln.core.budget import BudgetLimit, JobCredits
from batchkiln.core.calls import Call, Misunderstood
from batchkiln.core.planner import WaitUntil, choose_action
from batchkiln.core.preparation import AskQuote, Reject, Upload, choose_preparation
from batchkiln.core.queue_types import Candidate, QueueView
from batchkiln.core.rate_limits import DayUsage, Limits
from batchkiln.core.sliding_window import SlidingWindow
from batchkiln.core.timestamps import EPOCH
from batchkiln.core.waits import NotBefore, WaitReason
from support.builders import NEVER, account_view, candidate, filled, now_at

NOW = now_at(1000.0)
READY = candidate()


def queue(*candidates: Any) -> QueueView:
    return QueueView(None, candidates)


def not_understood(*calls: Call) -> dict[str, Any]:
    return {"misunderstood": tuple(Misunderstood(call, EPOCH, "lacks it", "{}", 200) for call in calls)}


@pytest.mark.parametrize(
    ("candidates", "account", "expected"),
    [
        ([], {}, (WaitUntil, None)),
        ([READY], {}, (WaitUntil, None)),
        ([candidate(cost=None)], {"may_start": False}, (WaitUntil, None)),
        ([candidate(cost=None)], {}, (AskQuote, 1)),
        ([candidate(cost=None, is_ready=False, missing_inputs=(1,))], {}, (Upload, 1)),
        ([candidate(missing_inputs=(7,))], {}, (Upload, 1)),
        (
            [candidate(missing_inputs=(7,)), candidate(item_id=2, index=2, cost=None)],
            {},
            (AskQuote, 2),
        ),
        ([candidate(cap=9)], {}, (Reject, 1)),
        ([candidate(cost=None), candidate(item_id=2, index=2, cap=9)], {}, (Reject, 2)),
        ([candidate(money=JobCredits(budget=15, charged=6))], {}, (Reject, 1)),
        ([candidate(money=JobCredits(budget=15, charged=6), job_is_working=True)], {}, (WaitUntil, None)),
        (
            [candidate(is_ready=False, missing_inputs=(1,)), candidate(item_id=2, index=2, cost=None)],
            {"usage": DayUsage(upload_files=100)},
            (AskQuote, 2),
        ),
    ],
)
def test_preparation(candidates: list[Any], account: dict[str, Any], expected: tuple[type, int | None]) -> None:
    """Rejections, then what is needed first; what has to wait holds up nothing that may leave now."""
    choice = choose_preparation(queue(*candidates), account_view(**account), NOW)

    assert (type(choice), getattr(getattr(choice, "candidate", None), "item_id", None)) == expected


def test_rejection_names_its_obstacle() -> None:
    """The reason is told to a person."""
    choice = choose_preparation(queue(candidate(cap=9)), account_view(), NOW)

    assert choice == Reject(candidate(cap=9), BudgetLimit.OVER_CAP)


def test_quotes_leave_places_for_polls() -> None:
    """A poll every ten seconds always finds its place in the minute."""
    reads = filled(SlidingWindow(limit=60, span_seconds=60), *[990.0] * 52)

    choice = choose_preparation(queue(candidate(cost=None)), account_view(reads=reads), NOW)

    assert choice == AskQuote(candidate(cost=None), NotBefore(1050.0, WaitReason.MINUTE_WINDOW))


@pytest.mark.parametrize(
    ("usage", "used", "at"),
    [
        (DayUsage(), 6, 1000.0),
        (DayUsage(), 7, 1050.0),
        (DayUsage(creates=998), 0, 1000.0),
        (DayUsage(creates=999), 0, 43_200.0),
        (DayUsage(upload_files=100), 0, 43_200.0),
        (DayUsage(upload_bytes=500 * 1024 * 1024), 0, 43_200.0),
    ],
)
def test_upload_waits_for_two_creates_and_leaves_two(usage: DayUsage, used: int, at: float) -> None:
    """Law 5: an upload is two requests of the creates' window; a replay and a create keep their places."""
    creates = filled(SlidingWindow(limit=10, span_seconds=60), *[990.0] * used)
    wanted = candidate(is_ready=False, missing_inputs=(1,))

    choice = choose_preparation(queue(wanted), account_view(usage=usage, creates=creates, limits=Limits()), NOW)

    assert isinstance(choice, Upload)
    assert choice.due.at == at


@pytest.mark.parametrize(
    ("lacking", "calls"),
    [
        (candidate(cost=None), (Call.QUOTE,)),
        (candidate(cost=None, is_ready=False, missing_inputs=(1,)), (Call.UPLOAD,)),
        (candidate(cost=None, is_ready=False, missing_inputs=(1,)), (Call.COMPLETION,)),
    ],
)
def test_what_needs_a_call_that_rests_waits_for_a_person(lacking: Candidate, calls: tuple[Call, ...]) -> None:
    """Law 10: neither the slot nor the preparation has anything to do, and both know why."""
    account = account_view(**not_understood(*calls))

    assert choose_action(queue(lacking), account, NOW) == WaitUntil(NotBefore(NEVER, WaitReason.NOT_UNDERSTOOD))
    preparation = choose_preparation(queue(lacking), account, NOW)
    assert not isinstance(preparation, Reject)
    assert preparation.due == NotBefore(NEVER, WaitReason.NOT_UNDERSTOOD)


def test_recipe_whose_price_cannot_be_had_lets_others_go_first() -> None:
    """One that fails waits in its own time, and is asked after the others also where both are due."""
    failing, other = candidate(cost=None), candidate(item_id=2, index=2, cost=None, recipe_id=2)

    for held in (NotBefore(1200.0, WaitReason.NO_PRICE), NotBefore(900.0, WaitReason.NO_PRICE)):
        account = account_view(quotes_held={failing.recipe_id: held})
        assert choose_preparation(queue(failing, other), account, NOW) == AskQuote(other, NotBefore(1000.0))
