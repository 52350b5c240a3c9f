"""A sliding window over requests (Service section 8), which is safe for any alignment of the service's own window.

A request occupies a place from before it is sent until one minute after its reply, because the service may have counted
it at any moment in between.
"""

from bisect import insort
from collections import deque
from math import inf


class SlidingWindow:
    """The requests of the last minute. No window of that length, however aligned, contains more than `limit`."""

    __slots__ = ("_expiries", "_under_way", "limit", "released", "span_seconds")

    def __init__(self, *, limit: int, span_seconds: float) -> None:
        """Start with no requests."""
        self.limit = limit
        self.span_seconds = span_seconds
        self.released = 0
        self._expiries: deque[float] = deque()
        self._under_way = 0

    def acquire(self) -> None:
        """Take a place for a request that is about to be sent."""
        self._under_way += 1

    def release(self, at: float) -> None:
        """Record the end of a request: answered, failed or abandoned. Its place is free after `span_seconds`."""
        self._under_way -= 1
        self.released += 1
        insort(self._expiries, at + self.span_seconds)  # requests of an earlier run may be restored late

    def restore(self, at: float) -> None:
        """Count a request of an earlier run that ended at the monotonic moment `at`."""
        self.acquire()
        self.release(at)

    def free_at(self, now: float, *, places: int = 1) -> float:
        """Return the earliest monotonic moment with `places` free; infinite if that depends on requests under way.

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
        """The number of requests that were started and have not ended."""
        return self._under_way

    def used(self, now: float) -> int:
        """Return the number of occupied places."""
        self.free_at(now)
        return len(self._expiries) + self._under_way
