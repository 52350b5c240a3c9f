"""The tables of outcomes: every reply, in doubt or not, and every fact, held against the laws without a database."""

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import get_args

import pytest
from msgspec.structs import replace

from batchkiln.core.backoff import alike_pause_seconds, replay_wait_seconds
from batchkiln.core.errors import InvariantBroken
from batchkiln.core.job import Attempt, AttemptState
from batchkiln.core.outcomes import (
    CREATES,
    DOWNLOADS,
    FACTS,
    ITEM_STATES,
    READS,
    REFUSALS_IN_A_ROW,
    SENDS_BEFORE_HOLD,
    UNCHANGED,
    UNDECIDED_FOR,
    Answer,
    Credits,
    Download,
    Fact,
    Known,
    Outcome,
    Stale,
    answer_of,
    is_gone,
    outcome_if_undecided,
    outcome_of_create,
    outcome_of_read,
    settle,
)
from batchkiln.core.responses import (
    Accepted,
    AccountBlocked,
    AccountProblem,
    Busy,
    CreateReply,
    EdgeBlocked,
    ErrorInfo,
    GenerationRecord,
    GenerationStatus,
    IdempotencyConflict,
    NoResponse,
    NotFound,
    NotUnderstood,
    OutputLink,
    ReadReply,
    RecordRead,
    RefusalKind,
    Refused,
    Throttled,
    Unavailable,
)
from batchkiln.core.states import Event, ItemState, apply

NO = ErrorInfo("no", "no")
RECORD = GenerationRecord("g", GenerationStatus.PENDING, "pending", None, None, (), None)
REPLIES: list[CreateReply] = [
    Accepted(RECORD),
    *(Refused(kind, NO) for kind in RefusalKind),
    *(AccountBlocked(problem, NO) for problem in AccountProblem),
    Throttled(None, NO),
    EdgeBlocked(),
    Busy(None, NO),
    IdempotencyConflict(NO),
    Unavailable(None, NO),
    NoResponse("lost"),
    NoResponse("an HTML page", 400),
    NotUnderstood("names no generation", "{}", 202),
]
FRESH = Attempt(
    id=1,
    item_id=1,
    account_id=1,
    number=1,
    state=AttemptState.SENT,
    is_video=False,
    idempotency_key="k" * 16,
    key_fingerprint="f",
    body=b"{}",
    sends=1,
    answers=0,
    contact_at=datetime(2026, 3, 2, tzinfo=UTC),
)
IN_DOUBT = replace(FRESH, sends=2)


STATUSES = list(GenerationStatus)
READ_REPLIES: list[ReadReply] = [
    *(RecordRead(replace(RECORD, status=status)) for status in STATUSES),
    NotFound(NO),
    *(AccountBlocked(problem, NO) for problem in AccountProblem),
    Throttled(None, NO),
    EdgeBlocked(),
    Unavailable(None, NO),
    NoResponse("lost"),
    NotUnderstood("names no status", "{}", 200),
]
HOUR = timedelta(hours=1)
COUNTS = [
    Known(),
    Known(refusals=REFUSALS_IN_A_ROW - 1, failures=1, tries=2, denied_for=HOUR, files_saved=1),
    Known(refusals=REFUSALS_IN_A_ROW - 2, failures=1, tries=3, denied_for=HOUR - timedelta(seconds=1)),
]
KNOWN = [
    replace(counts, unanswered=unanswered, is_id_taken=is_taken, is_name_taken=is_named, has_disputed=is_aside)
    for counts in COUNTS
    for unanswered in (0, 1, 2)
    for is_taken, is_named, is_aside in product((False, True), repeat=3)
]
"""What the queue may know when an outcome is committed."""

ALL = [
    *((AttemptState.SENT, outcome) for outcome in CREATES.values()),
    *((AttemptState.ACTIVE, outcome) for outcome in READS.values()),
    *((AttemptState.SUCCEEDED, outcome) for outcome in DOWNLOADS.values()),
    *((AttemptState.SENT, FACTS[fact]) for fact in Fact if fact is not Fact.ID_DENIED),
    *((AttemptState.ACTIVE, FACTS[fact]) for fact in (Fact.ID_DENIED, Fact.KEY_MISSING)),
    (AttemptState.SUCCEEDED, FACTS[Fact.KEY_MISSING]),
]
"""Each outcome, with the states of an attempt in which it is reached."""


def settled(state: AttemptState, outcome: Outcome) -> Iterator[tuple[Known, Outcome]]:
    """Return what may become of an outcome, by all that the queue may know; not what breaks."""
    for known in KNOWN:
        possible = known if state is AttemptState.SUCCEEDED else replace(known, is_name_taken=False, files_saved=0)
        with suppress(InvariantBroken):
            yield possible, settle(outcome, possible)


