"""What a person reads about costs, ends and downloads, in the cases that are easily said wrong."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from batchkiln.cli.progress import describe
from batchkiln.config import Profile
from batchkiln.core.credit_price import CreditPrice
from batchkiln.core.durations import Expected
from batchkiln.core.forecast import EndRange, ItemClass, JobLoad
from batchkiln.core.states import ItemState
from batchkiln.presentation.confirmations import (
    cost_of_pause,
    cost_of_redo,
    cost_of_retry,
    cost_of_unpause,
    spending_of,
)
from batchkiln.presentation.ends import End, JobEnd, end_of_all
from batchkiln.presentation.forecasts import job_forecasts, only_under_way
from batchkiln.store import QueuedLoad
from batchkiln.store.jobs import Credits
from batchkiln.store.operations import RedoReport, RetryReport
from batchkiln.store.redo_effects import Outdated, RedoEffects
from support.view_builders import NOW, job_view, under_way

LOCAL = Profile("local")


def test_redo_over_the_cap_costs_nothing() -> None:
    """The items are counted apart from the sum of the quotes."""
    text = cost_of_redo("owls", RedoReport(3, (), may_cost=2, unquoted=0, over_cap=2))

    assert text.endswith(
        "may cost 2 credits by the known quotes; 2 of them would be rejected and cost nothing, because their quotes "
        "exceed their caps or the job's budget.credits_per_day."
    )


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1, "owls: making 1 done item again; its files are kept; may cost 2 credits by the known quotes."),
        (3, "owls: making 3 done items again; their files are kept; may cost 2 credits by the known quotes."),
    ],
)
def test_redo_of_one_item_speaks_of_one(number: int, text: str) -> None:
    assert cost_of_redo("owls", RedoReport(number, (), may_cost=2, unquoted=0)) == text


@pytest.mark.parametrize(
    ("redone", "outdated", "text"),
    [
        (
            1,
            Outdated(1, "hero-clip", 50, 0),
            "hero-clip was made from it and becomes stale: making it again may cost 50",
        ),
        (1, Outdated(1, "hero-clip", None, 1), "hero-clip was made from it and becomes stale: making it again has no"),
        (
            2,
            Outdated(3, "a", 100, 1),
            "3 items were made from them and become stale: making them again may cost 100 credits more, and 1 without",
        ),
    ],
)
def test_redo_names_what_becomes_stale_and_its_price(redone: int, outdated: Outdated, text: str) -> None:
    """A still for 5 credits may lead to a clip for 50."""
    assert f". {text}" in cost_of_redo(
        "owls", RedoReport(redone, (), may_cost=2, unquoted=0, effects=RedoEffects(outdated=outdated))
    )


@pytest.mark.parametrize(
    ("effects", "text"),
    [
        (RedoEffects(1, ("fox",)), "fox is kept: the verdict ends once there are new files, which wait for a review."),
        (RedoEffects(3, ("a", "b")), "a, b and 1 more are kept: their verdicts end once there are new files"),
    ],
)
def test_redo_names_the_verdicts_that_end(effects: RedoEffects, text: str) -> None:
    """A verdict is about the version that the person saw."""
    assert f". {text}" in cost_of_redo("owls", RedoReport(2, (), may_cost=2, unquoted=0, effects=effects))


@pytest.mark.parametrize(
    ("requeued", "figures", "text"),
    [
        ({ItemState.FAILED: 1}, (2, 0, 2), "1 item (1 failed); may cost 2 credits by the known quotes."),
        (
            {ItemState.FAILED: 1},
            (2, 0, 6),
            (
                "1 item (1 failed); may cost 2 credits by the known quotes (at most 6 of the day's credits: what fails "
                "is refunded, and tried again)."
            ),
        ),
        (
            {ItemState.FAILED: 3, ItemState.REJECTED: 1},
            (18, 12, 6),
            (
                "4 items (3 failed, 1 rejected); may cost 6 credits by the known quotes, and 12 more only if the "
                "rejected one is accepted now."
            ),
        ),
        (
            {ItemState.REJECTED: 2},
            (24, 24, 0),
            (
                "2 items (2 rejected); costs nothing unless the rejected ones are accepted now, which may cost 24 "
                "credits by the known quotes."
            ),
        ),
    ],
)
def test_retry_tells_apart_what_is_rejected_again_and_what_the_day_counts(
    requeued: dict[ItemState, int], figures: tuple[int, int, int], text: str
) -> None:
    """Nobody is asked about credits that are hardly ever spent, or finds more of the day used than was said."""
    may_cost, rejected_cost, day_cost = figures
    report = RetryReport(requeued, (), may_cost, 0, 0, rejected_cost=rejected_cost, day_cost=day_cost)

    assert cost_of_retry("owls", report) == f"owls: retrying {text}"


@pytest.mark.parametrize(
    ("seconds", "text"), [(26, "in less than a second"), (31, "in about 1 s"), (-5, "in less than")]
)
def test_end_is_never_in_no_time(seconds: float, text: str) -> None:
    """A fast local service ends in a fraction of a second."""
    assert str(JobEnd(NOW + timedelta(seconds=seconds)).seen_at(NOW, 60)).startswith(text)


@pytest.mark.parametrize(
    ("active", "text"),
    [
        (0, "owls: nothing of it is active, so nothing is charged until it is unpaused."),
        (1, "owls: 1 item already sent and charged; a run still finishes it, and sends no more."),
    ],
)
def test_pausing_tells_what_was_charged_already(active: int, text: str) -> None:
    """A pause takes nothing back: what was sent is finished, and its credits are spent."""
    view = job_view({ItemState.ACTIVE: active}, name="owls", under_way=[under_way(ItemState.ACTIVE)] * active)

    assert cost_of_pause(view.summary) == text


@pytest.mark.parametrize(
    ("budget", "unquoted", "cost", "question"),
    [
        (None, 0, "965 credits by the known quotes", "about 965 credits"),
        (4000, 0, "965 credits by the known quotes", "about 965 credits"),
        (500, 0, "at most 275 credits by the job's budget (965 credits by the known quotes)", "about 275 credits"),
        (100, 0, "at most 0 credits by the job's budget (965 credits by the known quotes)", "about 0 credits"),
        (
            4000,
            2,
            "at most 3,775 credits by the job's budget (965 credits by the known quotes, plus 2 without a quote)",
            "about 3,775 credits",
        ),
        (
            None,
            2,
            "965 credits by the known quotes, plus 2 without a quote",
            "about 965 credits, and the price of 2 items without a quote",
        ),
    ],
)
def test_job_never_spends_more_than_its_budget_leaves(
    budget: int | None, unquoted: int, cost: str, question: str
) -> None:
    """225 credits are spent or reserved: unpausing is told and asked about with what is left."""
    view = job_view({ItemState.QUEUED: 28}, name="owls")
    summary = replace(
        view.summary,
        budget_credits=budget,
        queued_cost=965,
        queued_unquoted=unquoted,
        credits=Credits(reserved=25, charged=250, refunded=50),
    )

    assert cost_of_unpause(summary) == f"owls: 28 items queued, which may cost {cost}."
    assert spending_of(summary, 965, unquoted).question(None) == f"This may spend {question}. Continue?"


def test_question_names_money_beside_the_credits() -> None:
    """The configured price of a credit decides nothing."""
    spending = spending_of(job_view({}).summary, 965, 0)

    assert spending.question(CreditPrice.parse("0.02 EUR")) == "This may spend about 965 credits (19.30 EUR). Continue?"


def test_download_has_no_age() -> None:
    """A file that is fetched again was made hours ago, and nobody has waited for it so long."""
    entry = under_way(ItemState.DOWNLOADING, since=NOW - timedelta(hours=2))

    assert describe(entry, job_view({})) == f"downloading {entry.item}"


@pytest.mark.parametrize(("scale", "age"), [(1, "40 s"), (60, "40 s of service time")])
def test_an_age_by_a_faster_clock_is_named(scale: int, age: str) -> None:
    """Beside it stands the age of the run, in real time."""
    entry = under_way(ItemState.ACTIVE, since=NOW - timedelta(seconds=40))

    assert describe(entry, replace(job_view({}), time_scale=scale)).startswith(f"active {entry.item} for {age}")


def within(minutes: float, first: float, last: float, time_scale: float = 1) -> End | None:
    end, *found = (NOW + timedelta(minutes=each) for each in (minutes, first, last))
    return JobEnd(end, EndRange(*found)).seen_at(NOW, time_scale)


@pytest.mark.parametrize(
    ("minutes", "text"),
    [
        ((190, 160, 230), "in about 3 h 10 min (2 h 40 min to 3 h 50 min), at "),
        ((191, 162, 229), "in about 3 h 11 min (2 h 40 min to 3 h 50 min), at "),
        ((190, 185, 196), "in about 3 h 10 min, at "),
        ((5, 4.6, 5.5), "in about 5 min 0 s, at "),
        ((5, 1.51, 11), "in about 5 min 0 s (1 min 30 s to 11 min), at "),
        ((10_000, 7_000, 17_000), "in about 6 d 22 h (4 d 18 h to 12 d), at "),
        ((17, 4.1, 49), "in about 17 min 0 s (4 min to 50 min), at "),
        ((60, -5, 120), "in about 1 h 0 min (0 s to 2 h), at "),
        ((0.5, 0.12, 1.5), "in about 30 s (7 s to 1 min 30 s), at "),
        ((1440, 1420, 1511.4), "in about 1 d 0 h, at "),
        ((1440, 1362, 1511.4), "in about 1 d 0 h (22 h 40 min to 1 d 2 h), at "),
        ((2178, 1800, 2190), "in about 1 d 12 h (1 d 6 h to 1 d 13 h), at "),
        ((61, 59.5, 66.05), "in about 1 h 1 min (59 min 30 s to 1 h 7 min), at "),
    ],
)
def test_a_wide_range_is_told(minutes: tuple[float, float, float], text: str) -> None:
    """It is rounded outwards; what is narrower than a tenth of the time left, or a minute, is one figure."""
    assert str(within(*minutes)).startswith(text)


def test_range_of_a_faster_clock_is_in_real_time() -> None:
    assert str(within(190, 160, 230, time_scale=2)) == "in about 1 h 35 min (1 h 20 min to 1 h 55 min)"


def test_all_jobs_have_ended_no_earlier_than_each_of_them() -> None:
    """The job that is expected to end last may be certain, and an earlier one not."""
    certain, wide = within(60, 60, 60), within(50, 20, 110)

    assert str(end_of_all([certain, wide])).startswith("in about 1 h 0 min (1 h to 1 h 50 min), at ")
    assert end_of_all([certain, None]) is None


def test_an_earliest_end_is_called_that() -> None:
    """Where a price is not known, the end has a lower bound only; a bound that says nothing is left out."""
    soon, now = JobEnd(not_before=NOW + timedelta(minutes=3), reason="why"), JobEnd(not_before=NOW, reason="why")

    assert str(soon.seen_at(NOW, 60)) == "in 3 s at the earliest"
    assert str(soon.seen_at(NOW, 1)).startswith("in 3 min 0 s at the earliest (2030-01-01 ")
    assert now.seen_at(NOW, 1) is None


def test_several_jobs_end_at_the_earliest_when_one_of_them_does() -> None:
    """The last end is only a lower bound if any end is."""
    known, bounded = JobEnd(NOW + timedelta(minutes=9)), JobEnd(not_before=NOW + timedelta(minutes=3))

    assert str(end_of_all(each.seen_at(NOW, 60) for each in (known, bounded))) == "in 9 s at the earliest"


def test_an_unknown_end_names_the_items_without_a_price() -> None:
    """Those of the job itself come first, then those of jobs before it."""
    loads = [
        QueuedLoad("local", (), JobLoad("owls", (ItemClass(1, None, Expected(30), model="omega"),))),
        QueuedLoad("local", (), JobLoad("hens", (ItemClass(5, None, Expected(30), model="beta"),))),
        QueuedLoad("local", (), JobLoad("foxes", (ItemClass(2, None, Expected(30), model="alpha"),))),
    ]

    (told,) = job_forecasts(loads, profiles={"local": LOCAL}, times={"local": NOW}, usages={})

    assert told.ends()["foxes"].reason == (
        "2 items (alpha), 1 item of owls (omega) and 5 more have no price yet, and may need another day's credits; "
        "a run asks for the price"
    )


def test_an_end_after_fifty_years_says_so() -> None:
    """A job that its limits never let end is not said to wait for a price."""
    load = QueuedLoad("local", (), JobLoad("owls", (ItemClass(10**9, 2000, Expected(30)),)))

    (told,) = job_forecasts([load], profiles={"local": LOCAL}, times={"local": NOW}, usages={})

    assert told.ends()["owls"].reason == "under its limits and budgets, it takes more than fifty years"


def test_a_run_of_some_jobs_leaves_the_queued_items_of_others_out() -> None:
    """What others have under way occupies the slot all the same."""
    queued, active = ItemClass(3, None, Expected(30)), ItemClass(1, None, Expected(60), is_under_way=True)
    loads = [
        QueuedLoad("local", (), JobLoad("owls", (queued, active))),
        QueuedLoad("local", (), JobLoad("foxes", (ItemClass(1, 10, Expected(30)),))),
    ]

    ours = only_under_way(loads, except_of=["foxes"])
    (told,) = job_forecasts(ours, profiles={"local": LOCAL}, times={"local": NOW}, usages={})

    assert told.ends()["foxes"].at == NOW + timedelta(seconds=90)
