"""Let the program die at every point of the standard run, and look whether it kept its promises.

One way of dying at a time; a point is a step of the program, or an operation on its queue, its files or the network.
Where nothing was done and no time has passed since the point before, dying here is dying there: such points are played
with --each.

    python tests/simulation/crash_points.py                     every point, killed
    python tests/simulation/crash_points.py --how power         every point, the power cut
    python tests/simulation/crash_points.py --how process       every point, both sides in one process that is killed
    python tests/simulation/crash_points.py --each              also those that differ in nothing from the one before
    python tests/simulation/crash_points.py --pairs 5000        as many pairs of points, drawn from --seed
    python tests/simulation/crash_points.py --only 17,230       one life after the other, told in full
"""

import argparse
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Literal, get_args

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from simulation.playing import Outcome, play
from simulation.quiet import silence, silent_pool
from simulation.standard import plan

How = Literal["kill", "power", "process"]
_Deaths = tuple[int, ...]


def every_point(*, share: int = 1, offset: int = 0) -> list[_Deaths]:
    """Return each `share`-th point of the standard run, one death each."""
    return [(point,) for point in range(1 + offset % share, play_quietly(()).points + 1, share)]


def every_turn(*, share: int = 1, offset: int = 0) -> list[_Deaths]:
    """Return each `share`-th point that leaves another world behind than the one before it."""
    return [(point,) for point in play_quietly(()).turns[offset % share :: share]]


def pairs(count: int, seed: int) -> list[_Deaths]:
    """Return pairs of points: the second is counted from the restart after the first."""
    chance, standard = random.Random(seed), play_quietly(())
    return [(chance.choice(standard.turns), chance.randint(1, standard.points)) for _ in range(count)]


def broken(deaths: Iterable[_Deaths], *, how: How, processes: int) -> Iterator[tuple[_Deaths, Outcome]]:
    """Play them all; give those in which a promise was broken."""
    work = list(deaths)
    with silent_pool(processes) as pool:
        yield from _broken(work, pool.imap(partial(play_deaths, how=how), work, chunksize=10))


def _broken(work: Iterable[_Deaths], results: Iterable[Outcome]) -> Iterator[tuple[_Deaths, Outcome]]:
    for chosen, outcome in zip(work, results, strict=True):
        if outcome.violations:
            yield chosen, outcome


def play_quietly(deaths: _Deaths) -> Outcome:
    """Play the standard run without a word."""
    with silence():
        return play_deaths(deaths)


def play_deaths(deaths: _Deaths, how: How = "kill") -> Outcome:
    """Play the standard run with its deaths."""
    if how == "process":
        (point,) = deaths
        return play(plan(), killed_at=point)
    return play(plan(deaths, cuts_power=how == "power"))


def main() -> int:
    args = _arguments()
    if args.only:
        outcome = play_deaths(args.only, args.how)
        print("\n".join([*outcome.story, *outcome.violations, f"died at {', then '.join(outcome.died_at)}"]))
        return 0
    began = time.perf_counter()
    deaths = pairs(args.pairs, args.seed) if args.pairs else every_point() if args.each else every_turn()
    found: Counter[tuple[str, ...]] = Counter()
    for chosen, outcome in broken(deaths, how=args.how, processes=args.processes):
        if not found[outcome.violations]:
            where = ",".join(str(point) for point in chosen)
            print(f"--only {where} --how {args.how}  died at {', then '.join(outcome.died_at)}")
            print("\n".join(f"    {violation}" for violation in outcome.violations))
        found[outcome.violations] += 1
    seconds = time.perf_counter() - began
    print(f"{len(deaths)} times {args.how}, {sum(found.values())} with a broken promise, {seconds:.1f} s")
    return 1 if found else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--how", choices=get_args(How), default="kill", help="kill the program, cut its power, or kill both sides"
    )
    parser.add_argument("--each", action="store_true", help="play also points that leave the world as it was before")
    parser.add_argument("--pairs", type=int, default=0, help="so many pairs of points, drawn from --seed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", type=lambda text: tuple(int(part) for part in text.split(",")))
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
