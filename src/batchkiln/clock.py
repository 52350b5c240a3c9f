"""The only module that reads a clock, sleeps, draws randomness or knows `time_scale`."""

import asyncio
import random
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from math import inf
from typing import Final

from batchkiln.core.timestamps import EPOCH, LATEST, WITNESS_GAP_SECONDS, ClockOffset, ClockReading

LONGEST_SLEEP_SECONDS: Final = 15 * 60.0
"""After how many real seconds a wait looks whether the machine was suspended meanwhile: its timers stand still then."""

_SUSPENDED_AT_LEAST_SECONDS: Final = 1.0  # less is the time between two readings


def machine_now() -> datetime:
    """Return what this machine's clock shows."""
    return datetime.fromtimestamp(time.time(), UTC)


def machine_suspended() -> float:
    """Return for how many seconds this machine has been suspended since it started; 0 where it does not tell.

    A clock on the wall that was merely set is no suspend.
    """
    for counts_all, stands_still in (("CLOCK_BOOTTIME", "CLOCK_MONOTONIC"), ("CLOCK_MONOTONIC", "CLOCK_UPTIME_RAW")):
        if hasattr(time, counts_all) and hasattr(time, stands_still):  # Linux, macOS
            return time.clock_gettime(getattr(time, counts_all)) - time.clock_gettime(getattr(time, stands_still))
    return 0.0


class ServiceClock:
    """One service's time as seen from here: monotonic seconds and instants, both in its own scale.

    `time_scale` is service seconds per real second. Until the first `Date` header the machine's clock serves,
    but never below `floor`, the latest instant that the service was known to have reached. What replies say of the
    time replaces both, however far away it is, once two of them agree or the machine's clock agrees with one.
    `suspended` tells for how many seconds this machine has been suspended, while the service went on; None where the
    service stops with it.
    """

    def __init__(
        self,
        *,
        time_scale: float = 1.0,
        floor: datetime | None = None,
        wall: Callable[[], datetime] = machine_now,
        suspended: Callable[[], float] | None = None,
        seed: int | None = None,
    ) -> None:
        """Begin at the machine's time; `seed` makes the draws repeatable."""
        self.time_scale = time_scale
        self._suspended = suspended
        self._suspended_seconds = suspended() if suspended is not None else 0.0
        self._random = random.Random(seed)  # noqa: S311  spreads retries, guards nothing
        self._wall = wall
        self._believed_at = began_at = wall()  # of this machine, and what it was for the service just then
        self._believed = (began_at - EPOCH).total_seconds()
        if floor is not None and began_at < floor < LATEST:
            began_at = floor
        began_seconds = (began_at - EPOCH).total_seconds() - self.monotonic()
        self._offset = ClockOffset(began_seconds, began_seconds)

    @property
    def is_observed(self) -> bool:
        """Whether the service itself has told its time."""
        return self._offset.is_observed

    @property
    def is_doubted(self) -> bool:
        """Whether the last word of the service contradicts what is known, and waits for another to agree."""
        return self._offset.doubted is not None

    def monotonic(self) -> float:
        """Return monotonic service seconds; the event loop's clock is the source, real or virtual.

        Time in which the machine was suspended counts: it has passed for the service, and for its windows.
        """
        if self._suspended is not None:
            seconds = self._suspended()
            if seconds - self._suspended_seconds >= _SUSPENDED_AT_LEAST_SECONDS:
                self._suspended_seconds = seconds
        return (asyncio.get_running_loop().time() + self._suspended_seconds) * self.time_scale

    def now(self) -> ClockReading:
        """Read the clock; once per turn."""
        return self._offset.now(self.monotonic())

    def observe_date(self, date: datetime, *, sent_at: float, received_at: float) -> None:
        """Learn from a reply's `Date` header; both moments are monotonic.

        A jump is believed at once where this machine's clock made the same one, as after a suspend.
        """
        before, wall, monotonic = self._offset, self._wall(), self.monotonic()
        expected = self._believed + (wall - self._believed_at).total_seconds() * self.time_scale - monotonic
        self._offset = before.observe(date, sent_at=sent_at, received_at=received_at, expected=expected)
        is_news = self._offset.doubted is not None and before.doubted is None
        if is_news and self.time_scale == 1:  # a sped-up service shows any time, and stops with its process
            _tell_doubt(date, before.now(monotonic).instant)
        elif self._offset.is_observed and self._offset.doubted is None:
            self._believed_at, self._believed = wall, self._offset.lowest + monotonic

    async def await_witness(self) -> None:
        """Wait until another reply can settle what one reply said of the time; not at all where none is doubted."""
        if self.is_doubted:
            await self.sleep_until(self.monotonic() + WITNESS_GAP_SECONDS, asyncio.Event())

    def draw(self) -> float:
        """Return a number from 0 to 1, to spread retries."""
        return self._random.random()

    async def sleep_until(self, at: float, wake: asyncio.Event) -> None:
        """Wait for a monotonic moment, or until `wake` is set; an infinite moment waits for `wake` alone.

        After a suspend of the machine it ends at most `LONGEST_SLEEP_SECONDS` late.
        """
        if at == inf:
            await wake.wait()
            return
        longest = inf if self._suspended is None else LONGEST_SLEEP_SECONDS
        is_last = False
        while not is_last:
            left = (at - self.monotonic()) / self.time_scale
            is_last = left <= longest
            with suppress(TimeoutError):
                async with asyncio.timeout(min(left, longest)):
                    await wake.wait()
                return


def _tell_doubt(told: datetime, known: datetime) -> None:
    import structlog  # noqa: PLC0415  commands that only look have no use for it

    reason = f"a reply says {told.isoformat()}, where {known.isoformat()} is known; another one has to agree"
    structlog.get_logger().warning("service_time_doubted", reason=reason)
