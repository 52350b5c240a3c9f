"""Whether a person is needed: the one thing that has to be right at three in the morning."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from batchkiln.core.calls import Call, Misunderstood, Outage
from batchkiln.core.forecast import EndRange
from batchkiln.core.job import AttemptState
from batchkiln.core.rate_limits import DayUsage, Limits
from batchkiln.core.states import ItemState
from batchkiln.core.waits import WaitReason
from batchkiln.dashboard.charts import gauge_bar
from batchkiln.dashboard.rendering import environment
from batchkiln.dashboard.snapshot import Gauge, Level, PageSnapshot, Slot, headline
from batchkiln.presentation.account_waits import Wait
from batchkiln.presentation.job_documents import job_document
from batchkiln.presentation.overview import AccountView, JobView, Overview
from batchkiln.presentation.shared_by import Undriven
from batchkiln.presentation.worker_views import NO_KEY
from batchkiln.store.accounts import AccountSummary
from batchkiln.store.jobs import ProblemGroup
from batchkiln.store.lock import Lease
from support.view_builders import NOW, job_view, shared_by, under_way

DRIVEN = Lease(1, "here", "run", NOW)


def slot(
    wait: Wait | None = None, *, blocked: str | None = None, misunderstood: tuple[Misunderstood, ...] = ()
) -> Slot:
    account = AccountSummary(1, "local", "main", NOW, DayUsage(), None, None)
    view = AccountView(replace(account, misunderstood=misunderstood), DayUsage(), Limits(), NOW)
    return Slot(view, None, (), (), wait, None, blocked, None)


@pytest.mark.parametrize(("lease", "told"), [(DRIVEN, "Idle."), (None, "At rest: no process sends requests.")])
def test_account_that_nobody_drives_is_at_rest(lease: Lease | None, told: str) -> None:
    """And no time of a reset is told that is not known."""
    now = snapshot(slots=(replace(slot(), credits=Gauge("credits_per_day", "Credits today", 5, 10)),), lease=lease)
    page = environment().get_template("sections/slots.html").render(now=now, started_at=NOW, gauge_bar=gauge_bar)

    assert told in page
    assert "Daily reset" not in page


def test_warning_names_a_job_as_it_is_called() -> None:
    """An id is never capitalised."""
    item = under_way(ItemState.SUBMITTING, since=NOW - timedelta(days=2))
    now = snapshot(job_view({ItemState.SUBMITTING: 1}, name="birds2", under_way=(item,)))

    assert [reason.text.partition(" was sent")[0] for reason in headline(now).reasons] == ["In birds2: red-fox"]


def shared(*jobs: JobView, silent_seconds: float = 1.0, undriven: tuple[Undriven, ...] = ()) -> PageSnapshot:
    workers = shared_by(silent_seconds=silent_seconds, undriven=undriven)
    return PageSnapshot(Overview(jobs, (), None, workers), (), is_all=True)


def snapshot(*jobs: JobView, slots: tuple[Slot, ...] = (), lease: Lease | None = DRIVEN) -> PageSnapshot:
    return PageSnapshot(Overview(jobs, (), lease), slots, is_all=True)


def stuck_job(*, queued: int) -> JobView:
    """Return a job whose queued items are made from something that a person has yet to choose."""
    view = job_view({ItemState.DONE: 8, ItemState.QUEUED: queued})
    return replace(view, summary=replace(view.summary, waiting=queued, stuck=queued))


@pytest.mark.parametrize(
    ("scale", "end"), [(1, "in about 19 d 0 h, at 2030-01-20 12:00 UTC"), (60, "in about 7 h 36 min")]
)
def test_an_end_by_a_faster_clock_is_told_without_its_date(scale: int, end: str) -> None:
    """A date of weeks ahead would be wrong for what ends tonight."""
    view = replace(job_view({ItemState.QUEUED: 3}, ends_at=NOW + timedelta(days=19)), time_scale=scale)

    assert headline(snapshot(view)).text == f"Working: 3 items left; ends {end}"


@pytest.mark.parametrize(
    ("scale", "until"),
    [
        (1, "2030-01-02 00:00 UTC (in 12 h)"),
        (60, "2030-01-02 00:00 UTC by the service's clock (in 12 h of its time, about 12 min of yours)"),
    ],
)
def test_a_wait_by_a_faster_clock_is_told_in_both_times(scale: float, until: str) -> None:
    """In the headline, and beside the account."""
    waiting = slot(Wait(WaitReason.DAY_CREDITS, NOW + timedelta(hours=12)))
    waiting = replace(waiting, view=replace(waiting.view, time_scale=scale))

    assert waiting.until == f" until {until}"
    found = headline(snapshot(job_view({ItemState.QUEUED: 1}), slots=(waiting,)))
    assert found.text.startswith(f"Waiting until {until} for the next day")


@pytest.mark.parametrize(
    ("now", "level", "piece"),
    [
        (snapshot(), Level.FINE, "empty"),
        (snapshot(job_view({ItemState.DONE: 3}), lease=None), Level.FINE, "ended"),
        (snapshot(job_view({}), lease=None), Level.LOOK, "no job has an item"),
        (snapshot(job_view({}), job_view({ItemState.DONE: 3}), lease=None), Level.FINE, "ended"),
        (snapshot(job_view({ItemState.QUEUED: 3})), Level.FINE, "Working: 3 items left"),
        (snapshot(job_view({ItemState.QUEUED: 3}), lease=None), Level.HELP, "batchkiln work"),
        (snapshot(stuck_job(queued=4), lease=None), Level.FINE, "All remaining work waits for a person"),
        (shared(job_view({ItemState.QUEUED: 3})), Level.FINE, "Working: 3 items left"),
        (shared(job_view({ItemState.QUEUED: 3}), silent_seconds=60.0), Level.HELP, "batchkiln work"),
        (
            shared(job_view({ItemState.QUEUED: 3}), undriven=(Undriven("studio", "carl", NO_KEY),)),
            Level.HELP,
            "Nobody drives studio/carl: no machine has an API key",
        ),
        (snapshot(job_view({ItemState.QUEUED: 3}, is_paused=True), lease=None), Level.FINE, "paused"),
        (snapshot(job_view({ItemState.QUEUED: 1, ItemState.HELD: 1})), Level.HELP, "held"),
        (snapshot(job_view({ItemState.QUEUED: 1, ItemState.FAILED: 2})), Level.LOOK, "Working"),
        (
            snapshot(job_view({ItemState.QUEUED: 1}), slots=(slot(blocked="its API key is refused"),)),
            Level.HELP,
            "its API key is refused",
        ),
        (
            snapshot(
                job_view({ItemState.QUEUED: 1}),
                slots=(slot(misunderstood=(Misunderstood(Call.QUOTE, NOW, "names no price", "{}", 200),)),),
            ),
            Level.HELP,
            "Not understood on account local/main",
        ),
        (
            snapshot(
                job_view({ItemState.QUEUED: 1}), slots=(slot(Wait(WaitReason.DAY_CREDITS, NOW + timedelta(hours=12))),)
            ),
            Level.FINE,
            "Waiting until 2030-01-02 00:00 UTC",
        ),
        (
            snapshot(
                job_view(
                    {ItemState.DOWNLOADING: 1},
                    under_way=[under_way(ItemState.DOWNLOADING, retention_ends_at=NOW + timedelta(days=1))],
                )
            ),
            Level.HELP,
            "may delete it",
        ),
    ],
)
def test_a_person_is_called_for_what_only_a_person_can_mend(now: PageSnapshot, level: Level, piece: str) -> None:
    """Failures are worth a look; a hold, a block, a lost driver or a result about to be deleted is help needed."""
    found = headline(now)

    assert found.level is level
    assert piece in " ".join([found.text, *map(str, found.reasons)])


@pytest.mark.parametrize(
    ("now", "words"),
    [
        (snapshot(job_view({ItemState.DONE: 1})), "No problems"),
        (snapshot(job_view({ItemState.DONE: 1, ItemState.FAILED: 1})), "Some items failed"),
        (snapshot(job_view({ItemState.DONE: 1, ItemState.REJECTED: 1})), "Some items were rejected"),
        (snapshot(job_view({ItemState.QUEUED: 1, ItemState.FAILED: 1})), "Running; some items failed"),
        (snapshot(job_view({ItemState.DONE: 1}, to_review=1)), "Some items wait for a review"),
        (snapshot(job_view({ItemState.HELD: 1})), "Action needed"),
    ],
)
def test_each_level_has_its_words_on_the_page(now: PageSnapshot, words: str) -> None:
    """What waits for a review has not failed."""
    page = environment().get_template("sections/headline.html").render(headline=headline(now))

    assert words in page


@pytest.mark.parametrize(("hours", "is_told"), [((2, 3, 5), True), ((2.9, 3, 3.1), False)])
def test_a_wide_range_of_the_end_is_in_the_headline(hours: tuple[float, float, float], *, is_told: bool) -> None:
    """One moment is not enough where nobody can know."""
    earliest, at, latest = (NOW + timedelta(hours=each) for each in hours)
    view = job_view({ItemState.QUEUED: 3}, ends_at=at, end_range=EndRange(earliest, latest))

    text = headline(snapshot(view)).text

    assert text.endswith(f"; ends in about 3 h 0 min{' (2 h to 5 h)' if is_told else ''}, at 2030-01-01 15:00 UTC")


def test_every_reason_is_told_with_its_next_step() -> None:
    """A hold does not hide what else is wrong; what only the manifest mends is no failure to retry."""
    items = {ItemState.QUEUED: 2, ItemState.HELD: 1, ItemState.FAILED: 2, ItemState.REJECTED: 3}

    found = headline(
        snapshot(job_view(items, to_review=1), slots=(slot(blocked="its API key is refused"),), lease=None)
    )

    assert found.verdict == "Action needed"
    assert found.text == "2 items left"
    assert found.title == "3 problems need your attention"
    assert [str(reason) for reason in found.reasons] == [
        "The account local/main could not work in the last run: its API key is refused",
        "1 item of birds is held: decide about it",
        "No process runs this queue, and 2 items are left: `batchkiln work` starts one",
        "2 items failed or expired: retry at any time",
        "3 items were rejected, at no cost: change the manifest, and run it",
        "1 item waits for a review in birds: review",
    ]


def test_failures_that_may_stay_charged_are_no_simple_retry() -> None:
    """The headline gives the advice of the failures' cards and of the items' pages."""
    problem = ProblemGroup(ItemState.FAILED, "generation_canceled", 1, None, AttemptState.CANCELED)

    found = headline(snapshot(job_view({ItemState.FAILED: 1}, problems=[problem])))

    assert [str(reason) for reason in found.reasons] == ["1 item failed or expired: check the account before a retry"]


def test_tab_says_what_the_headline_says_once_nothing_runs() -> None:
    """Everything has ended, but some items failed: only the second calls for a look."""
    found = headline(snapshot(job_view({ItemState.DONE: 1, ItemState.FAILED: 1})))

    assert (found.verdict, found.title) == ("Some items failed", "Some items failed")


def test_old_failures_are_below_running_work() -> None:
    """What ended badly in an earlier job does not stay the first word for as long as another one runs."""
    old = job_view({ItemState.DONE: 1, ItemState.FAILED: 2}, name="old")
    now = snapshot(old, job_view({ItemState.QUEUED: 1}, name="new", under_way=[under_way(ItemState.ACTIVE)]))

    found = headline(now)

    assert (found.level, found.verdict) == (Level.FINE, "No problems")
    assert [reason.text for reason in found.reasons] == [
        "2 items of jobs that ended earlier failed, expired or were rejected"
    ]
    assert [view.summary.name for view in now.jobs] == ["new", "old"]
    assert headline(snapshot(old)).verdict == "Some items failed"


def test_a_job_that_waits_for_a_choice_has_not_ended() -> None:
    """Its failures are not old news: a person still works on it."""
    waiting = job_view({ItemState.DONE: 1, ItemState.FAILED: 2}, name="old", to_review=1)
    now = snapshot(waiting, job_view({ItemState.QUEUED: 1}, name="new"))

    assert now.earlier == ()
    assert headline(now).verdict == "Running; some items failed"


@pytest.mark.parametrize(("failed", "level"), [(0, Level.FINE), (2, Level.LOOK)])
def test_a_pause_comes_before_older_failures(failed: int, level: Level) -> None:
    """The person who wonders why nothing moves reads it first."""
    paused = job_view({ItemState.QUEUED: 3, ItemState.FAILED: failed}, is_paused=True)

    found = headline(snapshot(paused, lease=None))

    assert (found.level, found.verdict, found.text) == (level, "Paused", "All remaining work is paused (1 job)")
    assert len(found.reasons) == bool(failed)


def test_an_outage_is_the_headline_while_items_wait_for_the_service() -> None:
    """A person sees why nothing moves; nothing needs a decision."""
    account = AccountSummary(1, "local", "main", NOW, DayUsage(), None, None, outage=Outage(NOW, "no route"))
    view = AccountView(account, DayUsage(), Limits(), NOW)
    tried = slot(Wait(WaitReason.UNREACHABLE, NOW + timedelta(minutes=2)))
    now = PageSnapshot(Overview((job_view({ItemState.QUEUED: 3}),), (view,), DRIVEN), (tried,), is_all=True)

    found = headline(now)

    assert found.text == found.title == "Waiting for the service: 3 items left; next try at 2030-01-01 12:02 UTC"
    assert headline(replace(now, slots=())).text == "Waiting for the service: 3 items left"
    fast = replace(tried, view=replace(tried.view, time_scale=20.0))
    assert headline(replace(now, slots=(fast,))).text.endswith(
        "next try at 2030-01-01 12:02 UTC by the service's clock"
    )
    assert (found.level, found.verdict) == (Level.LOOK, "The service is not available")
    assert str(found.reasons[0]).startswith("The service of local has not been available since ")


@pytest.mark.parametrize(
    ("lease", "text"),
    [
        (DRIVEN, "Working: 20 items left, the budget pays for 15; ends in about 6 min 0 s, at 2030-01-01 12:06 UTC"),
        (None, "20 items left, the budget pays for 15"),
    ],
)
def test_items_beyond_the_budget_are_told_with_the_end(lease: Lease | None, text: str) -> None:
    """The end is that of the items that are paid for."""
    view = job_view({ItemState.QUEUED: 20}, ends_at=NOW + timedelta(minutes=6), beyond_budget=5)

    assert headline(snapshot(view, lease=lease)).text == text
    assert view.end_line.endswith("; the budget pays for 15 of the 20 items left, and the rest would be rejected")


@pytest.mark.parametrize(
    ("unquoted", "clause", "beyond"),
    [
        (0, "budget.credits of 25 would pay for all", 5),
        (3, "3 items have no price yet, so whether", None),
    ],
)
def test_end_names_the_budget_that_suffices_or_that_it_is_not_known(
    unquoted: int, clause: str, beyond: int | None
) -> None:
    """Before the first quote, nobody knows what the budget pays for."""
    view = job_view({ItemState.QUEUED: 20}, ends_at=NOW + timedelta(minutes=6), beyond_budget=5)
    summary = replace(view.summary, budget_credits=15, queued_cost=25, queued_unquoted=unquoted)
    view = replace(view, summary=summary)

    assert f"; {clause}" in view.end_line
    assert job_document(view)["budget"]["beyond_budget"] == beyond


@pytest.mark.parametrize(
    ("lease", "begun"), [(DRIVEN, ""), (None, ", and `batchkiln work` begins what the choices allow")]
)
def test_a_choice_is_told_with_the_price_of_what_waits_for_it(lease: Lease | None, begun: str) -> None:
    """And that a run has to be started, if none runs."""
    view = job_view({ItemState.DONE: 8, ItemState.QUEUED: 2})
    summary = replace(view.summary, to_choose=2, waiting=2, stuck=2, queued_unquoted=2)
    now = replace(snapshot(replace(view, summary=summary), lease=lease), following={"birds": (40, 0)})

    assert [reason.text for reason in headline(now).reasons] == [
        f"2 groups wait for a choice in birds; 2 items (about 40 credits) wait for their inputs{begun}"
    ]
