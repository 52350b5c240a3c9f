"""Every fact about an attempt: the item, the attempt, the job's money and the days before and after."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from batchkiln.core.errors import InvariantBroken
from batchkiln.core.job import Attempt
from batchkiln.core.outcomes import REFUSALS_IN_A_ROW, Answer, Fact, outcome_of_create
from batchkiln.core.queue_changes import Facts, KeysConfigured
from batchkiln.core.queue_types import NewAttempt, Scope
from batchkiln.core.rate_limits import RequestKind, RequestNote
from batchkiln.core.responses import Accepted, ErrorInfo, GenerationRecord, GenerationStatus
from batchkiln.core.states import ItemState
from batchkiln.core.timestamps import ClockReading, to_milliseconds
from batchkiln.store import attempts
from batchkiln.store.account_changes import update_account
from batchkiln.store.resolution import Decision, resolve
from support.attempt_steps import (
    DAY_MS,
    NEXT_DAY_MS,
    NOW_MS,
    Standing,
    accepted,
    account_of,
    answered,
    begin,
    known,
    quote,
    read,
    record,
    standing,
    viewpoint_of,
)
from support.builders import NO, NOON, day_of, now_at, record as generation
from support.worker_world import PROFILE, World

TODAY = {DAY_MS: 10}
NONE: dict[int, int] = {}
RESERVED = Standing("submitting", "sent", (10, 0, 0), TODAY, TODAY)
S = GenerationStatus
LOST = ErrorInfo("", "lost")
KEY_MISSING = ErrorInfo("key_missing", "the key is gone")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """One queued item of ten credits."""
    made = World(tmp_path)
    made.enqueue("item-1", recipe_fields={"attempts": 2})
    yield made
    made.close()


@pytest.fixture
def sent(world: World) -> Attempt:
    """Its first attempt, on the way."""
    attempt = begin(world)
    assert attempt is not None
    return attempt


def accept(world: World, attempt: Attempt, reply: GenerationRecord | None = None, *, now: int = NOW_MS) -> ItemState:
    return accepted(world, attempt.id, reply or generation(), now)


def resume(world: World, attempt: Attempt, *fingerprints: str) -> None:
    keys = KeysConfigured(frozenset(fingerprints))
    world.write(update_account, PROFILE, attempt.account_id, keys, now_at())


def resend(world: World, attempt: Attempt) -> Attempt:
    note = RequestNote(attempt.account_id, RequestKind.CREATE, NOON, (day_of(NOON),))
    resent = world.write(attempts.resend, attempt.id, note, keep_seconds=300.0)
    assert resent is not None
    return resent


def test_recording_reserves(world: World, sent: Attempt) -> None:
    """Law 1: key, bytes, credits and the request's place in the windows are one commit."""
    assert standing(world) == RESERVED
    assert sent.sends == 1
    assert sent.is_in_doubt
    assert b'"max_cost_credits":10' in sent.body
    assert [tuple(row) for row in world.rows("SELECT kind FROM request")] == [("create",)]
    assert world.one("SELECT creates FROM account_day") == 1


