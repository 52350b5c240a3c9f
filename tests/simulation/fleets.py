"""Play fleets: several workers on one queue, and look whether all of them together kept the promises.

python tests/simulation/fleets.py --seeds 0-299           worlds drawn from seeds, in parallel processes
python tests/simulation/fleets.py --seeds 17 --verbose    one world, told in full
python tests/simulation/fleets.py --seeds 0-99 --first    until a promise is broken, for planted bugs
"""

import argparse
import gc
import os
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import get_args
from unittest import mock

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from simulation.checks import Aftermath
from simulation.fleet_plan import HANDOVERS, Blow, FleetPlan, Misadventure, draw_fleet, draw_restored_fleet, handover
from simulation.fleet_world import FleetWorld, Node
from simulation.log_silencing import silence, silent_pool
from simulation.plan_runner import place_for_worlds, seeded_secrets


@dataclass(frozen=True)
class FleetOutcome:
    """How a fleet fared. `takeovers` are the seconds from a kill until another worker drove an account."""

    violations: tuple[str, ...]
    counts: dict[str, int]
    takeovers: tuple[float, ...]
    generations: int
    account_days: int
    points: int
    story: tuple[str, ...]


def play_fleet(plan: FleetPlan, prepare: Callable[[FleetWorld], None] = lambda _: None) -> FleetOutcome:
    """Play a fleet in a folder of its own."""
    gc.collect()
    folder = place_for_worlds()
    try:
        own_copies = mock.patch.dict(os.environ, XDG_CACHE_HOME=str(folder / "cache"))  # of objects
        with seeded_secrets(plan.world.seed), own_copies:
            world = FleetWorld(folder, plan)
            prepare(world)
            return _outcome(world)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _outcome(world: FleetWorld) -> FleetOutcome:
    generations = days = 0
    try:
        world.play()
        start_ms = round(world.plan.world.starts_at.timestamp() * 1000)
        late = tuple(start_ms + round(moment * 1000) for moment in world.loop.network.late)
        redone, chosen = world.decisions.redone, world.decisions.chosen
        aftermath = Aftermath(world.folder, world.plan.world, late_ms=late, redone=redone, chosen=chosen)
        violations = (*world.violations, *aftermath.violations())
        generations, days = aftermath.generations(), aftermath.account_days()
    except Exception as error:  # noqa: BLE001 - whatever ends a run is a finding
        violations = (*world.violations, f"{type(error).__name__}: {error}")
    return FleetOutcome(
        violations, dict(world.counts), tuple(world.takeovers), generations, days, world.points, tuple(world.log)
    )


def count_handover_points() -> int:
    """Return how many points the workers pass while accounts change hands."""
    with silence():
        return play_fleet(handover(), partial(_strike_at, point=0, blow="kill")).points


def play_handover(point: int, blow: Blow) -> FleetOutcome:
    """Play a handover in which whoever passes a point is struck there."""
    return play_fleet(handover(), partial(_strike_at, point=point, blow=blow))


def _strike_at(world: FleetWorld, *, point: int, blow: Blow) -> None:
    def strike(number: int, node: Node) -> None:
        if number == point:
            world.strike(node, Misadventure(world.loop.time(), node.number, blow, seconds=25.0))

    world.counts_points = lambda: any(first <= world.loop.time() <= last for first, last in HANDOVERS)
    world.at_point = strike


def play_fleet_seed(seed: int) -> tuple[int, FleetOutcome]:
    """Play the fleet of a seed."""
    return seed, play_fleet(draw_fleet(seed))


def play_restored_fleet_seed(seed: int) -> tuple[int, FleetOutcome]:
    """Play the fleet of a seed whose database is restored."""
    return seed, play_fleet(draw_restored_fleet(seed))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=_range, default=range(20), help="one, or first-last")
    parser.add_argument("--verbose", action="store_true", help="tell what happens")
    parser.add_argument("--handover", type=int, help="a point of a handover at which whoever passes it is struck")
    parser.add_argument("--blow", choices=get_args(Blow), default="kill")
    parser.add_argument("--first", action="store_true", help="end with the first broken promise")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--restored", action="store_true", help="the database is restored to older states")
    args = parser.parse_args()
    play_seed = play_restored_fleet_seed if args.restored else play_fleet_seed
    if args.handover is not None or args.verbose:
        for seed in args.seeds if args.handover is None else (0,):
            with silence():
                outcome = play_seed(seed)[1] if args.handover is None else play_handover(args.handover, args.blow)
            print("\n".join([*outcome.story, *outcome.violations, f"{len(outcome.violations)} broken"]))
        return 0
    began, counts, broken, takeovers, generations = time.perf_counter(), Counter[str](), 0, list[float](), 0
    with silent_pool(args.processes) as pool:
        for seed, outcome in pool.imap_unordered(play_seed, args.seeds):
            counts.update(outcome.counts)
            takeovers += outcome.takeovers
            generations += outcome.generations
            if outcome.violations and args.first:
                print(f"FOUND fleet {seed}: {outcome.violations[0]}")
                return 1
            if outcome.violations:
                broken += 1
                print(f"--seeds {seed}: {len(outcome.violations)} broken")
                print("\n".join(f"    {violation}" for violation in outcome.violations[:5]), flush=True)
    told = ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))
    print(f"{len(args.seeds)} worlds, {broken} broken; {generations} generations; {told}")
    if takeovers:
        print(
            f"takeovers after kills: {len(takeovers)}, median {median(takeovers):.1f} s, at most {max(takeovers):.1f} s"
        )
    print(f"{time.perf_counter() - began:.1f} s")
    return 1 if broken else 0


def _range(text: str) -> range:
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


if __name__ == "__main__":
    sys.exit(main())
