"""When a generation is read next, by what was learned of how long others took. Pure.

Nobody tells when a generation ended: a read finds that it is over, and an earlier one that it was not. So each success
is an interval, and what is learned is how likely each of some hundred log-normal distributions is after the intervals
seen, the newest of which weigh most. A read tells the less the surer its outcome was, so that reads at the moment that
seems best would never find out better: the distribution to go by is drawn for each generation anew, the likelier ones
more often than by their likelihood (Thompson sampling, sharpened).

A read that comes too early forbids the next for a whole interval, and one that comes late lets the slot idle. From the
distribution, the moments are chosen that make the time from success to the read that sees it least on average, by
dynamic programming from the end. Since reads keep the interval from each other and from the create, there are never
more of them than with a read every interval (Service rule 4.4).
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import accumulate
from math import ceil, erf, exp, inf, log, sqrt
from typing import Final

LONG_PENDING: Final = timedelta(hours=1)
"""A generation that is still not ended after this is shown to a person, and polled on (Service rule 4.5)."""

LOST_AFTER: Final = timedelta(hours=1)
"""An id that the service denies for this long is held for a person."""

RETENTION: Final = timedelta(days=14)
"""How long the service keeps outputs (Service section 8); counted from creation, the earliest it could mean."""

RETENTION_WARNING: Final = timedelta(days=3)
"""How long before its retention ends a paid output that is not fetched is warned of."""


def next_poll_at(*, last_settled_at: float | None, interval_seconds: float, now: float) -> float:
    """Return the earliest monotonic moment for the next read of one generation (Service rule 4.4).

    `last_settled_at` is when the last request about it was over, create included; None if never.
    """
    return now if last_settled_at is None else max(now, last_settled_at + interval_seconds)


def is_long_pending(created_at: datetime, now: datetime) -> bool:
    """Tell whether a person should look: the id stays polled all the same (Service rule 4.5)."""
    return now - created_at > LONG_PENDING


def retention_ends_at(created_at: datetime) -> datetime:
    """Return when the service may have deleted the outputs (Service section 2.1)."""
    return created_at + RETENTION


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


_MEDIAN_STEP: Final = 0.01  # shapes that differ by less share their moments
_SPREAD_STEP: Final = 0.05
_FINEST: Final = 40  # steps of an interval
_COARSEST: Final = 10
_TAIL: Final = 2.6  # deviations looked at; what takes longer is read every interval
_MOST_STEPS: Final = 4000


def next_read_seconds(shape: LogNormal, *, elapsed_seconds: float, interval_seconds: float) -> float:
    """Return how long after its create a generation is read next, when it was last touched after `elapsed_seconds`.

    At least one interval later (Service rule 4.4); an interval of 0 means at once.
    """
    if not interval_seconds:
        return elapsed_seconds
    median = round(log(shape.median_seconds / interval_seconds) / _MEDIAN_STEP)
    spread = round(log(shape.spread) / _SPREAD_STEP)
    chosen = _chosen(median, spread)
    return max(elapsed_seconds + interval_seconds, interval_seconds * chosen.after(elapsed_seconds / interval_seconds))


@dataclass(frozen=True, slots=True)
class _Moments:
    """For each step after the create, the step of the next read; so many `steps` make an interval."""

    steps: int
    following: list[int]

    def after(self, elapsed: float) -> float:
        """Return when to read after a read at `elapsed`, both in intervals.

        The step is the nearest: replies take a little, and a step later each time would lose that much each time.
        """
        here = round(elapsed * self.steps)
        return self.following[here] / self.steps if here < len(self.following) else elapsed + 1


@lru_cache(maxsize=1024)
def _chosen(median_steps: int, spread_steps: int) -> _Moments:
    return _moments(LogNormal(exp(median_steps * _MEDIAN_STEP), exp(spread_steps * _SPREAD_STEP)))


def _moments(shape: LogNormal) -> _Moments:
    """Choose for each step the next read, from the last one back. A gap of two intervals has room for one between."""
    horizon = shape.median_seconds * exp(_TAIL * shape.spread) + 1
    steps = min(_FINEST, max(_COARSEST, round(10 / (shape.median_seconds * shape.spread))))
    steps = max(1, min(steps, int(_MOST_STEPS / horizon)))
    count = min(_MOST_STEPS, ceil(horizon * steps))
    share = [shape.share_ended(step / steps) for step in range(count + 2 * steps + 1)]
    moment = [0.0]  # of the durations up to each step
    for step in range(1, len(share)):
        moment.append(moment[-1] + (share[step] - share[step - 1]) * (step - 0.5) / steps)
    idle = [0.0] * count + [(1 - share[step]) / 2 for step in range(count, len(share))]
    chosen = [0] * count
    for step in range(count - 1, -1, -1):
        idle[step], chosen[step] = min(
            (then / steps * (share[then] - share[step]) - moment[then] + moment[step] + idle[then], then)
            for then in range(step + steps, step + 2 * steps + 1)
        )
    return _Moments(steps, chosen)
