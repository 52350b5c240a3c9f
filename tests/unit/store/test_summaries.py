"""How far a job has come, and what an account has used."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from batchkiln.core.errors import InputError
from batchkiln.core.job import AttemptState
from batchkiln.core.rate_limits import DayUsage
from batchkiln.core.states import Event, ItemState
from batchkiln.core.timestamps import from_milliseconds
from batchkiln.core.waits import WaitReason
from batchkiln.store.accounts import Accounts
from batchkiln.store.jobs import Credits, Jobs, JobSummary, ProblemGroup
from batchkiln.store.operations import pause
from support.queue_file import JOB, NOW, QueueFile, spec


def summary_of(queue: QueueFile) -> JobSummary:
    """Give the summary of the one job."""
    summary = Jobs(queue.connection).summary("birds")
    assert summary is not None
    return summary


def test_a_summary_counts_every_state(queue: QueueFile) -> None:
    """All ten states are there, those without an item too."""
    queue.apply([spec(name) for name in ("a", "b", "c", "d")], job=replace(JOB, budget_credits=100))
    queue.finish("a")
    queue.fail("b")
    queue.send("c", quote=7)

    summary = summary_of(queue)

    assert set(summary.items) == set(ItemState)
    assert {state: n for state, n in summary.items.items() if n} == {
        ItemState.DONE: 1,
        ItemState.FAILED: 1,
        ItemState.SUBMITTING: 1,
        ItemState.QUEUED: 1,
    }
    assert (summary.total, summary.budget_credits) == (4, 100)
    assert summary.credits == Credits(reserved=7, charged=10, refunded=5)


def test_what_is_queued_is_priced_by_known_quotes(queue: QueueFile) -> None:
    """Items without a quote are counted beside the sum."""
    queue.apply([spec("a"), spec("b"), spec("c")])
    queue.quote(5)
    queue.apply([spec("other", recipe=replace(spec("x").recipe, model="epsilon-pro"))])

    summary = summary_of(queue)

    assert (summary.queued_cost, summary.queued_unquoted) == (15, 1)


def test_under_way_names_account_id_and_when_the_result_may_be_gone(queue: QueueFile) -> None:
    """Sent items are listed with account, id and expiry; retention is fourteen days (Service section 8)."""
    queue.apply([spec("a"), spec("b")])
    attempt_id = queue.send("a", generation_id="g1")
    queue.connection.execute("UPDATE attempt SET generation_status = 'pending' WHERE id = ?", (attempt_id,))

    (under_way,) = summary_of(queue).under_way

    assert (under_way.item, under_way.state, under_way.account) == ("a", ItemState.ACTIVE, "main")
    assert (under_way.generation_id, under_way.status) == ("g1", "pending")
    assert under_way.since == from_milliseconds(NOW)
    assert under_way.retention_ends_at == from_milliseconds(NOW) + timedelta(days=14)


def test_troubles_are_grouped_by_reason(queue: QueueFile) -> None:
    """The most frequent reason comes first, with an example; what was mended is no longer there."""
    queue.apply([spec(name) for name in "abcde"])
    for name in "abc":
        queue.never_fits(name, "over_cap")
    queue.fail("d")
    queue.move("e", Event.INPUT_LOST, code="input_lost")
    queue.move("e", Event.REQUEUED)
    queue.move("a", Event.RETRY_REQUESTED)

    assert summary_of(queue).problems == (
        ProblemGroup(ItemState.REJECTED, "over_cap", 2, "because of over_cap"),
        ProblemGroup(ItemState.FAILED, "generation_failed", 1, "because of generation_failed", AttemptState.FAILED),
    )


@pytest.mark.parametrize(
    ("deed", "is_finished"),
    [("nothing", False), ("pause", True), ("send", False), ("send and pause", False), ("finish", True), ("hold", True)],
)
def test_finished_means_that_only_a_person_can_change_anything(
    queue: QueueFile, deed: str, *, is_finished: bool
) -> None:
    """A queued item of a paused job waits for a person; what was sent goes on, paused or not (contract, 4)."""
    queue.apply([spec("a")])
    if "send" in deed:
        queue.send("a")
    if deed == "finish":
        queue.finish("a")
    if deed == "hold":
        queue.move("a", Event.INPUT_LOST, code="input_lost")
    if "pause" in deed:
        pause(queue.connection, "birds", NOW)

    assert summary_of(queue).is_finished is is_finished


def test_an_empty_job_is_finished(queue: QueueFile) -> None:
    """A manifest without items has ended at once."""
    queue.apply([])

    assert summary_of(queue).is_finished


def test_an_unknown_job_has_no_summary(queue: QueueFile) -> None:
    """The caller tells a person."""
    with pytest.raises(InputError, match="no job 'nothing'"):
        Jobs(queue.connection).summary("nothing")


def test_jobs_are_listed_in_the_order_of_their_creation(queue: QueueFile) -> None:
    """The oldest comes first."""
    queue.apply([], job=replace(JOB, name="z"))
    queue.apply([], job=replace(JOB, name="a"))

    assert Jobs(queue.connection).names() == ("z", "a")


def test_accounts_show_their_latest_day_and_their_waits(queue: QueueFile) -> None:
    """An account that never worked is there as well."""
    queue.connection.execute(
        "INSERT INTO account (profile, name, creates_held_until, creates_held_reason)"
        f" VALUES ('local', 'main', {NOW}, 'throttled'), ('local', 'new', NULL, NULL)"
    )
    queue.connection.execute(
        "INSERT INTO account_day (account_id, day_start_at, creates, credits) VALUES (1, 0, 9, 9), (1, 1000, 2, 30);"
    )

    main, new = Accounts(queue.connection).summaries()

    assert (main.name, main.day, main.usage) == ("main", from_milliseconds(1000), DayUsage(creates=2, credits=30))
    assert main.creates_held is not None
    assert (main.creates_held.until, main.creates_held.reason) == (from_milliseconds(NOW), WaitReason.THROTTLED)
    assert (new.day, new.usage, new.creates_held) == (None, DayUsage(), None)
