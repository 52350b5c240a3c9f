"""How long to wait before try n, whatever the service says: what it asks for is a minimum."""

from datetime import timedelta
from typing import Final

from batchkiln.core.job import Attempt
from batchkiln.core.responses import CreateReply, IdempotencyConflict, NotUnderstood, Refused

LONGEST_HOLD: Final = timedelta(days=8)
"""The longest wait that a service may ask for: a week covers each of its windows."""

FIRST_SECONDS: Final = 1.0
LONGEST_SECONDS: Final = 300.0
RAREST_SECONDS: Final = 3600.0
MANY_IN_A_ROW: Final = 24
"""After so many troubles in a row, about an hour and a half, what does not mend itself is asked once an hour."""

REFUSED_ALIKE: Final = 6
"""After this many creates in a row that were refused in the same words, the account begins nothing more in this run."""

_SPREAD: Final = 0.25
_REPLAY_WAITS: Final = (10.0, 60.0, 300.0, 1_200.0, 3_600.0)
_ALIKE_PAUSES: Final = (60.0, 300.0, 900.0)
_FEWEST_ALIKE: Final = 3


def delay_seconds(tries: int, draw: float, *, longest_seconds: float = LONGEST_SECONDS) -> float:
    """Return service seconds to wait after `tries` troubles in a row (1 or more).

    Doubles from one second to five minutes, and goes on to `longest_seconds` after many in a row. `draw`, from 0
    to 1, spreads it by a quarter either way, so that many clients of one service do not come back in step.
    """
    longest = LONGEST_SECONDS if tries <= MANY_IN_A_ROW else longest_seconds
    doubled = FIRST_SECONDS * 2.0 ** min(tries - 1, 16)
    return min(doubled, longest) * (1.0 + _SPREAD * (2.0 * draw - 1.0))


def replay_wait_seconds(reply: CreateReply, attempt: Attempt) -> float | None:
    """Return service seconds until an attempt is sent again that the service answered and did not decide.

    None where other rules say how long. Grows to an hour with each send, also across restarts.
    """
    is_undecided = isinstance(reply, IdempotencyConflict | NotUnderstood)
    is_denied = isinstance(reply, Refused) and attempt.was_in_doubt
    if not (is_undecided or is_denied):
        return None
    return _REPLAY_WAITS[min(attempt.sends, len(_REPLAY_WAITS)) - 1]


def alike_pause_seconds(times: int) -> float | None:
    """Return for how many service seconds creates pause after `times` refusals in the same words; None for too few."""
    if times < _FEWEST_ALIKE:
        return None
    return _ALIKE_PAUSES[min(times - _FEWEST_ALIKE, len(_ALIKE_PAUSES) - 1)]
