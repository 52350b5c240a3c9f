"""What a reply to a create means for attempt, item and credits, as one table beside the item's states.

The rule that shaped it (Law 2): an attempt is *in doubt* once a send of it may have created a generation that nobody
has heard of. From then on no refusal ends it, whatever it says: price, credits, moderation and locks change with time,
and a service may look at them before it looks the key up. Only a reply that names the generation ends it, or a person.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Final

from batchkiln.core.job import Attempt, AttemptState
from batchkiln.core.responses import (
    Accepted,
    AccountBlocked,
    Busy,
    CreateReply,
    EdgeBlocked,
    IdempotencyConflict,
    NoResponse,
    NotUnderstood,
    RefusalKind,
    Refused,
    Throttled,
    Unavailable,
)
from batchkiln.core.states import Event

KEY_REMEMBERED: Final = timedelta(hours=24)
"""After so long without a reply to an attempt in doubt, the service may have forgotten its key (Service rule 4.2)."""

UNDECIDED_FOR: Final = timedelta(hours=1)
"""An attempt that the service answers, yet does not decide, is handed to a person after this long."""

SENDS_BEFORE_HOLD: Final = 6
"""No attempt is handed to a person for want of a decision before it was sent so often."""

REFUSED_ALIKE: Final = 6
"""After so many creates in a row were refused in the same words, the account begins nothing more in this run."""

_REPLAY_WAITS: Final = (10.0, 60.0, 300.0, 1_200.0, 3_600.0)
_ALIKE_PAUSES: Final = (60.0, 300.0, 900.0)
_ALIKE_TOLD: Final = 3


class Answer(StrEnum):
    """What a reply says about the one create that it answers."""

    ACCEPTED = "accepted"
    INVALID = "invalid"  # the request itself is refused
    OVER_QUOTE = "over_quote"
    ASSET_GONE = "asset_gone"
    BLOCKED = "blocked"  # the account or its key is refused
    LIMITED = "limited"  # 429, or the firewall before the API: this send created nothing
    BUSY = "busy"  # the account's place is taken, maybe by this very attempt
    CONFLICT = "conflict"  # 409 for bytes that we know to be unchanged
    UNKNOWN = "unknown"  # no reply, an outage, or a reply that is not understood


class Credits(StrEnum):
    """What happens to the credits that the attempt reserved."""

    RESERVED = "reserved"
    FREED = "freed"
    CHARGED = "charged"


class Stale(StrEnum):
    """What was learned before, and is to be asked for again."""

    NOTHING = "nothing"
    QUOTE = "quote"
    ASSETS = "assets"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one reply changes. `event` is the item's; None where it only leaves a line in the history.

    `created_nothing`: this very send surely created nothing, so that it leaves no doubt behind it.
    """

    attempt: AttemptState
    event: Event | None
    credits: Credits
    created_nothing: bool
    stale: Stale = Stale.NOTHING


_SENT, _REFUSED = AttemptState.SENT, AttemptState.REFUSED
_STAYS = Outcome(_SENT, None, Credits.RESERVED, created_nothing=True)
_UNDECIDED = Outcome(_SENT, Event.OUTCOME_UNKNOWN, Credits.RESERVED, created_nothing=False)
_ACCEPTED = Outcome(AttemptState.ACTIVE, Event.ACCEPTED, Credits.CHARGED, created_nothing=False)


def _refused(event: Event, stale: Stale = Stale.NOTHING) -> Outcome:
    return Outcome(_REFUSED, event, Credits.FREED, created_nothing=True, stale=stale)


