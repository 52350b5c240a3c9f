"""The item's state machine: every pair of state and event."""

import re
import sqlite3
from contextlib import suppress

import pytest

from batchkiln.core.errors import InvariantBroken
from batchkiln.core.job import AttemptState
from batchkiln.core.states import FINAL_STATES, TRANSITIONS, WORKING_STATES, Event, ItemState, apply
from batchkiln.store.sqlite.file_session import migrations

S, E = ItemState, Event

# Typed anew from the contract, section 5, and its laws: a change of the table has to be made twice.
EXPECTED = {
    S.QUEUED: {
        E.ATTEMPT_RECORDED: S.SUBMITTING,
        E.REFUSED: S.REJECTED,
        E.NEVER_FITS: S.REJECTED,
        E.INPUT_LOST: S.HELD,
        E.REQUEST_CHANGED: S.QUEUED,
        E.CANCEL_REQUESTED: S.CANCELED,
        E.REDO_CANCELED: S.DONE,
    },
    S.SUBMITTING: {
        E.OUTCOME_UNKNOWN: S.SUBMITTING,
        E.ACCEPTED: S.ACTIVE,
        E.REFUSED: S.REJECTED,
        E.NOT_CREATED: S.QUEUED,
        E.KEY_CONFLICT: S.HELD,
        E.REFUSED_IN_DOUBT: S.HELD,
        E.KEY_FORGOTTEN: S.HELD,
        E.SET_ASIDE: S.HELD,
        E.KEY_MISSING: S.HELD,
    },
    S.ACTIVE: {
        E.GENERATION_FAILED: S.QUEUED,
        E.TRIES_EXHAUSTED: S.FAILED,
        E.GENERATION_CANCELED: S.FAILED,
        E.GENERATION_LOST: S.HELD,
        E.SET_ASIDE: S.HELD,
        E.KEY_MISSING: S.HELD,
        E.OUTPUTS_READY: S.DOWNLOADING,
        E.RETENTION_ENDED: S.EXPIRED,
    },
    S.DOWNLOADING: {
        E.URL_EXPIRED: S.DOWNLOADING,
        E.OUTPUTS_UNUSABLE: S.HELD,
        E.KEY_MISSING: S.HELD,
        E.RETENTION_ENDED: S.EXPIRED,
        E.FILES_SAVED: S.DONE,
    },
    S.HELD: {
        E.REPLAY_RESUMED: S.SUBMITTING,
        E.POLL_RESUMED: S.ACTIVE,
        E.FILES_SAVED: S.DONE,
        E.DOWNLOAD_RESUMED: S.DOWNLOADING,
        E.REQUEUED: S.QUEUED,
        E.GIVEN_UP: S.FAILED,
    },
    S.FAILED: {E.RETRY_REQUESTED: S.QUEUED, E.VERSION_CHOSEN: S.DONE},
    S.EXPIRED: {E.RETRY_REQUESTED: S.QUEUED, E.VERSION_CHOSEN: S.DONE},
    S.REJECTED: {
        E.RETRY_REQUESTED: S.QUEUED,
        E.BUDGET_RAISED: S.QUEUED,
        E.REQUEST_CHANGED: S.QUEUED,
        E.VERSION_CHOSEN: S.DONE,
    },
    S.CANCELED: {E.RETRY_REQUESTED: S.QUEUED, E.REQUEST_CHANGED: S.CANCELED, E.VERSION_CHOSEN: S.DONE},
    S.DONE: {E.REDO_REQUESTED: S.QUEUED, E.FETCH_REQUESTED: S.DOWNLOADING},
}


@pytest.mark.parametrize("state", ItemState)
def test_each_pair_moves_as_the_contract_says_or_breaks(state: ItemState) -> None:
    """Law 9: a move outside the table is a bug and stops the program; one inside leads where it should."""
    moves = {}
    for event in Event:
        with suppress(InvariantBroken):
            moves[event] = apply(state, event)

    assert moves == EXPECTED[state]


def test_every_state_is_reachable_from_the_queue() -> None:
    """No state is there in vain."""
    reached, fresh = {S.QUEUED}, {S.QUEUED}
    while fresh:
        fresh = {after for (before, _), after in TRANSITIONS.items() if before in fresh} - reached
        reached |= fresh

    assert reached == set(ItemState)


def test_every_event_is_used() -> None:
    """No event is there in vain."""
    assert {event for _, event in TRANSITIONS} == set(Event)


def test_working_final_and_held_divide_the_states() -> None:
    """Each state is working, final or held."""
    assert WORKING_STATES | FINAL_STATES | {S.HELD} == set(ItemState)
    assert not WORKING_STATES & FINAL_STATES
    assert {S.DONE, S.FAILED, S.REJECTED, S.EXPIRED, S.CANCELED} == FINAL_STATES


def test_only_a_person_leaves_a_final_state() -> None:
    """Law 9: what ended stays ended, until a person wishes otherwise."""
    wishes = {
        E.RETRY_REQUESTED,
        E.BUDGET_RAISED,
        E.REQUEST_CHANGED,
        E.REDO_REQUESTED,
        E.FETCH_REQUESTED,
        E.VERSION_CHOSEN,
    }

    assert {event for state, event in TRANSITIONS if state in FINAL_STATES} == wishes


def test_money_is_never_sent_from_a_paid_state() -> None:
    """Law 2: from an accepted generation back to the queue leads only the service's own word of its failure."""
    back = {event for (state, event), after in TRANSITIONS.items() if state is S.ACTIVE and after is S.QUEUED}

    assert back == {E.GENERATION_FAILED}


@pytest.mark.parametrize(("table", "words"), [("item", set(ItemState)), ("attempt", set(AttemptState))])
def test_schema_allows_just_these_states(table: str, words: set[str]) -> None:
    """The cases of the schema's CHECK are the enum."""
    connection = sqlite3.connect(":memory:")
    for _, script in migrations():
        connection.executescript(script)

    (sql,) = connection.execute("SELECT sql FROM sqlite_schema WHERE name = ?", (table,)).fetchone()
    connection.close()

    listed = re.search(r"CHECK \(CASE state\s+WHEN (.*?)END\)", sql, re.DOTALL)
    assert listed is not None
    assert set(re.findall(r"'(\w+)'", listed[1])) == {str(word) for word in words}


def test_unresolved_attempts_are_those_of_the_index() -> None:
    """Law 4: the code and the database mean the same by unresolved."""
    script = migrations()[0][1]
    listed = re.search(r"attempt_unresolved ON attempt \(account_id\) WHERE state IN \((.*?)\)", script)

    assert listed is not None
    assert set(re.findall(r"'(\w+)'", listed[1])) == {AttemptState.SENT.value, AttemptState.ACTIVE.value}
