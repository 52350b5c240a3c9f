"""What is learned of durations from reads that found a generation going on, and then ended."""

from math import ceil
from random import Random

import pytest

from batchkiln.core.polling import DurationModel, LogNormal, Observation

USUAL = 20.0


def sightings_of(seconds: list[float], *, gap: float = 10.0, offset: float = 0.0) -> list[Observation]:
    """Return what reads at every `gap` seconds would have seen."""
    found = []
    for duration in seconds:
        ended = offset + gap * max(1, ceil((duration - offset) / gap))
        found.append(Observation(max(0.0, ended - gap), ended))
    return found


def seconds_of(median: float, spread: float, count: int) -> list[float]:
    chance = Random(7)
    shape = LogNormal(median, spread)
    return [shape.median_seconds * 2.718281828 ** (shape.spread * chance.gauss(0, 1)) for _ in range(count)]


def test_without_any_the_usual_is_expected() -> None:
    """The guess is wide, so the mean is above the median."""
    assert USUAL < DurationModel(USUAL).mean_seconds < 2 * USUAL


@pytest.mark.parametrize("median", [12.0, 15.0, 47.0, 90.0, 400.0])
@pytest.mark.parametrize("spread", [0.1, 0.4])
def test_mean_is_learned_from_intervals(median: float, spread: float) -> None:
    """Reads tell it only to ten seconds each, together they tell more; far from the guess as well."""
    seconds = seconds_of(median, spread, 64)

    known = DurationModel(USUAL, [*sightings_of(seconds[::2]), *sightings_of(seconds[1::2], offset=5.0)])

    assert known.mean_seconds == pytest.approx(sum(seconds) / 64, rel=0.12)


def test_odd_ones_move_little() -> None:
    """A service that was down for an hour has told nothing about the next generation."""
    seen = sightings_of(seconds_of(15.0, 0.1, 40), gap=2.0)
    seen[20:20] = [Observation(3000.0, 3600.0), Observation(0.0, 0.5)]

    assert DurationModel(USUAL, seen).mean_seconds == pytest.approx(15.0, rel=0.05)


def test_a_service_that_has_changed_is_learned_again() -> None:
    """Another machine there, and everything takes four times as long: soon known."""
    known = DurationModel(USUAL, sightings_of(seconds_of(15.0, 0.05, 64)))

    for observation in sightings_of(seconds_of(60.0, 0.05, 16)):
        known.add(observation)

    assert known.mean_seconds == pytest.approx(60.0, rel=0.1)


def test_drawn_shapes_are_the_likely_ones() -> None:
    """Whatever number is drawn, after many successes the shape is near the truth."""
    known = DurationModel(USUAL, sightings_of(seconds_of(30.0, 0.1, 64), gap=3.0))

    medians = [known.drawn(number / 20).median_seconds for number in range(21)]

    assert all(median == pytest.approx(30.0, rel=0.08) for median in medians)


def test_reads_at_one_moment_leave_the_distribution_open() -> None:
    """All had ended by 20 s, says nothing of when: the shapes drawn differ, so that other moments are tried."""
    known = DurationModel(USUAL, [Observation(0.0, 20.0)] * 30)

    medians = [known.drawn(number / 20).median_seconds for number in range(21)]

    assert max(medians) > 1.3 * min(medians)
    assert max(medians) < 20.0


def test_the_likelier_are_drawn_more_often_than_by_their_likelihood(monkeypatch: pytest.MonkeyPatch) -> None:
    """A draw serves to find out, and each that is far from the truth costs seconds: half of the medians are nearer."""
    known = DurationModel(USUAL, [Observation(0.0, 16.0), Observation(14.0, 16.0)] * 4)

    sharpened = _middle_half(known)
    monkeypatch.setattr("batchkiln.core.polling._SHARPNESS", 1.0)

    assert 0 < sharpened < 0.9 * _middle_half(known)


def _middle_half(known: DurationModel) -> float:
    """Return over how many seconds the middle half of the medians that are drawn is spread."""
    medians = sorted(known.drawn(number / 1000).median_seconds for number in range(1001))
    return medians[750] - medians[250]