@pytest.mark.parametrize(
    ("fact", "expected"),
    [
        (lambda w, a: answered(w, a.id, Answer.UNKNOWN, LOST, NOW_MS), RESERVED),
        (lambda w, a: answered(w, a.id, Answer.LIMITED, NO, NOW_MS), RESERVED),
        (
            lambda w, a: answered(w, a.id, Answer.BLOCKED, NO, NOW_MS),
            Standing("queued", "refused", (0, 0, 0), NONE, NONE),
        ),
        (
            lambda w, a: answered(w, a.id, Answer.INVALID, NO, NOW_MS),
            Standing("rejected", "refused", (0, 0, 0), NONE, NONE),
        ),
        (
            lambda w, a: answered(w, a.id, Answer.OVER_QUOTE, NO, NOW_MS),
            Standing("queued", "refused", (0, 0, 0), NONE, NONE),
        ),
        (
            lambda w, a: answered(w, a.id, Answer.ASSET_GONE, NO, NOW_MS),
            Standing("queued", "refused", (0, 0, 0), NONE, NONE),
        ),
        (
            lambda w, a: known(w, a.id, Fact.STILL_CONFLICT, NO, NOW_MS),
            Standing("held", "disputed", (10, 0, 0), TODAY, TODAY),
        ),
        (
            lambda w, a: known(w, a.id, Fact.KEY_MISSING, KEY_MISSING),
            Standing("held", "sent", (10, 0, 0), TODAY, TODAY),
        ),
        (accept, Standing("active", "active", (0, 10, 0), TODAY, TODAY)),
        (
            lambda w, a: accept(w, a, generation(cost_credits=7)),
            Standing("active", "active", (0, 10, 0), TODAY, TODAY),
        ),
        (
            lambda w, a: accept(w, a, generation(cost_credits=13)),
            Standing("active", "active", (0, 13, 0), {DAY_MS: 13}, {DAY_MS: 13}),
        ),
        (
            lambda w, a: accept(w, a, generation(cost_credits=None)),
            Standing("active", "active", (0, 10, 0), TODAY, TODAY),
        ),
        (
            lambda w, a: accept(w, a, generation(created_at=NOON + timedelta(days=1)), now=NOW_MS + 86_400_000),
            Standing("active", "active", (0, 10, 0), {NEXT_DAY_MS: 10}, {NEXT_DAY_MS: 10}),
        ),
        (
            lambda w, a: accept(w, a, generation(created_at=None), now=NEXT_DAY_MS + 1),
            Standing("active", "active", (0, 10, 0), {NEXT_DAY_MS: 10}, {NEXT_DAY_MS: 10}),
        ),
        (
            lambda w, a: accept(w, a, generation(S.SUCCESS)),
            Standing("downloading", "succeeded", (0, 10, 0), TODAY, TODAY),
        ),
        (
            lambda w, a: accept(w, a, generation(S.FAILED)),
            Standing("queued", "failed", (0, 10, 10), TODAY, TODAY),
        ),
    ],
)
def test_reply_to_a_create(
    world: World, sent: Attempt, fact: Callable[[World, Attempt], object], expected: Standing
) -> None:
    """Law 6: what was not created gives its credits back; what was, is charged in the day that made it."""
    fact(world, sent)

    assert standing(world) == expected


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (S.PENDING, Standing("active", "active", (0, 10, 0), TODAY, TODAY)),
        (S.PROCESSING, Standing("active", "active", (0, 10, 0), TODAY, TODAY)),
        (S.UNKNOWN, Standing("active", "active", (0, 10, 0), TODAY, TODAY)),
        (S.SUCCESS, Standing("downloading", "succeeded", (0, 10, 0), TODAY, TODAY)),
        (S.FAILED, Standing("queued", "failed", (0, 10, 10), TODAY, TODAY)),
        (S.CANCELED, Standing("failed", "canceled", (0, 10, 0), TODAY, TODAY)),
        (S.EXPIRED, Standing("expired", "expired", (0, 10, 0), TODAY, TODAY)),
    ],
)
def test_word_of_the_service_about_a_generation(
    world: World, sent: Attempt, status: GenerationStatus, expected: Standing
) -> None:
    """Law 2: only a verified failure is refunded, once, and it stays in the day's credits. Service section 8."""
    accept(world, sent)

    read(world, sent.id, generation(status), NOW_MS)

    assert standing(world) == expected


def test_failure_is_refunded_once(world: World, sent: Attempt) -> None:
    """A failure told twice is a bug, not a second refund. Service rule 3.1."""
    accept(world, sent)
    read(world, sent.id, generation(S.FAILED), NOW_MS)

    with pytest.raises(InvariantBroken):
        read(world, sent.id, generation(S.FAILED), NOW_MS)

    assert world.money() == (0, 10, 10)


def test_last_failure_ends_the_item(world: World, sent: Attempt) -> None:
    """After as many failures as allowed no further attempt is made."""
    accept(world, sent)
    read(world, sent.id, generation(S.FAILED), NOW_MS)
    second = begin(world)
    assert second is not None

    accept(world, second, generation(S.FAILED, id="gen-2"))

    assert second.idempotency_key != sent.idempotency_key
    assert standing(world)[:3] == ("failed", "failed", (0, 20, 20))


def test_acceptance_twice_breaks(world: World, sent: Attempt) -> None:
    """Law 3: the id of an attempt is taken once."""
    accept(world, sent)

    with pytest.raises(InvariantBroken):
        accept(world, sent, generation(id="gen-2"))

    assert world.one("SELECT generation_id FROM attempt") == "gen-1"
    assert world.money() == (0, 10, 0)


