"""Ending a hold by what a person knows; money follows the decision."""

from contextlib import nullcontext
from typing import Final

import pytest

from batchkiln.core.errors import InputError
from batchkiln.core.states import Event, ItemState
from batchkiln.store.resolution import Decision, resolve
from support.queue_file import NOW, QueueFile, spec

DAY_MS: Final = 24 * 3600 * 1000


@pytest.fixture
def job(queue: QueueFile) -> QueueFile:
    """Give a job with one queued item."""
    queue.apply([spec("fox"), spec("owl")])
    return queue


def money(queue: QueueFile) -> tuple[int, int, int]:
    """Give what the job has reserved, been charged and got back."""
    reserved, charged, refunded = queue.all("SELECT reserved, charged, refunded FROM job")[0]
    return reserved, charged, refunded


def conflict(queue: QueueFile, name: str) -> int:
    """Hold an item for a 409: its attempt is disputed, its credits stay reserved."""
    attempt_id = queue.send(name)
    queue.end(attempt_id, "disputed")
    queue.move(name, Event.KEY_CONFLICT, code="idempotency_conflict")
    return attempt_id


def lose(queue: QueueFile, name: str) -> int:
    """Hold an item whose generation the service denies."""
    attempt_id = queue.send(name, generation_id=f"gen-{name}")
    queue.end(attempt_id, "disputed")
    queue.move(name, Event.GENERATION_LOST, code="not_found")
    return attempt_id


def attempt(queue: QueueFile, attempt_id: int) -> tuple[object, ...]:
    """Give an attempt's state, id and cost."""
    return queue.all("SELECT state, generation_id, cost_credits FROM attempt WHERE id = ?", attempt_id)[0]


@pytest.mark.parametrize("is_disputed", [True, False])
def test_not_created_queues_the_item_and_frees_its_credits(job: QueueFile, *, is_disputed: bool) -> None:
    """The attempt is abandoned, the account's slot and the reserved quote are free, the item is queued. Law 2."""
    if is_disputed:
        attempt_id = conflict(job, "fox")
    else:
        attempt_id = job.send("fox")
        job.move("fox", Event.KEY_MISSING, code="key_missing")

    resolved = resolve(job.connection, "birds", "fox", Decision.NOT_CREATED, now=NOW)

    assert (resolved.state, resolved.attempt_id, resolved.may_pay_again) == (ItemState.QUEUED, attempt_id, True)
    assert attempt(job, attempt_id) == ("abandoned", None, None)
    assert money(job) == (0, 0, 0)


def test_what_was_charged_stays_charged_when_it_is_tried_again(job: QueueFile) -> None:
    """Giving up a known generation brings no credits back: nobody said that it failed."""
    attempt_id = lose(job, "fox")

    resolve(job.connection, "birds", "fox", Decision.NOT_CREATED, now=NOW)

    assert attempt(job, attempt_id) == ("abandoned", "gen-fox", 5)
    assert money(job) == (0, 5, 0)


def test_failed_ends_the_item(job: QueueFile) -> None:
    """It is not tried again, and says that a person gave it up."""
    conflict(job, "fox")

    resolved = resolve(job.connection, "birds", "fox", Decision.FAILED, now=NOW)

    assert (resolved.state, resolved.may_pay_again) == (ItemState.FAILED, False)
    assert (job.item("fox")["state"], job.item("fox")["error_code"]) == ("failed", "given_up")
    assert money(job) == (0, 0, 0)


def test_a_generation_found_at_the_service_is_polled_and_charged(job: QueueFile) -> None:
    """With its id the item is active again, and its quote is charged instead of reserved. Law 3."""
    attempt_id = conflict(job, "fox")

    resolved = resolve(job.connection, "birds", "fox", Decision.GENERATION, generation_id="found", now=NOW)

    assert (resolved.state, job.item("fox")["attempt_id"]) == (ItemState.ACTIVE, attempt_id)
    assert attempt(job, attempt_id) == ("active", "found", 5)
    assert money(job) == (0, 5, 0)


def test_a_lost_generation_that_is_back_is_polled_again_without_another_charge(job: QueueFile) -> None:
    """The id that is known may be given again. Law 3."""
    attempt_id = lose(job, "fox")

    resolve(job.connection, "birds", "fox", Decision.GENERATION, generation_id="gen-fox", now=NOW)

    assert attempt(job, attempt_id) == ("active", "gen-fox", 5)
    assert money(job) == (0, 5, 0)


