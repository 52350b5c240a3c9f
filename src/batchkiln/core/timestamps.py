"""Two kinds of time, told apart by type.

*Instants* (`datetime`, aware, UTC) are the service's: days, retention and everything on disk. What the
service's clock shows is learned from its `Date` headers, to a second at best, so it is an interval.
*Steady seconds* (`float`) are service seconds on this process's own monotonic clock: every gap and every
wait is measured there, so that no correction of an instant makes a request leave early.
"""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LATEST: Final = datetime(9000, 1, 1, tzinfo=UTC)
"""No clock is later: sums with what stands in a reply stay within what a `datetime` can hold."""

LATEST_SECONDS: Final = (LATEST - EPOCH).total_seconds()

STEP_SECONDS: Final = 5.0
"""By so much one reply may correct what was known: two clocks drift apart by less in days."""

MACHINE_SECONDS: Final = 300.0
"""So far from this machine's clock the first word of a service is believed at once."""

WITNESS_GAP_SECONDS: Final = 2.0
"""A second witness is asked so long after the first, so that one stored copy is not taken for two."""

_MILLISECOND = timedelta(milliseconds=1)


def to_milliseconds(instant: datetime) -> int:
    """Return whole milliseconds since 1970, as stored."""
    return (instant - EPOCH) // _MILLISECOND


def from_milliseconds(milliseconds: int) -> datetime:
    """Return the instant of a stored number."""
    return EPOCH + milliseconds * _MILLISECOND


@dataclass(frozen=True, slots=True)
class ClockReading:
    """One reading of the clock, taken once per turn and passed down.

    The service's own clock stands between `instant` and `latest`: windows open by the first and are
    charged up to the second, so that an uncertain second never oversteps a limit.
    """

    monotonic: float
    instant: datetime
    latest: datetime

    def monotonic_of(self, instant: datetime) -> float:
        """Return when, on the monotonic clock, the service's clock is sure to show `instant`."""
        return self.monotonic + (instant - self.instant).total_seconds()

    def instant_of(self, monotonic: float) -> datetime:
        """Return the service's instant at a monotonic moment, for a person or for the disk."""
        return self.instant + timedelta(seconds=monotonic - self.monotonic)


@dataclass(frozen=True, slots=True)
class _Word:
    """What one `Date` says of the offset, and when its reply was here (monotonic)."""

    lowest: float
    highest: float
    received_at: float

    def agrees(self, lowest: float, highest: float, *, within: float) -> bool:
        return max(lowest, self.lowest) <= min(highest, self.highest) + within


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """What is known of (service instant - monotonic seconds): an interval, in seconds since 1970.

    `doubted` is a reply's word that contradicts it, and waits for another reply to agree: a proxy, a copy or one
    host of many may have a wrong clock, and a day that begins too early oversteps every limit (Law 5).
    """

    lowest: float
    highest: float
    is_observed: bool = False
    doubted: _Word | None = None

    def observe(
        self, date: datetime, *, sent_at: float, received_at: float, expected: float | None = None
    ) -> "ClockOffset":
        """Narrow the interval by one `Date` header, which cuts off the fraction of its second.

        The service wrote it between `sent_at` and `received_at` (monotonic). One that contradicts what was known needs
        a second witness: this machine's clock, whose word on the offset is `expected`, or another reply. A date that no
        service has is not heard at all.
        """
        seconds = (date - EPOCH).total_seconds()
        if not 0 <= seconds <= LATEST_SECONDS:
            return self
        word = _Word(seconds - received_at, seconds + 1.0 - sent_at, received_at)
        believed = ClockOffset(word.lowest, word.highest, is_observed=True)
        if self.is_observed and word.agrees(self.lowest, self.highest, within=STEP_SECONDS):
            is_narrower = word.agrees(self.lowest, self.highest, within=0.0)
            return self._narrowed_by(word) if is_narrower else believed
        within = STEP_SECONDS if self.is_observed else MACHINE_SECONDS
        if expected is not None and word.agrees(expected, expected, within=within):
            return believed
        if self.doubted is None or not self.doubted.agrees(word.lowest, word.highest, within=1.0):
            return replace(self, doubted=word)
        return believed if sent_at >= self.doubted.received_at + WITNESS_GAP_SECONDS else self

    def _narrowed_by(self, word: _Word) -> "ClockOffset":
        return ClockOffset(max(word.lowest, self.lowest), min(word.highest, self.highest), is_observed=True)

    def now(self, monotonic: float) -> ClockReading:
        """Return the reading at a monotonic moment."""
        return ClockReading(
            monotonic=monotonic,
            instant=EPOCH + timedelta(seconds=self.lowest + monotonic),
            latest=EPOCH + timedelta(seconds=self.highest + monotonic),
        )
