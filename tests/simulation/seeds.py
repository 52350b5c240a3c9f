"""Play worlds drawn from seeds, and look whether the program kept its promises.

A finding is told with the command that plays it again.

    python tests/simulation/seeds.py --seeds 0-999 --days 2     many worlds, in parallel processes
    python tests/simulation/seeds.py --seeds 17 --verbose       one world, told in full
"""

import argparse
import multiprocessing
import os
import sys
import time
from functools import partial
from pathlib import Path

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from simulation.playing import Outcome, play
from simulation.quiet import silence
from simulation.scenarios import Options, draw


def play_seed(seed: int, options: Options) -> tuple[int, Outcome]:
    """Play the world of a seed without a word."""
    with silence():
        return seed, play(draw(seed, options))


def main() -> int:
    args = _arguments()
    options = Options(days=args.days, is_rough=not args.fair)
    if args.verbose:
        for seed in args.seeds:
            print(play(draw(seed, options)))
        return 0
    began, broken, days, generations = time.perf_counter(), 0, 0, 0
    with multiprocessing.get_context("fork").Pool(args.processes) as pool:
        for seed, outcome in pool.imap_unordered(partial(play_seed, options=options), args.seeds):
            days += outcome.account_days
            generations += outcome.generations
            if outcome.violations:
                broken += 1
                how = " --fair" if args.fair else ""
                print(f"--seeds {seed} --days {args.days:g}{how}: {len(outcome.violations)} broken")
                print("\n".join(f"    {violation}" for violation in outcome.violations[:5]), flush=True)
    seconds = time.perf_counter() - began
    print(
        f"{len(args.seeds)} worlds, {broken} with a broken promise; {days} account-days, {generations} generations,"
        f" {seconds:.1f} s: {days / seconds / args.processes:.1f} account-days a second and process"
    )
    return 1 if broken else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=_range, default=range(20), help="one, or first-last")
    parser.add_argument("--days", type=float, default=2.0, help="for how long things go wrong")
    parser.add_argument("--fair", action="store_true", help="let nothing go wrong")
    parser.add_argument("--verbose", action="store_true", help="tell what happens, one world after the other")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    return parser.parse_args()


def _range(text: str) -> range:
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


if __name__ == "__main__":
    sys.exit(main())
