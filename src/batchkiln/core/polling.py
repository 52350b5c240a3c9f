"""Chooses when to poll a generation, from the durations of earlier ones. Pure.

No reply says when a generation ended: one poll finds it ended, and an earlier poll found it running. Each success is
therefore an interval. The model weighs some hundred log-normal distributions by these intervals, the newest most. A
poll whose outcome was certain carries no information, so always polling at the current optimum would never correct a
wrong estimate. For each generation, a distribution is therefore drawn at random, with likely ones preferred (sharpened
Thompson sampling).

A poll that comes too early blocks the next one for a whole interval; a late one leaves the slot idle. Dynamic
programming from the end chooses the moments with the least expected time between success and the poll that finds it.
Polls keep the interval from each other and from the create, so there are never more of them than with one poll per
interval (Service rule 4.4).
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
"""A generation that runs longer than this is shown to a person; polling continues (Service rule 4.5)."""

LOST_AFTER: Final = timedelta(hours=1)
"""The item of a generation whose id the service denies for this long is held for a person."""

RETENTION: Final = timedelta(days=14)
"""The time that the service keeps outputs (Service section 8), counted from creation, the earliest possible start."""

RETENTION_WARNING: Final = timedelta(days=3)
"""The time before the end of retention in which an output that is not downloaded causes a warning."""


def next_poll_at(*, last_settled_at: float | None, interval_seconds: float, now: float) -> float:
    """Return the earliest monotonic moment for the next poll of a generation (Service rule 4.4).

    `last_settled_at` is when the last request about it, or its create, was over; None if there was none.
    """
    return now if last_settled_at is None else max(now, last_settled_at + interval_seconds)


def is_long_pending(created_at: datetime, now: datetime) -> bool:
    """Return whether a generation has run for so long that a person should look; polls continue (Service rule 4.5)."""
    return now - created_at > LONG_PENDING


def retention_ends_at(created_at: datetime) -> datetime:
    """Return when the service may have deleted the outputs (Service section 2.1)."""
    return created_at + RETENTION


ODD_SHARE: Final = 0.03
"""The assumed share of outliers, as from a service that queues or retries. It limits their effect on the model."""

ODD_SPREAD: Final = 1.0
"""The spread of outliers, around the same median."""

REMEMBERED: Final = 64
"""The number of newest observations of a kind that the model uses."""

_SPREADS: Final = (0.02, 0.035, 0.06, 0.1, 0.17, 0.3, 0.5, 0.8)
_STEPS_A_SPREAD: Final = 3
_REACH: Final = log(6)  # medians from a sixth to six times the first estimate
_GUESS_SPREAD: Final = 0.8  # of the median around the first estimate
_FADING: Final = 0.995  # factor on an observation's weight for each newer one
_LEAST: Final = 9.0  # distributions less likely than the best by this much (natural logarithm) are dropped
_SHARPNESS: Final = 2.0  # exponent of the likelihood in a draw: a larger one adapts more slowly to a changed service
_NEWEST: Final = 8  # observations kept when older ones are dropped
_IMPOSSIBLE: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Observation:
    """The duration of one successful generation, as an interval in service seconds after its create was answered.

    At `going_seconds` a poll found it running; 0 if none did. At `ended_seconds` a poll found it ended.
    """

    going_seconds: float
    ended_seconds: float


@dataclass(frozen=True, slots=True)
class LogNormal:
    """A log-normal distribution of durations; `spread` is the standard deviation of the logarithm."""

    median_seconds: float
    spread: float

    def share_ended(self, seconds: float) -> float:
        """Return the expected share of generations that end within `seconds`, outliers included."""
        if seconds <= 0:
            return 0.0
        z = log(seconds / self.median_seconds)
        odd = max(ODD_SPREAD, self.spread)
        return (1 - ODD_SHARE) * _normal_share(z / self.spread) + ODD_SHARE * _normal_share(z / odd)

    @property
    def mean_seconds(self) -> float:
        """The expected duration, outliers excluded."""
        return self.median_seconds * exp(self.spread**2 / 2)


class DurationModel:
    """The observed durations of one kind of generation, and the likelihood of each distribution."""

    def __init__(self, usual_seconds: float, observations: Iterable[Observation] = ()) -> None:
        """Start with the observations of earlier runs, oldest first; `usual_seconds` is the estimate without any."""
        self._usual_seconds = usual_seconds
        self._seen = deque(observations, maxlen=REMEMBERED)
        self._outliers: deque[bool] = deque(maxlen=_NEWEST)
        self._likely: list[tuple[LogNormal, float]] = []  # with the logarithm of its likelihood
        self._begin()

    @property
    def seen(self) -> int:
        """The number of observations."""
        return len(self._seen)

    def add(self, observation: Observation) -> None:
        """Add an observation.

        If most of the newest ones are outliers, the service has changed, and older observations are dropped.
        """
        self._seen.append(observation)
        self._update_likelihoods(observation)
        if sum(self._outliers) > _NEWEST / 2:
            self._seen = deque(list(self._seen)[-_NEWEST:], maxlen=REMEMBERED)
            self._begin()

    def drawn(self, number: float) -> LogNormal:
        """Return a distribution drawn with the square of its likelihood; `number` is uniform from 0 to 1."""
        weights = self._weights(_SHARPNESS)
        reached = number * sum(weights)
        return next(
            (shape for (shape, _), so_far in zip(self._likely, accumulate(weights), strict=True) if so_far >= reached),
            self._likely[-1][0],
        )

    @property
    def mean_seconds(self) -> float:
        """The expected duration, averaged over the distributions."""
        weights = self._weights()
        total = sum(weight * shape.mean_seconds for (shape, _), weight in zip(self._likely, weights, strict=True))
        return total / sum(weights)

    def _weights(self, sharpness: float = 1.0) -> list[float]:
        top = max(likelihood for _, likelihood in self._likely)
        return [exp(sharpness * (likelihood - top)) for _, likelihood in self._likely]

    def _begin(self) -> None:
        """Set up the distributions around a first estimate, and weigh them by the observations."""
        self._outliers.clear()
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
        for observation in self._seen:
            self._update_likelihoods(observation)

    def _update_likelihoods(self, observation: Observation) -> None:
        """Update the likelihood of each distribution with one observation."""
        low, high = observation.going_seconds, observation.ended_seconds
        updated = [
            (shape, likelihood * _FADING + log(shape.share_ended(high) - shape.share_ended(low) + _IMPOSSIBLE))
            for shape, likelihood in self._likely
        ]
        best, top = max(updated, key=lambda entry: entry[1])
        self._outliers.append(_is_odd(best, low, high))
        self._likely = [(shape, likelihood) for shape, likelihood in updated if likelihood > top - _LEAST]


def _is_odd(shape: LogNormal, low: float, high: float) -> bool:
    """Return whether an interval is more likely an outlier than a regular duration."""
    z_low = log(low / shape.median_seconds) if low > 0 else -inf
    z_high = log(high / shape.median_seconds)
    regular = _normal_share(z_high / shape.spread) - _normal_share(z_low / shape.spread)
    odd = _normal_share(z_high / ODD_SPREAD) - _normal_share(z_low / ODD_SPREAD)
    return (1 - ODD_SHARE) * regular < ODD_SHARE * odd


def _normal_share(z: float) -> float:
    """Return the share of a standard normal distribution up to `z`."""
    return (1 + erf(z / sqrt(2))) / 2


_MEDIAN_STEP: Final = 0.01  # distributions that differ by less share a schedule
_SPREAD_STEP: Final = 0.05
_FINEST: Final = 40  # steps per interval
_COARSEST: Final = 10
_TAIL: Final = 2.6  # standard deviations covered; a longer generation is polled every interval
_MOST_STEPS: Final = 4000


def next_read_seconds(shape: LogNormal, *, elapsed_seconds: float, interval_seconds: float) -> float:
    """Return when to poll a generation next, in seconds after its create; it was last polled at `elapsed_seconds`.

    The result is at least one interval later (Service rule 4.4). An interval of 0 means at once.
    """
    if not interval_seconds:
        return elapsed_seconds
    median = round(log(shape.median_seconds / interval_seconds) / _MEDIAN_STEP)
    spread = round(log(shape.spread) / _SPREAD_STEP)
    chosen = _chosen(median, spread)
    return max(elapsed_seconds + interval_seconds, interval_seconds * chosen.after(elapsed_seconds / interval_seconds))


@dataclass(frozen=True, slots=True)
class _Moments:
    """For each step after the create, the step of the next poll. An interval has `steps` steps."""

    steps: int
    following: list[int]

    def after(self, elapsed: float) -> float:
        """Return when to poll after a poll at `elapsed`, both in intervals.

        The position is rounded to the nearest step. Always rounding up would lose time with each poll, because replies
        take a moment.
        """
        here = round(elapsed * self.steps)
        return self.following[here] / self.steps if here < len(self.following) else elapsed + 1


@lru_cache(maxsize=1024)
def _chosen(median_steps: int, spread_steps: int) -> _Moments:
    return _moments(LogNormal(exp(median_steps * _MEDIAN_STEP), exp(spread_steps * _SPREAD_STEP)))


def _moments(shape: LogNormal) -> _Moments:
    """Choose the next poll for each step, backwards from the last. A gap never exceeds two intervals."""
    horizon = shape.median_seconds * exp(_TAIL * shape.spread) + 1
    steps = min(_FINEST, max(_COARSEST, round(10 / (shape.median_seconds * shape.spread))))
    steps = max(1, min(steps, int(_MOST_STEPS / horizon)))
    count = min(_MOST_STEPS, ceil(horizon * steps))
    share = [shape.share_ended(step / steps) for step in range(count + 2 * steps + 1)]
    moment = [0.0]  # partial mean of the durations up to each step
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
