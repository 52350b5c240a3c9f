"""Computes back-offs: the wait before the next try. A wait that the service asks for is a lower bound."""

from typing import Final

from batchkiln.core.job import Attempt
from batchkiln.core.responses import CreateReply, IdempotencyConflict, NotUnderstood, Refused

FIRST_SECONDS: Final = 1.0
LONGEST_SECONDS: Final = 300.0
RAREST_SECONDS: Final = 3600.0
MANY_IN_A_ROW: Final = 24
"""After this many consecutive failures, about an hour and a half, a request is retried once an hour."""

REFUSED_ALIKE: Final = 6
"""After this many consecutive refusals with the same text, the account starts nothing more in this run."""

_SPREAD: Final = 0.25
_REPLAY_WAITS: Final = (10.0, 60.0, 300.0, 1_200.0, 3_600.0)
_ALIKE_PAUSES: Final = (60.0, 300.0, 900.0)
_FEWEST_ALIKE: Final = 3


def delay_seconds(tries: int, draw: float, *, longest_seconds: float = LONGEST_SECONDS) -> float:
    """Return the wait after `tries` consecutive failures (1 or more), in service seconds.

    The wait doubles from one second to five minutes, and after many failures grows to `longest_seconds`. `draw`, from 0
    to 1, varies it by up to a quarter either way, so that many clients do not retry at the same moment.
    """
    longest = LONGEST_SECONDS if tries <= MANY_IN_A_ROW else longest_seconds
    doubled = FIRST_SECONDS * 2.0 ** min(tries - 1, 16)
    return min(doubled, longest) * (1.0 + _SPREAD * (2.0 * draw - 1.0))


def replay_wait_seconds(reply: CreateReply, attempt: Attempt) -> float | None:
    """Return the wait before an undecided attempt is resent, in service seconds.

    Return None if other rules determine the wait. The wait grows to an hour with each send, also across restarts.
    """
    is_undecided = isinstance(reply, IdempotencyConflict | NotUnderstood)
    is_denied = isinstance(reply, Refused) and attempt.was_in_doubt
    if not (is_undecided or is_denied):
        return None
    return _REPLAY_WAITS[min(attempt.sends, len(_REPLAY_WAITS)) - 1]


def alike_pause_seconds(times: int) -> float | None:
    """Return how long creates pause after `times` refusals with the same text, in service seconds; None for too few."""
    if times < _FEWEST_ALIKE:
        return None
    return _ALIKE_PAUSES[min(times - _FEWEST_ALIKE, len(_ALIKE_PAUSES) - 1)]
