"""The account's limits and what is left of each window (Service section 8).

A minute is held as a sliding log that is safe whatever the service's alignment: a request occupies its place
from before it is sent until a whole minute after its reply, since the service may have counted it at any
moment in between. A day is the service's own, from reset to reset.
"""

from bisect import insort
from collections import deque
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from math import inf
from typing import Any, Final

from batchkiln.core.timestamps import EPOCH, ClockReading

MIB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """What an account may do; every duration is in service seconds (contract, section 6)."""

    active_generations: int = 1
    creates_per_minute: int = 10
    creates_per_day: int = 1000
    reads_per_minute: int = 60
    reads_per_day: int = 20_000
    credits_per_day: int = 2000
    upload_files_per_day: int = 100
    upload_bytes_per_day: int = 500 * MIB
    requests_per_minute_per_ip: int = 120
    poll_interval_seconds: float = 10.0
    minute_seconds: float = 60.0
    output_bytes: int = 2048 * MIB  # of one output: our own bound, the service names none

    @property
    def of_the_service(self) -> dict[str, Any]:
        """The limits that a service keeps, by name: all but our own bounds."""
        return {name: value for name, value in asdict(self).items() if name != "output_bytes"}


class SlidingWindow:
    """The requests of the last minute: none of its windows, however aligned, holds more than `limit`."""

    __slots__ = ("_expiries", "_under_way", "limit", "span_seconds")

    def __init__(self, *, limit: int, span_seconds: float, settled_at: Iterable[float] = ()) -> None:
        """Begin with the requests of an earlier run, by the monotonic moments at which they were over."""
        self.limit = limit
        self.span_seconds = span_seconds
        self._expiries = deque(sorted(at + span_seconds for at in settled_at))
        self._under_way = 0

    def start(self) -> None:
        """Take a place for a request that is about to leave."""
        self._under_way += 1

    def settle(self, at: float) -> None:
        """Note that a started request is over: answered, failed or given up."""
        self._under_way -= 1
        insort(self._expiries, at + self.span_seconds)  # a log of an earlier run may be taken over late

    def free_at(self, now: float, *, places: int = 1) -> float:
        """Return the earliest monotonic moment at which `places` are free; infinite while others are under way.

        `places` above the limit is treated as the limit, so that a reserve never blocks a small window.
        """
        while self._expiries and self._expiries[0] <= now:
            self._expiries.popleft()
        needed = len(self._expiries) + self._under_way + min(places, self.limit) - self.limit
        if needed <= 0:
            return now
        return self._expiries[needed - 1] if needed <= len(self._expiries) else inf

    @property
    def under_way(self) -> int:
        """How many requests were started and are not over."""
        return self._under_way

    def used(self, now: float) -> int:
        """Return how many places are taken."""
        self.free_at(now)
        return len(self._expiries) + self._under_way


@dataclass(frozen=True, slots=True)
class ServiceDay:
    """The service's calendar: a day has `seconds`, and one began at `start`."""

    seconds: float = 86_400.0
    start: datetime = EPOCH

    def start_of(self, instant: datetime) -> datetime:
        """Return when the day that holds `instant` began."""
        length = timedelta(seconds=self.seconds)
        return self.start + (instant - self.start) // length * length

    def reset_after(self, instant: datetime) -> datetime:
        """Return when the next day begins."""
        return self.start_of(instant) + timedelta(seconds=self.seconds)


@dataclass(frozen=True, slots=True)
class DayUsage:
    """What an account has used in one day. Credits count failures as well (Service section 8)."""

    creates: int = 0
    reads: int = 0
    credits: int = 0
    upload_files: int = 0
    upload_bytes: int = 0


@dataclass(frozen=True, slots=True)
class CurrentDay:
    """The day's usage and end. Around a reset, the larger of both days' usage counts."""

    usage: DayUsage
    resets_at: float

    @classmethod
    def between(cls, earlier: DayUsage, later: DayUsage, *, resets_at: float) -> "CurrentDay":
        """Combine the usage of the days of `ClockReading.instant` and `ClockReading.latest`: mostly the same day."""
        return cls(
            DayUsage(
                creates=max(earlier.creates, later.creates),
                reads=max(earlier.reads, later.reads),
                credits=max(earlier.credits, later.credits),
                upload_files=max(earlier.upload_files, later.upload_files),
                upload_bytes=max(earlier.upload_bytes, later.upload_bytes),
            ),
            resets_at,
        )


def day_starts(day: ServiceDay, now: ClockReading) -> tuple[datetime, ...]:
    """Return the start of each day in which a request sent now may be counted: one, or two at a reset."""
    first, last = day.start_of(now.instant), day.start_of(now.latest)
    return (first,) if first == last else (first, last)
