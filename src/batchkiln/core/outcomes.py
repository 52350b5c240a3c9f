"""The effect of the service's replies on attempt, item and credits: four tables beside the item's states.

`CREATES`, `READS` and `DOWNLOADS` are for replies, `FACTS` is for facts that become known without a reply. The executor
looks an outcome up, `settle` corrects it by the queue's own facts, and `WorkerStore.commit` stores it. Nothing else
changes credits.

Law 2 is behind them: an attempt is *in doubt* while a send of it may have created a generation whose id is unknown.
Each send is counted when it is recorded, because a crash hides whether it left. `CREATES` depends on doubt before the
send that is answered (`Attempt.was_in_doubt`). No refusal ends an attempt in doubt: price, credits, moderation and
locks change with time, and a service may check them before it looks up the key. Only a reply that names the generation
ends the doubt, or a person. Until the person decides, the attempt is `DISPUTED`: its credits stay reserved or charged,
and the slot is free.
"""

from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum
from typing import Final, assert_never

from msgspec import Struct
from msgspec.structs import replace

from batchkiln.core.errors import InvariantBroken
from batchkiln.core.job import Attempt, AttemptState
from batchkiln.core.polling import LOST_AFTER
from batchkiln.core.responses import (
    Accepted,
    AccountBlocked,
    Busy,
    CreateReply,
    EdgeBlocked,
    GenerationStatus,
    IdempotencyConflict,
    NoResponse,
    NotFound,
    NotUnderstood,
    ReadReply,
    RecordRead,
    Refused,
    Throttled,
    Unavailable,
)
from batchkiln.core.states import Event, ItemState

KEY_REMEMBERED: Final = timedelta(hours=24)
"""After so long without a reply of the API to an attempt in doubt, its key may be forgotten (Service rule 4.2).

A 5xx, and what a proxy or the firewall answers, is no reply of the API."""

UNDECIDED_FOR: Final = timedelta(hours=1)
"""After so long in one run, an attempt that the service answers but does not decide is held for a person.

No reply, and an answer without `if_it_lasts`, restart the time. So does a 5xx, or an answer of a proxy or the firewall,
unless `SENDS_BEFORE_HOLD` sends were made and the public description can be read."""

SENDS_BEFORE_HOLD: Final = 6
"""An undecided attempt is not held for a person before so many sends."""

REFUSALS_IN_A_ROW: Final = 5
"""After so many refusals in a row that a new quote or asset should have prevented, the item is rejected."""


class Answer(StrEnum):
    """The meaning of a reply to a create: by its words, else by its status (`client/error_responses.py`)."""

    ACCEPTED = "accepted"
    INVALID = "invalid"  # any other JSON 4xx: the request itself is refused
    OVER_QUOTE = "over_quote"  # by its words only, as is ASSET_GONE
    ASSET_GONE = "asset_gone"
    BLOCKED = "blocked"  # 401, 402 or a JSON 403: the account or its key is refused, or has no credits left
    LIMITED = "limited"  # 429: this send created nothing
    FIREWALL = "firewall"  # a 403 that is not JSON: this send created nothing
    BUSY = "busy"  # 423 or 425: the account's slot is taken, maybe by this very attempt
    CONFLICT = "conflict"  # 409, although the bytes are unchanged
    UNKNOWN = "unknown"  # no reply, a 5xx, a bare 404, or a reply that is not understood


class Fact(StrEnum):
    """A fact about an attempt that becomes known without a reply."""

    WITHDRAWN = "withdrawn"  # each send was answered, nothing was created, and a limit or a person now forbids another
    KEY_MISSING = "key_missing"  # its API key is not configured, or is an older one and was refused for `LOST_AFTER`
    KEY_FORGOTTEN = "key_forgotten"  # in doubt for `KEY_REMEMBERED` without a reply of the API
    DAMAGED = "damaged"  # the stored key or bytes no longer match their checksum
    ID_TAKEN = "id_taken"  # the id that accepted it belongs to another attempt
    ID_DENIED = "id_denied"  # the service denies the generation; it counts after `LOST_AFTER` (an hour), see `settle`
    STILL_REFUSED = "still_refused"  # undecided for `UNDECIDED_FOR`, and the last answer was a refusal in doubt
    STILL_CONFLICT = "still_conflict"  # likewise, a conflict
    STILL_UNKNOWN = "still_unknown"  # likewise, unknown or the firewall's


