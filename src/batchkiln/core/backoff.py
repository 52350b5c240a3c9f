"""How long to wait before try n, whatever the service says: what it asks for is a minimum."""

from datetime import timedelta
from typing import Final

LONGEST_HOLD: Final = timedelta(days=8)
"""The longest wait that a service may ask for: a week covers each of its windows."""

FIRST_SECONDS: Final = 1.0
LONGEST_SECONDS: Final = 300.0
RAREST_SECONDS: Final = 3600.0
MANY_IN_A_ROW: Final = 24
"""After so many troubles in a row, about an hour and a half, what does not mend itself is asked once an hour."""

_SPREAD: Final = 0.25


def delay_seconds(tries: int, draw: float, *, longest_seconds: float = LONGEST_SECONDS) -> float:
    """Return service seconds to wait after `tries` troubles in a row (1 or more).

    Doubles from one second to five minutes, and goes on to `longest_seconds` after many in a row. `draw`, from 0
    to 1, spreads it by a quarter either way, so that many clients of one service do not come back in step.
    """
    longest = LONGEST_SECONDS if tries <= MANY_IN_A_ROW else longest_seconds
    doubled = FIRST_SECONDS * 2.0 ** min(tries - 1, 16)
    return min(doubled, longest) * (1.0 + _SPREAD * (2.0 * draw - 1.0))
