"""What the progress display says."""

import dataclasses
import io
import json
from datetime import timedelta
from math import inf

import pytest
from msgspec.structs import replace
from rich.console import Console

from batchkiln.cli.live_display import panel
from batchkiln.cli.output import write_status_as_json
from batchkiln.cli.progress import (
    LINE_EVERY_SECONDS,
    LONGEST_PAUSE_SECONDS,
    PlainDisplay,
    ProgressState,
    RefreshBackoff,
    WorkerState,
    plain_line,
)
from batchkiln.core.states import ItemState
from batchkiln.core.waits import WaitReason
from batchkiln.presentation.formatting import REASONS
from support.view_builders import NOW, job_view, under_way

ACTIVE = under_way(ItemState.ACTIVE, since=NOW - timedelta(seconds=72))
STATE = {ItemState.DONE: 5, ItemState.FAILED: 1, ItemState.ACTIVE: 1, ItemState.QUEUED: 3}


def worker(reason: WaitReason | None = None) -> WorkerState:
    return WorkerState(
        account="local/main",
        credits_today=620,
        credits_limit=2000,
        creates=3,
        creates_limit=10,
        reads=14,
        reads_limit=60,
        reason=reason,
        until=NOW + timedelta(hours=12) if reason else None,
        wait_seconds=8.0,
    )


def state(reason: WaitReason | None = None, *, done: int = 5) -> ProgressState:
    ends_at = NOW + timedelta(days=1)
    view = job_view({**STATE, ItemState.DONE: done}, under_way=[ACTIVE], ends_at=ends_at)
    return ProgressState((view,), (worker(reason),), spent=12, most=40, seconds=65, last="fox done: out/fox.png")


def test_a_fast_clock_is_named_beside_real_times() -> None:
    """A wait ends by the service's clock, which is not the person's."""
    ordinary, hurried = worker(WaitReason.DAY_CREDITS), replace(worker(WaitReason.DAY_CREDITS), time_scale=60)

    assert str(hurried.wait).endswith(" by the service's clock)")
    assert str(hurried.wait).replace(" by the service's clock", "") == ordinary.wait


@pytest.mark.parametrize("awaited", ["`batchkiln enqueue`", None])
def test_a_run_without_items_says_what_it_waits_for(awaited: str | None) -> None:
    """`work --forever` takes what is enqueued later."""
    empty = ProgressState((), (worker(),), awaited=awaited)

    assert ("waiting for `batchkiln enqueue`" in plain_line(empty)) is (awaited is not None)
    assert ("waiting for `batchkiln enqueue`" in drawn(empty)) is (awaited is not None)


def drawn(shown: ProgressState) -> str:
    console = Console(file=io.StringIO(), width=120)
    console.print(panel(shown))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize(
    "piece",
    [
        "6/10",
        "5 done",
        "1 problem",
        "4 left",
        "active red-fox for 1 min 12 s, processing",
        "620/2,000 credits today",
        "3/10 creates",
        "14/60 reads",
        "fox done: out/fox.png",
        "12 credits of at most 40 in this run",
        "1 min 5 s so far, ends in about 1 d 0 h, at 2030-01-02 12:00",
    ],
)
def test_the_display_shows_each_figure(piece: str) -> None:
    """Done, problems, left, what is active and since when, credits, windows and the end are all there."""
    assert piece in drawn(state())


def test_what_needs_a_person_is_not_called_failed() -> None:
    """Rejected and held items are no failures of the service; one word stands for all that went wrong."""
    view = job_view({ItemState.FAILED: 1, ItemState.REJECTED: 2, ItemState.HELD: 1, ItemState.DONE: 3})

    assert plain_line(ProgressState((view,), ())).startswith("3 of 7 done, 4 problems, 0 left")


def test_a_run_without_a_job_says_that_it_waits() -> None:
    """`watch` in an empty folder does not count to nothing."""
    idle = ProgressState((), (worker(),))

    assert plain_line(idle).startswith("nothing to do; ")
    assert "0/0" not in drawn(idle)
    assert "nothing to do" in drawn(idle)


