"""Chooses the best times to poll a generation, from how likely each duration is. Pure.

A poll that comes too early blocks the next one for a whole interval; a late one leaves the slot idle. Dynamic
programming from the end chooses the moments with the least expected time between success and the poll that finds it.
Polls keep the interval from each other and from the create, so there are never more of them than with one poll per
interval (Service rule 4.4). What is too uncertain to gain anything is polled every interval.
"""

from collections.abc import Sequence
from itertools import pairwise, repeat
from math import ceil, erf, exp, log, sqrt
from operator import mul, sub
from typing import Final, NamedTuple

from msgspec import Struct

_ROOT: Final = sqrt(2)


class LogNormal(NamedTuple):
    """A log-normal distribution of durations; `spread` is the standard deviation of the logarithm."""

    log_median: float
    spread: float

    def ended_by(self, seconds: float) -> float:
        """Return the share of generations that have ended by a moment after 0."""
        return 0.5 + erf((log(seconds) - self.log_median) / (self.spread * _ROOT)) / 2


Expectation = Sequence[tuple[LogNormal, float]]
"""The likely distributions of a duration with their weights, which sum to 1."""


_FINE: Final = 20  # steps per interval, where durations vary by less than _VARIED intervals
_COARSE: Final = 10
_VARIED: Final = 0.6
_LEAST_GAIN: Final = 0.025  # in intervals: the idle time that a schedule has to save to be used
_TOO_VARIED: Final = 2.0  # standard deviation in intervals, beyond which every interval is best
_COLUMNS_KEPT: Final = 256  # distributions whose shares are kept for the next schedule; some dozens are likely at once
_TAIL: Final = 3.0  # standard deviations covered; a longer generation is polled every interval


class Schedule(Struct, frozen=True):
    """For each step from `first` on, the step of the next poll.

    `idle_seconds` is the expected time from an end to the poll that finds it.
    """

    step_seconds: float
    first: int
    following: Sequence[int]
    idle_seconds: float

    def after(self, elapsed_seconds: float) -> float:
        """Return when to poll after a poll at `elapsed_seconds`; 0 if as soon as the rule permits.

        The position is rounded to the nearest step. Always rounding up would lose time with each poll, because replies
        take a moment.
        """
        here = round(elapsed_seconds / self.step_seconds) - self.first
        return self.following[here] * self.step_seconds if 0 <= here < len(self.following) else 0.0


class Shares:
    """The shares that have ended at multiples of a step; kept from one schedule to the next, which looks at most."""

    def __init__(self) -> None:
        self._columns: dict[tuple[LogNormal, float], list[float]] = {}  # twice the share less one, from step 0 on

    def ended(self, likely: Expectation, step: float, first: int, count: int) -> list[float]:
        """Return the share of generations that are expected to end by each of `count` steps from `first` on."""
        if len(self._columns) > _COLUMNS_KEPT:
            self._columns.clear()
        columns = [self._column(shape, step, first + count)[first : first + count] for shape, _ in likely]
        weights = [weight / 2 for _, weight in likely]
        return [0.5 + sum(map(mul, weights, ended)) for ended in zip(*columns, strict=True)]

    def _column(self, shape: LogNormal, step: float, length: int) -> list[float]:
        """Return at least `length` values of a distribution's error function."""
        column = self._columns.setdefault((shape, step), [-1.0])
        if len(column) < length:
            factor = 1 / (shape.spread * _ROOT)
            steps = range(len(column), length + _FINE)
            column += [erf((log(number * step) - shape.log_median) * factor) for number in steps]
        return column


def best_schedule(likely: Expectation, interval: float, shares: Shares) -> Schedule:
    """Choose the next poll for each step, backwards from the last. A gap never exceeds two intervals."""
    mean = square = 0.0
    for (log_median, spread), weight in likely:
        mean += weight * exp(log_median)
        square += weight * exp(2 * log_median + spread**2)
    deviation = sqrt(max(0.0, square - mean**2))
    if deviation > _TOO_VARIED * interval:
        return Schedule(interval, 0, (), interval / 2)
    gap = _FINE if deviation < _VARIED * interval else _COARSE
    step = interval / gap
    first = max(0, int((mean - _TAIL * deviation) / step) - 2 * gap)
    count = ceil((mean + _TAIL * deviation) / step) + gap - first
    moments = [(first + number) * step for number in range(count + 2 * gap + 1)]
    share = shares.ended(likely, step, first, len(moments))
    partial = [0.0]  # of the mean, up to each step
    for (before, after), (earlier, later) in zip(pairwise(moments), pairwise(share), strict=True):
        partial.append(partial[-1] + (later - earlier) * (before + after) / 2)
    # seen[then]: the part of the expected idle time of a poll at `then` that does not depend on the poll before it
    seen = [
        moment * ended - part + (1 - ended) * interval / 2
        for moment, ended, part in zip(moments, share, partial, strict=True)
    ]
    following = [0] * count
    latest = len(moments) - 1  # the more have ended, the later is the best next poll: going back, it never grows
    for now in range(count - 1, -1, -1):
        ended = share[now]
        window = slice(now + gap, min(now + 2 * gap, latest) + 1)
        idles = list(map(sub, seen[window], map(mul, moments[window], repeat(ended))))
        idle = min(idles)
        latest = now + gap + idles.index(idle)
        following[now] = first + latest
        seen[now] = moments[now] * ended + idle
    clock = range(-first % gap, len(moments), gap)  # polls every interval, from where the first may find an end
    idle_by_clock = sum(
        moments[then] * (share[then] - share[now]) - partial[then] + partial[now] for now, then in pairwise(clock)
    )
    least_idle = seen[clock[0]] - moments[clock[0]] * share[clock[0]] + partial[clock[0]]
    if least_idle > idle_by_clock - _LEAST_GAIN * interval:
        return Schedule(interval, 0, (), idle_by_clock)
    return Schedule(step, first, following, least_idle)