@pytest.mark.parametrize(
    ("history", "is_in_doubt"),
    [
        ("", True),
        ("a", False),
        ("ar", True),
        ("ara", False),
        ("r", True),
        ("ra", True),
        ("rara", True),
    ],
)
def test_doubt_is_what_was_sent_and_not_answered(
    world: World,
    sent: Attempt,
    history: str,
    is_in_doubt: bool,  # noqa: FBT001
) -> None:
    """Law 2: one send without a definite reply keeps the attempt in doubt for ever."""
    attempt = sent
    for step in history:
        if step == "a":
            answered(world, sent.id, Answer.LIMITED, NO, NOW_MS)
        else:
            attempt = resend(world, sent)

    sends, answers = world.rows("SELECT sends, answers FROM attempt")[0]
    assert (sends > answers) is is_in_doubt
    assert (attempt.idempotency_key, attempt.body) == (sent.idempotency_key, sent.body)


def test_blocked_in_doubt_stays_for_a_replay(world: World, sent: Attempt) -> None:
    """Law 2: a refused account proves nothing about an earlier send."""
    resend(world, sent)

    answered(world, sent.id, Answer.BLOCKED, NO, NOW_MS)

    assert standing(world) == RESERVED


def test_refused_again_and_again_is_rejected(world: World) -> None:
    """Refusals that a fresh quote should mend are tried a bounded number of times."""
    for _ in range(REFUSALS_IN_A_ROW):
        attempt = begin(world)
        assert attempt is not None
        answered(world, attempt.id, Answer.OVER_QUOTE, NO, NOW_MS)

    assert standing(world) == Standing("rejected", "refused", (0, 0, 0), NONE, NONE)


def test_replay_of_what_was_accepted_breaks(world: World, sent: Attempt) -> None:
    """An attempt with an id is polled, and not sent again."""
    accept(world, sent)

    with pytest.raises(InvariantBroken):
        resend(world, sent)


@pytest.mark.parametrize(
    ("spoil", "cost"),
    [
        ("UPDATE quote SET cost_credits = 11", 10),
        ("DELETE FROM quote", 10),
        ("UPDATE item SET state = 'canceled'", 10),
        ("UPDATE job SET budget_credits = 9", 10),
        ("UPDATE job SET budget_credits_per_day = 9", 10),
        ("UPDATE job SET budget_credits = 20, reserved = 5, charged = 10, refunded = 4", 10),
        ("INSERT INTO job_day SELECT id, {day}, 15 FROM job; UPDATE job SET budget_credits_per_day = 20", 10),
        ("UPDATE item SET inputs = '[77]'", 10),
        ("UPDATE recipe SET max_cost_credits = 9", 10),
        ("UPDATE job SET is_paused = 1", 10),
        ("UPDATE job SET accounts = '[\"second\"]'", 10),
        ("UPDATE job SET profile = 'other'; INSERT INTO quote SELECT 'other', price_key, 10, 0 FROM quote", 10),
    ],
)
def test_stale_plan_changes_nothing(world: World, spoil: str, cost: int) -> None:
    """Law 6: what changed since the plan was made is seen inside the transaction that reserves."""
    quote(world, 1, 10)
    account_of(world)
    for statement in spoil.format(day=DAY_MS).split(";"):
        world.connection.execute(statement)
    before = [tuple(row) for row in world.rows("SELECT * FROM job")]

    made = record(world, 1, cost=cost)

    assert made is None
    assert [tuple(row) for row in world.rows("SELECT * FROM job")] == before
    assert world.one("SELECT count(*) FROM attempt") == 0
    assert world.one("SELECT count(*) FROM request") == 0


def test_plan_of_an_account_that_is_busy_is_stale(world: World) -> None:
    """Law 4: a second unresolved attempt is not made, and nothing breaks."""
    begin(world)
    world.enqueue("item-2")

    assert record(world, 2, cost=10) is None
    assert record(world, 2, cost=10, account="second") is not None


def test_plan_of_an_account_that_is_no_longer_first_is_stale(world: World) -> None:
    """A job that names no account goes to the first of its profile alone, also when a plan is carried out."""
    quote(world, 1, 10)
    viewpoint = replace(viewpoint_of(world), is_first=False)
    note = RequestNote(viewpoint.account_id, RequestKind.CREATE, NOON, (day_of(NOON),))
    new = NewAttempt(1, viewpoint, "key-1", 10, note)

    assert world.write(attempts.begin_attempt, new, keep_seconds=300.0) is None


