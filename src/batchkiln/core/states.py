"""The item's state machine, as one table, and every named set of states.

Each state is on disk before the step that it announces, so a crash loses nothing: a new process reads the state and
continues. Waits, quotes and uploads are not states of an item: they are facts of its account.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from batchkiln.core.errors import InvariantBroken


# Contract, section 5.
class ItemState(StrEnum):
    """The state of an item. Each docstring says what ends the state, and what a crash changes."""

    QUEUED = "queued"
    """No attempt is open. The planner moves it on, within limits and credits. A crash changes nothing."""
    SUBMITTING = "submitting"
    """Key and body are on disk, and may have arrived. A reply or a hold moves it on. After a crash they are resent."""
    ACTIVE = "active"
    """The service gave an id. A read of that id or a hold moves the item on. After a crash it is polled on."""
    DOWNLOADING = "downloading"
    """Paid and ready. The saved files move it on. After a crash, each unrecorded file is fetched, with fresh links."""
    DONE = "done"
    """All files are saved. Only a person moves it on, to make it again or to fetch lost files."""
    FAILED = "failed"
    """The last try failed (verified), the service canceled it, or a person gave it up. Final."""
    REJECTED = "rejected"
    """Refused before anything was created, or over its cap; not charged. Final."""
    EXPIRED = "expired"
    """Paid, but the service no longer has the files, and none was saved. Final."""
    CANCELED = "canceled"
    """Canceled by a person while no attempt was open. Final."""
    HELD = "held"
    """A person, the return of its API key, or a manifest with its image moves it on. A crash changes nothing."""


class Event(StrEnum):
    """The facts that change an item's state. Nothing else changes it."""

    ATTEMPT_RECORDED = "attempt_recorded"
    OUTCOME_UNKNOWN = "outcome_unknown"
    ACCEPTED = "accepted"
    REFUSED = "refused"
    NOT_CREATED = "not_created"
    REFUSED_IN_DOUBT = "refused_in_doubt"
    KEY_CONFLICT = "key_conflict"
    KEY_FORGOTTEN = "key_forgotten"
    SET_ASIDE = "set_aside"
    KEY_MISSING = "key_missing"
    INPUT_LOST = "input_lost"
    NEVER_FITS = "never_fits"
    GENERATION_FAILED = "generation_failed"
    TRIES_EXHAUSTED = "tries_exhausted"
    GENERATION_CANCELED = "generation_canceled"
    GENERATION_LOST = "generation_lost"
    OUTPUTS_READY = "outputs_ready"
    URL_EXPIRED = "url_expired"
    OUTPUTS_UNUSABLE = "outputs_unusable"
    RETENTION_ENDED = "retention_ended"
    FILES_SAVED = "files_saved"
    CANCEL_REQUESTED = "cancel_requested"
    RETRY_REQUESTED = "retry_requested"
    BUDGET_RAISED = "budget_raised"
    REQUEST_CHANGED = "request_changed"
    REPLAY_RESUMED = "replay_resumed"
    POLL_RESUMED = "poll_resumed"
    DOWNLOAD_RESUMED = "download_resumed"
    REQUEUED = "requeued"
    GIVEN_UP = "given_up"
    REDO_REQUESTED = "redo_requested"
    REDO_CANCELED = "redo_canceled"
    FETCH_REQUESTED = "fetch_requested"
    VERSION_CHOSEN = "version_chosen"


_Q, _S, _A, _D = ItemState.QUEUED, ItemState.SUBMITTING, ItemState.ACTIVE, ItemState.DOWNLOADING
_H = ItemState.HELD

