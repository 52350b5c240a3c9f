"""Two kinds of time, distinguished by type.

*Instants* (`datetime`, aware, UTC) are the service's: days, retention and everything on disk. The service's clock is
known from its `Date` headers, to a second at best, so it is an interval.

*Monotonic seconds* (`float`) are service seconds on this process's own clock. Every gap and every wait is measured in
them, so that no correction of an instant makes a request leave early.
"""

from datetime import UTC, datetime, timedelta
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LATEST: Final = datetime(9000, 1, 1, tzinfo=UTC)
"""The latest time accepted from a service; sums with durations of replies then fit in a `datetime`."""

LATEST_SECONDS: Final = (LATEST - EPOCH).total_seconds()

STEP_SECONDS: Final = 5.0
"""The largest correction by a single reply: two clocks drift apart by less in days."""

MACHINE_SECONDS: Final = 300.0
"""A service's first `Date` is accepted at once if it differs from this machine's clock by less."""

WITNESS_GAP_SECONDS: Final = 2.0
"""The least time between two witnesses, so that one cached copy is not taken for two."""

_DOUBTED_KEPT: Final = 8
_MILLISECOND = timedelta(milliseconds=1)


def to_milliseconds(instant: datetime) -> int:
    """Return whole milliseconds since 1970, as stored."""
    return (instant - EPOCH) // _MILLISECOND


def from_milliseconds(milliseconds: int) -> datetime:
    """Return the instant of a stored number of milliseconds."""
    return EPOCH + milliseconds * _MILLISECOND


class ClockReading(Struct, frozen=True):
    """One reading of the clock, taken once per turn and passed down.

    The service's clock is between `instant` and `latest`. A limit opens according to `instant`, and usage counts up to
    `latest`, so that the uncertainty never exceeds a limit.
    """

    monotonic: float
    instant: datetime
    latest: datetime

    def monotonic_of(self, instant: datetime) -> float:
        """Return the monotonic moment at which the service's clock is sure to show `instant`."""
        return self.monotonic + (instant - self.instant).total_seconds()

    def instant_of(self, monotonic: float) -> datetime:
        """Return the service's instant at a monotonic moment, for display or storage."""
        return self.instant + timedelta(seconds=monotonic - self.monotonic)


class _Word(Struct, frozen=True):
    """The offset according to one `Date` header, and the monotonic moment at which its reply arrived."""

    lowest: float
    highest: float
    received_at: float

    def agrees(self, lowest: float, highest: float, *, within: float) -> bool:
        return max(lowest, self.lowest) <= min(highest, self.highest) + within


class ClockOffset(Struct, frozen=True):
    """The offset (service instant - monotonic seconds) as an interval, in seconds since 1970.

    `doubted` are contradicting `Date`s, since the last one that agreed; each waits for another reply to confirm it. A
    proxy, a cached copy or one of many hosts may have a wrong clock, and a day that begins too early oversteps every
    limit (Law 5).
    """

    lowest: float
    highest: float
    is_observed: bool = False
    doubted: tuple[_Word, ...] = ()

    def observe(
        self, date: datetime, *, sent_at: float, received_at: float, expected: float | None = None
    ) -> "ClockOffset":
        """Return the offset narrowed by one `Date` header, which has whole seconds only.

        The service wrote it between the monotonic moments `sent_at` and `received_at`. A `Date` that contradicts the
        known offset needs a second witness: this machine's clock, whose offset is `expected`, or another reply. Dates
        outside the range that a service can have are ignored.
        """
        seconds = (date - EPOCH).total_seconds()
        if not 0 <= seconds <= LATEST_SECONDS:
            return self
        word = _Word(seconds - received_at, seconds + 1.0 - sent_at, received_at)
        accepted = ClockOffset(word.lowest, word.highest, is_observed=True)
        if self.is_observed and word.agrees(self.lowest, self.highest, within=STEP_SECONDS):
            is_narrower = word.agrees(self.lowest, self.highest, within=0.0)
            return self._narrowed_by(word) if is_narrower else accepted
        within = STEP_SECONDS if self.is_observed else MACHINE_SECONDS
        if expected is not None and word.agrees(expected, expected, within=within):
            return accepted
        witnesses = [each for each in self.doubted if each.agrees(word.lowest, word.highest, within=1.0)]
        if not witnesses:
            return replace(self, doubted=(*self.doubted, word)[-_DOUBTED_KEPT:])
        return accepted if sent_at >= witnesses[0].received_at + WITNESS_GAP_SECONDS else self

    def _narrowed_by(self, word: _Word) -> "ClockOffset":
        return ClockOffset(max(word.lowest, self.lowest), min(word.highest, self.highest), is_observed=True)

    def now(self, monotonic: float) -> ClockReading:
        """Return the reading at a monotonic moment."""
        instant = latest = EPOCH + timedelta(seconds=self.lowest + monotonic)
        if self.highest != self.lowest:
            latest = EPOCH + timedelta(seconds=self.highest + monotonic)
        return ClockReading(monotonic=monotonic, instant=instant, latest=latest)