async def test_reply_without_a_date_counts_in_the_day_that_may_have_begun(world: World, sent: Attempt) -> None:
    """Law 5: in the second in which the service's clock is not known, today may be over."""
    midnight = day_of(NOON) + timedelta(days=1)
    now = ClockReading(0.0, instant=midnight - timedelta(seconds=0.2), latest=midnight + timedelta(seconds=0.5))

    reply = generation(created_at=None)
    await world.store.commit(sent, outcome_of_create(sent, Accepted(reply)), Facts(record=reply), now)

    assert standing(world) == Standing("active", "active", (0, 10, 0), {NEXT_DAY_MS: 10}, {NEXT_DAY_MS: 10})


def test_plan_for_a_job_that_is_not_of_this_run_is_stale(world: World) -> None:
    """The run's scope is checked when the attempt is recorded, like every other condition of a plan."""
    quote(world, 1, 10)
    viewpoint = replace(viewpoint_of(world), scope=Scope(frozenset({2})))
    note = RequestNote(viewpoint.account_id, RequestKind.CREATE, NOON, (day_of(NOON),))

    assert world.write(attempts.begin_attempt, NewAttempt(1, viewpoint, "key-1", 10, note), keep_seconds=300.0) is None


def test_named_generation_without_a_date_may_have_been_made_just_now(world: World, sent: Attempt) -> None:
    """Law 3: what is paid is given up only when its retention has surely ended; it may have been sent late."""
    known(world, sent.id, Fact.STILL_CONFLICT, NO, NOW_MS)
    world.write(resolve, "job", "item-1", Decision.GENERATION, generation_id="gen-1", now=NOW_MS)

    later = NOON + timedelta(days=10)
    reply = generation(created_at=None)
    read(world, sent.id, reply, to_milliseconds(later))

    assert world.one("SELECT generation_created_at FROM attempt") == to_milliseconds(later)


def test_lost_for_less_than_an_hour_is_active(world: World, sent: Attempt) -> None:
    """The denial is counted from its first time, and ends with the next good read."""
    accept(world, sent)
    hour = 3_600_000

    first = known(world, sent.id, Fact.ID_DENIED, NO, NOW_MS)
    second = known(world, sent.id, Fact.ID_DENIED, NO, NOW_MS + hour - 1)
    read(world, sent.id, generation(), NOW_MS + hour)
    third = known(world, sent.id, Fact.ID_DENIED, NO, NOW_MS + hour + 1)

    assert (first, second, third) == (ItemState.ACTIVE, ItemState.ACTIVE, ItemState.ACTIVE)


def test_lost_for_an_hour_is_held_and_stays_charged(world: World, sent: Attempt) -> None:
    """Nothing is refunded by a vanished id."""
    accept(world, sent)
    known(world, sent.id, Fact.ID_DENIED, NO, NOW_MS)

    known(world, sent.id, Fact.ID_DENIED, NO, NOW_MS + 3_600_000)

    assert standing(world) == Standing("held", "disputed", (0, 10, 0), TODAY, TODAY)


@pytest.mark.parametrize(
    ("reply", "state"),
    [(None, "submitting"), (generation(), "active"), (generation(S.SUCCESS), "downloading")],
)
def test_item_whose_key_came_back_is_where_it_was(
    world: World, sent: Attempt, reply: GenerationRecord | None, state: str
) -> None:
    """Only the same API key takes an attempt up again. Service rules 4.2, 4.4."""
    if reply is not None:
        accept(world, sent, reply)
    known(world, sent.id, Fact.KEY_MISSING, KEY_MISSING)

    resume(world, sent, "key-2")
    before = world.state("item-1")
    resume(world, sent, "key-2", "key-1")

    assert (before, world.state("item-1")) == ("held", state)
    assert world.error("item-1") is None


def test_service_that_says_key_missing_itself_has_nothing_resumed(world: World, sent: Attempt) -> None:
    """An item that waits for a decision stays held, whatever code the service sent; the next run continues."""
    known(world, sent.id, Fact.STILL_CONFLICT, ErrorInfo("key_missing", "no key"), NOW_MS)

    resume(world, sent, "key-1")

    assert world.state("item-1") == "held"


def test_read_is_noted_before_it_leaves(world: World, sent: Attempt) -> None:
    """The gap between polls survives a restart. Service rule 4.4."""
    accept(world, sent)
    at = NOON + timedelta(seconds=12)

    note = RequestNote(sent.account_id, RequestKind.READ, at, (day_of(at),))
    world.write(attempts.record_request, note, keep_seconds=300.0, attempt_id=sent.id)

    assert world.one("SELECT last_read_at FROM attempt") == NOW_MS + 12_000
    assert world.one("SELECT reads FROM account_day") == 1