class Download(StrEnum):
    """The progress of downloading a finished generation's files."""

    FILE_STAGED = "file_staged"  # complete on the local disk; its object is still to be written
    FILE_SAVED = "file_saved"
    LAST_FILE_SAVED = "last_file_saved"
    ALL_SAVED = "all_saved"  # the files saved before are all there are
    NAME_TAKEN = "name_taken"  # the file's name belongs to another output: nothing is recorded
    LINK_EXPIRED = "link_expired"  # one more read gives a fresh link, now or later
    UNUSABLE = "unusable"  # tried often and long enough
    GONE = "gone"  # the service no longer holds the outputs


class Credits(StrEnum):
    """The effect on the credits of an attempt. They are reserved when it is recorded."""

    KEPT = "kept"  # still reserved or charged, as before; of a disputed attempt, until a person decides
    FREED = "freed"  # no longer reserved: nothing was created
    CHARGED = "charged"
    REFUNDED = "refunded"  # by the service, once, for a verified failure (Service rule 3.1)


class Stale(StrEnum):
    """Stored knowledge that is out of date and has to be requested again."""

    NOTHING = "nothing"
    QUOTE = "quote"
    ASSETS = "assets"


class Outcome(Struct, frozen=True):
    """The effect of one reply or fact. None leaves the attempt's state, or the item, unchanged.

    `created_nothing`: the answered send certainly created nothing; earlier sends may have. `log` is a further line of
    the item's history. `if_it_lasts` replaces the outcome if the attempt was undecided for `UNDECIDED_FOR`. `then` is
    applied next: an accepted create includes a record, which means the same as in a read.
    """

    attempt: AttemptState | None = None
    event: Event | None = None
    credits: Credits = Credits.KEPT
    stale: Stale = Stale.NOTHING
    created_nothing: bool = False
    log: str | None = None
    if_it_lasts: Fact | None = None
    then: "Outcome | None" = None

    @property
    def ends_by_refusal(self) -> bool:
        """Whether the reply ends the attempt by refusing this request, not its account."""
        return self.created_nothing and (self.event is Event.REFUSED or self.stale is not Stale.NOTHING)


def _answered(log: str, if_it_lasts: Fact | None = None) -> Outcome:
    """Return the outcome of an answer that neither ends the attempt nor leaves its send in doubt."""
    return Outcome(created_nothing=True, log=log, if_it_lasts=if_it_lasts)


def _undecided(if_it_lasts: Fact | None = None) -> Outcome:
    """Return the outcome of an answer that leaves the send in doubt."""
    return Outcome(event=Event.OUTCOME_UNKNOWN, if_it_lasts=if_it_lasts)


def _refused(event: Event, stale: Stale = Stale.NOTHING) -> Outcome:
    return Outcome(AttemptState.REFUSED, event, Credits.FREED, stale, created_nothing=True)


UNCHANGED: Final = Outcome()
_ACCEPTED: Final = Outcome(AttemptState.ACTIVE, Event.ACCEPTED, Credits.CHARGED)

