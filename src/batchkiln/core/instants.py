"""Two kinds of time, told apart by type.

*Instants* (`datetime`, aware, UTC) are the service's: days, retention and everything on disk. What the
service's clock shows is learned from its `Date` headers, to a second at best, so it is an interval.
*Steady seconds* (`float`) are service seconds on this process's own monotonic clock: every gap and every
wait is measured there, so that no correction of an instant makes a request leave early.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def to_milliseconds(instant: datetime) -> int:
    """Return whole milliseconds since 1970, as stored."""
    return (instant - EPOCH) // _MILLISECOND


def from_milliseconds(milliseconds: int) -> datetime:
    """Return the instant of a stored number."""
    return EPOCH + milliseconds * _MILLISECOND


@dataclass(frozen=True, slots=True)
class Now:
    """One reading of the clock, taken once per turn and passed down.

    The service's own clock stands between `instant` and `latest`: windows open by the first and are
    charged up to the second, so that an uncertain second never oversteps a limit.
    """

    steady: float
    instant: datetime
    latest: datetime

    def steady_of(self, instant: datetime) -> float:
        """Return when, on the steady clock, the service's clock is sure to show `instant`."""
        return self.steady + (instant - self.instant).total_seconds()

    def instant_of(self, steady: float) -> datetime:
        """Return the service's instant at a steady moment, for a person or for the disk."""
        return self.instant + timedelta(seconds=steady - self.steady)


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """What is known of (service instant - steady seconds): an interval, in seconds since 1970."""

    lowest: float
    highest: float
    is_observed: bool = False

    def observe(self, date: datetime, *, sent_at: float, received_at: float) -> "ClockOffset":
        """Narrow the interval by one `Date` header, which cuts off the fraction of its second.

        The service wrote it between `sent_at` and `received_at` (steady). Where it contradicts what was
        known, a clock was set, and the new word counts alone.
        """
        seconds = (date - EPOCH).total_seconds()
        lowest, highest = seconds - received_at, seconds + 1.0 - sent_at
        if self.is_observed and max(lowest, self.lowest) <= min(highest, self.highest):
            return ClockOffset(max(lowest, self.lowest), min(highest, self.highest), is_observed=True)
        return ClockOffset(lowest, highest, is_observed=True)

    def now(self, steady: float) -> Now:
        """Return the reading at a steady moment."""
        return Now(
            steady=steady,
            instant=EPOCH + timedelta(seconds=self.lowest + steady),
            latest=EPOCH + timedelta(seconds=self.highest + steady),
        )