def test_quote_body_is_none_for_what_is_not_queued(world: World, sent: Attempt) -> None:
    """A quote that nobody needs any more is not asked."""
    assert attempts.quote_body(world.connection, sent.item_id, sent.account_id) is None


def test_bodies_follow_the_item(world: World) -> None:
    """Quote and create differ in the maximum alone."""
    import json  # noqa: PLC0415  only here

    account_id = account_of(world)
    quoted = attempts.quote_body(world.connection, 1, account_id)
    assert quoted is not None
    made = begin(world)
    assert made is not None

    fields: dict[str, Any] = json.loads(made.body)
    assert fields.pop("max_cost_credits") == 10
    assert fields == json.loads(quoted)


IN_DOUBT = [Answer.INVALID, Answer.OVER_QUOTE, Answer.ASSET_GONE, Answer.BLOCKED, Answer.LIMITED, Answer.CONFLICT]


@pytest.mark.parametrize("answer", IN_DOUBT)
def test_no_refusal_ends_what_is_in_doubt(world: World, sent: Attempt, answer: Answer) -> None:
    """Law 2: what a reply says now proves nothing about an earlier send; its credits stay reserved."""
    resend(world, sent)

    state = answered(world, sent.id, answer, NO, NOW_MS)

    assert state is ItemState.SUBMITTING
    assert standing(world) == RESERVED


def test_conflict_on_a_fresh_key_decides_nothing(world: World, sent: Attempt) -> None:
    """Our bytes are unchanged, so the service is busy with them first: the attempt stays in doubt. Service rule 4.3."""
    state = answered(world, sent.id, Answer.CONFLICT, NO, NOW_MS)

    assert state is ItemState.SUBMITTING
    assert standing(world) == RESERVED
    with pytest.raises(InvariantBroken):
        known(world, sent.id, Fact.WITHDRAWN)


def test_what_only_the_firewall_answered_is_refused_and_not_handed_over(world: World, sent: Attempt) -> None:
    """It never reached the API: nothing was created, and no decision is needed (Service section 7)."""
    answered(world, sent.id, Answer.LIMITED, NO, NOW_MS)

    state = known(world, sent.id, Fact.STILL_UNKNOWN, NO, NOW_MS)

    assert state is ItemState.REJECTED
    assert standing(world) == Standing("rejected", "refused", (0, 0, 0), NONE, NONE)


def test_outage_hands_over_one_item_at_the_most(world: World, sent: Attempt) -> None:
    """After a second item in a row, the service is at fault: the next item keeps being resent."""
    known(world, sent.id, Fact.STILL_UNKNOWN, NO, NOW_MS)
    world.enqueue("item-2")
    second = record(world, 2, cost=10)
    assert second is not None

    state = known(world, second.id, Fact.STILL_UNKNOWN, NO, NOW_MS)

    assert state is ItemState.SUBMITTING
    assert standing(world, "item-2").attempt == "sent"


def test_next_one_is_set_aside_once_the_service_has_accepted_another(world: World, sent: Attempt) -> None:
    """A generation in between shows that the service works: the next request that is not decided is at fault."""
    known(world, sent.id, Fact.STILL_UNKNOWN, NO, NOW_MS)
    world.enqueue("item-2", "item-3")
    second = record(world, 2, cost=10)
    assert second is not None
    accept(world, second, generation(id="gen-2", status=S.SUCCESS))
    third = record(world, 3, cost=10)
    assert third is not None

    assert known(world, third.id, Fact.STILL_UNKNOWN, NO, NOW_MS) is ItemState.HELD


def test_id_of_another_item_is_held(world: World, sent: Attempt) -> None:
    """Law 3: a service that gives one id to two attempts is not believed, and stops nothing else."""
    accept(world, sent, generation(id="gen-1", status=S.SUCCESS))
    world.enqueue("item-2")
    second = record(world, 2, cost=10)
    assert second is not None

    state = accept(world, second, generation(id="gen-1"))

    assert state is ItemState.HELD
    assert standing(world, "item-2").attempt == "disputed"


