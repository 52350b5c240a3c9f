"""Learns how long generations of a kind take, and so when to poll the next one. Pure.

No reply says when a generation ended: one poll finds it ended, and an earlier poll found it running. Each success is
therefore an interval. A model weighs some hundred log-normal distributions by these intervals, in three ways: with a
long memory (steady durations), with a short one (drift, another machine), and as a mixture of several distributions
(servers of different speed). Each way is trusted as far as it foretold the latest intervals. The next generation is
expected to be as all likely distributions together say. No single one is ever believed, so that an uncertain model
tries different moments, and a certain one the best.

Polls at the same moments cannot tell a wide distribution from two narrow ones. So while much idle time is expected,
some first polls are later, by varying parts of an interval: the more were seen, the fewer.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import repeat
from math import erf, exp, inf, isqrt, log, sqrt
from operator import add, mul, sub
from typing import Final

from msgspec import Struct

from batchkiln.core.poll_schedule import Expectation, LogNormal, Schedule, Shares, best_schedule
from batchkiln.core.polling import Observation

REMEMBERED: Final = 64
"""The number of newest observations of a kind that a model begins with."""

_SPREADS: Final = (0.03, 0.06, 0.12, 0.25, 0.5)  # standard deviations of the logarithm
_STEPS_A_SPREAD: Final = 2
_GUESS_SPREAD: Final = 0.8  # of the logarithm of the median around the guess without any observation
_SURPRISE: Final = 0.1  # density of the medians far from the guess, relative to the guess, for a guess as wide as 1
_REACH: Final = 2.25  # medians as far from the guess as so many of its spreads
_LEAST_REACH: Final = log(3)
_WITHIN: Final = 5.0  # spreads on each side of the median: all but a part in a million
_ROOT: Final = sqrt(2)
_ODD: Final = 0.003  # the probability of any interval under any distribution: a service that was down, or retried
_LOG_ODD: Final = log(_ODD)
_MEMORIES: Final = (0.99, 0.85)  # factors on an observation's weight for each newer one
_MIXED_SPREAD: Final = 0.06  # of the distributions in the mixture, whose medians are as far apart
_REVISED: Final = 4  # observations whose parts in the mixture are computed again with each new one
_FIRST_TRIAL: Final = 15  # observations before the first trial; until then, uncertainty tries different moments anyway
_WORTH_A_TRIAL: Final = 0.35  # in intervals: the least expected idle time for a trial
_MOST_AT_ONCE: Final = 0.15  # of the generations that are expected to end before the first poll, for a trial
_FIRST_TRUST: Final = (0.625, 0.1875, 0.1875)  # in the long memory, the short one, and the mixture
_RENEWAL: Final = 0.03  # share of the trust that returns to the first with each observation, so that none is lost


_ANY_VARIATION: Final = tuple(1 / len(_SPREADS) for _ in _SPREADS)


class Guess(Struct, frozen=True):
    """The expectation of a kind's durations before any is observed.

    `spread` is the standard deviation of the logarithm of their median. `variation` is the likelihood of each of the
    standard deviations in `_SPREADS` of the durations' own logarithm. `is_known` says that similar kinds told it.
    """

    median_seconds: float
    spread: float = _GUESS_SPREAD
    variation: tuple[float, ...] = _ANY_VARIATION
    is_known: bool = False


class DurationModel:
    """The expected duration of the next generation of a kind, learned from observed durations."""

    def __init__(self, guess: Guess, observations: Iterable[Observation] = ()) -> None:
        """Start with the observations of earlier runs, oldest first."""
        self._guess = guess
        self._shapes = _shapes(guess)
        self._medians = {
            spread: [each.log_median for each in self._shapes if each.spread == spread] for spread in _SPREADS
        }
        self._prior = _normalized([_prior(shape, guess) for shape in self._shapes])
        self._fits = [[0.0] * len(self._shapes) for _ in _MEMORIES]
        self._beliefs = [self._prior for _ in _MEMORIES]
        mixed = [number for number, shape in enumerate(self._shapes) if shape.spread == _MIXED_SPREAD]
        self._mixed = slice(mixed[0], mixed[-1] + 1, _STEPS_A_SPREAD)
        self._mixture = _Mixture(_normalized(self._prior[self._mixed]))
        self._trust = list(_FIRST_TRUST)
        self._schedule: Schedule | None = None
        self._shares = Shares()
        self.seen = 0
        """The number of observations, with those that the model began with."""
        earlier = deque(observations, maxlen=REMEMBERED)
        for observation in earlier:
            self.add(observation)
        self._next_trial = _next_trial(self.seen)
        # 0 without earlier observations; otherwise it differs from run to run, so that each tries other moments
        self._trial_number = int(sum(each.ended_seconds for each in earlier))

    def add(self, observation: Observation) -> None:
        """Learn from an observation."""
        self.seen += 1
        self._schedule = None
        fit, logs = self._fit(observation)
        mixed = fit[self._mixed]
        foretold = [
            *(sum(map(mul, belief, fit)) for belief in self._beliefs),
            sum(map(mul, self._mixture.weights, mixed)),
        ]
        trust = _normalized([each * probability for each, probability in zip(self._trust, foretold, strict=True)])
        self._trust = [
            (1 - _RENEWAL) * each + _RENEWAL * first for each, first in zip(trust, _FIRST_TRUST, strict=True)
        ]
        self._fits = [
            [memory * old + new for old, new in zip(fits, logs)]  # noqa: B905  a check for each would take as long
            for memory, fits in zip(_MEMORIES, self._fits, strict=True)
        ]
        self._beliefs = [self._belief(fits) for fits in self._fits]
        self._mixture.add(mixed)

    def _fit(self, observation: Observation) -> tuple[list[float], list[float]]:
        """Return the likelihood of an observation under each distribution, and its logarithm.

        Nearly all of a distribution is within `_WITHIN` spreads of its median, and the medians of each spread ascend.
        """
        low, high, fit, logs = -inf, log(observation.ended_seconds), list[float](), list[float]()
        if observation.going_seconds > 0:
            low = log(observation.going_seconds)
        for spread, medians in self._medians.items():
            first, last = (bisect_left(medians, moment) for moment in (low - _WITHIN * spread, high + _WITHIN * spread))
            factor = 1 / (spread * _ROOT)
            near = [
                _ODD + (erf((high - median) * factor) - erf((low - median) * factor)) / 2
                for median in medians[first:last]
            ]
            after = len(medians) - last
            fit += [*repeat(_ODD, first), *near, *repeat(_ODD, after)]
            logs += [*repeat(_LOG_ODD, first), *map(log, near), *repeat(_LOG_ODD, after)]
        return fit, logs

    def _belief(self, fits: list[float]) -> list[float]:
        """Return the weights of the distributions whose fits to the observations are given as logarithms."""
        top = max(fits)
        least = top - _UNLIKELY
        weighed = zip(self._prior, fits)  # noqa: B905  as above
        return _normalized([prior * exp(fit - top) if fit > least else 0.0 for prior, fit in weighed])

    def _likely(self) -> Expectation:
        """Return the likely distributions with their weights, which sum to 1."""
        long, short, mixed = self._trust
        together = [long * one + short * two for one, two in zip(*self._beliefs, strict=True)]
        for number, weight in zip(range(len(together))[self._mixed], self._mixture.weights, strict=True):
            together[number] += mixed * weight
        least = max(together) * _NEGLIGIBLE
        kept = [(shape, weight) for shape, weight in zip(self._shapes, together, strict=True) if weight > least]
        total = sum(weight for _, weight in kept)
        return [(shape, weight / total) for shape, weight in kept]

    @property
    def median_seconds(self) -> float:
        """The expected median duration, averaged over the distributions."""
        return exp(sum(weight * shape.log_median for shape, weight in self._likely()))

    def variation(self) -> tuple[float, ...]:
        """Return the likelihood of each of the standard deviations in `_SPREADS`."""
        found = dict.fromkeys(_SPREADS, 0.0)
        for shape, weight in zip(self._shapes, self._beliefs[0], strict=True):
            found[shape.spread] += weight
        return tuple(found.values())

    def next_read_seconds(self, *, elapsed_seconds: float, interval_seconds: float) -> float:
        """Return when to poll a generation next, in seconds after its create; it was last polled at `elapsed_seconds`.

        The result is at least one interval later (Service rule 4.4), and at most two. An interval of 0 means at once.
        Before any generation of this kind or of a similar one was seen, it is one interval. Ask once for each poll: the
        first poll may become a trial, and the next generation then has none.
        """
        if not interval_seconds or not (self.seen or self._guess.is_known):
            return elapsed_seconds + interval_seconds
        if self._schedule is None:
            self._schedule = best_schedule(self._likely(), interval_seconds, self._shares)
        earliest = elapsed_seconds + interval_seconds
        if elapsed_seconds < interval_seconds and self._begins_trial(self._schedule, interval_seconds):
            # halves, quarters and so on, in the order that spreads them (van der Corput)
            later = int(f"{self._trial_number:b}"[::-1], 2) / (1 << self._trial_number.bit_length())
            return max(earliest, (1 + later) * interval_seconds)
        return max(earliest, self._schedule.after(elapsed_seconds))

    def _begins_trial(self, schedule: Schedule, interval_seconds: float) -> bool:
        """Return whether the first poll of this generation is later: at most of one after `_next_trial` observations.

        A trial loses little where much idle time is expected, and hardly any generation ends before the first poll.
        """
        if self.seen < self._next_trial:
            return False
        self._next_trial = _next_trial(self.seen)
        self._trial_number += 1
        at_once = sum(weight * shape.ended_by(interval_seconds) for shape, weight in self._likely())
        return schedule.idle_seconds > _WORTH_A_TRIAL * interval_seconds and at_once < _MOST_AT_ONCE


def _next_trial(seen: int) -> int:
    """Return after how many observations the next trial is, if `seen` are known: a triangular number (15, 21, 28)."""
    row = (isqrt(8 * seen + 1) + 1) // 2
    return max(_FIRST_TRIAL, row * (row + 1) // 2)


class _Mixture:
    """Weighs distributions of one spread by incremental EM.

    Each of the newest observations counts in parts for all distributions that may have made it; so does the prior.
    """

    def __init__(self, prior: Sequence[float]) -> None:
        self._prior = prior
        self.weights = prior
        self._seen = deque[tuple[Sequence[float], Sequence[float]]]()  # likelihoods and parts, the oldest first
        self._sums: Sequence[float] = [0.0] * len(prior)  # of the parts
        self._revised = 0

    def add(self, fit: Sequence[float]) -> None:
        """Learn from an observation, given by its likelihood under each distribution."""
        if len(self._seen) == REMEMBERED:
            _, parts = self._seen.popleft()
            self._sums = list(map(sub, self._sums, parts))
        self._seen.append((fit, [0.0] * len(fit)))
        self._divide(-1)
        for _ in range(min(_REVISED, len(self._seen) - 1)):
            self._revised = (self._revised + 1) % len(self._seen)
            self._divide(self._revised)
        self.weights = _normalized(list(map(add, self._prior, self._sums)))

    def _divide(self, number: int) -> None:
        """Compute the parts of an observation, which sum to 1."""
        fit, before = self._seen[number]
        parts = _normalized(list(map(mul, self.weights, fit)))
        self._sums = [total - old + new for total, old, new in zip(self._sums, before, parts, strict=True)]
        self._seen[number] = fit, parts


def guess_from(similar: Sequence[tuple[DurationModel, float]]) -> Guess:
    """Return the guess for a kind from the models of similar kinds, at least one, each with a factor on its durations.

    The variance of their medians counts together with two assumed kinds that differ by a third.
    """
    logs = [log(model.median_seconds * factor) for model, factor in similar]
    middle = sum(logs) / len(logs)
    variance = (sum((each - middle) ** 2 for each in logs) + 2 * _SIBLING_SPREAD**2) / (len(logs) + 1)
    variation = tuple(
        (1 - _OTHER_VARIATION) * sum(shares) / len(similar) + _OTHER_VARIATION / len(_SPREADS)
        for shares in zip(*(model.variation() for model, _ in similar), strict=True)
    )
    return Guess(exp(middle), sqrt(variance), variation, is_known=True)


_SIBLING_SPREAD: Final = 0.2
_OTHER_VARIATION: Final = 0.2  # the weight of any variation, beside that of similar kinds
_UNLIKELY: Final = 37.0  # distributions that fit worse by so much, as a logarithm, have no weight
_NEGLIGIBLE: Final = 3e-3  # distributions with so small a part of the greatest weight are left out


def _shapes(guess: Guess) -> list[LogNormal]:
    """Return the distributions around a guess: the narrower, the closer to each other."""
    middle, reach = log(guess.median_seconds), max(_LEAST_REACH, _REACH * guess.spread)
    shapes = []
    for spread in _SPREADS:
        count = int(reach * _STEPS_A_SPREAD / spread)
        shapes += [LogNormal(middle + number * spread / _STEPS_A_SPREAD, spread) for number in range(-count, count + 1)]
    return shapes


def _prior(shape: LogNormal, guess: Guess) -> float:
    """Return the weight of a distribution before any observation.

    It prefers short medians a little: a poll that comes too early tells where the durations are, and one after which
    nothing was ever left running tells nothing.
    """
    off = shape.log_median - log(guess.median_seconds)
    variation = guess.variation[_SPREADS.index(shape.spread)] * shape.spread  # the wider, the fewer
    return variation * (exp(-((off / guess.spread) ** 2) / 2) + _SURPRISE * guess.spread) * exp(-off)


def _normalized(weights: Sequence[float]) -> list[float]:
    factor = 1 / sum(weights)
    return [weight * factor for weight in weights]
