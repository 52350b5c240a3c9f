"""How long generations take, learned from when they were seen to go on and to have ended.

Nobody tells when a generation ended: a read finds that it is over, and an earlier one that it was not. So each
success is an interval, and what is learned is how likely each of some hundred log-normal distributions is after the
intervals seen, the newest of which weigh most. A read tells the less the surer its outcome was, so that reads at
the moment that seems best would never find out better: the distribution to go by is drawn for each generation anew,
the likelier ones more often than by their likelihood (Thompson sampling, sharpened). Pure.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate
from math import erf, exp, inf, log, sqrt
from typing import Final

ODD_SHARE: Final = 0.03
"""How many generations may take any time at all: a service that queues, or tries again itself. They move little."""

ODD_SPREAD: Final = 1.0
"""The spread of those, about the same median."""

REMEMBERED: Final = 64
"""How many successes of a kind are looked at, the newest ones."""

_SPREADS: Final = (0.02, 0.035, 0.06, 0.1, 0.17, 0.3, 0.5, 0.8)
_STEPS_A_SPREAD: Final = 3
_REACH: Final = log(6)  # medians from a sixth to six times the first guess
_GUESS_SPREAD: Final = 0.8  # of the median, about the guess
_FADING: Final = 0.995  # of a success's weight, with each newer one
_LEAST: Final = 9.0  # what is e to this less likely than the likeliest is no longer looked at
_SHARPNESS: Final = 2.0  # the power of the likelihood by which is drawn: more costs time where a service changes
_NEWEST: Final = 8  # successes that a new beginning starts from
_IMPOSSIBLE: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Observation:
    """A success, in service seconds since its create was answered: at `going_seconds` it still went on.

    At `ended_seconds` it was seen to have ended. Where nobody saw it go on, `going_seconds` is 0.
    """

    going_seconds: float
    ended_seconds: float


@dataclass(frozen=True, slots=True)
class LogNormal:
    """A log-normal distribution of durations; `spread` is the standard deviation of the logarithm."""

    median_seconds: float
    spread: float

    def share_ended(self, seconds: float) -> float:
        """Return the share of generations that end within so long, the odd ones included."""
        if seconds <= 0:
            return 0.0
        z = log(seconds / self.median_seconds)
        odd = max(ODD_SPREAD, self.spread)
        return (1 - ODD_SHARE) * _normal_share(z / self.spread) + ODD_SHARE * _normal_share(z / odd)

    @property
    def mean_seconds(self) -> float:
        """Return the expected duration, the odd ones left out."""
        return self.median_seconds * exp(self.spread**2 / 2)


class DurationModel:
    """What is known of one kind of generation: successes, and how likely each shape is by them."""

    def __init__(self, usual_seconds: float, sightings: Iterable[Observation] = ()) -> None:
        """Begin with what earlier runs saw, the oldest first; `usual_seconds` is the guess where that is nothing."""
        self._usual_seconds = usual_seconds
        self._seen = deque(sightings, maxlen=REMEMBERED)
        self._surprises: deque[bool] = deque(maxlen=_NEWEST)
        self._likely: list[tuple[LogNormal, float]] = []  # with the logarithm of how likely it is
        self._begin()

    @property
    def seen(self) -> int:
        """How many successes this rests on."""
        return len(self._seen)

    def add(self, sighting: Observation) -> None:
        """Learn from one more success. Where most of the newest were odd, the service has changed: begin anew."""
        self._seen.append(sighting)
        self._weigh(sighting)
        if sum(self._surprises) > _NEWEST / 2:
            self._seen = deque(list(self._seen)[-_NEWEST:], maxlen=REMEMBERED)
            self._begin()

    def drawn(self, number: float) -> LogNormal:
        """Return a shape, each by the square of its likelihood; `number` is uniform from 0 to 1."""
        weights = self._weights(_SHARPNESS)
        reached = number * sum(weights)
        return next(
            (shape for (shape, _), so_far in zip(self._likely, accumulate(weights), strict=True) if so_far >= reached),
            self._likely[-1][0],
        )

    @property
    def mean_seconds(self) -> float:
        """Return the expected duration over all shapes."""
        weights = self._weights()
        total = sum(weight * shape.mean_seconds for (shape, _), weight in zip(self._likely, weights, strict=True))
        return total / sum(weights)

    def _weights(self, sharpness: float = 1.0) -> list[float]:
        top = max(likelihood for _, likelihood in self._likely)
        return [exp(sharpness * (likelihood - top)) for _, likelihood in self._likely]

    def _begin(self) -> None:
        """Take all shapes about a first guess, and learn from what was seen."""
        self._surprises.clear()
        middles = sorted((seen.going_seconds + seen.ended_seconds) / 2 for seen in self._seen)
        guess = log(middles[len(middles) // 2] if middles else self._usual_seconds)
        self._likely = []
        for spread in _SPREADS:
            step = spread / _STEPS_A_SPREAD
            reach = int(_REACH / step)
            for number in range(-reach, reach + 1):
                off = number * step
                likelihood = log(step) - (off / _GUESS_SPREAD) ** 2 / 2
                self._likely.append((LogNormal(exp(guess + off), spread), likelihood))
        for sighting in self._seen:
            self._weigh(sighting)

    def _weigh(self, sighting: Observation) -> None:
        """Make each shape as much likelier as it is likelier to give this interval."""
        low, high = sighting.going_seconds, sighting.ended_seconds
        weighed = [
            (shape, likelihood * _FADING + log(shape.share_ended(high) - shape.share_ended(low) + _IMPOSSIBLE))
            for shape, likelihood in self._likely
        ]
        best, top = max(weighed, key=lambda entry: entry[1])
        self._surprises.append(_is_odd(best, low, high))
        self._likely = [(shape, likelihood) for shape, likelihood in weighed if likelihood > top - _LEAST]


def _is_odd(shape: LogNormal, low: float, high: float) -> bool:
    """Tell whether an interval is more likely of an odd generation than of a regular one."""
    z_low = log(low / shape.median_seconds) if low > 0 else -inf
    z_high = log(high / shape.median_seconds)
    regular = _normal_share(z_high / shape.spread) - _normal_share(z_low / shape.spread)
    odd = _normal_share(z_high / ODD_SPREAD) - _normal_share(z_low / ODD_SPREAD)
    return (1 - ODD_SHARE) * regular < ODD_SHARE * odd


def _normal_share(z: float) -> float:
    """Return the share of a standard normal distribution up to `z`."""
    return (1 + erf(z / sqrt(2))) / 2
