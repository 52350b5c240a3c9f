"""How long an ended generation goes unseen: a read every ten seconds, learned ones, and the best that knows.

The policy alone, without the program around it: on every set of durations the same ones for each way of reading, many
runs of each set, begun with nothing learned. Time is that of the slot: the durations and what passes unseen after them.
"Known" reads at the best moments of one who knows the distribution of each generation's duration, but not the draw.
Ratios are followed by half the width of their 95 % interval over the runs.

    python benchmarks/reading.py [--runs 16] [--only many modes] [--processes 2]

Ends with 1 where a goal is missed: `GOAL_OF_CLOCK` on every set, `GOAL_OF_KNOWN` on those of many kinds.
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from math import exp, log, pi, sin, sqrt
from multiprocessing import Pool
from random import Random
from statistics import mean, stdev
from typing import Final

from bounds import POLL_SECONDS, Detection, best_detection
from figure import Figure, at_most

from batchkiln.core.polling import Kind, Observation
from batchkiln.worker.poll_timing import DurationModels

GOAL_OF_CLOCK: Final = 1.01
GOAL_OF_KNOWN: Final = 1.05
FEW_OF_EACH: Final = "many kinds, 12 of each"
ITEMS: Final = 300
TIGHT: Final = 0.05
_KINDS: Final = 10


@dataclass(frozen=True, slots=True)
class Generation:
    """One generation. `known` are the best moments for its distribution; None where nobody computed them."""

    kind: Kind
    seconds: float
    known: Detection | None = None


Generations = Iterator[Generation]
_image: Final = partial(Kind, is_video=False, model="m")
_known = cache(best_detection)


def _drawn(chance: Random, middle: float, cv: float) -> float:
    deviation = sqrt(log(1 + cv * cv))
    return chance.lognormvariate(log(middle) - deviation**2 / 2, deviation)


def steady(chance: Random, middle: float, cv: float, items: int = ITEMS) -> Generations:
    """Give images of one kind."""
    for _ in range(items):
        yield Generation(_image("0"), _drawn(chance, middle, cv), _known(middle, cv))


def many(chance: Random, each: int, *, are_alike: bool = False) -> Generations:
    """Give few images of each of ten kinds of a model; means 12 to 30 s, or within a quarter of each other."""
    centre = chance.uniform(14, 26)
    for number in range(_KINDS):
        middle = round(centre * exp(chance.uniform(-0.25, 0.25)) if are_alike else chance.uniform(12, 30), 1)
        cv = round(exp(chance.uniform(log(0.03), log(0.1))), 2)
        for _ in range(each):
            yield Generation(_image(str(number)), _drawn(chance, middle, cv), _known(middle, cv))


def clips(chance: Random, each: int) -> Generations:
    """Give few clips of each length of a model, whose durations are in proportion to the length."""
    rate = chance.uniform(3, 6)
    for length in (4.0, 8.0, 6.0, 10.0):
        kind, middle = Kind(str(length), is_video=True, model="m", output_seconds=length), round(rate * length, 1)
        for _ in range(each):
            yield Generation(kind, _drawn(chance, middle, TIGHT), _known(middle, TIGHT))


def modes(chance: Random, first: float | None, second_share: float = 0.5, factor: float = 1.6) -> Generations:
    """Give images of two servers, one slower by a factor; `first` is the mean of the faster one, drawn if None."""
    middle = chance.uniform(12, 30) if first is None else first
    for _ in range(ITEMS):
        slow = factor if chance.random() < second_share else 1.0
        yield Generation(_image("0"), _drawn(chance, slow * middle, TIGHT))


def waves(chance: Random, middle: float) -> Generations:
    """Give images whose mean goes up and down by a quarter within a hundred of them."""
    phase = chance.random()
    for number in range(ITEMS):
        yield Generation(_image("0"), _drawn(chance, middle * (1 + 0.25 * sin(2 * pi * (number / 100 + phase))), TIGHT))


def drift(chance: Random, middle: float, step: float) -> Generations:
    """Give images whose mean changes with each by a share of itself."""
    for number in range(200):
        yield Generation(_image("0"), _drawn(chance, middle * (1 + step) ** number, TIGHT))


def change(chance: Random, first: float, then: float) -> Generations:
    """Give images of a service that changes its pace after half of them."""
    yield from steady(chance, first, TIGHT, ITEMS // 2)
    yield from steady(chance, then, TIGHT, ITEMS // 2)


SETS: Final[dict[str, Callable[[Random], Generations]]] = {
    **{
        f"steady: mean {middle:.0f} s, CV {cv}": partial(steady, middle=middle, cv=cv)
        for middle in (15.0, 20.0, 30.0, 60.0)
        for cv in (0.05, 0.2)
    },
    **{f"many kinds, {each} of each": partial(many, each=each) for each in (5, 12, 20, 40)},
    "many similar kinds, 12 of each": partial(many, each=12, are_alike=True),
    "clips of four lengths, 12 of each": partial(clips, each=12),
    "two modes: 12 to 30 s and 1.6 times": partial(modes, first=None),
    **{
        f"two modes: {first:.0f} s and 1.6 times": partial(modes, first=first)
        for first in (12.0, 15.0, 18.0, 20.0, 25.0, 30.0)
    },
    "two modes: 15 s, a fifth 1.6 times": partial(modes, first=15.0, second_share=0.2),
    **{f"waves: mean {middle:.0f} s": partial(waves, middle=middle) for middle in (15.0, 20.0, 30.0, 60.0)},
    **{f"drift: {middle:.0f} s, +1 % each": partial(drift, middle=middle, step=0.01) for middle in (15.0, 30.0)},
    "drift: 60 s, -0.5 % each": partial(drift, middle=60.0, step=-0.005),
    **{
        f"change: {first:.0f} s, then {then:.0f} s": partial(change, first=first, then=then)
        for first, then in ((30.0, 15.0), (28.0, 22.0), (15.0, 30.0), (40.0, 25.0), (17.0, 13.0))
    },
}


@dataclass(frozen=True, slots=True)
class Times:
    """The slot's time in one run, in seconds, by the way of reading; `reads` are the learned ones per generation."""

    clock: float
    learned: float
    known: float | None
    reads: float


