"""How long to wait before try n, where the service did not say."""

from datetime import timedelta
from typing import Final

LONGEST_HOLD: Final = timedelta(days=8)
"""The longest wait that a service may ask for: a week covers each of its windows."""

FIRST_SECONDS: Final = 1.0
LONGEST_SECONDS: Final = 300.0
_SPREAD: Final = 0.25


def delay_seconds(tries: int, draw: float) -> float:
    """Return service seconds to wait after `tries` troubles in a row (1 or more).

    Doubles from one second to five minutes. `draw`, from 0 to 1, spreads it by a quarter either way, so that
    many clients of one service do not come back in step.
    """
    doubled = FIRST_SECONDS * 2.0 ** min(tries - 1, 16)
    return min(doubled, LONGEST_SECONDS) * (1.0 + _SPREAD * (2.0 * draw - 1.0))
