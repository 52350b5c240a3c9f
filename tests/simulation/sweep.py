"""The sweep: every point of death in every way, pairs of them, and worlds drawn from seeds; all in one command.

What is drawn is drawn from --seed, which is told, so that a finding can be looked at again.

    python tests/simulation/sweep.py                        all of it: well over an hour
    python tests/simulation/sweep.py --part worlds          only points, pairs, worlds, dialects, fleet, or restores
    python tests/simulation/sweep.py --part worlds --database postgresql
    python tests/simulation/sweep.py --short                a small share of each, in about a minute
    python tests/simulation/sweep.py --short --seed 4711    the same share again
"""

import argparse
import os
import secrets
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from math import ceil
from multiprocessing.pool import Pool
from pathlib import Path
from typing import Final, TypeVar, get_args

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from simulation.crash_points import How, every_point, every_turn, pairs, play_deaths
from simulation.fleet_plan import Blow
from simulation.fleets import FleetOutcome, count_handover_points, play_fleet_seed, play_handover
from simulation.log_silencing import silent_pool
from simulation.plan import Database
from simulation.plan_runner import Outcome
from simulation.restores import RESTORES, play_restores
from simulation.scenarios import Options
from simulation.seeds import command_of, play_seed
from simulation.served_queues import name_server
from simulation.strangers import meet

T = TypeVar("T")

OPTIONS: Final = Options(days=2.0)
RUSHED: Final = Options(days=2.0, is_rushed=True)
CHOOSING: Final = Options(days=0.1, is_choosing=True)
FEW: Final = Options(days=0.1, is_choosing=True, is_few=True)
Runs = Iterator[tuple[str, Outcome]]  # with the command that plays each again
PARTS: Final = ("points", "pairs", "worlds", "dialects", "fleet")
HANDOVER_BLOWS: Final[tuple[Blow, ...]] = ("kill", "freeze")
PAIRED: Final[tuple[How, ...]] = ("kill", "power")  # a process that is killed twice is no other case


@dataclass(frozen=True)
class Extent:
    """How much is played."""

    share: int | None  # every how many points that make a difference; None: each point
    pairs: int
    account_days: int
    rushed_days: int  # of worlds in which the minutes are what is short: they take longest to play
    choosing_days: int  # of worlds in which a person and a hook choose; they are short
    few_days: int  # of those in which a person tries a few items first
    dialects: int  # of services that nobody has seen
    fleets: int  # worlds with several workers
    handovers: int  # every how many points of a handover
    restores: int  # of the queue from an older copy


FULL: Final = Extent(
    share=None,
    pairs=5000,
    account_days=10_000,
    rushed_days=400,
    choosing_days=200,
    few_days=200,
    dialects=10_000,
    fleets=1000,
    handovers=1,
    restores=1000,
)
SHORT: Final = Extent(
    share=32,
    pairs=24,
    account_days=30,
    rushed_days=4,
    choosing_days=4,
    few_days=4,
    dialects=70,
    fleets=8,
    handovers=150,
    restores=12,
)


@dataclass
class Tally:
    """What was played, and what was found."""

    runs: int = 0
    deaths: int = 0
    account_days: int = 0
    generations: int = 0
    broken: int = 0

    def add(self, where: str, outcome: Outcome) -> None:
        """Count an outcome, and print each broken promise with the command that plays it again."""
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
    if args.database == "postgresql":
        name_server()
    print(f"seed {args.seed}, {args.processes} processes", flush=True)
    is_paired = args.part in {None, "pairs"}  # drawn with processes of their own, before those of the pool are there
    drawn = pairs(extent.pairs, args.seed, processes=args.processes) if is_paired else []
    with silent_pool(args.processes) as pool:
        parts = _parts(pool, extent, args.seed, drawn, args.database)
        begun = ((name, begin()) for part, name, begin in parts if args.part in {None, part})
        broken = sum(_tell(name, runs) for name, runs in _one_ahead(begun))
    print("every promise was kept" if not broken else f"{broken} runs broke a promise")
    return 1 if broken else 0


def _one_ahead(parts: Iterable[T]) -> Iterator[T]:
    """Yield parts once the one after them is there: no process waits for the longest run of a part."""
    before: list[T] = []
    for part in parts:
        yield from before
        before = [part]
    yield from before