def test_every_reply_and_fact_has_its_row() -> None:
    """The tables leave nothing out, and hold nothing that nobody can say."""
    assert CREATES.keys() == set(product(Answer, (False, True)))
    assert {answer_of(reply) for reply in REPLIES} == set(Answer)
    assert {type(reply) for reply in REPLIES} == set(get_args(CreateReply))
    assert {type(reply) for reply in READ_REPLIES} == set(get_args(ReadReply))
    for table, names in ((READS, GenerationStatus), (FACTS, Fact), (DOWNLOADS, Download)):
        assert set(table) == set(names)
    assert {outcome.if_it_lasts for outcome in CREATES.values()} < {None, *Fact}


@pytest.mark.parametrize("answer", Answer)
def test_in_doubt_only_a_reply_that_names_the_generation_ends_an_attempt(answer: Answer) -> None:
    """Law 2: no refusal ends it, frees its credits or forgets what it was made with, however often it comes."""
    outcome = CREATES[answer, True]

    if answer is Answer.ACCEPTED:
        assert (outcome.attempt, outcome.credits) == (AttemptState.ACTIVE, Credits.CHARGED)
    else:
        assert (outcome.attempt, outcome.credits, outcome.stale) == (None, Credits.KEPT, Stale.NOTHING)
        for sends, seconds in product((1, SENDS_BEFORE_HOLD), (0.0, UNDECIDED_FOR.total_seconds())):
            attempt = replace(IN_DOUBT, sends=1 + sends, answers=0)
            held = outcome_if_undecided(outcome, attempt, seconds)
            assert held.attempt in {None, AttemptState.DISPUTED}  # a person's
            assert held.credits is Credits.KEPT


@pytest.mark.parametrize(("state", "outcome"), ALL)
def test_outcome_is_a_legal_transition(state: AttemptState, outcome: Outcome) -> None:
    """An event comes only in a state that knows it, and attempt and item agree about what follows (Law 4)."""
    for known, each in settled(state, outcome):
        item = ITEM_STATES[state]
        after = item if each.event is None else apply(item, each.event)
        attempt = each.attempt or state
        if after in set(ITEM_STATES.values()):
            assert after is ITEM_STATES[attempt], known
        elif each.event in {Event.KEY_MISSING, Event.FILES_SAVED, Event.OUTPUTS_UNUSABLE}:
            assert attempt in {state, AttemptState.EXPIRED}  # goes on when the key is back, or has succeeded
        else:
            assert attempt not in ITEM_STATES, known


@pytest.mark.parametrize(("state", "outcome"), ALL)
def test_outcome_keeps_the_laws(state: AttemptState, outcome: Outcome) -> None:
    """Laws 2, 3 and 6: credits are freed, and an item is begun anew, only where nothing was created or it failed."""
    for known, each in settled(state, outcome):
        after = ITEM_STATES[state] if each.event is None else apply(ITEM_STATES[state], each.event)
        if each.credits is Credits.FREED:
            assert state is AttemptState.SENT
            assert known.unanswered <= each.created_nothing
        assert (each.credits is Credits.FREED) == (each.attempt is AttemptState.REFUSED)
        assert (each.credits is Credits.REFUNDED) == (each.attempt is AttemptState.FAILED)
        if after is ItemState.QUEUED:
            assert each.attempt in {AttemptState.REFUSED, AttemptState.FAILED}
        if state is AttemptState.ACTIVE:
            assert each.attempt is not AttemptState.REFUSED


@pytest.mark.parametrize("unanswered", [1, 2])
def test_credits_of_an_attempt_in_doubt_are_never_freed(unanswered: int) -> None:
    """Law 2: also an outcome that was decided for another attempt, or for none, is refused by the queue."""
    for outcome in {FACTS[Fact.WITHDRAWN], *(each for each in CREATES.values() if each.credits is Credits.FREED)}:
        if unanswered > outcome.created_nothing:
            with pytest.raises(InvariantBroken):
                settle(outcome, Known(unanswered))


@pytest.mark.parametrize(("failures", "tries", "is_over"), [(0, 1, True), (0, 2, False), (1, 2, True), (1, 3, False)])
def test_the_last_try_ends_the_item(failures: int, tries: int, *, is_over: bool) -> None:
    """Each try is paid: none is made beyond what the manifest allows, and none is left out."""
    failed = READS[GenerationStatus.FAILED]

    settled = settle(failed, Known(failures=failures, tries=tries))

    assert settled.event is (Event.TRIES_EXHAUSTED if is_over else failed.event)


def test_doubt_begins_with_a_reply_that_decides_nothing() -> None:
    """A send leaves no doubt behind where its reply says that it created nothing; else the next reply meets doubt."""
    assert not FRESH.was_in_doubt
    for answer in Answer:
        outcome = CREATES[answer, False]
        again = replace(FRESH, sends=2, answers=int(outcome.created_nothing))
        if outcome.attempt is None:
            assert again.was_in_doubt == (answer not in {Answer.LIMITED, Answer.FIREWALL})


