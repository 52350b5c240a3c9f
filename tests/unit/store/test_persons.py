"""What a person may ask: retry, cancel, pause; what each may cost, and what is left as it is and why."""

import pytest
from msgspec.structs import replace

from batchkiln.core.errors import InputError
from batchkiln.core.states import RETRYABLE, Event, ItemState
from batchkiln.store import operations
from batchkiln.store.jobs import Jobs
from batchkiln.store.operations import (
    Affected,
    Skipped,
    affected,
    cancel,
    pause,
    preview_cancel,
    preview_retry,
    redo,
    retry,
    unpause,
)
from batchkiln.store.resolution import Decision, resolve
from support.queue_file import JOB, NOW, RECIPE, QueueFile, spec


@pytest.fixture
def ended(queue: QueueFile) -> QueueFile:
    """Give a job with an item in each end that may be retried, and some that may not; a picture costs 5."""
    queue.apply([spec(name) for name in ("failed", "rejected", "expired", "canceled", "done", "queued")])
    queue.quote(5)
    queue.fail("failed")
    queue.refuse("rejected")
    queue.end(queue.send("expired", generation_id="lost"), "expired")
    queue.move("expired", Event.RETENTION_ENDED, code="expired")
    queue.move("canceled", Event.CANCEL_REQUESTED)
    queue.finish("done")
    return queue


def test_retry_without_names_takes_what_ended_badly(ended: QueueFile) -> None:
    """Failed, rejected and expired items are queued again; what a person canceled stays so."""
    report = retry(ended.connection, "birds", [], NOW)

    assert report.requeued == {ItemState.FAILED: 1, ItemState.REJECTED: 1, ItemState.EXPIRED: 1}
    assert ended.names() == ["failed", "rejected", "expired", "queued"]
    assert ended.kinds()[-3:] == ["retry_requested"] * 3


def test_retry_tells_beforehand_what_it_may_cost(ended: QueueFile) -> None:
    """The preview gives the figures of the retry itself, and changes nothing."""
    before = ended.dump()

    told = preview_retry(ended.connection, "birds", [])
    by_name = preview_retry(ended.connection, "birds", ["failed", "rejected", "expired"])

    assert ended.dump() == before
    assert replace(told, is_preview=False) == retry(ended.connection, "birds", [], NOW)
    assert (told.may_cost, told.unquoted, told.paying_again) == (15, 0, 1)
    assert (told.rejected_cost, told.day_cost) == (5, 30)  # three tries of each of the other two
    assert (by_name.may_cost, by_name.rejected_cost, by_name.day_cost) == (15, 5, 30)


def test_items_over_the_jobs_budget_of_a_day_are_told_as_those_over_their_cap(queue: QueueFile) -> None:
    """Law 6: no day pays for such an item, so a retry of it is rejected, and a sum with it would be too large."""
    queue.apply([spec("failed"), spec("done")], job=replace(JOB, budget_credits_per_day=4))
    queue.quote(5)
    queue.fail("failed")
    queue.finish("done")

    retried = [preview_retry(queue.connection, "birds", names) for names in ([], ["failed"])]
    redone = operations.preview_redo(queue.connection, "birds", ["done"])

    assert [(told.may_cost, told.over_cap) for told in retried] == [(None, 1)] * 2
    assert (redone.may_cost, redone.over_cap) == (None, 1)


