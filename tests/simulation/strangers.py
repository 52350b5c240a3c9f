"""Run a small mixed job against thousands of services, each with a dialect drawn from a seed.

The service's own books tell which jobs completed without help, and what the others cost.

    python tests/simulation/strangers.py --dialects 10000 --seed 1       the proof
    python tests/simulation/strangers.py --only 4711 --verbose           one dialect, told in full
    python tests/simulation/strangers.py --only 4711 --shrink            the traits that matter
"""

import argparse
import gc
import os
import secrets
import shutil
import sys
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.pool import Pool
from pathlib import Path
from typing import Final

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from batchkiln_service.dialects import Dialect
from simulation.log_silencing import silence, silent_pool
from simulation.plan_runner import place_for_worlds, seeded_secrets
from simulation.reply_settings import replies_of
from simulation.simulated_world import World
from simulation.strange_worlds import CREATES_MAX, UPLOAD_FILES_MAX, Books, Verdict, draw_plan

GOAL_COMPLETE: Final = 0.99
SEEDS_TOLD_MAX: Final = 12
BROKEN_TOLD_MAX: Final = 20
_COLLECT_EVERY: Final = 25
_played = 0


@dataclass(frozen=True)
class Way:
    """Options of one run: traits to leave out, no faults or kills, a program configured for the dialect."""

    without: tuple[str, ...] = ()
    is_fair: bool = False
    is_remedied: bool = False


def meet(seed: int, way: Way = Way(), *, tells: bool = False) -> Verdict:
    """Run the job against the service of a seed, and return the verdict."""
    global _played  # noqa: PLW0603 - of this process
    _played += 1
    if _played % _COLLECT_EVERY == 0:
        gc.collect()
    plan = draw_plan(seed, without=way.without, is_fair=way.is_fair)
    if way.is_remedied:
        plan = replace(plan, replies=replies_of(Dialect.draw(seed).without(way.without)))
    folder = place_for_worlds()
    try:
        with seeded_secrets(seed):
            world = World(folder, plan)
            world.play()
            verdict = Books(folder, seed, way.without).verdict(world.violations)
        if tells:
            print("\n".join(world.story()))
    except Exception as error:  # noqa: BLE001 - whatever ends a run is a finding
        crash = f"{type(error).__name__}: {error}"
        return Verdict(seed, is_complete=False, reasons=(crash,), broken=("it crashed",))
    else:
        return verdict
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def shrunken(seed: int, *, is_fair: bool = False) -> tuple[str, ...]:
    """Return the traits of a dialect that its failure needs."""
    dialect = Dialect.draw(seed)
    wrong = set(meet(seed, Way(is_fair=is_fair)).wrong)

    def is_wrong(kept: Iterable[str]) -> bool:
        without = tuple(set(dialect.unlike_plain) - set(kept))
        return not wrong.isdisjoint(meet(seed, Way(without, is_fair)).wrong)

    matters, size = list(dialect.unlike_plain), len(dialect.unlike_plain) // 2
    while size:
        at = 0
        while at < len(matters):
            fewer = matters[:at] + matters[at + size :]
            if is_wrong(fewer):
                matters = fewer
            else:
                at += size
        size //= 2
    return tuple(f"{trait}={dialect[trait]}" for trait in matters)


class Tally:
    """The figures of the proof."""

    def __init__(self) -> None:
        self.count = self.complete = self.untold = 0
        self.beyond = self.doubled = self.lost = 0
        self.creates = self.files = 0
        self.unfinished: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
        self.broken: list[Verdict] = []

    def add(self, verdict: Verdict) -> None:
        """Count one."""
        self.count += 1
        self.complete += verdict.is_complete
        self.untold += not verdict.is_told
        self.beyond += verdict.credits_beyond
        self.doubled += verdict.double_charges
        self.lost += verdict.lost_results
        self.creates = max(self.creates, verdict.creates_in_vain)
        self.files = max(self.files, verdict.upload_files_in_vain)
        if not verdict.is_complete:
            self.unfinished[verdict.reasons].append(verdict.seed)
        if verdict.broken:
            self.broken.append(verdict)

    @property
    def is_money_safe(self) -> bool:
        """Return whether no credits were lost or charged twice."""
        return not self.broken

    def told(self) -> list[str]:
        """Return the figures, line by line."""
        share = self.complete / max(1, self.count)
        lines = [
            f"{self.count} dialects, {self.complete} complete without help: {share:.2%} (goal {GOAL_COMPLETE:.0%})",
            f"credits beyond those booked: {self.beyond} (goal 0)",
            f"double charges: {self.doubled} (goal 0)",
            f"lost results: {self.lost} (goal 0)",
            f"creates in vain before it rests: at most {self.creates} (goal {CREATES_MAX})",
            f"upload files in vain before it rests: at most {self.files} (goal {UPLOAD_FILES_MAX})",
            f"not complete, and no word why: {self.untold} (goal 0)",
        ]
        for reasons, seeds in sorted(self.unfinished.items(), key=lambda pair: -len(pair[1])):
            some = ", ".join(str(seed) for seed in sorted(seeds)[:SEEDS_TOLD_MAX])
            lines.append(f"  {len(seeds):5} {' | '.join(reasons)}: {some}")
        lines += [f"  BROKEN {each.seed}: {'; '.join(each.broken[:4])}" for each in self.broken[:BROKEN_TOLD_MAX]]
        return lines


