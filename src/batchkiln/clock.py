"""The only module that reads a clock, sleeps, draws random numbers or knows `time_scale`."""

import random
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from math import inf
from typing import TYPE_CHECKING, Final

from batchkiln.core.timestamps import EPOCH, LATEST, WITNESS_GAP_SECONDS, ClockOffset, ClockReading

if TYPE_CHECKING:
    import asyncio

LONGEST_SLEEP_SECONDS: Final = 15 * 60.0
"""Real seconds after which a wait checks for a suspend of the machine, which stops its timers."""

_CLEARLY_FASTER: Final = 1.5
"""A service's clock counts as running at another rate above this one; a `Date` has a resolution of one second."""

_SUSPENDED_AT_LEAST_SECONDS: Final = 1.0  # less is the time between two readings


def _suspend_clocks() -> tuple[int, int] | None:
    """Return the clock that counts a suspend, and the one that does not; None if the system lacks one."""
    for total, running in (("CLOCK_BOOTTIME", "CLOCK_MONOTONIC"), ("CLOCK_MONOTONIC", "CLOCK_UPTIME_RAW")):
        if hasattr(time, total) and hasattr(time, running):  # Linux, macOS
            return getattr(time, total), getattr(time, running)
    return None


_SUSPEND_CLOCKS: Final = _suspend_clocks()


def machine_now() -> datetime:
    """Return this machine's time."""
    return datetime.fromtimestamp(time.time(), UTC)


def machine_suspended() -> float:
    """Return how many seconds this machine has been suspended since it started; 0 if the system does not say.

    Setting the machine's clock does not count.
    """
    if _SUSPEND_CLOCKS is None:
        return 0.0
    total, running = _SUSPEND_CLOCKS
    return time.clock_gettime(total) - time.clock_gettime(running)


def boottime_seconds() -> float:
    """Return the seconds of a monotonic clock that includes time suspended, if the system has one."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


class ServiceClock:
    """One service's time: monotonic seconds and instants, both in service time.

    `time_scale` is service seconds per real second. Until the first `Date` header, the machine's clock is used, but
    never below `floor`, the latest instant that the service is known to have reached. `Date` headers replace both,
    however much they differ, once two of them agree or the machine's clock agrees with one. `suspended` returns for how
    many seconds this machine has been suspended while the service went on; None if the service stops with the machine.
    """

    def __init__(
        self,
        *,
        time_scale: float = 1.0,
        floor: datetime | None = None,
        wall: Callable[[], datetime] = machine_now,
        suspended: Callable[[], float] | None = None,
        seed: int | None = None,
        is_doubt_logged: bool = True,
    ) -> None:
        """Start at the machine's time; `seed` makes the random numbers repeatable.

        `is_doubt_logged` logs the first contradiction of two times; the later ones have the same cause.
        """
        self._is_doubt_logged = is_doubt_logged
        self._first_date: tuple[datetime, float] | None = None  # and the monotonic moment of its request
        self.apparent_scale: float | None = None
        """Service seconds per real second, where two `Date`s show a clearly faster clock than `time_scale` says."""
        self.time_scale = time_scale
        self._suspended = suspended
        self._suspended_seconds = suspended() if suspended is not None else 0.0
        self._random = random.Random(seed)  # noqa: S311  spreads retries, guards nothing
        self._wall = wall
        self._accepted_at = began_at = wall()  # this machine's time, and the service's time at that moment
        self._accepted = (began_at - EPOCH).total_seconds()
        if floor is not None and began_at < floor < LATEST:
            began_at = floor
        began_seconds = (began_at - EPOCH).total_seconds() - self.monotonic()
        self._offset = ClockOffset(began_seconds, began_seconds)

    @property
    def is_observed(self) -> bool:
        """Whether the time is known from a `Date` header."""
        return self._offset.is_observed

    @property
    def is_doubted(self) -> bool:
        """Whether the last `Date` header contradicts the known time and waits for another to confirm it."""
        return bool(self._offset.doubted)

    def monotonic(self) -> float:
        """Return monotonic service seconds, from the event loop's clock, real or virtual.

        Time in which the machine was suspended counts, because it has passed for the service and its limits.
        """
        import asyncio  # noqa: PLC0415  who only asks for the time needs no event loop

        if self._suspended is not None:
            seconds = self._suspended()
            if seconds - self._suspended_seconds >= _SUSPENDED_AT_LEAST_SECONDS:
                self._suspended_seconds = seconds
        return (asyncio.get_running_loop().time() + self._suspended_seconds) * self.time_scale

    def now(self) -> ClockReading:
        """Read the clock; once per turn."""
        return self._offset.now(self.monotonic())

    def observe_date(self, date: datetime, *, sent_at: float, received_at: float) -> None:
        """Learn the service's time from a reply's `Date`; `sent_at` and `received_at` are monotonic.

        A jump is accepted at once if this machine's clock made the same jump, as after a suspend.
        """
        self._compare_rate(date, sent_at, received_at)
        before, wall, monotonic = self._offset, self._wall(), self.monotonic()
        expected = self._accepted + (wall - self._accepted_at).total_seconds() * self.time_scale - monotonic
        self._offset = before.observe(date, sent_at=sent_at, received_at=received_at, expected=expected)
        if self._offset.doubted and self._is_doubt_logged and self.time_scale == 1:  # a sped-up one shows any time
            self._is_doubt_logged = False
            _log_doubt(date, before.now(monotonic).instant, self.apparent_scale)
        elif self._offset.is_observed and not self._offset.doubted:
            self._accepted_at, self._accepted = wall, self._offset.lowest + monotonic

    def _compare_rate(self, date: datetime, sent_at: float, received_at: float) -> None:
        if self._first_date is None:
            self._first_date = date, sent_at
            return
        first, first_sent_at = self._first_date
        shown, passed = (date - first).total_seconds(), received_at - first_sent_at
        if passed >= WITNESS_GAP_SECONDS:
            self.apparent_scale = shown / passed if shown - 1 > _CLEARLY_FASTER * passed else None

    async def await_witness(self) -> None:
        """Wait until another reply can confirm the last `Date`, or show the rate of the service's clock."""
        import asyncio  # noqa: PLC0415  as above

        await self.sleep_until(self.monotonic() + WITNESS_GAP_SECONDS, asyncio.Event())

    def draw(self) -> float:
        """Return a random number from 0 to 1, to spread retries."""
        return self._random.random()

    async def sleep_until(self, at: float, wake: "asyncio.Event") -> None:
        """Wait until the monotonic moment `at`, or until `wake` is set; an infinite moment waits for `wake` alone.

        After a suspend of the machine, the wait ends at most `LONGEST_SLEEP_SECONDS` late.
        """
        import asyncio  # noqa: PLC0415  as above

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


def _log_doubt(received: datetime, known: datetime, apparent_scale: float | None) -> None:
    import structlog  # noqa: PLC0415  slow to import, and read-only commands do not need it

    reason = (
        f"the service's clock is at {received:%Y-%m-%d %H:%M:%S} UTC by the date of a reply, and at "
        f"{known:%Y-%m-%d %H:%M:%S} UTC by what was known of it before; the next replies decide"
    )
    from batchkiln.core.error_text import scale_remedy  # noqa: PLC0415  rarely needed

    remedy = f"{scale_remedy(apparent_scale)}; otherwise check this machine's clock"
    structlog.get_logger().warning("service_time_doubted", reason=reason, remedy=remedy)