@pytest.mark.parametrize("reply", REPLIES, ids=lambda reply: type(reply).__name__)
@pytest.mark.parametrize("attempt", [FRESH, IN_DOUBT], ids=["fresh", "in_doubt"])
def test_a_reply_to_a_create_is_the_tables(reply: CreateReply, attempt: Attempt) -> None:
    """An acceptance brings a record, which means what it means to a read; no other reply is followed by anything."""
    outcome = outcome_of_create(attempt, reply)

    assert replace(outcome, then=None) == CREATES[answer_of(reply), attempt.was_in_doubt]
    assert (outcome.then is not None) == isinstance(reply, Accepted)


@pytest.mark.parametrize("status", STATUSES)
def test_an_acceptance_is_followed_by_what_its_record_says(status: GenerationStatus) -> None:
    """A replay may be answered with a generation that has ended long ago. Service rule 3.3."""
    assert outcome_of_create(IN_DOUBT, Accepted(replace(RECORD, status=status))).then == READS[status]


@pytest.mark.parametrize("reply", READ_REPLIES, ids=lambda reply: type(reply).__name__)
def test_no_read_without_a_record_ends_a_generation_at_once(reply: ReadReply) -> None:
    """Law 3: it is polled until it ends; an id that is denied for an hour is a person's, and stays charged."""
    outcome = outcome_of_read(reply)

    if isinstance(reply, RecordRead):
        assert outcome == READS[reply.record.status]
        assert (outcome.attempt is not None) == reply.record.status.is_ended
    else:
        assert settle(outcome, Known(unanswered=1)) is UNCHANGED
        assert settle(outcome, Known(unanswered=1, denied_for=HOUR)).credits is Credits.KEPT


@pytest.mark.parametrize("is_retained", [True, False])
def test_outputs_are_gone_only_by_the_services_word_or_after_their_retention(*, is_retained: bool) -> None:
    """Law 3: what was paid is given up only when it is surely gone."""
    link = OutputLink("image", "https://files/1", None)
    with_outputs = replace(RECORD, status=GenerationStatus.SUCCESS, outputs=(link,))

    assert is_gone(RecordRead(replace(RECORD, status=GenerationStatus.EXPIRED)), is_retained=is_retained)
    assert not is_gone(RecordRead(with_outputs), is_retained=is_retained)
    for unsure in (NotFound(NO), RecordRead(replace(with_outputs, outputs=()))):
        assert is_gone(unsure, is_retained=is_retained) is not is_retained


def test_waits_of_what_is_not_decided_grow_to_an_hour() -> None:
    """Six sends take well over an hour, and no two follow each other within ten seconds. Law 10."""
    reply = NotUnderstood("names no generation", "{}", 202)

    waits = [replay_wait_seconds(reply, replace(FRESH, sends=sends)) for sends in range(1, 9)]

    assert waits == [10.0, 60.0, 300.0, 1200.0, 3600.0, 3600.0, 3600.0, 3600.0]


def test_refusal_of_a_fresh_send_waits_for_nothing() -> None:
    """It decides: the next item may be sent at once."""
    assert replay_wait_seconds(Refused(RefusalKind.INVALID, NO), FRESH) is None
    assert replay_wait_seconds(Refused(RefusalKind.INVALID, NO), IN_DOUBT) == 60.0


def test_third_refusal_alike_pauses() -> None:
    """One or two say something about items; three in the same words about the account. Pauses grow."""
    assert [alike_pause_seconds(times) for times in range(1, 7)] == [None, None, 60.0, 300.0, 900.0, 900.0]


@pytest.mark.parametrize(
    ("reply", "attempt", "event"),
    [
        (IdempotencyConflict(NO), FRESH, Event.KEY_CONFLICT),
        (Refused(RefusalKind.INVALID, NO), IN_DOUBT, Event.REFUSED_IN_DOUBT),
        (Unavailable(timedelta(seconds=1), NO), FRESH, Event.SET_ASIDE),
        (EdgeBlocked(), FRESH, Event.SET_ASIDE),
        (Busy(None, NO), FRESH, None),
        (Throttled(None, NO), IN_DOUBT, None),
        (AccountBlocked(AccountProblem.FORBIDDEN, NO), IN_DOUBT, None),
    ],
    ids=lambda value: type(value).__name__,
)
def test_event_of_a_hold_depends_on_what_was_said(reply: CreateReply, attempt: Attempt, event: Event | None) -> None:
    """A person is told what kept the service from deciding; a busy, limited or blocked account ends by itself."""
    lasting = replace(attempt, sends=SENDS_BEFORE_HOLD)
    outcome = outcome_of_create(attempt, reply)

    assert outcome_if_undecided(outcome, lasting, UNDECIDED_FOR.total_seconds()).event is event
    assert outcome_if_undecided(outcome, lasting, UNDECIDED_FOR.total_seconds() - 1) is UNCHANGED
    assert outcome_if_undecided(outcome, attempt, UNDECIDED_FOR.total_seconds()) is UNCHANGED