def test_an_id_that_the_service_denies_can_be_corrected(job: QueueFile) -> None:
    """A mistyped or misread id does not lose what was paid: its first record is waited for anew. Law 3."""
    attempt_id = conflict(job, "fox")
    resolve(job.connection, "birds", "fox", Decision.GENERATION, generation_id="gen-O1", now=NOW)
    job.connection.execute("UPDATE attempt SET generation_status = 'ok' WHERE id = ?", (attempt_id,))
    job.end(attempt_id, "disputed")
    job.move("fox", Event.GENERATION_LOST, code="not_found")

    resolve(job.connection, "birds", "fox", Decision.GENERATION, generation_id="gen-01", now=NOW)

    assert attempt(job, attempt_id) == ("active", "gen-01", 5)
    assert job.all("SELECT generation_status FROM attempt")[0][0] is None
    assert '"instead_of":"gen-O1"' in job.all("SELECT detail FROM event ORDER BY id DESC LIMIT 1")[0][0]
    assert money(job) == (0, 5, 0)


def test_an_id_that_the_service_has_not_denied_stays(job: QueueFile) -> None:
    """It is held for its key alone: nothing says that the id is wrong. Law 3."""
    job.send("fox", generation_id="gen-fox")
    job.move("fox", Event.KEY_MISSING, code="key_missing")

    with pytest.raises(InputError, match="not denied"):
        resolve(job.connection, "birds", "fox", Decision.GENERATION, generation_id="other", now=NOW)


def test_what_is_in_hand_can_be_taken_out_of_it(job: QueueFile) -> None:
    """An item that is sent again and again keeps its account: a person may end it as one that is held. Law 2."""
    attempt_id = job.send("fox")

    resolved = resolve(job.connection, "birds", "fox", Decision.ASK_AGAIN, is_undriven=True, now=NOW)
    again = attempt(job, attempt_id)
    given_up = resolve(job.connection, "birds", "fox", Decision.FAILED, is_undriven=True, now=NOW)

    assert (resolved.state, again) == (ItemState.SUBMITTING, ("sent", None, None))
    assert (given_up.state, attempt(job, attempt_id)) == (ItemState.FAILED, ("abandoned", None, None))
    assert money(job) == (0, 0, 0)


def test_a_generation_waits_for_the_accounts_slot(job: QueueFile) -> None:
    """While another attempt of the account is unresolved, no second one is made so. Law 4."""
    conflict(job, "fox")
    job.send("owl", generation_id="busy")

    with pytest.raises(InputError, match="busy with birds/owl"):
        resolve(job.connection, "birds", "fox", Decision.GENERATION, generation_id="found", now=NOW)

    assert job.item("fox")["state"] == "held"


def test_a_generation_belongs_to_one_item(job: QueueFile) -> None:
    """An id that another item has is refused."""
    job.finish("owl")
    conflict(job, "fox")

    with pytest.raises(InputError, match="'gen-owl' belongs to birds/owl"):
        resolve(job.connection, "birds", "fox", Decision.GENERATION, generation_id="gen-owl", now=NOW)


def test_an_item_held_for_an_image_is_simply_queued(job: QueueFile) -> None:
    """It was never sent: nothing can be paid again, and it can have no generation."""
    job.move("fox", Event.INPUT_LOST, code="input_lost")

    with pytest.raises(InputError, match="was never sent"):
        resolve(job.connection, "birds", "fox", Decision.GENERATION, generation_id="g", now=NOW)
    resolved = resolve(job.connection, "birds", "fox", Decision.NOT_CREATED, now=NOW)

    assert (resolved.state, resolved.attempt_id, resolved.may_pay_again) == (ItemState.QUEUED, None, False)


def test_only_a_held_item_can_be_resolved(job: QueueFile) -> None:
    """What the program moves on by itself is not for a person to end."""
    job.send("fox", generation_id="g")

    with pytest.raises(InputError, match="is active: only held items can be resolved, or items under way"):
        resolve(job.connection, "birds", "fox", Decision.NOT_CREATED, now=NOW)


def test_generation_needs_an_id(job: QueueFile) -> None:
    """Without the id there is nothing to poll."""
    conflict(job, "fox")

    with pytest.raises(InputError, match="requires the generation's id"):
        resolve(job.connection, "birds", "fox", Decision.GENERATION, now=NOW)


