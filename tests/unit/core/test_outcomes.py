"""The table of outcomes: every reply to a create, in doubt or not, held against the laws."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product

import pytest

from batchkiln.core.job import Attempt, AttemptState
from batchkiln.core.outcomes import (
    OUTCOMES,
    Answer,
    Credits,
    Stale,
    alike_pause_seconds,
    answer_of,
    hold_after_long,
    replay_wait_seconds,
    was_in_doubt,
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
    NotUnderstood,
    RefusalKind,
    Refused,
    Throttled,
    Unavailable,
)
from batchkiln.core.states import TRANSITIONS, Event, ItemState, apply

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


def test_every_answer_has_an_outcome_in_doubt_and_not() -> None:
    """The table leaves nothing out, and holds nothing that no reply can say."""
    assert OUTCOMES.keys() == set(product(Answer, (False, True)))
    assert {answer_of(reply) for reply in REPLIES} == set(Answer)


@pytest.mark.parametrize("answer", Answer)
def test_in_doubt_only_a_reply_that_names_the_generation_ends_an_attempt(answer: Answer) -> None:
    """Law 2: no refusal ends it, frees its credits or forgets what it was made with."""
    outcome = OUTCOMES[answer, True]

    if answer is Answer.ACCEPTED:
        assert (outcome.attempt, outcome.credits) == (AttemptState.ACTIVE, Credits.CHARGED)
    else:
        assert (outcome.attempt, outcome.credits) == (AttemptState.SENT, Credits.RESERVED)
        assert outcome.stale is Stale.NOTHING


@pytest.mark.parametrize(("answer", "is_in_doubt"), OUTCOMES)
def test_outcome_keeps_the_laws(answer: Answer, is_in_doubt: bool) -> None:  # noqa: FBT001  drawn from the table
    """Laws 2, 4 and 6: credits are free only where nothing was created, and an item that may be sent anew is free."""
    outcome = OUTCOMES[answer, is_in_doubt]
    state = ItemState.SUBMITTING if outcome.event is None else apply(ItemState.SUBMITTING, outcome.event)

    assert (outcome.credits is Credits.FREED) == (outcome.attempt is AttemptState.REFUSED)
    assert (state is ItemState.SUBMITTING) == (outcome.attempt is AttemptState.SENT)
    if outcome.credits is Credits.FREED:
        assert outcome.created_nothing
        assert not is_in_doubt
    if state is ItemState.QUEUED:
        assert outcome.attempt is AttemptState.REFUSED


def test_doubt_begins_with_a_reply_that_decides_nothing() -> None:
    """A send leaves no doubt behind where its reply says that it created nothing; else the next reply meets doubt."""
    assert not was_in_doubt(FRESH)
    for answer in Answer:
        answers = int(OUTCOMES[answer, False].created_nothing)
        again = replace(FRESH, sends=2, answers=answers)
        if OUTCOMES[answer, False].attempt is AttemptState.SENT:
            assert was_in_doubt(again) == (answer is not Answer.LIMITED)


@pytest.mark.parametrize("reply", REPLIES, ids=lambda reply: type(reply).__name__)
@pytest.mark.parametrize("attempt", [FRESH, IN_DOUBT], ids=["fresh", "in_doubt"])
def test_a_hold_is_a_move_of_the_table(reply: CreateReply, attempt: Attempt) -> None:
    """Only a reply that leaves the attempt undecided leads to a person, by an event that the states know."""
    event = hold_after_long(reply, attempt)

    if event is not None:
        assert TRANSITIONS[ItemState.SUBMITTING, event] is ItemState.HELD
        assert OUTCOMES[answer_of(reply), was_in_doubt(attempt)].attempt is AttemptState.SENT
    assert hold_after_long(Busy(None, NO), attempt) is None


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


def test_event_of_a_hold_depends_on_what_was_said() -> None:
    """A person is told what kept the service from deciding."""
    assert hold_after_long(IdempotencyConflict(NO), FRESH) is Event.KEY_CONFLICT
    assert hold_after_long(Refused(RefusalKind.INVALID, NO), IN_DOUBT) is Event.REFUSED_IN_DOUBT
    assert hold_after_long(Unavailable(timedelta(seconds=1), NO), FRESH) is Event.SET_ASIDE