# fmt: off
CREATES: Final[Mapping[tuple[Answer, bool], Outcome]] = {
    # (answer, in doubt before this send)
    (Answer.ACCEPTED,   False): _ACCEPTED,
    (Answer.ACCEPTED,   True):  _ACCEPTED,
    (Answer.INVALID,    False): _refused(Event.REFUSED),
    (Answer.INVALID,    True):  _answered("create_refused", Fact.STILL_REFUSED),  # an earlier send may have created it
    (Answer.OVER_QUOTE, False): _refused(Event.NOT_CREATED, Stale.QUOTE),
    (Answer.OVER_QUOTE, True):  _answered("create_refused", Fact.STILL_REFUSED),
    (Answer.ASSET_GONE, False): _refused(Event.NOT_CREATED, Stale.ASSETS),
    (Answer.ASSET_GONE, True):  _answered("create_refused", Fact.STILL_REFUSED),
    (Answer.BLOCKED,    False): _refused(Event.NOT_CREATED),            # may be begun with another API key
    (Answer.BLOCKED,    True):  _answered("account_blocked"),           # resent in the next run
    (Answer.LIMITED,    False): _answered("create_postponed"),
    (Answer.LIMITED,    True):  _answered("create_postponed"),
    (Answer.FIREWALL,   False): _answered("create_postponed", Fact.STILL_UNKNOWN),
    (Answer.FIREWALL,   True):  _answered("create_postponed", Fact.STILL_UNKNOWN),
    (Answer.BUSY,       False): _undecided(),                           # the slot may be taken by this send
    (Answer.BUSY,       True):  _undecided(),
    (Answer.CONFLICT,   False): _undecided(Fact.STILL_CONFLICT),        # the bytes are unchanged: maybe busy
    (Answer.CONFLICT,   True):  _undecided(Fact.STILL_CONFLICT),
    (Answer.UNKNOWN,    False): _undecided(Fact.STILL_UNKNOWN),
    (Answer.UNKNOWN,    True):  _undecided(Fact.STILL_UNKNOWN),
}
READS: Final[Mapping[GenerationStatus, Outcome]] = {
    GenerationStatus.PENDING:    UNCHANGED,                             # polled on, never replaced (Law 3)
    GenerationStatus.PROCESSING: UNCHANGED,
    GenerationStatus.UNKNOWN:    UNCHANGED,                             # a success if its outputs stay unchanged
    GenerationStatus.SUCCESS:    Outcome(AttemptState.SUCCEEDED, Event.OUTPUTS_READY),
    GenerationStatus.FAILED:     Outcome(AttemptState.FAILED,    Event.GENERATION_FAILED,   Credits.REFUNDED),
    GenerationStatus.CANCELED:   Outcome(AttemptState.CANCELED,  Event.GENERATION_CANCELED),  # no refund is documented
    GenerationStatus.EXPIRED:    Outcome(AttemptState.EXPIRED,   Event.RETENTION_ENDED),
}
FACTS: Final[Mapping[Fact, Outcome]] = {
    Fact.WITHDRAWN:      Outcome(AttemptState.REFUSED,  Event.NOT_CREATED,      Credits.FREED),
    Fact.KEY_MISSING:    Outcome(None,                  Event.KEY_MISSING),     # keeps the slot, until its key is back
    Fact.KEY_FORGOTTEN:  Outcome(AttemptState.DISPUTED, Event.KEY_FORGOTTEN),   # a resend might be charged again
    Fact.DAMAGED:        Outcome(AttemptState.DISPUTED, Event.KEY_CONFLICT),    # never sent again (Law 2)
    Fact.ID_TAKEN:       Outcome(AttemptState.DISPUTED, Event.KEY_CONFLICT),    # blocks the account for this run
    Fact.ID_DENIED:      Outcome(AttemptState.DISPUTED, Event.GENERATION_LOST), # charged; the second blocks the account
    Fact.STILL_REFUSED:  Outcome(AttemptState.DISPUTED, Event.REFUSED_IN_DOUBT),
    Fact.STILL_CONFLICT: Outcome(AttemptState.DISPUTED, Event.KEY_CONFLICT),    # blocks the account for this run
    Fact.STILL_UNKNOWN:  Outcome(AttemptState.DISPUTED, Event.SET_ASIDE),
}
DOWNLOADS: Final[Mapping[Download, Outcome]] = {
    Download.FILE_STAGED:     Outcome(log="file_staged"),
    Download.FILE_SAVED:      Outcome(log="file_saved"),
    Download.LAST_FILE_SAVED: Outcome(None, Event.FILES_SAVED, log="file_saved"),
    Download.ALL_SAVED:       Outcome(None, Event.FILES_SAVED),
    Download.NAME_TAKEN:      UNCHANGED,
    Download.LINK_EXPIRED:    Outcome(None, Event.URL_EXPIRED),
    Download.UNUSABLE:        Outcome(None, Event.OUTPUTS_UNUSABLE),
    Download.GONE:            Outcome(AttemptState.EXPIRED, Event.RETENTION_ENDED),
}
# fmt: on

ITEM_STATES: Final[Mapping[AttemptState, ItemState]] = {
    AttemptState.SENT: ItemState.SUBMITTING,
    AttemptState.ACTIVE: ItemState.ACTIVE,
    AttemptState.SUCCEEDED: ItemState.DOWNLOADING,
}
"""The state of an item that its attempt moves on. An attempt in another state has ended, and no outcome applies."""


def answer_of(reply: CreateReply) -> Answer:
    """Return the meaning of a reply to a create. Each kind of refusal has the answer of the same name."""
    return Answer(reply.kind.value) if isinstance(reply, Refused) else _ANSWERS[type(reply)]


_ANSWERS: Final[Mapping[type[CreateReply], Answer]] = {
    Accepted: Answer.ACCEPTED,
    AccountBlocked: Answer.BLOCKED,
    Throttled: Answer.LIMITED,
    EdgeBlocked: Answer.FIREWALL,
    Busy: Answer.BUSY,
    IdempotencyConflict: Answer.CONFLICT,
    Unavailable: Answer.UNKNOWN,
    NoResponse: Answer.UNKNOWN,
    NotUnderstood: Answer.UNKNOWN,
}


