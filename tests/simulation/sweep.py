"""The sweep: every point of death in every way, pairs of them, and worlds drawn from seeds; all in one command.

What is drawn is drawn from --seed, which is told, so that a finding can be looked at again.

    python tests/simulation/sweep.py                        all of it: well over an hour
    python tests/simulation/sweep.py --part worlds          only the points, the pairs, the worlds, the dialects, or
                                                            the restores
    python tests/simulation/sweep.py --short                a small share of each, in about a minute
    python tests/simulation/sweep.py --short --seed 4711    the same share again
"""

import argparse
import os
import secrets
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count
from math import ceil
from multiprocessing.pool import Pool
from pathlib import Path
from typing import Final, get_args

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from simulation.crash_points import How, every_point, every_turn, pairs, play_deaths
from simulation.log_silencing import silent_pool
from simulation.plan_runner import Outcome
from simulation.restores import RESTORES, play_restores
from simulation.scenarios import Options
from simulation.seeds import command_of, play_seed
from simulation.strangers import meet

OPTIONS: Final = Options(days=2.0)
RUSHED: Final = Options(days=2.0, is_rushed=True)
Runs = Iterator[tuple[str, Outcome]]  # with the command that plays each again
PAIRED: Final[tuple[How, ...]] = ("kill", "power")  # a process that is killed twice is no other case


@dataclass(frozen=True)
class Extent:
    """How much is played."""

    share: int | None  # every how many points that make a difference; None: each point
    pairs: int
    account_days: int
    rushed_days: int  # of worlds in which the minutes are what is short: they take longest to play
    dialects: int  # of services that nobody has seen
    restores: int  # of the queue from an older copy


FULL: Final = Extent(share=None, pairs=5000, account_days=10_000, rushed_days=400, dialects=10_000, restores=1000)
SHORT: Final = Extent(share=16, pairs=24, account_days=60, rushed_days=4, dialects=150, restores=24)


@dataclass
class Tally:
    """What was played, and what was found."""

    runs: int = 0
    deaths: int = 0
    account_days: int = 0
    generations: int = 0
    broken: int = 0

    def add(self, where: str, outcome: Outcome) -> None:
        """Count an outcome, and tell of a broken promise where it happened."""
        self.runs += 1
        self.deaths += len(outcome.died_at)
        self.account_days += outcome.account_days
        self.generations += outcome.generations
        if outcome.violations:
            self.broken += 1
            print(f"{where}\n" + "\n".join(f"    {violation}" for violation in outcome.violations[:5]), flush=True)


def main() -> int:
    args = _arguments()
    extent = SHORT if args.short else FULL
    print(f"seed {args.seed}, {args.processes} processes", flush=True)
    is_paired = args.part in {None, "pairs"}  # drawn with processes of their own, before those of the pool are there
    drawn = pairs(extent.pairs, args.seed, processes=args.processes) if is_paired else []
    with silent_pool(args.processes) as pool:
        parts = _parts(pool, extent, args.seed, drawn)
        broken = sum(_tell(name, runs) for part, name, runs in parts if args.part in {None, part})
    print("every promise was kept" if not broken else f"{broken} runs broke a promise")
    return 1 if broken else 0


def _parts(pool: Pool, extent: Extent, seed: int, drawn: list[tuple[int, ...]]) -> Iterator[tuple[str, str, Runs]]:
    """Give everything that is played: its part, its name, and its runs, which begin as they are asked for."""
    for how in get_args(How):
        yield "points", f"points, {how}", _every(pool, extent, how, seed)
    for number, how in enumerate(PAIRED):  # each way of dying has others of the pairs
        yield "pairs", f"pairs, {how}", _points(pool, drawn[number :: len(PAIRED)], how, seed)
    first_seed = seed * 1_000_000
    yield "worlds", "worlds", _worlds(pool, first_seed, OPTIONS, extent.account_days, batch=20)
    yield "worlds", "rushed worlds", _worlds(pool, first_seed, RUSHED, extent.rushed_days, batch=4)
    yield "dialects", "dialects", _dialects(pool, seed, extent.dialects)
    yield "restores", "restores", _restores(pool, seed, extent.restores)


def _restores(pool: Pool, seed: int, restores: int) -> Runs:
    """Restore the queue from older copies; the deaths that are told are restores and kills."""
    seeds = range(seed * 1_000_000, seed * 1_000_000 + ceil(restores / RESTORES))
    for drawn, outcome in zip(seeds, pool.imap(play_restores, seeds), strict=True):
        yield f"restores.py --seed {drawn}", outcome


def _dialects(pool: Pool, seed: int, count: int) -> Runs:
    """Meet services in dialects: whether they complete is counted by strangers.py, what they cost is looked at here."""
    first = seed * 1_000_000
    for verdict in pool.imap_unordered(meet, range(first, first + count), chunksize=5):
        yield f"strangers.py --only {verdict.seed}", Outcome(0, (), (), verdict.broken, generations=verdict.generations)


def _every(pool: Pool, extent: Extent, how: How, seed: int) -> Runs:
    deaths = every_turn(how, share=extent.share, offset=seed) if extent.share else every_point(how)
    yield from _points(pool, deaths, how, seed)


def _points(pool: Pool, deaths: list[tuple[int, ...]], how: How, seed: int) -> Runs:
    outcomes = pool.imap(partial(play_deaths, how=how, seed=seed), deaths, chunksize=10)
    for chosen, outcome in zip(deaths, outcomes, strict=True):
        points = ",".join(str(point) for point in chosen)
        yield f"crash_points.py --only {points} --how {how} --seed {seed}", outcome


def _worlds(pool: Pool, first_seed: int, options: Options, account_days: int, *, batch: int) -> Runs:
    """Play worlds until there are so many days, looking after each batch."""
    days = 0
    for first in count(first_seed, batch):
        for seed, outcome in pool.imap_unordered(partial(play_seed, options=options), range(first, first + batch)):
            days += outcome.account_days
            yield f"seeds.py {command_of(seed, options)}", outcome
        if days >= account_days:
            return


def _tell(name: str, runs: Runs) -> int:
    """Play all of them; tell how many there were, and return how many broke a promise."""
    began, tally = time.perf_counter(), Tally()
    for where, outcome in runs:
        tally.add(where, outcome)
    print(
        f"{name:<16} {tally.runs:6} runs {tally.deaths:6} deaths {tally.account_days:7} account-days"
        f" {tally.generations:7} generations {time.perf_counter() - began:8.1f} s  {tally.broken} broken",
        flush=True,
    )
    return tally.broken


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="play a small share of everything")
    parser.add_argument(
        "--part", choices=("points", "pairs", "worlds", "dialects", "restores"), help="play only this part"
    )
    parser.add_argument("--seed", type=int, default=secrets.randbelow(100_000), help="what is drawn from it is told")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