def test_items_that_may_be_paid_are_named_first(ended: QueueFile, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all, of some by name, and where not all are told; who cancels is told what was never sent."""
    every = [(one.name, one.may_be_paid) for one in affected(ended.connection, "retry", "birds", [])]
    named = affected(ended.connection, "retry", "birds", ["failed", "done", "expired"])
    monkeypatch.setattr(operations, "AFFECTED_SHOWN", 1)
    first = affected(ended.connection, "retry", "birds", [])

    assert every == [("expired", True), ("failed", False), ("rejected", False)]
    assert named == (
        Affected("expired", ItemState.EXPIRED, may_be_paid=True),
        Affected("failed", ItemState.FAILED, may_be_paid=False),
    )
    assert [one.name for one in first] == ["expired"]
    assert [one.name for one in affected(ended.connection, "cancel", "birds", [])] == ["queued"]
    assert [one.name for one in affected(ended.connection, "redo", "birds", ["done"])] == ["done"]


def test_retry_counts_what_has_no_quote(queue: QueueFile) -> None:
    """An unknown price is not counted as zero."""
    queue.apply([spec("fox")])
    queue.refuse("fox")

    told = preview_retry(queue.connection, "birds", [])

    assert (told.may_cost, told.unquoted) == (None, 1)


def test_retry_by_name_says_why_others_are_left(ended: QueueFile) -> None:
    """Named items are retried where they ended, canceled ones too; for the others the reason is given."""
    told = preview_retry(ended.connection, "birds", ["canceled", "done", "failed"])

    report = retry(ended.connection, "birds", ["canceled", "done", "failed"], NOW)

    assert report.requeued == {ItemState.CANCELED: 1, ItemState.FAILED: 1}
    assert report.skipped == (
        Skipped(
            "done",
            (
                "it is done; `batchkiln redo birds done` makes it again, which costs again, and `batchkiln fetch birds "
                "done` downloads files that are gone"
            ),
        ),
    )
    assert (told.requeued, told.may_cost) == (report.requeued, 10)


def test_what_is_over_its_cap_is_in_no_cost(queue: QueueFile) -> None:
    """Its quote of 5 can never be paid with a cap of 4: it would be rejected again, by both ways of asking."""
    capped = spec("clip", recipe=replace(RECIPE, max_cost_credits=4))
    queue.apply([spec("fox"), capped, spec("owl", recipe=replace(RECIPE, max_cost_credits=5))])
    queue.quote(5)
    assert Jobs(queue.connection).summary("birds").queued_cost == 10
    for name in ("fox", "clip", "owl"):
        queue.fail(name)

    for names in ([], ["fox", "clip", "owl"]):
        told = preview_retry(queue.connection, "birds", names)
        assert (told.may_cost, told.unquoted, told.over_cap) == (10, 0, 1)
    alone = preview_retry(queue.connection, "birds", ["clip"])
    assert (alone.may_cost, alone.over_cap) == (None, 1)


def test_retry_gives_all_tries_again(ended: QueueFile) -> None:
    """The failures of the first life do not count in the second."""
    retry(ended.connection, "birds", ["failed"], NOW)

    item = ended.item("failed")
    assert (item["state"], item["failures"], item["attempt_id"], item["error_code"]) == ("queued", 0, None, None)


def test_retry_of_what_the_service_canceled_may_pay_again(queue: QueueFile) -> None:
    """Nothing says that a generation which the service canceled was refunded. Law 2."""
    queue.apply([spec("fox")])
    queue.end(queue.send("fox", generation_id="g"), "canceled")
    queue.move("fox", Event.GENERATION_CANCELED, code="canceled_by_service")

    assert preview_retry(queue.connection, "birds", ["fox"]).paying_again == 1
    assert preview_retry(queue.connection, "birds", []).paying_again == 1


def test_retry_of_a_result_that_was_given_up_pays_again(queue: QueueFile) -> None:
    """A person gave up what was generated and paid, since its key was gone: both ways of asking say so."""
    queue.apply([spec("fox")])
    queue.end(queue.send("fox", generation_id="g"), "succeeded")
    queue.move("fox", Event.OUTPUTS_READY)
    queue.move("fox", Event.KEY_MISSING, code="key_missing")
    resolve(queue.connection, "birds", "fox", Decision.FAILED, now=NOW)

    assert preview_retry(queue.connection, "birds", ["fox"]).paying_again == 1
    assert preview_retry(queue.connection, "birds", []).paying_again == 1


def test_retry_takes_many_items_in_pieces(queue: QueueFile, monkeypatch: pytest.MonkeyPatch) -> None:
    """More items than one transaction holds are all retried, once each."""
    monkeypatch.setattr(operations, "ITEMS_AT_ONCE", 3)
    names = [f"item-{number}" for number in range(8)]
    queue.apply([spec(name) for name in names])
    for name in names:
        queue.never_fits(name, "over_cap")

    report = retry(queue.connection, "birds", [], NOW)

    assert report.requeued == {ItemState.REJECTED: 8}
    assert queue.names() == names


_KEPT = "SELECT state, sum(n) FROM rest_tally GROUP BY state ORDER BY state"
_COUNTED = """SELECT CASE WHEN state = 'queued' AND open_inputs > 0 THEN 'waiting' ELSE state END AS word, count(*)
    FROM item GROUP BY word ORDER BY word"""
_TROUBLES_KEPT = "SELECT state, error_code, n FROM trouble WHERE n > 0 ORDER BY state, error_code"
_TROUBLES_COUNTED = """SELECT state, error_code, count(*) FROM item WHERE error_code IS NOT NULL
    GROUP BY state, error_code ORDER BY state, error_code"""


def test_the_counters_agree_with_the_items_after_a_change_of_many(ended: QueueFile) -> None:
    """Many items are counted at once; a change of one item afterwards is counted by the schema again."""

    def rows(sql: str) -> list[tuple[object, ...]]:
        return [tuple(row) for row in ended.connection.execute(sql).fetchall()]

    for change in (
        lambda: cancel(ended.connection, "birds", ["queued"], NOW),
        lambda: retry(ended.connection, "birds", [], NOW),
        lambda: redo(ended.connection, "birds", ["done"], NOW),
        lambda: cancel(ended.connection, "birds", [], NOW),
        lambda: retry(ended.connection, "birds", ["failed"], NOW),
        lambda: ended.refuse("failed"),
    ):
        change()

        assert rows(_KEPT) == rows(_COUNTED)
        assert rows(_TROUBLES_KEPT) == rows(_TROUBLES_COUNTED)
        assert rows("SELECT * FROM counted_change") == []


def test_cancel_without_names_takes_all_that_is_queued(ended: QueueFile) -> None:
    """Only queued items are canceled; nothing that was sent."""
    ended.apply([spec("active"), spec("more")])
    ended.send("active", generation_id="g")
    told = preview_cancel(ended.connection, "birds", [])

    report = cancel(ended.connection, "birds", [], NOW)

    assert told == report
    assert report.canceled == 2
    assert ended.names("canceled") == ["canceled", "queued", "more"]


def test_cancel_leaves_what_is_paid(queue: QueueFile) -> None:
    """An active item is named with the reason. Law 3."""
    queue.apply([spec("fox"), spec("owl")])
    queue.send("fox", generation_id="g")

    report = cancel(queue.connection, "birds", ["fox", "owl"], NOW)

    assert report.canceled == 1
    (skipped,) = report.skipped
    assert skipped.reason.startswith("active: it is already paid and will be downloaded. ")


def test_pause_and_unpause_are_kept_and_reported_once(queue: QueueFile) -> None:
    """Asking twice is harmless, and the history has each change once."""
    queue.apply([])

    news = [pause(queue.connection, "birds", NOW), pause(queue.connection, "birds", NOW)]
    was_paused = queue.one("SELECT is_paused FROM job")
    news += [unpause(queue.connection, "birds", NOW), unpause(queue.connection, "birds", NOW)]

    assert news == [True, False, True, False]
    assert (was_paused, queue.one("SELECT is_paused FROM job")) == (1, 0)
    assert queue.kinds()[-2:] == ["job_paused", "job_unpaused"]


def test_an_unknown_job_is_reported_with_what_is_near(queue: QueueFile) -> None:
    """The error names jobs like it, and the command that lists them."""
    queue.apply([])

    with pytest.raises(InputError, match=r"no job 'brids'\n +did you mean 'birds'\? run `batchkiln status`"):
        pause(queue.connection, "brids", NOW)


def test_unknown_items_are_reported_all_at_once_and_nothing_is_done(queue: QueueFile) -> None:
    """One error names each item that is not there, with those near to it."""
    queue.apply([spec("red-fox"), spec("owl")])

    with pytest.raises(InputError) as raised:
        cancel(queue.connection, "birds", ["red-fix", "owl", "zebra"], NOW)

    first, second = raised.value.mistakes
    assert first.remedy == "did you mean 'red-fox'? run `batchkiln items birds` for a list of its items"
    assert second.reason == "the job 'birds' has no item 'zebra'"
    assert queue.names() == ["red-fox", "owl"]


def test_the_command_that_lists_the_items_can_be_copied(queue: QueueFile) -> None:
    """A job's name that begins with a hyphen is no option."""
    queue.apply([spec("owl")], job=replace(JOB, name="-birds"))

    with pytest.raises(InputError, match="`batchkiln items -- -birds`"):
        cancel(queue.connection, "-birds", ["zebra"], NOW)


def test_each_state_is_either_moved_or_explained() -> None:
    """No state is forgotten: every item named gets an answer."""
    assert set(operations._NOT_RETRIED) | RETRYABLE == set(ItemState)
    assert set(operations._NOT_CANCELED) | {ItemState.QUEUED} == set(ItemState)


def test_retry_costs_follow_each_recipes_own_quote(queue: QueueFile) -> None:
    """Two recipes with two prices add up."""
    clip = spec("clip", recipe=type(RECIPE)("alpha-2.5", RECIPE.mode, (), 0, None, 1))
    queue.apply([spec("fox"), clip])
    queue.quote(5)
    queue.connection.execute(
        "UPDATE quote SET cost_credits = 50 WHERE price_key IN (SELECT price_key FROM recipe WHERE id = 2)"
    )
    queue.fail("fox")
    queue.fail("clip")

    assert preview_retry(queue.connection, "birds", []).may_cost == 55
