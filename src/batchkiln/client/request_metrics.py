"""How long the service's replies took, and what they were: for a person who watches. Nothing decides by it."""

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

BOUNDS_SECONDS: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
NO_REPLY: Final = "no_reply"


@dataclass(slots=True)
class Latencies:
    """The durations of one endpoint's requests: how many fell up to each bound, the last entry above all of them."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_SECONDS) + 1))
    total_seconds: float = 0.0

    def add(self, seconds: float) -> None:
        """Count one."""
        self.counts[bisect_left(BOUNDS_SECONDS, seconds)] += 1
        self.total_seconds += seconds


@dataclass(slots=True)
class RequestMeter:
    """What this process has seen, by endpoint (the path's first word, never an id) and by status.

    Durations are service seconds: real ones but for a rehearsal.
    """

    latencies: dict[str, Latencies] = field(default_factory=dict)
    replies: Counter[tuple[str, str]] = field(default_factory=Counter)

    def note(self, path: str, status: str, seconds: float) -> None:
        """Count a request that is over."""
        endpoint = path.split("/")[1]
        self.latencies.setdefault(endpoint, Latencies()).add(seconds)
        self.replies[endpoint, status] += 1