def _parts(
    pool: Pool, extent: Extent, seed: int, drawn: list[tuple[int, ...]], database: Database
) -> Iterator[tuple[str, str, Callable[[], Runs]]]:
    """Yield each part, its name, and what begins its runs."""
    chunk = 1 if extent.share else 10
    for how in get_args(How):
        yield "points", f"points, {how}", partial(_every, pool, extent, how, seed, chunk=chunk)
    for number, how in enumerate(PAIRED):  # each way of dying has others of the pairs
        yield "pairs", f"pairs, {how}", partial(_points, pool, drawn[number :: len(PAIRED)], how, seed, chunk=chunk)
    first_seed = seed * 1_000_000
    for name, drawn_from, days, batch in (
        ("worlds", OPTIONS, extent.account_days, 20),
        ("rushed worlds", RUSHED, extent.rushed_days, 4),
        ("choosing worlds", CHOOSING, extent.choosing_days, 8),
        ("worlds of a few", FEW, extent.few_days, 8),
    ):
        options = replace(drawn_from, database=database)
        yield "worlds", name, partial(_worlds, pool, first_seed, options, days, batch=batch)
    yield "dialects", "dialects", partial(_dialects, pool, seed, extent.dialects)
    yield "fleet", "fleets", partial(_fleets, pool, first_seed, extent.fleets)
    for blow in HANDOVER_BLOWS:
        yield "fleet", f"handovers, {blow}", partial(_handovers, pool, extent.handovers, seed, blow)
    yield "restores", "restores", partial(_restores, pool, seed, extent.restores)


def _fleets(pool: Pool, first_seed: int, count: int) -> Runs:
    """Play worlds with several workers; the deaths are all that befell them."""
    played = pool.imap_unordered(play_fleet_seed, range(first_seed, first_seed + count))
    return ((f"fleets.py --seeds {seed}", _as_outcome(outcome)) for seed, outcome in played)


def _handovers(pool: Pool, share: int, seed: int, blow: Blow) -> Runs:
    points = range(1 + seed % share, count_handover_points() + 1, share)
    played = zip(points, pool.imap(partial(play_handover, blow=blow), points), strict=True)
    return ((f"fleets.py --handover {point} --blow {blow}", _as_outcome(outcome)) for point, outcome in played)


def _as_outcome(fleet: FleetOutcome) -> Outcome:
    blows = tuple(name for name in get_args(Blow) for _ in range(fleet.counts.get(name, 0)))
    return Outcome(0, (), blows, fleet.violations, fleet.account_days, fleet.generations)


def _restores(pool: Pool, seed: int, restores: int) -> Runs:
    """Restore the queue from older copies; the deaths that are told are restores and kills."""
    seeds = range(seed * 1_000_000, seed * 1_000_000 + ceil(restores / RESTORES))
    played = zip(seeds, pool.imap(play_restores, seeds), strict=True)
    return ((f"restores.py --seed {drawn}", outcome) for drawn, outcome in played)


def _dialects(pool: Pool, seed: int, count: int) -> Runs:
    """Run jobs against dialects and check what they cost; `strangers.py` counts how many complete."""
    first = seed * 1_000_000
    verdicts = pool.imap_unordered(meet, range(first, first + count), chunksize=5)
    return (
        (f"strangers.py --only {each.seed}", Outcome(0, (), (), each.broken, generations=each.generations))
        for each in verdicts
    )


def _every(pool: Pool, extent: Extent, how: How, seed: int, *, chunk: int) -> Runs:
    is_each = not extent.share and not how.startswith("choices")
    deaths = every_point(how) if is_each else every_turn(how, share=extent.share or 1, offset=seed)
    return _points(pool, deaths, how, seed, chunk=chunk)


def _points(pool: Pool, deaths: list[tuple[int, ...]], how: How, seed: int, *, chunk: int) -> Runs:
    outcomes = pool.imap(partial(play_deaths, how=how, seed=seed), deaths, chunksize=chunk)
    commands = (f"crash_points.py --only {','.join(map(str, each))} --how {how} --seed {seed}" for each in deaths)
    return zip(commands, outcomes, strict=True)


def _worlds(pool: Pool, first_seed: int, options: Options, account_days: int, *, batch: int) -> Runs:
    """Play batches of worlds until they add up to so many account-days."""

    def begin(first: int) -> Iterator[tuple[int, Outcome]]:
        return pool.imap_unordered(partial(play_seed, options=options), range(first, first + batch))

    def played(begun: Iterator[tuple[int, Outcome]]) -> Runs:
        days = 0
        for first in count(first_seed + batch, batch):
            for seed, outcome in begun:
                days += outcome.account_days
                yield f"seeds.py {command_of(seed, options)}", outcome
            if days >= account_days:
                return
            begun = begin(first)

    return played(begin(first_seed))


def _tell(name: str, runs: Runs) -> int:
    """Play all runs; print their figures, and return how many broke a promise."""
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
        "--part",
        choices=("points", "pairs", "worlds", "dialects", "fleet", "restores"),
        help="play only this part",
    )
    parser.add_argument("--database", choices=get_args(Database), default="sqlite", help="of the worlds' queues")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(100_000), help="what is drawn from it is told")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
