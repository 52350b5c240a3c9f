"""Moments of reads: never closer than the rule, never more than with one every interval, and soon after the end."""

from itertools import pairwise
from math import ceil

import pytest
from hypothesis import given, settings, strategies as st

from batchkiln.core.polling import LogNormal, next_read_seconds

INTERVAL = 10.0
LONG = 5 * 3600.0


def reads_until(seconds: float, shape: LogNormal) -> list[float]:
    """Return when a generation of this duration is read, the last time after its end."""
    moments = [0.0]
    while moments[-1] < seconds:
        at = moments[-1]
        moments.append(next_read_seconds(shape, elapsed_seconds=at, interval_seconds=INTERVAL))
    return moments


shapes = st.builds(LogNormal, st.floats(0.01, 3000.0), st.sampled_from([0.02, 0.06, 0.1, 0.3, 0.8]))


@settings(deadline=None)
@given(shapes, st.floats(0.1, 2000.0))
def test_reads_keep_their_distance_and_are_never_more(shape: LogNormal, seconds: float) -> None:
    """Service rule 4.4, whatever is believed and whatever is so."""
    moments = reads_until(seconds, shape)

    assert all(after - before >= INTERVAL - 1e-6 for before, after in pairwise(moments))
    assert len(moments) - 1 <= ceil(seconds / INTERVAL)


@given(shapes)
def test_reads_never_cease(shape: LogNormal) -> None:
    """Law 3: what takes far longer than believed is read on, as often as one that does not."""
    moments = reads_until(LONG, shape)

    assert max(after - before for before, after in pairwise(moments)) <= 2 * INTERVAL + 1e-6


@pytest.mark.parametrize(("median", "latest"), [(15.0, 18.0), (12.0, 14.5), (28.0, 31.0)])
def test_what_is_well_known_is_read_soon_after_its_end(median: float, latest: float) -> None:
    """One read is late enough that it seldom comes too early, and no later."""
    moments = reads_until(median, LogNormal(median, 0.05))

    assert median < moments[-1] < latest


@pytest.mark.parametrize("median", [15.0, 34.0, 60.0, 300.0])
@pytest.mark.parametrize("spread", [0.02, 0.05, 0.2, 0.5])
def test_less_time_is_lost_than_with_a_read_every_interval(median: float, spread: float) -> None:
    """Over the quantiles of what is believed: the time from the end to the read that sees it."""
    shape = LogNormal(median, spread)
    durations = quantiles(shape, 400)

    lost = sum(reads_until(seconds, shape)[-1] - seconds for seconds in durations)
    lost_always = sum(INTERVAL * ceil(seconds / INTERVAL) - seconds for seconds in durations)

    assert lost <= 1.02 * lost_always


def test_replies_that_take_a_moment_do_not_push_reads_apart() -> None:
    """Service rule 4.4 counts from the last reply; the next read then comes an interval later, not a step more."""
    shape, latency = LogNormal(60.0, 0.5), 0.2
    gaps, touched = list[float](), latency
    for _ in range(8):
        at = next_read_seconds(shape, elapsed_seconds=touched, interval_seconds=INTERVAL)
        gaps.append(at - touched)
        touched = at + latency

    assert sum(gaps) / len(gaps) < 1.02 * INTERVAL


def quantiles(shape: LogNormal, count: int) -> list[float]:
    """Return durations that stand for as large a share each."""
    found = []
    for number in range(count):
        low, high = 0.0, 100 * shape.median_seconds
        while high - low > 1e-6:
            middle = (low + high) / 2
            low, high = (middle, high) if shape.share_ended(middle) < (number + 0.5) / count else (low, middle)
        found.append(high)
    return found


def test_without_an_interval_it_is_read_at_once() -> None:
    """Limits lifted by configuration: there is nothing to keep."""
    assert next_read_seconds(LogNormal(15.0, 0.1), elapsed_seconds=3.0, interval_seconds=0.0) == 3.0
