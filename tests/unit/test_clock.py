"""The real clock, driven by a loop whose time the test owns."""

import asyncio
import itertools
import time
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from math import inf
from typing import Any, TypeVar

import pytest
import structlog

from batchkiln.clock import LONGEST_SLEEP_SECONDS, ServiceClock, boottime_seconds, machine_now, machine_suspended
from batchkiln.core.timestamps import WITNESS_GAP_SECONDS
from batchkiln.rehearsal.network import MemoryNetwork
from batchkiln.rehearsal.virtual_loop import VirtualLoop

T = TypeVar("T")

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)


async def test_instants_run_in_the_services_scale() -> None:
    """A monotonic second is a service second. Contract, section 6."""
    clock = ServiceClock(time_scale=60.0, wall=lambda: NOON)
    now = clock.now()

    later = now.instant_of(now.monotonic + 60.0)

    assert now.instant - NOON < timedelta(seconds=5)
    assert later - now.instant == timedelta(seconds=60)
    assert clock.monotonic() >= now.monotonic


async def test_time_never_begins_before_what_was_known() -> None:
    """Law 5: a machine clock that fell back opens no window that was closed."""
    floor = NOON + timedelta(days=3)

    ahead = ServiceClock(wall=lambda: NOON, floor=floor)
    behind = ServiceClock(wall=lambda: floor + timedelta(days=1), floor=floor)

    assert ahead.now().instant >= floor
    assert behind.now().instant >= floor + timedelta(days=1)


async def test_service_date_replaces_the_machines() -> None:
    """However wrong this machine's clock is, once two replies agree. Contract, section 6."""
    clock = ServiceClock(wall=lambda: NOON)
    monotonic = clock.monotonic()

    clock.observe_date(NOON + timedelta(days=400), sent_at=monotonic - 10.0, received_at=monotonic - 9.8)
    known = (clock.is_observed, clock.is_doubted)
    clock.observe_date(NOON + timedelta(days=400, seconds=10), sent_at=monotonic, received_at=monotonic + 0.2)

    assert known == (False, True)
    assert (clock.is_observed, clock.is_doubted) == (True, False)
    now = clock.now()
    assert now.instant >= NOON + timedelta(days=400, seconds=10) - timedelta(seconds=1)
    assert now.latest - now.instant == pytest.approx(timedelta(seconds=1.2), abs=timedelta(milliseconds=1))


async def test_a_faster_clock_is_recognised_by_two_dates_and_told_once() -> None:
    """A local service with a time scale of which this process was not told: the first message names the remedy."""
    clock = ServiceClock(wall=lambda: NOON)
    monotonic = clock.monotonic()

    with structlog.testing.capture_logs() as told:
        for seconds in (0, 1, 3, 5):
            at = monotonic + seconds
            clock.observe_date(NOON + timedelta(seconds=200 + 60 * seconds), sent_at=at, received_at=at)

    assert clock.apparent_scale == pytest.approx(60)
    (doubted,) = told
    assert "export BATCHKILN_TIME_SCALE=" in doubted["remedy"]
    assert "this machine's clock" in doubted["remedy"]


async def test_a_wrong_clock_of_this_machine_is_no_faster_service() -> None:
    """However far they are apart, both run alike; a `Date` has whole seconds."""
    clock = ServiceClock(wall=lambda: NOON)
    monotonic = clock.monotonic()

    for seconds, shown in ((0, 0), (2, 3), (4, 4)):
        at = monotonic + seconds
        clock.observe_date(NOON + timedelta(days=1, seconds=shown), sent_at=at, received_at=at)

    assert clock.apparent_scale is None


@pytest.mark.parametrize("floor", [NOON + timedelta(days=365), datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)])
async def test_a_remembered_time_far_ahead_is_dropped(floor: datetime) -> None:
    """A wrong time that was kept once is not kept for ever: the service and this machine agree on another."""
    clock = ServiceClock(wall=lambda: NOON, floor=floor)
    monotonic = clock.monotonic()

    clock.observe_date(NOON, sent_at=monotonic, received_at=monotonic + 0.2)

    assert clock.now().latest < NOON + timedelta(minutes=1)


async def test_a_suspend_is_reported_by_the_machines_clock() -> None:
    """The monotonic clock stood still meanwhile: the service's first reply after it tells the day."""
    walls = [NOON]
    clock = ServiceClock(wall=lambda: walls[-1])
    monotonic = clock.monotonic()
    ahead = timedelta(seconds=90)  # of the service
    clock.observe_date(NOON + ahead, sent_at=monotonic, received_at=monotonic + 0.1)
    walls.append(NOON + timedelta(hours=9))

    clock.observe_date(NOON + ahead + timedelta(hours=9), sent_at=monotonic + 0.2, received_at=monotonic + 0.3)

    assert clock.now().instant > NOON + timedelta(hours=9)