def run(name: str, seed: int) -> Times:
    """Read one run of a set in each way."""
    generations = list(SETS[name](Random(f"{name} {seed}")))
    models, learned, reads = DurationModels(POLL_SECONDS), 0.0, 0
    for generation in generations:
        model = models.of(generation.kind)
        going, at = 0.0, model.next_read_seconds(elapsed_seconds=0.0, interval_seconds=POLL_SECONDS)
        reads += 1
        while at < generation.seconds:
            going, at = at, model.next_read_seconds(elapsed_seconds=at, interval_seconds=POLL_SECONDS)
            reads += 1
        models.add(generation.kind, Observation(going, at))
        learned += at
    clock = sum(-(-generation.seconds // POLL_SECONDS) * POLL_SECONDS for generation in generations)
    known = [each.seconds + each.known.idle_after(each.seconds) for each in generations if each.known]
    return Times(clock, learned, sum(known) if known else None, reads / len(generations))


@dataclass(frozen=True, slots=True)
class Ratio:
    """A ratio of two sums over runs, and half the width of its 95 % interval."""

    value: float
    within: float

    def __str__(self) -> str:
        """Return both."""
        return f"{self.value:.3f} ± {self.within:.3f}"


def ratio(tops: list[float], bottoms: list[float]) -> Ratio:
    """Return the ratio of two sums over at least two runs."""
    found = sum(tops) / sum(bottoms)
    left = [top - found * bottom for top, bottom in zip(tops, bottoms, strict=True)]
    return Ratio(found, 1.96 * stdev(left) / sqrt(len(left)) / mean(bottoms))


@dataclass(frozen=True, slots=True)
class Compared:
    """A set of durations and its ratios; those to the one who knows where nobody computed it are None."""

    name: str
    of_clock: Ratio
    clock_of_known: Ratio | None
    of_known: Ratio | None
    reads: float

    @property
    def is_reached(self) -> bool:
        """Whether the goals are reached."""
        is_near = self.of_known is None or self.name != FEW_OF_EACH or self.of_known.value <= GOAL_OF_KNOWN
        return is_near and self.of_clock.value <= GOAL_OF_CLOCK


def compared(runs: int, *, only: tuple[str, ...] = ("",), processes: int = 2) -> Iterator[Compared]:
    """Read so many runs of each set whose name begins so."""
    with Pool(processes) as pool:
        for name in (name for name in SETS if name.startswith(only)):
            found = pool.starmap(run, [(name, seed) for seed in range(runs)], chunksize=1)
            clock, learned = [each.clock for each in found], [each.learned for each in found]
            known = [each.known for each in found if each.known is not None]
            yield Compared(
                name,
                ratio(learned, clock),
                ratio(clock, known) if known else None,
                ratio(learned, known) if known else None,
                mean(each.reads for each in found),
            )


def figures(runs: int) -> Iterator[Figure]:
    """Give the lines of the table: the set of many kinds, and the worst of all sets against every ten seconds."""
    found = list(compared(runs))
    few = next(each for each in found if each.name == FEW_OF_EACH)
    if few.of_known is not None:
        beside = f"who knows each distribution; every ten seconds {few.clock_of_known}"
        yield at_most(f"polling, {few.name}", str(few.of_known), beside, few.of_known.value, GOAL_OF_KNOWN)
    worst = max(found, key=lambda each: each.of_clock.value)
    work = f"polling, the worst of {len(found)} sets ({worst.name})"
    yield at_most(work, str(worst.of_clock), "every ten seconds", worst.of_clock.value, GOAL_OF_CLOCK)


def main() -> int:
    """Print the table; 1 where a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=16, help="of each set; at least 2")
    parser.add_argument("--only", nargs="+", default=[""], metavar="WORDS", help="sets whose names begin with these")
    parser.add_argument("--processes", type=int, default=2)
    args = parser.parse_args()
    is_reached = True
    print(f"{args.runs} runs of each set\n")
    print("| durations | every 10 s / known | learned / known | learned / every 10 s | reads | |")
    print("|---|---|---|---|---|---|")
    for each in compared(args.runs, only=tuple(args.only), processes=args.processes):
        is_reached &= each.is_reached
        told = f"{each.clock_of_known or ''} | {each.of_known or ''} | {each.of_clock} | {each.reads:.2f}"
        print(f"| {each.name} | {told} | {'' if each.is_reached else '**no**'} |", flush=True)
    return 0 if is_reached else 1


if __name__ == "__main__":
    sys.exit(main())
