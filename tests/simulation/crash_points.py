"""Kill the program at every point of the standard run, and check that it keeps its promises.

One way of dying at a time; a point is a step of the program, or an operation on its queue, its files or the network.
Where nothing was done and no time has passed since the point before, dying here is dying there: such points are played
with --each.

    python tests/simulation/crash_points.py                     every point, killed
    python tests/simulation/crash_points.py --how power         the power cut: some of what was not synced is gone
    python tests/simulation/crash_points.py --how loss          the power cut: all that was not synced is gone
    python tests/simulation/crash_points.py --how process       both sides in one process, which is killed; also at each
                                                                statement within a transaction
    python tests/simulation/crash_points.py --how objects       every point, killed; the outputs are objects at a URL
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
from typing import Final, Literal, get_args

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from simulation.log_silencing import silence, silent_pool
from simulation.plan import Plan
from simulation.plan_runner import Outcome, play
from simulation.power_cuts import Cut
from simulation.standard_run import plan

How = Literal["kill", "objects", "power", "loss", "process"]
_Deaths = tuple[int, ...]
_CUTS: Final[dict[How, Cut]] = {"power": "drawn", "loss": "all"}


def every_point(how: How = "kill") -> list[_Deaths]:
    """Return each point of the standard run, one death each."""
    return [(point,) for point in range(1, play_quietly((), how).points + 1)]


def every_turn(how: How = "kill", *, share: int = 1, offset: int = 0) -> list[_Deaths]:
    """Return each `share`-th point at which the world differs from the point before."""
    return [(point,) for point in play_quietly((), how).turns[offset % share :: share]]


def pairs(count: int, seed: int, *, processes: int) -> list[_Deaths]:
    """Return pairs of points; the second lies in the life that begins after the death at the first."""
    chance, turns = random.Random(seed), play_quietly(()).turns
    firsts = [chance.choice(turns) for _ in range(count)]
    known = sorted(set(firsts))
    with silent_pool(processes) as pool:
        second_lives = pool.map(play_deaths, [(first,) for first in known])
    points = {first: life.points for first, life in zip(known, second_lives, strict=True)}
    return [(first, chance.randint(1, points[first])) for first in firsts]


def broken(deaths: Iterable[_Deaths], *, how: How, processes: int, seed: int = 0) -> Iterator[tuple[_Deaths, Outcome]]:
    """Play all of them; yield those that broke a promise."""
    work = list(deaths)
    with silent_pool(processes) as pool:
        yield from _broken(work, pool.imap(partial(play_deaths, how=how, seed=seed), work, chunksize=10))


def _broken(work: Iterable[_Deaths], results: Iterable[Outcome]) -> Iterator[tuple[_Deaths, Outcome]]:
    for chosen, outcome in zip(work, results, strict=True):
        if outcome.violations:
            yield chosen, outcome


def play_quietly(deaths: _Deaths, how: How = "kill") -> Outcome:
    """Play the standard run with all logging off."""
    with silence():
        return play(plan_of(deaths, how))


def play_deaths(deaths: _Deaths, how: How = "kill", seed: int = 0) -> Outcome:
    """Play the standard run with its deaths."""
    if how == "process":
        (point,) = deaths
        return play(plan_of((), how, seed), killed_at=point)
    return play(plan_of(deaths, how, seed))


def plan_of(deaths: _Deaths, how: How, seed: int = 0) -> Plan:
    """Return the standard run for a way of dying; `seed` selects what a power cut loses."""
    return plan(
        deaths,
        cuts_power=_CUTS.get(how),
        counts_statements=how == "process",
        cut_seed=seed,
        has_objects=how == "objects",
    )


def main() -> int:
    args = _arguments()
    if args.only:
        with silence():
            outcome = play_deaths(args.only, args.how, args.seed)
        print("\n".join([*outcome.story, *outcome.violations, f"died at {', then '.join(outcome.died_at)}"]))
        return 0
    began = time.perf_counter()
    if args.pairs:
        deaths = pairs(args.pairs, args.seed, processes=args.processes)
    else:
        deaths = every_point(args.how) if args.each else every_turn(args.how)
    found: Counter[tuple[str, ...]] = Counter()
    for chosen, outcome in broken(deaths, how=args.how, processes=args.processes, seed=args.seed):
        if not found[outcome.violations]:
            where = ",".join(str(point) for point in chosen)
            print(f"--only {where} --how {args.how} --seed {args.seed}  died at {', then '.join(outcome.died_at)}")
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
    parser.add_argument("--seed", type=int, default=0, help="draws pairs, and what a power cut takes")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", type=lambda text: tuple(int(part) for part in text.split(",")))
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
