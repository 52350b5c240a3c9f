"""Service time over restarts, and seeded chance."""

import asyncio
from statistics import mean

from batchkiln_service.clock import Anchor, ManualClock, RandomStream, RunningClock, resume

LONG_AGO_MS = 1_000_000_000_000


def test_first_start_may_choose_its_instant() -> None:
    """Service time begins where the operator says."""
    anchor = resume(None, time_scale=60, start_at_ms=5_000, last_seen_ms=0)

    assert (anchor.service_ms, anchor.time_scale) == (5_000, 60)


def test_time_continues_while_the_service_is_down() -> None:
    """The pause counts at the speed of the run before."""
    now = resume(None, time_scale=1, start_at_ms=None, last_seen_ms=0)
    stored = Anchor(service_ms=0, real_ms=now.real_ms - 10_000, time_scale=60)

    resumed = resume(stored, time_scale=1, start_at_ms=5, last_seen_ms=0)

    assert 600_000 <= resumed.service_ms < 700_000


def test_time_never_goes_back() -> None:
    """A real clock that was set back, or a record from later, moves nothing back."""
    now = resume(None, time_scale=1, start_at_ms=None, last_seen_ms=0)
    stored = Anchor(service_ms=LONG_AGO_MS, real_ms=now.real_ms + 3_600_000, time_scale=1)

    resumed = resume(stored, time_scale=1, start_at_ms=None, last_seen_ms=LONG_AGO_MS + 77)

    assert resumed.service_ms == LONG_AGO_MS + 77


def test_running_clock_begins_at_its_anchor() -> None:
    """Service time starts at the anchor and only grows."""
    clock = RunningClock(Anchor(service_ms=LONG_AGO_MS, real_ms=0, time_scale=1000))

    first = clock.now_ms()

    assert LONG_AGO_MS <= first <= clock.now_ms()


async def test_hand_clock_wakes_who_has_waited_long_enough() -> None:
    """A sleeper wakes when its instant has come, and not before."""
    clock = ManualClock(0)
    sleeping = [asyncio.ensure_future(clock.sleep(seconds)) for seconds in (2, 1)]
    await asyncio.wait(sleeping, timeout=0)

    clock.advance(1.5)
    await asyncio.wait([sleeping[1]])

    assert [sleeper.done() for sleeper in sleeping] == [False, True]
    sleeping[0].cancel()


def test_durations_have_the_mean_they_are_given() -> None:
    """Log-normal with that mean, the same for the same subject and seed, and never negative."""
    dice = RandomStream(3)
    drawn = [dice.duration_seconds(str(number), mean=15, spread=5) for number in range(4000)]

    assert 14.5 < mean(drawn) < 15.5
    assert min(drawn) > 0
    assert drawn[7] == RandomStream(3).duration_seconds("7", mean=15, spread=5)
    assert drawn[7] != RandomStream(4).duration_seconds("7", mean=15, spread=5)