def main() -> int:
    args = _arguments()
    if args.only is not None:
        return _tell_of(args)
    seeds = range(args.seed * 1_000_000, args.seed * 1_000_000 + args.dialects)
    print(f"seed {args.seed}, {args.jobs} processes", flush=True)
    began, tally = time.perf_counter(), Tally()
    with silent_pool(args.jobs) as pool:
        for verdict in pool.imap_unordered(partial(meet, way=Way(is_fair=args.fair)), seeds, chunksize=5):
            tally.add(verdict)
            if args.verbose and tally.count % 100 == 0:
                print(f"{tally.count}: {tally.complete} complete, {len(tally.broken)} broken", flush=True)
        seconds = time.perf_counter() - began
        print("\n".join(tally.told()))
        print(f"{seconds:.1f} s: {tally.count / seconds:.1f} dialects a second", flush=True)
        unfinished = [seed for same in tally.unfinished.values() for seed in same]
        if not args.no_remedy and unfinished:
            print(_remedied(unfinished, pool), flush=True)
        if args.shrink:
            first = [same[0] for same in tally.unfinished.values()]
            _shrink([*(verdict.seed for verdict in tally.broken), *first][: args.shrink], pool, is_fair=args.fair)
    return 0 if tally.is_money_safe else 1


def _remedied(seeds: list[int], pool: Pool) -> str:
    """Meet again what did not complete, with its places and meanings in the configuration."""
    way = Way(is_fair=True, is_remedied=True)
    verdicts = list(pool.imap_unordered(partial(meet, way=way), seeds))
    complete = sum(verdict.is_complete for verdict in verdicts)
    lines = [f"of these {len(seeds)}, {complete} complete with `replies:` in the configuration (goal {len(seeds)})"]
    lines += [f"  {verdict.seed}: {' | '.join(verdict.wrong)}" for verdict in verdicts if verdict.wrong][
        :SEEDS_TOLD_MAX
    ]
    return "\n".join(lines)


def _shrink(seeds: list[int], pool: Pool, *, is_fair: bool) -> None:
    for seed, traits in pool.imap_unordered(partial(_shrunken, is_fair=is_fair), dict.fromkeys(seeds)):
        print(f"  {seed}: {', '.join(traits) or 'whatever the dialect'}", flush=True)


def _shrunken(seed: int, *, is_fair: bool) -> tuple[int, tuple[str, ...]]:
    return seed, shrunken(seed, is_fair=is_fair)


def _tell_of(args: argparse.Namespace) -> int:
    """Print one dialect, its events and its verdict."""
    way = Way(tuple(filter(None, (args.without or "").split(","))), args.fair, args.remedied)
    dialect = Dialect.draw(args.only).without(way.without)
    print({trait: dialect[trait] for trait in dialect.unlike_plain})
    with silence():
        verdict = meet(args.only, way, tells=args.verbose)
        print(verdict)
        if args.shrink:
            print(shrunken(args.only, is_fair=args.fair))
    return 1 if verdict.broken else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dialects", type=int, default=200, help="how many are drawn")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1000), help="what is drawn from it is told")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1), help="processes")
    parser.add_argument("--fair", action="store_true", help="without faults and kills")
    parser.add_argument("--only", type=int, help="the seed of one dialect")
    parser.add_argument("--without", help="traits of it that stay plain, with commas")
    parser.add_argument("--remedied", action="store_true", help="with its places in the configuration")
    parser.add_argument("--no-remedy", action="store_true", help="do not meet again what did not complete")
    parser.add_argument("--shrink", type=int, nargs="?", const=20, default=0, help="find the traits that matter")
    parser.add_argument("--verbose", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
