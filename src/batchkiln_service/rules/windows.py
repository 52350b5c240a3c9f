"""How long a full window makes wait, and the service's days. Pure; `now_ms` is passed in."""

import math
from dataclasses import dataclass

# How far before its time a poll may come, as a share of the interval: jitter of the network, not a licence.
POLL_TOLERANCE = 0.005


@dataclass(frozen=True, slots=True)
class Counting:
    """How requests are counted in windows, as far as Service section 8 leaves it open."""

    has_fixed_minutes: bool = False  # a window that ends with each full minute, in place of one that slides
    counts_refused: bool = False  # also what a window refuses is counted in it
    counts_completions: bool = True  # completing an upload is an upload request


def minute_wait_seconds(nth_last_at_ms: int | None, now_ms: int, *, minute_ms: int) -> int | None:
    """Return how long a full sliding window makes wait, None when there is room. Service section 8.

    `nth_last_at_ms` is when the request arrived that is as many requests back as the limit allows.
    """
    if nth_last_at_ms is None:
        return None
    free_at_ms = nth_last_at_ms + minute_ms
    return _whole_seconds(free_at_ms - now_ms) if now_ms < free_at_ms else None


def poll_wait_seconds(last_polled_at_ms: int | None, now_ms: int, *, interval_ms: int) -> int | None:
    """Return how long a poll comes too early, None when it may pass. Service rule 4.4."""
    if last_polled_at_ms is None:
        return None
    gap_ms = now_ms - last_polled_at_ms
    if gap_ms >= interval_ms * (1 - POLL_TOLERANCE):
        return None
    return _whole_seconds(interval_ms - gap_ms)


@dataclass(frozen=True, slots=True)
class Calendar:
    """The service's days: `day_ms` long, one of which began at `day_start_ms`."""

    day_start_ms: int
    day_ms: int

    def day_of(self, now_ms: int) -> int:
        """Return the number of the day; days before `day_start_ms` are negative."""
        return (now_ms - self.day_start_ms) // self.day_ms

    def begin_of(self, day: int) -> int:
        """Return the first instant of a day."""
        return self.day_start_ms + day * self.day_ms

    def wait_seconds(self, now_ms: int) -> int:
        """Return how long it is to the next reset. Service section 8."""
        return _whole_seconds(self.begin_of(self.day_of(now_ms) + 1) - now_ms)


def _whole_seconds(milliseconds: float) -> int:
    """Round up to whole seconds, at least one: a Retry-After must never be too short."""
    return max(1, math.ceil(milliseconds / 1000))
