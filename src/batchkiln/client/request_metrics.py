"""Latencies and statuses of the service's replies, for display. No decision depends on them."""

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

BOUNDS_SECONDS: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
NO_REPLY: Final = "no_reply"


@dataclass(slots=True)
class Latencies:
    """A histogram of one endpoint's latencies: one count per bound, and a last one for all longer requests."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_SECONDS) + 1))
    total_seconds: float = 0.0

    def add(self, seconds: float) -> None:
        """Count one request."""
        self.counts[bisect_left(BOUNDS_SECONDS, seconds)] += 1
        self.total_seconds += seconds


@dataclass(slots=True)
class RequestMeter:
    """This process's requests by endpoint (the first segment of the path, never an id) and status.

    Durations are service seconds: real seconds, except in a rehearsal.
    """

    latencies: dict[str, Latencies] = field(default_factory=dict)
    replies: Counter[tuple[str, str]] = field(default_factory=Counter)

    def record(self, path: str, status: str, seconds: float) -> None:
        """Count a finished request."""
        endpoint = path.split("/")[1]
        self.latencies.setdefault(endpoint, Latencies()).add(seconds)
        self.replies[endpoint, status] += 1
