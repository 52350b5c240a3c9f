"""Moments of reads: never closer than the rule, never more than with one every interval, and soon after the end."""

from itertools import pairwise
from math import ceil, exp
from statistics import NormalDist

import pytest
from hypothesis import given, settings, strategies as st

from batchkiln.core.duration_model import DurationModel, Guess
from batchkiln.core.polling import Observation

INTERVAL = 10.0
LONG = 5 * 3600.0


def reads_until(seconds: float, model: DurationModel) -> list[float]:
    """Return when a generation of this duration is read, the last time after its end."""
    moments = [0.0]
    while moments[-1] < seconds:
        moments.append(model.next_read_seconds(elapsed_seconds=moments[-1], interval_seconds=INTERVAL))
    return moments


def model_of(median: float, spread: float, count: int = 40) -> DurationModel:
    """Return a model that has seen the quantiles of a log-normal distribution, to a second each, in a mixed order."""
    return DurationModel(
        Guess(median, is_known=True),
        [
            Observation(max(0.0, seconds - 0.5), seconds + 0.5)
            for seconds in (quantile(median, spread, (number * 17 % count + 0.5) / count) for number in range(count))
        ],
    )


def quantile(median: float, spread: float, share: float) -> float:
    return median * exp(spread * NormalDist().inv_cdf(share))


observations = st.builds(
    lambda ended, gap: Observation(max(0.0, ended - gap), ended), st.floats(0.001, 3000.0), st.floats(0.1, 30.0)
)
models = st.builds(
    DurationModel, st.builds(Guess, st.floats(0.01, 3000.0), is_known=st.booleans()), st.lists(observations, max_size=5)
)


@settings(deadline=None)
@given(models, st.floats(0.1, 2000.0))
def test_reads_keep_their_distance_and_are_never_more(model: DurationModel, seconds: float) -> None:
    """Service rule 4.4, whatever is believed and whatever is so."""
    moments = reads_until(seconds, model)

    assert all(after - before >= INTERVAL - 1e-6 for before, after in pairwise(moments))
    assert len(moments) - 1 <= ceil(seconds / INTERVAL)


@settings(deadline=None)
@given(models)
def test_reads_never_cease(model: DurationModel) -> None:
    """Law 3: what takes far longer than believed is read on, as often as one that does not."""
    moments = reads_until(LONG, model)

    assert max(after - before for before, after in pairwise(moments)) <= 2.1 * INTERVAL


@pytest.mark.parametrize(("median", "latest"), [(15.0, 18.0), (12.0, 14.5), (28.0, 31.0)])
def test_what_is_well_known_is_read_soon_after_its_end(median: float, latest: float) -> None:
    """One read is late enough that it seldom comes too early, and no later."""
    moments = reads_until(median, model_of(median, 0.05))

    assert median < moments[-1] < latest


@pytest.mark.parametrize("median", [15.0, 34.0, 60.0, 300.0])
@pytest.mark.parametrize("spread", [0.03, 0.05, 0.2, 0.5])
def test_less_time_is_lost_than_with_a_read_every_interval(median: float, spread: float) -> None:
    """Over the quantiles of what is so: the time from the end to the read that sees it."""
    model = model_of(median, spread)
    durations = [quantile(median, spread, (number + 0.5) / 400) for number in range(400)]

    lost = sum(reads_until(seconds, model)[-1] - seconds for seconds in durations)
    lost_always = sum(-seconds % INTERVAL for seconds in durations)

    assert lost <= 1.03 * lost_always


def test_replies_that_take_a_moment_do_not_push_reads_apart() -> None:
    """Service rule 4.4 counts from the last reply; the next read then comes an interval later, not a step more."""
    model, latency = model_of(60.0, 0.5), 0.2
    gaps, touched = list[float](), latency
    for _ in range(8):
        at = model.next_read_seconds(elapsed_seconds=touched, interval_seconds=INTERVAL)
        gaps.append(at - touched)
        touched = at + latency

    assert sum(gaps) / len(gaps) < 1.02 * INTERVAL


def test_without_an_interval_it_is_read_at_once() -> None:
    """Limits lifted by configuration: there is nothing to keep."""
    assert model_of(15.0, 0.1, 3).next_read_seconds(elapsed_seconds=3.0, interval_seconds=0.0) == 3.0
