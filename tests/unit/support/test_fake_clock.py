"""The clock of the tests."""

import asyncio
from datetime import timedelta
from math import inf

import pytest

from support.fake_clock import NOON, FakeClock, Stuck


async def test_it_jumps_to_what_is_waited_for() -> None:
    """Hours pass at once, in order, and every sleeper wakes at its own moment."""
    clock = FakeClock()
    woken: list[tuple[str, float]] = []

    async def sleeper(name: str, at: float) -> None:
        await clock.sleep_until(at, asyncio.Event())
        woken.append((name, clock.now().monotonic))

    async def both() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(sleeper("late", 7200.0))
            group.create_task(sleeper("early", 3600.0))

    await clock.run(both())

    assert woken == [("early", 3600.0), ("late", 7200.0)]
    assert clock.now().instant == NOON + timedelta(hours=2)


async def test_news_end_a_sleep_early() -> None:
    """A sleeper that is woken does not move the time."""
    clock, news = FakeClock(), asyncio.Event()

    async def woken() -> None:
        asyncio.get_running_loop().call_soon(news.set)
        await clock.sleep_until(100.0, news)

    await clock.run(woken())

    assert clock.monotonic == 0.0


async def test_moved_by_hand_it_wakes_who_is_due() -> None:
    """`advance` rings for those whose moment has come."""
    clock = FakeClock()
    sleeping = asyncio.ensure_future(clock.sleep(5.0))
    await asyncio.sleep(0)

    clock.advance(5.0)
    await sleeping

    assert clock.monotonic == 5.0


async def test_endless_wait_is_reported() -> None:
    """A run that can never end fails instead of hanging."""
    clock = FakeClock()

    with pytest.raises(Stuck):
        await clock.run(clock.sleep_until(inf, asyncio.Event()))


async def test_cut_off_work_is_cancelled() -> None:
    """After so many turns the rest does not happen."""
    clock, cuts = FakeClock(), list[int]()

    async def forever() -> None:
        while True:
            await clock.sleep(1.0)

    await clock.run(forever(), steps=20, on_cut=lambda: cuts.append(1))

    assert cuts == [1]
    assert 0 < clock.monotonic <= 20
