"""When a job or a run ends: the estimate, and the only words for it on the terminal and the pages."""

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from msgspec import Struct

from batchkiln.core.forecast import EndRange
from batchkiln.presentation.formatting import DAY, HOUR, MINUTE, format_duration, format_minute, format_round

_NARROW_SECONDS: Final = 60.0
_NARROW_SHARE: Final = 0.1
"""A range that is narrower than one of these is shown as one figure. The share is of the remaining time."""

_STEPS: Final = (10, 60, 300, 600, 1800, HOUR, 6 * HOUR, DAY)
_STEPS_A_RANGE: Final = 8
_STEPS_A_FIGURE: Final = 4


class End(Struct, frozen=True):
    """An estimated end in real seconds from now. The real one is between `first` and `last` nine times of ten.

    `at` is None for a service whose clock runs faster, because no clock of the person's shows its time. With
    `is_earliest`, nobody knows how much later it ends, and the three figures are the same.
    """

    seconds: float
    first: float
    last: float
    at: datetime | None
    is_earliest: bool = False

    def __str__(self) -> str:
        """Return the time left, its range where that is wide, and the moment; it stands behind the word "ends"."""
        if self.is_earliest:
            left = f"in {format_duration(self.seconds)} at the earliest"
            return left if self.at is None else f"{left} ({format_minute(self.at)})"
        left = f"in about {format_duration(self.seconds)}" if round(self.seconds) else "in less than a second"
        if self.last - self.first >= max(_NARROW_SECONDS, _NARROW_SHARE * self.seconds):
            left += f" ({_range_text(self.first, self.last)})"
        return left if self.at is None else f"{left}, at {format_minute(self.at)}"


class JobEnd(Struct, frozen=True):
    """What is known of a job's end, in service time: `at` with its range, or the earliest end, or neither.

    `reason` says why `at` is None; it is None otherwise. `beyond_budget` is the number of items that the job's budget
    does not pay for, as far as their prices are known: they are rejected at no cost, and the end is that of the others.
    """

    at: datetime | None = None
    range: EndRange | None = None
    not_before: datetime | None = None
    reason: str | None = None
    beyond_budget: int = 0

    def seen_at(self, now: datetime, time_scale: float) -> End | None:
        """Return the end as it is shown at a moment; None if nothing is known of it."""
        at = self.at or self.not_before
        if at is None:
            return None
        found = self.range or EndRange(at, at)
        is_earliest = self.at is None
        seconds, first, last = (
            max(0.0, (each - now).total_seconds() / time_scale) for each in (at, found.earliest_at, found.latest_at)
        )
        if is_earliest and not round(seconds):
            return None  # any end is later than now
        return End(seconds, first, last, at if time_scale == 1 else None, is_earliest=is_earliest)


def end_of_all(ends: Iterable[End | None]) -> End | None:
    """Return when the last of several jobs ends; None if one of the ends is not known, or without any.

    All have ended when each has, so each figure is the largest of theirs. If one of them is only the earliest end, so
    is the result.
    """
    listed = list(ends)
    known = [end for end in listed if end is not None]
    if not known or len(known) < len(listed):
        return None
    latest = max(known, key=lambda end: end.seconds)
    if any(end.is_earliest for end in known):
        return End(latest.seconds, latest.seconds, latest.seconds, latest.at, is_earliest=True)
    return End(latest.seconds, max(end.first for end in known), max(end.last for end in known), latest.at)


def _range_text(first: float, last: float) -> str:
    """Return a range of seconds, rounded outwards."""
    fine = (last - first) / _STEPS_A_RANGE
    first_step, last_step = _step(min(fine, first / _STEPS_A_FIGURE)), max(_step(fine), _smallest_unit(last))
    if 0 < first < _STEPS[0]:
        first_step = 1  # nothing ends at once
    return f"{format_round(first // first_step * first_step)} to {format_round(-(-last // last_step) * last_step)}"


def _smallest_unit(seconds: float) -> int:
    """Return the seconds of the smaller unit of `format_duration`, which drops the rest."""
    return HOUR if seconds >= DAY else MINUTE if seconds >= HOUR else 1


def _step(seconds: float) -> int:
    """Return the largest round number of seconds that is not larger."""
    return next((step for step in reversed(_STEPS) if step <= seconds), _STEPS[0])
