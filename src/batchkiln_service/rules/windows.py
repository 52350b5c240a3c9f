"""Waiting times of rate limits, and service days. Pure; `now_ms` is passed in."""

import math

from msgspec import Struct

# How much too early a poll may arrive, because of jitter: this share of the interval, or this much real time, whichever
# is more. At high speeds, real time is at most half of the interval, so that polls without a pause are still refused.
_TOLERANCE_SHARE = 0.005
_TOLERANCE_REAL_MS = 30
_MAX_TOLERANCE_SHARE = 0.5


class Counting(Struct, frozen=True):
    """The options of counting requests in windows that Service section 8 leaves open."""

    has_fixed_minutes: bool = False  # a fixed window per minute instead of a sliding one
    counts_refused: bool = False  # refused requests are counted, too
    counts_completions: bool = True  # completions of uploads are counted as upload requests


def minute_wait_seconds(nth_last_at_ms: int | None, now_ms: int, *, minute_ms: int) -> int | None:
    """Return the seconds until a sliding window has room; None if it has. Service section 8.

    `nth_last_at_ms` is the arrival of the request that is `limit` requests back.
    """
    if nth_last_at_ms is None:
        return None
    free_at_ms = nth_last_at_ms + minute_ms
    return _whole_seconds(free_at_ms - now_ms) if now_ms < free_at_ms else None


def shortest_poll_gap_ms(interval_seconds: float, *, time_scale: float) -> float:
    """Return the shortest gap between polls that is accepted, in milliseconds of service time.

    `time_scale` is the number of service seconds per real second. docs/assumptions.md describes the tolerance.
    """
    interval_ms = interval_seconds * 1000
    real_ms = min(_TOLERANCE_REAL_MS * time_scale, interval_ms * _MAX_TOLERANCE_SHARE)
    return interval_ms - max(interval_ms * _TOLERANCE_SHARE, real_ms)


def poll_wait_seconds(
    last_polled_at_ms: int | None, now_ms: int, *, interval_seconds: float, time_scale: float
) -> int | None:
    """Return how many seconds too early a poll is; None if it may pass. Service rule 4.4."""
    if last_polled_at_ms is None:
        return None
    gap_ms = now_ms - last_polled_at_ms
    if gap_ms >= shortest_poll_gap_ms(interval_seconds, time_scale=time_scale):
        return None
    return _whole_seconds(interval_seconds * 1000 - gap_ms)


class Calendar(Struct, frozen=True):
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
        """Return the seconds until the next day. Service section 8."""
        return _whole_seconds(self.begin_of(self.day_of(now_ms) + 1) - now_ms)


def _whole_seconds(milliseconds: float) -> int:
    """Return whole seconds, rounded up and at least one, so that Retry-After is never too short."""
    return max(1, math.ceil(milliseconds / 1000))
