"""When reads of an active generation are worth most: soon after its end, and never closer than the rule allows.

A read that comes too early forbids the next for a whole interval, and one that comes late lets the slot idle. From
what is believed of the duration, the moments are chosen that make the time from success to the read that sees it
least on average, by dynamic programming from the end. Since reads keep the interval from each other and from the
create, there are never more of them than with a read every interval (Service rule 4.4).
"""

from dataclasses import dataclass
from functools import lru_cache
from math import ceil, exp, log
from typing import Final

from batchkiln.core.duration_model import LogNormal

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