def test_the_bar_begins_at_what_is_already_done() -> None:
    """A resumed job does not begin at nothing."""
    shown = state()

    assert (shown.total - shown.left, shown.total) == (6, 10)


def test_a_wait_is_reported_with_its_reason_and_end() -> None:
    """A person sees why nothing happens, and until when."""
    told = drawn(state(WaitReason.DAY_CREDITS))

    assert "today's credits" in told
    assert "until 2030-01-02 00:00 UTC" in told


def test_an_outage_has_a_next_try_and_no_end() -> None:
    """The wait is only that of the next try, and nobody knows when a service that cannot be reached is back."""
    for told in (drawn(state(WaitReason.UNREACHABLE)), plain_line(state(WaitReason.UNREACHABLE))):
        assert "waiting for a usable answer from the service (next try in 8 s)" in told
        assert "until" not in told
        assert "ends" not in told

    reached = dataclasses.replace(state(), workers=(worker(WaitReason.UNREACHABLE), worker()))
    assert reached.end_text is not None  # another account of the run goes on


def test_reason_of_an_outage_is_in_the_block_and_not_in_each_line() -> None:
    """The log has it beside the lines; above the block, the log scrolls away."""
    troubled = replace(worker(WaitReason.UNREACHABLE), last_error="could not connect (Connection refused)")
    waiting = dataclasses.replace(state(), workers=(troubled,))

    assert "Connection refused" in " ".join(drawn(waiting).split())
    assert "Connection refused" not in plain_line(waiting)


def test_the_ordinary_wait_for_the_next_poll_is_not_worth_a_line() -> None:
    """Polling is work, not a wait."""
    assert "waits" not in drawn(state(WaitReason.POLL_INTERVAL))


def test_what_the_service_said_is_reported_beside_the_wait() -> None:
    """A person reads why the service asked for a pause, and not of troubles long over."""
    throttled = replace(worker(WaitReason.THROTTLED), last_error="429: rate_limited")

    assert "429: rate_limited" in (throttled.wait_with_error or "")
    assert "429" not in (replace(throttled, reason=WaitReason.DAY_CREDITS).wait or "")


def test_every_reason_has_words() -> None:
    """No wait is shown as a code."""
    assert set(REASONS) == set(WaitReason)


