"""When a job or a run ends: the estimate, and the only words for it on the terminal and the pages."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from batchkiln.core.forecast import EndRange
from batchkiln.presentation.formatting import DAY, HOUR, MINUTE, format_duration, format_minute

_NARROW_SECONDS: Final = 60.0
_NARROW_SHARE: Final = 0.1
"""A range that is narrower than one of these is shown as one figure. The share is of the remaining time."""

_STEPS: Final = (10, 60, 300, 600, 1800, HOUR, 6 * HOUR, DAY)
_ZERO_UNIT: Final = re.compile(r"(?<=[a-z]) 0 [a-z]+$")
_STEPS_A_RANGE: Final = 8
_STEPS_A_FIGURE: Final = 4


@dataclass(frozen=True, slots=True)
class End:
    """An estimated end in real seconds from now. The real one is between `first` and `last` nine times of ten.

    `at` is None for a service whose clock runs faster, because no clock of the person's shows its time.
    """

    seconds: float
    first: float
    last: float
    at: datetime | None

    def __str__(self) -> str:
        """Return the time left, its range where that is wide, and the moment; it stands behind the word "ends"."""
        left = f"in about {format_duration(self.seconds)}" if round(self.seconds) else "in less than a second"
        if self.last - self.first >= max(_NARROW_SECONDS, _NARROW_SHARE * self.seconds):
            left += f" ({_range_text(self.first, self.last)})"
        return left if self.at is None else f"{left}, at {format_minute(self.at)}"


def end_of(end_at: datetime | None, now: datetime, time_scale: float, end_range: EndRange | None = None) -> End | None:
    """Return an estimated end from instants in service time; None if it is not known."""
    if end_at is None:
        return None
    found = end_range or EndRange(end_at, end_at)
    seconds, first, last = (
        max(0.0, (at - now).total_seconds() / time_scale) for at in (end_at, found.earliest_at, found.latest_at)
    )
    return End(seconds, first, last, end_at if time_scale == 1 else None)


def end_of_all(ends: Iterable[End | None]) -> End | None:
    """Return when the last of several jobs ends; None if one of the ends is not known, or without any.

    All have ended when each has, so each figure is the largest of theirs.
    """
    listed = list(ends)
    known = [end for end in listed if end is not None]
    if not known or len(known) < len(listed):
        return None
    latest = max(known, key=lambda end: end.seconds)
    return End(latest.seconds, max(end.first for end in known), max(end.last for end in known), latest.at)


def _range_text(first: float, last: float) -> str:
    """Return a range of seconds, rounded outwards."""
    fine = (last - first) / _STEPS_A_RANGE
    first_step, last_step = _step(min(fine, first / _STEPS_A_FIGURE)), max(_step(fine), _smallest_unit(last))
    return f"{_format_round(first // first_step * first_step)} to {_format_round(-(-last // last_step) * last_step)}"


def _smallest_unit(seconds: float) -> int:
    """Return the seconds of the smaller unit of `format_duration`, which drops the rest."""
    return HOUR if seconds >= DAY else MINUTE if seconds >= HOUR else 1


def _step(seconds: float) -> int:
    """Return the largest round number of seconds that is not larger."""
    return next((step for step in reversed(_STEPS) if step <= seconds), _STEPS[0])


def _format_round(seconds: float) -> str:
    """Format a length of time without a second unit that is zero."""
    return _ZERO_UNIT.sub("", format_duration(seconds))