# fmt: off
TRANSITIONS: Final[Mapping[tuple[ItemState, Event], ItemState]] = {
    (_Q, Event.ATTEMPT_RECORDED):    _S,                  # key, bytes and reservation precede the send (Law 1)
    (_Q, Event.REFUSED):             ItemState.REJECTED,  # its quote was refused: the create would be as well
    (_Q, Event.NEVER_FITS):          ItemState.REJECTED,  # over its cap, the job's or the day's budget (contract, 7)
    (_Q, Event.INPUT_LOST):          _H,                  # the local image is gone or has changed
    (_Q, Event.REQUEST_CHANGED):     _Q,                  # the manifest changed while no attempt was open
    (_Q, Event.CANCEL_REQUESTED):    ItemState.CANCELED,
    (_S, Event.OUTCOME_UNKNOWN):     _S,                  # replay, never replace: Service rules 4.2 and 4.5
    (_S, Event.ACCEPTED):            _A,
    (_S, Event.REFUSED):             ItemState.REJECTED,  # only where the reply proves that nothing was created (Law 2)
    (_S, Event.NOT_CREATED):         _Q,                  # likewise; a new quote, asset, key or budget may help
    (_S, Event.REFUSED_IN_DOUBT):    _H,                  # for an hour; an earlier send may have created it (Law 2)
    (_S, Event.KEY_CONFLICT):        _H,                  # a 409 for an hour (Service rule 4.3); bad bytes; taken id
    (_S, Event.KEY_FORGOTTEN):       _H,                  # in doubt for a day without a reply: see `KEY_REMEMBERED`
    (_S, Event.SET_ASIDE):           _H,                  # answered for an hour without a decision; or by a person
    (_S, Event.KEY_MISSING):         _H,                  # only the same API key may ask again (Service rule 4.2)
    (_A, Event.GENERATION_FAILED):   _Q,                  # status `failed`: refunded; the next attempt has a new key
    (_A, Event.TRIES_EXHAUSTED):     ItemState.FAILED,    # likewise, but no try is left
    (_A, Event.GENERATION_CANCELED): ItemState.FAILED,    # nothing says that it was refunded (Law 2)
    (_A, Event.GENERATION_LOST):     _H,                  # the service has denied the id for an hour
    (_A, Event.SET_ASIDE):           _H,                  # by a person: its reads never succeed, and it keeps the slot
    (_A, Event.KEY_MISSING):         _H,                  # only the creator's key may poll (Service rule 4.4)
    (_A, Event.OUTPUTS_READY):       _D,
    (_A, Event.RETENTION_ENDED):     ItemState.EXPIRED,
    (_D, Event.URL_EXPIRED):         _D,                  # one more read gives a fresh URL: Service section 2.1
    (_D, Event.KEY_MISSING):         _H,
    (_D, Event.RETENTION_ENDED):     ItemState.EXPIRED,   # no file was saved; otherwise OUTPUTS_UNUSABLE
    (_D, Event.OUTPUTS_UNUSABLE):    _H,                  # some of its files cannot be had: a person decides
    (_D, Event.FILES_SAVED):         ItemState.DONE,
    (_H, Event.REPLAY_RESUMED):      _S,                  # the key came back, or a person has it sent again
    (_H, Event.POLL_RESUMED):        _A,                  # the key came back, or a person knows the id
    (_H, Event.DOWNLOAD_RESUMED):    _D,                  # the key came back, or a person wants the files
    (_H, Event.REQUEUED):            _Q,                  # by a person, maybe for a second charge; or its image is back
    (_H, Event.FILES_SAVED):         ItemState.DONE,      # by a person: what is on disk is all there is
    (_H, Event.GIVEN_UP):            ItemState.FAILED,    # by a person
    (ItemState.FAILED,   Event.RETRY_REQUESTED): _Q,      # by a person; a failure was refunded, a cancel perhaps not
    (ItemState.REJECTED, Event.RETRY_REQUESTED): _Q,
    (ItemState.EXPIRED,  Event.RETRY_REQUESTED): _Q,      # costs again: the first result was paid and lost
    (ItemState.CANCELED, Event.RETRY_REQUESTED): _Q,
    (ItemState.REJECTED, Event.BUDGET_RAISED):   _Q,      # its manifest gave it a larger cap or budget
    (ItemState.REJECTED, Event.REQUEST_CHANGED): _Q,      # its manifest mended the request
    (ItemState.CANCELED, Event.REQUEST_CHANGED): ItemState.CANCELED,
    (ItemState.DONE,     Event.REDO_REQUESTED):  _Q,      # by a person; costs again, and the saved files stay current
    (_Q,                 Event.REDO_CANCELED):   ItemState.DONE,  # by a person, before the new attempt was recorded
    (ItemState.DONE,     Event.FETCH_REQUESTED): _D,      # by a person: its files are gone, and the service has them
    (ItemState.FAILED,   Event.VERSION_CHOSEN):  ItemState.DONE,  # by a person: saved files of an earlier attempt
    (ItemState.REJECTED, Event.VERSION_CHOSEN):  ItemState.DONE,
    (ItemState.EXPIRED,  Event.VERSION_CHOSEN):  ItemState.DONE,
    (ItemState.CANCELED, Event.VERSION_CHOSEN):  ItemState.DONE,
}
# fmt: on

UNDER_WAY: Final = (_S, _A, _D)
"""States of an item that was sent and has not ended, in the order in which they are passed through."""

WITH_SERVICE: Final = frozenset({_S, _A})
"""States in which the outcome is the service's to decide, and the item occupies the account's slot (Law 4).

An item that is held for its API key occupies it as well; one with a disputed attempt does not."""

WORKING_STATES: Final = frozenset({_Q, *UNDER_WAY})
"""States that the program itself moves on."""

FINAL_STATES: Final = frozenset(ItemState) - WORKING_STATES - {_H}
"""States that only a person's new request leaves."""

AT_REST: Final = tuple(state for state in ItemState if state not in WORKING_STATES)
"""States in which the program does nothing more for an item: final, or held for a person."""

FAILED_STATES: Final = (ItemState.FAILED, ItemState.EXPIRED)
"""The ends of items that the service took, and that have no result."""
NOT_DELIVERED: Final = (ItemState.FAILED, ItemState.REJECTED, ItemState.EXPIRED)
"""Ends without a result that no person asked for: what `retry JOB` queues again."""

PROBLEM_STATES: Final = (*NOT_DELIVERED, _H)
"""States that a person has to look at: they decide the exit status, and reports list their causes."""

RETRYABLE: Final = frozenset(state for state, event in TRANSITIONS if event is Event.RETRY_REQUESTED)
"""States that `retry JOB ITEM` leaves."""


def apply(state: ItemState, event: Event) -> ItemState:
    """Return the state after `event`. Raise `InvariantBroken` outside the table."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise InvariantBroken(f"no move for {event} in state {state}") from None
