"""The item's state machine, as one table. Everything else about states is derived from it.

The rules that shaped it:

- A state tells who moves the item on. `QUEUED`: the planner, when windows and credits allow. `SUBMITTING`:
  only the reply to the one recorded attempt, sent again byte for byte until a definite reply comes (Service
  rule 4.2). `ACTIVE`: only the service's own word about the known generation (Law 3). `DOWNLOADING`: the
  files, as long as they are retained. `HELD`: a person, or a key or file that comes back.
- A crash means nothing: each state is on disk before the step that it announces, and starting is reading.
- Waiting, being quoted and being uploaded are not states: they are instants and facts of the account.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from batchkiln.core.errors import InvariantBroken


class ItemState(StrEnum):
    """Where an item stands (contract, section 5)."""

    QUEUED = "queued"
    SUBMITTING = "submitting"  # key and body are on disk; may or may not have arrived
    ACTIVE = "active"  # the service gave an id
    DOWNLOADING = "downloading"  # paid and ready; the files are not yet all here
    DONE = "done"
    FAILED = "failed"  # the service verified the failure, attempts used up; or it canceled the generation
    REJECTED = "rejected"  # refused before creation, or over its cap; not charged
    EXPIRED = "expired"  # paid, but its retention ended before it could be fetched
    CANCELED = "canceled"  # by a person, before it was sent
    HELD = "held"  # waits for a person


class Event(StrEnum):
    """Facts in the past tense. Only these change a state."""

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


_Q, _S, _A, _D = ItemState.QUEUED, ItemState.SUBMITTING, ItemState.ACTIVE, ItemState.DOWNLOADING
_H = ItemState.HELD

# fmt: off
TRANSITIONS: Final[Mapping[tuple[ItemState, Event], ItemState]] = {
    (_Q, Event.ATTEMPT_RECORDED):    _S,                  # key and bytes are on disk before anything is sent (Law 1)
    (_Q, Event.REFUSED):             ItemState.REJECTED,  # its quote was refused: the create would be as well
    (_Q, Event.NEVER_FITS):          ItemState.REJECTED,  # over its cap, the job's or the day's budget (contract, 7)
    (_Q, Event.INPUT_LOST):          _H,                  # the local image is gone or has changed
    (_Q, Event.REQUEST_CHANGED):     _Q,                  # the manifest changed before it was ever sent
    (_Q, Event.CANCEL_REQUESTED):    ItemState.CANCELED,
    (_S, Event.OUTCOME_UNKNOWN):     _S,                  # replay, never replace: Service rules 4.2 and 4.5
    (_S, Event.ACCEPTED):            _A,
    (_S, Event.REFUSED):             ItemState.REJECTED,  # only where the reply proves that nothing was created (Law 2)
    (_S, Event.NOT_CREATED):         _Q,                  # likewise, but a fresh quote, asset or key mends it
    (_S, Event.REFUSED_IN_DOUBT):    _H,                  # for an hour: says nothing of an earlier send (Law 2)
    (_S, Event.KEY_CONFLICT):        _H,                  # Service rule 4.3, for an hour: a person decides
    (_S, Event.KEY_FORGOTTEN):       _H,                  # in doubt for a day without a reply: the key may be forgotten
    (_S, Event.SET_ASIDE):           _H,                  # answered for an hour, and not decided; or by a person
    (_S, Event.KEY_MISSING):         _H,                  # only the same API key may ask again (Service rule 4.2)
    (_A, Event.GENERATION_FAILED):   _Q,                  # verified and refunded; the next attempt has a new key
    (_A, Event.TRIES_EXHAUSTED):     ItemState.FAILED,
    (_A, Event.GENERATION_CANCELED): ItemState.FAILED,    # nothing says that it was refunded (Law 2)
    (_A, Event.GENERATION_LOST):     _H,                  # the service no longer knows the id
    (_A, Event.SET_ASIDE):           _H,                  # by a person: its reads never succeed, and it keeps the slot
    (_A, Event.KEY_MISSING):         _H,                  # only the creator's key may poll (Service rule 4.4)
    (_A, Event.OUTPUTS_READY):       _D,
    (_A, Event.RETENTION_ENDED):     ItemState.EXPIRED,
    (_D, Event.URL_EXPIRED):         _D,                  # one more read gives a fresh URL: Service section 2.1
    (_D, Event.KEY_MISSING):         _H,
    (_D, Event.RETENTION_ENDED):     ItemState.EXPIRED,
    (_D, Event.OUTPUTS_UNUSABLE):    _H,                  # some of its files cannot be had: a person decides
    (_D, Event.FILES_SAVED):         ItemState.DONE,
    (_H, Event.REPLAY_RESUMED):      _S,                  # the key came back
    (_H, Event.POLL_RESUMED):        _A,                  # the key came back, or a person knows the id
    (_H, Event.DOWNLOAD_RESUMED):    _D,
    (_H, Event.REQUEUED):            _Q,                  # by a person: nothing was created, or it may be paid again
    (_H, Event.FILES_SAVED):         ItemState.DONE,      # by a person: what is on disk is all there is
    (_H, Event.GIVEN_UP):            ItemState.FAILED,
    (ItemState.FAILED,   Event.RETRY_REQUESTED): _Q,      # by a person; a failure was refunded, a cancel maybe not
    (ItemState.REJECTED, Event.RETRY_REQUESTED): _Q,
    (ItemState.EXPIRED,  Event.RETRY_REQUESTED): _Q,      # costs again: the first result was paid and lost
    (ItemState.CANCELED, Event.RETRY_REQUESTED): _Q,
    (ItemState.REJECTED, Event.BUDGET_RAISED):   _Q,      # its manifest gave it a larger cap or budget
    (ItemState.REJECTED, Event.REQUEST_CHANGED): _Q,      # its manifest mended the request
    (ItemState.CANCELED, Event.REQUEST_CHANGED): ItemState.CANCELED,
}
# fmt: on

FINAL_STATES: Final = frozenset(ItemState) - {_Q, _S, _A, _D, _H}
"""States that only a person's new wish leaves."""

WORKING_STATES: Final = frozenset({_Q, _S, _A, _D})
"""States that the program itself moves on."""


def apply(state: ItemState, event: Event) -> ItemState:
    """Return the state after `event`. Raises `InvariantBroken` outside the table."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise InvariantBroken(f"no move for {event} in state {state}") from None