def test_saved_needs_a_file_on_disk(job: QueueFile) -> None:
    """An item of which nothing is here is not done by a word."""
    lose(job, "fox")

    with pytest.raises(InputError, match="no file of birds/fox is on disk"):
        resolve(job.connection, "birds", "fox", Decision.SAVED, now=NOW)


def test_outputs_that_could_not_be_had_are_fetched_again(job: QueueFile) -> None:
    """The attempt has succeeded and stays so: nothing is polled, nothing is paid, and no other id is taken."""
    attempt_id = job.send("fox", generation_id="gen-fox")
    job.end(attempt_id, "succeeded")
    job.move("fox", Event.OUTPUTS_READY)
    job.move("fox", Event.OUTPUTS_UNUSABLE, code="output_unusable")

    with pytest.raises(InputError, match="not denied"):
        resolve(job.connection, "birds", "fox", Decision.GENERATION, generation_id="other", now=NOW)
    resolved = resolve(job.connection, "birds", "fox", Decision.GENERATION, generation_id="gen-fox", now=NOW)

    assert (resolved.state, resolved.may_pay_again) == (ItemState.DOWNLOADING, False)
    assert attempt(job, attempt_id) == ("succeeded", "gen-fox", 5)


def test_what_is_read_for_ever_can_be_given_up(job: QueueFile) -> None:
    """An account whose one generation is never read is freed by a person; its credits stay charged. Laws 3 and 4."""
    attempt_id = job.send("fox", generation_id="gen-fox")

    resolved = resolve(job.connection, "birds", "fox", Decision.FAILED, is_undriven=True, now=NOW)

    assert (resolved.state, attempt(job, attempt_id)) == (ItemState.FAILED, ("abandoned", "gen-fox", 5))
    assert money(job) == (0, 5, 0)


@pytest.mark.parametrize(("spent", "is_refused"), [(4, False), (5, False), (6, True)])
def test_request_is_only_sent_again_if_it_fits_the_budget_of_today(
    job: QueueFile, spent: int, *, is_refused: bool
) -> None:
    """The service may have forgotten its key, and charge it today. Law 6."""
    attempt_id = conflict(job, "fox")
    tomorrow = NOW + DAY_MS
    job.connection.execute("UPDATE job SET budget_credits_per_day = 10")
    job.connection.execute(
        "INSERT INTO job_day (job_id, day_start_at, credits) VALUES (1, 0, 10), (1, ?, ?)", (NOW, spent)
    )
    job.connection.execute("UPDATE attempt SET day_start_at = 0")

    with pytest.raises(InputError, match=f"used {spent} of its 10 credits of today") if is_refused else nullcontext():
        resolve(job.connection, "birds", "fox", Decision.ASK_AGAIN, now=tomorrow - 1)
    with nullcontext() if is_refused else pytest.raises(InputError, match="submitting"):
        resolve(job.connection, "birds", "fox", Decision.ASK_AGAIN, now=tomorrow)

    assert attempt(job, attempt_id)[0] == "sent"


def test_requests_that_are_sent_again_together_fit_the_budget_of_a_day(job: QueueFile) -> None:
    """The first one counts in each day from then on, sent or not. Law 6."""
    conflict(job, "fox")
    owl = job.send("owl", account="second")
    job.end(owl, "disputed")
    job.move("owl", Event.KEY_CONFLICT, code="idempotency_conflict")
    job.connection.execute("UPDATE job SET budget_credits_per_day = 9")
    resolve(job.connection, "birds", "fox", Decision.ASK_AGAIN, now=NOW + DAY_MS)

    with pytest.raises(InputError, match="used 5 of its 9 credits of today"):
        resolve(job.connection, "birds", "owl", Decision.ASK_AGAIN, now=NOW + DAY_MS)

    assert job.item("owl")["state"] == "held"


def test_request_that_is_counted_today_is_sent_again_whatever_is_left(job: QueueFile) -> None:
    """Its quote is part of what the job has used."""
    conflict(job, "fox")
    job.connection.execute("UPDATE job SET budget_credits_per_day = 5")
    job.connection.execute("INSERT INTO job_day (job_id, day_start_at, credits) VALUES (1, ?, 5)", (NOW - 1000,))
    job.connection.execute("UPDATE attempt SET day_start_at = ?", (NOW - 1000,))

    resolve(job.connection, "birds", "fox", Decision.ASK_AGAIN, now=NOW)

    assert job.item("fox")["state"] == "submitting"