async def test_a_witness_is_waited_for_where_one_is_needed() -> None:
    """A second reply at the same moment may come from the same wrong host."""
    clock = ServiceClock(time_scale=1000.0, wall=lambda: NOON)
    began_at = clock.monotonic()
    clock.observe_date(NOON + timedelta(days=1), sent_at=began_at, received_at=began_at)

    await clock.await_witness()

    assert clock.monotonic() >= began_at + WITNESS_GAP_SECONDS


async def test_sleep_ends_at_its_moment_or_with_news() -> None:
    """A wait is over when it is due, when there is news, and at once when it is late."""
    clock = ServiceClock(time_scale=1000.0)
    quiet, news = asyncio.Event(), asyncio.Event()
    news.set()
    at = clock.monotonic() + 5.0

    await clock.sleep_until(at, quiet)
    reached = clock.monotonic()
    await clock.sleep_until(inf, news)
    await clock.sleep_until(clock.monotonic() + 1e9, news)
    await clock.sleep_until(0.0, quiet)

    assert reached >= at - 0.01


class Sleeper:
    """A machine on a virtual loop: whenever its clock stands at one of `at`, it is suspended for nine hours."""

    def __init__(self, *at: float) -> None:
        self.at = at

    def suspended(self) -> float:
        now = asyncio.get_running_loop().time()
        return 9 * 3600.0 * sum(moment <= now for moment in self.at)


def in_virtual_time(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    loop = VirtualLoop(MemoryNetwork())
    try:
        return loop.run_until_complete(work())
    finally:
        loop.close()


def test_a_wait_over_a_suspend_ends_soon_after_its_moment() -> None:
    """A laptop that is closed over the reset goes on when it is opened, and not nine hours later."""

    async def wait() -> tuple[float, float, float]:
        clock = ServiceClock(wall=lambda: NOON, suspended=Sleeper(3600.0).suspended)
        before = clock.now()
        await clock.sleep_until(before.monotonic + 8 * 3600.0, asyncio.Event())
        after = clock.now()
        used = asyncio.get_running_loop().time()
        return used, after.monotonic - before.monotonic, (after.instant - before.instant).total_seconds()

    used, monotonic, instants = in_virtual_time(wait)

    assert 3600.0 <= used <= 3600.0 + LONGEST_SLEEP_SECONDS
    assert monotonic == instants == used + 9 * 3600.0


def test_no_wait_ends_early() -> None:
    """Law 5: with suspends or without, a wait is over only when so much time has passed."""

    async def wait() -> float:
        clock = ServiceClock(wall=lambda: NOON, suspended=Sleeper(100.0, 90_000.0).suspended)
        await clock.sleep_until(clock.monotonic() + 48 * 3600.0, asyncio.Event())
        return clock.monotonic()

    assert 48 * 3600.0 <= in_virtual_time(wait) <= 48 * 3600.0 + LONGEST_SLEEP_SECONDS


def test_a_trembling_reading_is_no_suspend() -> None:
    """Two clocks are not read at one instant: monotonic time never goes back by that."""
    readings = itertools.cycle([0.0, 0.002, 0.0005, -0.001])

    async def look() -> list[float]:
        clock = ServiceClock(wall=lambda: NOON, suspended=lambda: next(readings))
        return [clock.monotonic() for _ in range(40)]

    seen = in_virtual_time(look)

    assert seen == sorted(seen)


def test_this_machine_tells_how_long_it_was_suspended() -> None:
    """A clock that was merely set is none of it: both clocks compared are monotonic."""
    assert machine_suspended() >= -0.001


async def test_draws_are_repeatable_by_seed() -> None:
    """Two clocks of one seed spread their retries alike, between 0 and 1."""
    first, second = ServiceClock(seed=5), ServiceClock(seed=5)

    drawn = [first.draw() for _ in range(20)]

    assert drawn == [second.draw() for _ in range(20)]
    assert all(0 <= number <= 1 for number in drawn)


def test_machine_time_is_utc() -> None:
    """Instants are aware."""
    assert machine_now().tzinfo is UTC


def test_steady_seconds_are_those_of_a_clock_that_counts_a_suspend(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lease may have expired while the machine was suspended."""
    monkeypatch.setattr(time, "CLOCK_BOOTTIME", 7, raising=False)
    monkeypatch.setattr(time, "clock_gettime", lambda clock: 1_000.0 + clock)

    assert boottime_seconds() == 1_007.0
