"""The service's clocks and random numbers: the only module that reads a clock or draws numbers.

Service time = anchor + (real time - real anchor) * time_scale. The anchor is stored in the service's database, so
service time continues while the server is down and never goes back over a restart.
"""

import asyncio
import contextlib
import hashlib
import heapq
import itertools
import math
import random
import time
from datetime import UTC, datetime
from typing import Protocol, Self

from msgspec import Struct
from msgspec.structs import replace


class ServiceClock(Protocol):
    """A source of service time."""

    def now_ms(self) -> int:
        """Return the instant of service time in milliseconds since 1970, which never decreases."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait for this many service seconds."""
        ...


class Anchor(Struct, frozen=True):
    """A service instant, the corresponding real instant, and the speed of service time from then on."""

    service_ms: int
    real_ms: int
    time_scale: float

    def advanced(self, seconds: float) -> Self:
        """Return the anchor after service time was advanced by this many seconds."""
        return replace(self, service_ms=self.service_ms + round(seconds * 1000))


class RunningClock:
    """Service time of a running server; within one run it follows the monotonic clock, and `advance` moves it."""

    def __init__(self, anchor: Anchor) -> None:
        self.anchor = anchor
        self._started = time.monotonic()
        self._advanced = asyncio.Event()

    def now_ms(self) -> int:
        """Return the instant of service time."""
        elapsed_ms = (time.monotonic() - self._started) * 1000
        return self.anchor.service_ms + int(elapsed_ms * self.anchor.time_scale)

    def advance(self, seconds: float) -> None:
        """Advance service time by this many seconds, and wake the sleepers that are due."""
        self.anchor = self.anchor.advanced(seconds)
        self._advanced.set()
        self._advanced = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        """Wait for this many service seconds."""
        due_ms = self.now_ms() + seconds * 1000
        while (left_ms := due_ms - self.now_ms()) > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left_ms / 1000 / self.anchor.time_scale):
                    await self._advanced.wait()


class ManualClock:
    """A clock that only `advance` moves; for tests and simulations."""

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms
        self._sleepers: list[tuple[int, int, asyncio.Future[None]]] = []
        self._tickets = itertools.count()

    def now_ms(self) -> int:
        """Return the current instant."""
        return self._now_ms

    def advance(self, seconds: float) -> None:
        """Advance the clock by this many service seconds, and wake the sleepers that are due."""
        self._now_ms += round(seconds * 1000)
        while self._sleepers and self._sleepers[0][0] <= self._now_ms:
            _, _, waiting = heapq.heappop(self._sleepers)
            if not waiting.done():
                waiting.set_result(None)

    async def sleep(self, seconds: float) -> None:
        """Wait until `advance` has moved the clock by this many seconds."""
        if seconds <= 0:
            return
        waiting = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now_ms + round(seconds * 1000), next(self._tickets), waiting))
        await waiting


def resume(stored: Anchor | None, *, time_scale: float, start_at_ms: int | None, last_seen_ms: int) -> Anchor:
    """Return the anchor for a run that starts now.

    `stored` is the anchor of the previous run; None at the first start, which begins at `start_at_ms` or at the real
    time. `last_seen_ms` is the latest recorded instant: service time does not go back if the real clock was set back
    while the server was down.
    """
    real_ms = time.time_ns() // 1_000_000
    if stored is None:
        begin_ms = real_ms if start_at_ms is None else start_at_ms
    else:
        passed_ms = max(0, real_ms - stored.real_ms)
        begin_ms = stored.service_ms + int(passed_ms * stored.time_scale)
    return Anchor(max(begin_ms, last_seen_ms), real_ms, time_scale)


class RandomStream:
    """A seeded random stream: the same seed gives the same identifiers, durations and faults."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._stream = random.Random(seed)  # noqa: S311 - simulated durations and faults, nothing secret

    def happens(self, probability: float) -> bool:
        """Draw a number, and return True with the given probability."""
        return self._stream.random() < probability

    def token(self, subject: str, size: int) -> bytes:
        """Return at most 32 bytes that depend only on the seed and `subject`."""
        return hashlib.sha256(f"{self._seed}:{subject}".encode()).digest()[:size]

    def duration_seconds(self, subject: str, *, mean: float, spread: float) -> float:
        """Return a log-normal duration in seconds with the given mean and standard deviation.

        It depends only on the seed and `subject`, so it does not change with the order of requests.
        """
        if mean <= 0:
            return 0.0
        stream = random.Random(self.token(subject, 32))  # noqa: S311 - as above
        variance = math.log(1 + (spread / mean) ** 2)
        return stream.lognormvariate(math.log(mean) - variance / 2, math.sqrt(variance))


def iso(instant_ms: int) -> str:
    """Return an instant as ISO 8601 UTC with milliseconds. Service section 2.1."""
    moment = datetime.fromtimestamp(instant_ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