# fmt: off
OUTCOMES: Final[Mapping[tuple[Answer, bool], Outcome]] = {
    # (what the reply says, whether an earlier send is in doubt)
    (Answer.ACCEPTED,   False): _ACCEPTED,
    (Answer.ACCEPTED,   True):  _ACCEPTED,
    (Answer.INVALID,    False): _refused(Event.REFUSED),
    (Answer.INVALID,    True):  _STAYS,                 # Law 2: says nothing of the earlier send
    (Answer.OVER_QUOTE, False): _refused(Event.NOT_CREATED, Stale.QUOTE),
    (Answer.OVER_QUOTE, True):  _STAYS,
    (Answer.ASSET_GONE, False): _refused(Event.NOT_CREATED, Stale.ASSETS),
    (Answer.ASSET_GONE, True):  _STAYS,
    (Answer.BLOCKED,    False): _refused(Event.NOT_CREATED),  # the item is free for another key
    (Answer.BLOCKED,    True):  _STAYS,
    (Answer.LIMITED,    False): _STAYS,
    (Answer.LIMITED,    True):  _STAYS,
    (Answer.BUSY,       False): _UNDECIDED,             # a proxy may have sent it twice
    (Answer.BUSY,       True):  _UNDECIDED,
    (Answer.CONFLICT,   False): _UNDECIDED,             # our bytes are unchanged: busy first
    (Answer.CONFLICT,   True):  _UNDECIDED,
    (Answer.UNKNOWN,    False): _UNDECIDED,
    (Answer.UNKNOWN,    True):  _UNDECIDED,
}
# fmt: on


def answer_of(reply: CreateReply) -> Answer:
    """Return what a reply says about its create."""
    return _REFUSALS[reply.kind] if isinstance(reply, Refused) else _ANSWERS[type(reply)]


_ANSWERS: Final[Mapping[type[CreateReply], Answer]] = {
    Accepted: Answer.ACCEPTED,
    AccountBlocked: Answer.BLOCKED,
    Throttled: Answer.LIMITED,
    EdgeBlocked: Answer.LIMITED,
    Busy: Answer.BUSY,
    IdempotencyConflict: Answer.CONFLICT,
    Unavailable: Answer.UNKNOWN,
    NoResponse: Answer.UNKNOWN,
    NotUnderstood: Answer.UNKNOWN,
}
_REFUSALS: Final[Mapping[RefusalKind, Answer]] = {
    RefusalKind.INVALID: Answer.INVALID,
    RefusalKind.OVER_QUOTE: Answer.OVER_QUOTE,
    RefusalKind.ASSET_GONE: Answer.ASSET_GONE,
}


def replay_wait_seconds(reply: CreateReply, attempt: Attempt) -> float | None:
    """Return how long an attempt waits that the service answered without deciding it; None where others rules say.

    Grows to an hour with each send, also across restarts: what is not decided twice is seldom decided soon.
    """
    is_undecided = isinstance(reply, IdempotencyConflict | NotUnderstood)
    is_denied = isinstance(reply, Refused) and was_in_doubt(attempt)
    if not (is_undecided or is_denied):
        return None
    return _REPLAY_WAITS[min(attempt.sends, len(_REPLAY_WAITS)) - 1]


def was_in_doubt(attempt: Attempt) -> bool:
    """Tell whether a send before the one that is just answered may have created something (Service rule 4.2)."""
    return attempt.sends > attempt.answers + 1


def hold_after_long(reply: CreateReply, attempt: Attempt) -> Event | None:
    """Return as what an attempt is handed to a person that was not decided for `UNDECIDED_FOR`; None for never.

    Not while the account is busy, limited or blocked: that ends by itself, or is told for the whole account.
    """
    match reply:
        case IdempotencyConflict():
            return Event.KEY_CONFLICT
        case Refused() if was_in_doubt(attempt):
            return Event.REFUSED_IN_DOUBT
        case Unavailable() | NoResponse() | NotUnderstood() | EdgeBlocked():
            return Event.SET_ASIDE
        case _:
            return None


def alike_pause_seconds(times: int) -> float | None:
    """Return for how long creates pause after `times` refusals in the same words; None where there are too few."""
    if times < _ALIKE_TOLD:
        return None
    return _ALIKE_PAUSES[min(times - _ALIKE_TOLD, len(_ALIKE_PAUSES) - 1)]