def outcome_of_create(attempt: Attempt, reply: CreateReply) -> Outcome:
    """Return the outcome of the reply to the last send of an attempt."""
    outcome = CREATES[answer_of(reply), attempt.was_in_doubt]
    return replace(outcome, then=outcome_of_read(RecordRead(reply.record))) if isinstance(reply, Accepted) else outcome


def outcome_if_undecided(outcome: Outcome, attempt: Attempt, seconds: float) -> Outcome:
    """Return the outcome of the last answer after `seconds` without a decision; no effect before both limits."""
    has_lasted = attempt.sends >= SENDS_BEFORE_HOLD and seconds >= UNDECIDED_FOR.total_seconds()
    return UNCHANGED if outcome.if_it_lasts is None or not has_lasted else FACTS[outcome.if_it_lasts]


def outcome_of_read(reply: ReadReply) -> Outcome:
    """Return the outcome of a read of an active generation. A reply without a record says nothing about it (Law 3)."""
    match reply:
        case RecordRead(record=record):
            return READS[record.status]
        case NotFound():
            return FACTS[Fact.ID_DENIED]
        case Throttled() | Unavailable() | EdgeBlocked() | NoResponse() | NotUnderstood() | AccountBlocked():
            return UNCHANGED
        case _:
            assert_never(reply)


def is_gone(reply: RecordRead | NotFound, *, is_retained: bool) -> bool:
    """Return whether a read shows that the outputs of a success can no longer be downloaded.

    During retention (14 days from creation), a denied id and a record without outputs count as mistakes of the service.
    """
    if isinstance(reply, RecordRead) and reply.record.status is GenerationStatus.EXPIRED:
        return True
    return not is_retained and not (isinstance(reply, RecordRead) and reply.record.outputs)


class Known(Struct, frozen=True):
    """Facts from the queue, read if needed in the transaction that commits an outcome.

    `unanswered` counts the attempt's sends without a definite reply, including the one now answered. `refusals` counts
    the item's earlier refusals in a row, `failures` its earlier failures; `tries` failures end it. `denied_for` is how
    long the id has been denied.
    """

    unanswered: int = 0
    is_id_taken: bool = False
    is_name_taken: bool = False
    has_disputed: bool = False  # whether another attempt was disputed since the account's last accepted create
    refusals: int = 0
    failures: int = 0
    tries: int = 1
    denied_for: timedelta = timedelta(0)
    files_saved: int = 0


def settle(outcome: Outcome, known: Known) -> Outcome:
    """Return the final outcome after the queue's own facts are taken into account.

    Raise `InvariantBroken` if credits would be freed although a send may have created something (Law 2).
    """
    match outcome.event:
        case Event.ACCEPTED if known.is_id_taken:  # maybe misread: a person has to look (Law 3)
            outcome = FACTS[Fact.ID_TAKEN]
        case Event.NOT_CREATED if outcome.ends_by_refusal and known.refusals + 1 >= REFUSALS_IN_A_ROW:
            outcome = replace(CREATES[Answer.INVALID, False], stale=outcome.stale)  # stale, for a `retry`
        case Event.GENERATION_FAILED if known.failures + 1 >= known.tries:
            outcome = replace(outcome, event=Event.TRIES_EXHAUSTED)
        case Event.GENERATION_LOST if known.denied_for < LOST_AFTER:
            outcome = UNCHANGED
        case Event.SET_ASIDE if known.has_disputed:  # the service is at fault: one held attempt is enough
            outcome = UNCHANGED
        case Event.SET_ASIDE if not known.unanswered:  # the firewall refused each send
            outcome = Outcome(AttemptState.REFUSED, Event.REFUSED, Credits.FREED)
        case Event.RETENTION_ENDED if known.files_saved:  # held: the files on disk may be enough
            outcome = replace(outcome, event=Event.OUTPUTS_UNUSABLE)
        case _ if known.is_name_taken:
            outcome = DOWNLOADS[Download.NAME_TAKEN]
        case _:
            pass
    in_doubt_count = known.unanswered - (1 if outcome.created_nothing else 0)
    if outcome.credits is Credits.FREED and in_doubt_count > 0:
        raise InvariantBroken("an attempt that may have created something must not be ended")
    return outcome