def test_unanswered_send_counts_in_every_day_of_its_job(world: World) -> None:
    """Law 6: what was sent before a reset may be charged after it, while another account works on the new day."""
    world.enqueue("item-2", "item-3", "item-4", job="two", budget_credits_per_day=20)
    for item in (2, 3, 4):
        quote(world, item, 10)
    tomorrow = NOON + timedelta(days=1)
    account_of(world, "second"), account_of(world, "third")

    yesterdays = record(world, 2, cost=10, account="main")
    first = record(world, 3, cost=10, account="second", at=tomorrow)
    over = record(world, 4, cost=10, account="third", at=tomorrow)

    assert yesterdays is not None
    assert first is not None
    assert over is None


def test_settled_send_counts_in_its_own_day_alone(world: World) -> None:
    """What the service counted in the day before leaves the new day whole."""
    world.enqueue("item-2", "item-3", "item-4", job="two", budget_credits_per_day=20)
    for item in (2, 3, 4):
        quote(world, item, 10)
    tomorrow = NOON + timedelta(days=1)
    yesterdays = record(world, 2, cost=10, account="main")
    assert yesterdays is not None
    accept(world, yesterdays, generation(), now=NOW_MS + 86_400_000)

    made = [record(world, item, cost=10, account=name, at=tomorrow) for item, name in ((3, "second"), (4, "third"))]

    assert None not in made


def test_replay_takes_a_place_in_the_windows(world: World, sent: Attempt) -> None:
    """Law 5: it is a request like the first one, also after a restart, which reads these rows."""
    resend(world, sent)

    assert world.one("SELECT count(*) FROM request WHERE kind = 'create'") == 2


def test_replay_takes_its_credits_to_the_day_of_the_send(world: World, sent: Attempt) -> None:
    """A conflict may follow, and nobody ever learns the day: of those possible, only the last can be overstepped."""
    tomorrow = NOON + timedelta(days=1)
    note = RequestNote(sent.account_id, RequestKind.CREATE, tomorrow, (day_of(tomorrow),))

    world.write(attempts.resend, sent.id, note, keep_seconds=300.0)
    known(world, sent.id, Fact.STILL_CONFLICT, NO, NOW_MS + 86_400_000)

    assert standing(world) == Standing("held", "disputed", (10, 0, 0), {NEXT_DAY_MS: 10}, {NEXT_DAY_MS: 10})


def test_send_around_a_reset_keeps_to_both_days(world: World) -> None:
    """Law 6: where two days may count it, neither day's budget may be overstepped."""
    world.enqueue("item-2", "item-3", job="two", budget_credits_per_day=10)
    for item in (2, 3):
        quote(world, item, 10)
    accepted = record(world, 2, cost=10)
    assert accepted is not None
    accept(world, accepted)
    second = viewpoint_of(world, "second")
    days = (day_of(NOON), day_of(NOON + timedelta(days=1)))
    note = RequestNote(second.account_id, RequestKind.CREATE, NOON, days)
    new = NewAttempt(3, second, "key-1", 10, note)

    assert world.write(attempts.begin_attempt, new, keep_seconds=300.0) is None


def test_withdrawn_attempt_frees_its_credits(world: World, sent: Attempt) -> None:
    """Every send was answered: nothing was created, and the item may be begun anew."""
    answered(world, sent.id, Answer.LIMITED, NO, NOW_MS)

    known(world, sent.id, Fact.WITHDRAWN)

    assert standing(world) == Standing("queued", "refused", (0, 0, 0), NONE, NONE)


def test_attempt_in_doubt_is_never_withdrawn(world: World, sent: Attempt) -> None:
    """Law 2: its send may have created something."""
    with pytest.raises(InvariantBroken):
        known(world, sent.id, Fact.WITHDRAWN)


def test_first_record_of_a_named_generation_tells_its_cost(world: World, sent: Attempt) -> None:
    """Until then its quote counts, on the day of the attempt; a lower cost is recorded at its end."""
    known(world, sent.id, Fact.STILL_CONFLICT, NO, NOW_MS)
    world.write(resolve, "job", "item-1", Decision.GENERATION, generation_id="gen-1", now=NOW_MS)
    tomorrow = NOON + timedelta(days=1)

    now = to_milliseconds(tomorrow)
    read(world, sent.id, generation(cost_credits=12, created_at=tomorrow), now)
    read(world, sent.id, generation(S.FAILED, cost_credits=9), now)

    assert standing(world) == Standing("queued", "failed", (0, 12, 12), {NEXT_DAY_MS: 12}, {NEXT_DAY_MS: 12})
