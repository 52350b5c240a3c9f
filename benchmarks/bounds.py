"""Lower bounds: the least that any program could need, if it knew beforehand what nobody knows.

They keep the service's rules and nothing else: one active generation, at most one read in ten seconds of it, the
minute of creates, the credits of a day.
"""

import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from math import ceil, erf, exp, log, sqrt

POLL_SECONDS = 10.0
MINUTE_SECONDS = 60.0
CREATES_A_MINUTE = 10
_FARTHEST = 4.5  # deviations that are looked at


def log_normal(mean: float, cv: float, seed: int) -> Callable[[], float]:
    """Return what draws log-normal durations; the same seed draws the same ones."""
    chance, deviation = random.Random(seed), sqrt(log(1 + cv * cv))
    return partial(chance.lognormvariate, log(mean) - deviation**2 / 2, deviation)


def least_makespan(durations: Sequence[float], *, accounts: int = 1) -> float:
    """Return the seconds until the last success is seen, by one who knows all durations, on so many accounts.

    A generation that ended before its first read was allowed is seen then. Several accounts share the work evenly
    at best, and none finishes before the longest generation.
    """
    held = [max(POLL_SECONDS, duration) for duration in durations]
    if accounts > 1:
        return max([sum(held) / accounts, *held])
    at, starts = 0.0, deque[float](maxlen=CREATES_A_MINUTE)
    for seconds in held:
        if len(starts) == CREATES_A_MINUTE:
            at = max(at, starts[0] + MINUTE_SECONDS)
        starts.append(at)
        at += seconds
    return at


@dataclass(frozen=True)
class Detection:
    """The best moments of reads for one who knows the distribution of durations, but not the draw.

    By dynamic programming over all moments at least ten seconds apart: after a read at a step, the step of the next.
    """

    step_seconds: float
    following: tuple[int, ...]
    idle_seconds: float  # the least expected time from an end to the read that sees it

    def idle_after(self, duration: float) -> float:
        """Return how long a generation of this duration has ended when it is seen to have."""
        at = 0
        while at * self.step_seconds < duration:
            at = self.following[at] if at < len(self.following) else at + round(POLL_SECONDS / self.step_seconds)
        return at * self.step_seconds - duration


def best_detection(mean: float, cv: float) -> Detection:
    """Return the best moments for log-normal durations."""
    deviation = sqrt(log(1 + cv * cv))
    median = mean / sqrt(1 + cv * cv)
    gap = ceil(POLL_SECONDS / min(0.25, mean * cv / 20))
    step = POLL_SECONDS / gap
    count = ceil(median * exp(_FARTHEST * deviation) / step)
    moments = [number * step for number in range(count + 2 * gap + 1)]
    share = [(1 + erf(log(at / median) / deviation / sqrt(2))) / 2 if at else 0.0 for at in moments]
    partial = [0.0]  # of the mean, up to each step
    for (before, after), (earlier, later) in zip(pairwise(moments), pairwise(share), strict=True):
        partial.append(partial[-1] + (later - earlier) * (before + after) / 2)
    idle, following = [0.0] * len(moments), [0] * count
    for now in range(count - 1, -1, -1):
        idle[now], following[now] = min(
            (moments[then] * (share[then] - share[now]) - partial[then] + partial[now] + idle[then], then)
            for then in range(now + gap, now + 2 * gap + 1)
        )
    return Detection(step, tuple(following), idle[0])
