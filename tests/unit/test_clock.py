"""The real clock, driven by a loop whose time the test owns."""

import asyncio
from datetime import UTC, datetime, timedelta
from math import inf

import pytest

from batchkiln.clock import ServiceClock, machine_now

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)


async def test_instants_run_in_the_services_scale() -> None:
    """A steady second is a service second. Contract, section 6."""
    clock = ServiceClock(time_scale=60.0, wall=lambda: NOON)
    now = clock.now()

    later = now.instant_of(now.steady + 60.0)

    assert now.instant - NOON < timedelta(seconds=5)
    assert later - now.instant == timedelta(seconds=60)
    assert clock.monotonic() >= now.steady


async def test_time_never_begins_before_what_was_known() -> None:
    """Law 5: a machine clock that fell back opens no window that was closed."""
    floor = NOON + timedelta(days=3)

    ahead = ServiceClock(wall=lambda: NOON, floor=floor)
    behind = ServiceClock(wall=lambda: floor + timedelta(days=1), floor=floor)

    assert ahead.now().instant >= floor
    assert behind.now().instant >= floor + timedelta(days=1)


async def test_service_date_replaces_the_machines() -> None:
    """However wrong this machine's clock is. Contract, section 6."""
    clock = ServiceClock(wall=lambda: NOON)
    assert not clock.is_observed
    steady = clock.monotonic()

    clock.observe_date(NOON + timedelta(days=400), sent_at=steady, received_at=steady + 0.2)

    assert clock.is_observed
    now = clock.now()
    assert now.instant >= NOON + timedelta(days=400) - timedelta(seconds=1)
    assert now.latest - now.instant == pytest.approx(timedelta(seconds=1.2), abs=timedelta(milliseconds=1))


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


async def test_draws_are_repeatable_by_seed() -> None:
    """Two clocks of one seed spread their retries alike, between 0 and 1."""
    first, second = ServiceClock(seed=5), ServiceClock(seed=5)

    drawn = [first.draw() for _ in range(20)]

    assert drawn == [second.draw() for _ in range(20)]
    assert all(0 <= number <= 1 for number in drawn)


def test_machine_time_is_utc() -> None:
    """Instants are aware."""
    assert machine_now().tzinfo is UTC