def test_plain_lines_come_on_change_and_not_more_often_than_every_five_seconds(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A log file gets a line when something has changed, and not four a second."""
    display = PlainDisplay()

    for seconds, done in ((0.0, 5), (1.0, 6), (5.1, 6), (20.0, 6), (25.0, 7)):
        display.show(state(done=done), seconds)

    lines = capsys.readouterr().err.splitlines()
    assert [line.split(" of ")[0] for line in lines] == ["5", "6", "7"]


def test_the_countdown_to_the_next_try_is_no_change(capsys: pytest.CaptureFixture[str]) -> None:
    """An outage of an hour is a line in a log file, not hundreds."""
    display = PlainDisplay()

    for seconds in range(0, 60, 6):
        shown = state(WaitReason.UNREACHABLE)
        waiting = replace(shown.workers[0], wait_seconds=60.0 - seconds)
        display.show(dataclasses.replace(shown, workers=(waiting,)), float(seconds))

    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_plain_line_is_an_object_in_a_log_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    """A collector of logs reads progress and events in one form."""
    write_status_as_json(is_wanted=True)
    try:
        PlainDisplay().show(state(), 0.0)
    finally:
        write_status_as_json(is_wanted=False)

    document = json.loads(capsys.readouterr().err)
    assert (document["event"], document["message"]) == ("progress", plain_line(state()))


def test_a_plain_line_is_one_line_without_control_characters() -> None:
    """A status word of the service cannot move the cursor."""
    evil = under_way(ItemState.ACTIVE, status="pro\x1b[2Jcessing\n")
    shown = ProgressState((job_view({ItemState.ACTIVE: 1}, under_way=[evil]),), ())

    assert plain_line(shown).isprintable()


def test_an_end_is_only_told_when_all_jobs_have_one() -> None:
    """An unknown end makes the whole unknown."""
    known = job_view({ItemState.QUEUED: 1}, ends_at=NOW)
    unknown = job_view({ItemState.QUEUED: 1}, name="foxes")

    assert ProgressState((known,), ()).end_text == f"ends {known.end}"
    assert ProgressState((known, unknown), ()).end_text is None


@pytest.mark.parametrize(("most", "is_cap"), [(19, True), (20, False), (None, False)])
def test_a_run_ends_at_a_cap_that_does_not_pay_for_all(most: int | None, *, is_cap: bool) -> None:
    """The end of all items would be an end that this run never reaches."""
    known = job_view({ItemState.QUEUED: 3}, ends_at=NOW)
    capped = replace(known, summary=replace(known.summary, queued_cost=15))

    shown = ProgressState((capped,), (), spent=5, most=most)

    assert shown.end_text == ("ends when 19 credits are spent" if is_cap else f"ends {known.end}")


def test_an_unknown_end_has_its_reason_once_the_run_has_begun() -> None:
    """Prices are requested first, so a reason before the first item would be out of date at once."""
    late = NOW + timedelta(minutes=3)
    begun, new = (
        job_view({ItemState.QUEUED: 3, ItemState.DONE: done}, earliest_at=late, end_reason="no price")
        for done in (1, 0)
    )

    assert plain_line(ProgressState((begun,), ())).endswith("(2030-01-01 12:03 UTC): no price")
    assert "in 3 min 0 s at the earliest" in ProgressState((begun,), ()).time_text
    assert ProgressState((new,), ()).end_text is None


def test_a_plain_line_names_the_accounts_where_there_are_several() -> None:
    """Whose credits they are."""
    two = (worker(), replace(worker(), account="local/second"))

    line = plain_line(dataclasses.replace(state(), workers=two))

    assert "local/second: credits today 620 of 2,000" in line


def test_a_still_picture_is_drawn_ever_more_rarely_and_then_only_with_news() -> None:
    backoff = RefreshBackoff(0.25)

    seconds = [backoff.next(has_active_items=False) for _ in range(12)]

    assert seconds[:3] == [0.25, 0.5, 1.0]
    assert sum(second for second in seconds if second != inf) < 2 * LONGEST_PAUSE_SECONDS
    assert seconds[-3:] == [inf, inf, inf]


@pytest.mark.parametrize("has_active_items", [True, False])
def test_a_picture_with_something_to_see_is_drawn_often_again(*, has_active_items: bool) -> None:
    backoff = RefreshBackoff(0.25)
    while backoff.next(has_active_items=False) != inf:
        pass

    if has_active_items:
        assert backoff.next(has_active_items=True) == 0.0
    else:
        backoff.on_change(is_news=True)

    assert backoff.next(has_active_items=False) == 0.25


def test_a_block_that_waits_shows_times_that_go_on() -> None:
    """A wait for the next day is redrawn every few seconds; the countdown of a next try, each second."""
    assert state(WaitReason.DAY_CREDITS).tick_seconds == LINE_EVERY_SECONDS
    assert state(WaitReason.UNREACHABLE).tick_seconds == 1.0


def test_a_block_of_hours_and_minutes_is_redrawn_once_a_minute() -> None:
    """From an hour on, no second is told, so that a night's wait draws what can have changed."""
    long = dataclasses.replace(
        state(), seconds=3600.0, workers=(replace(worker(WaitReason.DAY_CREDITS), wait_seconds=7200.0),)
    )
    soon = dataclasses.replace(long, workers=(replace(long.workers[0], wait_seconds=3599.0),))

    assert (long.tick_seconds, soon.tick_seconds) == (60.0, LINE_EVERY_SECONDS)
    assert dataclasses.replace(long, seconds=3599.0).tick_seconds == LINE_EVERY_SECONDS
