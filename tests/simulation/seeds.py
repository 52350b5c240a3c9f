"""Play worlds drawn from seeds, and look whether the program kept its promises.

A finding is told with the command that plays it again, and with the story of the smallest world that has it.

    python tests/simulation/seeds.py --seeds 0-999 --days 2     many worlds, in parallel processes
    python tests/simulation/seeds.py --seeds 17 --verbose       one world, told in full
"""

import argparse
import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import Final, get_args

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from simulation.log_silencing import silence, silent_pool
from simulation.plan import Database
from simulation.plan_runner import Outcome, play
from simulation.scenarios import Options, draw
from simulation.served_queues import name_server
from simulation.shrinking import shrunken
from simulation.timeline import summary

STORIES_MAX: Final = 3  # so many findings are told whole; the others can be asked for one by one


def play_seed(seed: int, options: Options) -> tuple[int, Outcome]:
    """Play the world of a seed."""
    return seed, play(draw(seed, options))


def main() -> int:
    args = _arguments()
    options = Options(
        days=args.days,
        is_rough=not args.fair,
        is_rushed=args.rushed,
        is_choosing=args.choosing,
        is_few=args.few,
        database=args.database,
    )
    if args.database == "postgresql":
        name_server()
    if args.verbose:
        return max(_tell_of(seed, options) for seed in args.seeds)
    began, broken, days, generations = time.perf_counter(), list[int](), 0, 0
    with silent_pool(args.processes) as pool:
        for seed, outcome in pool.imap_unordered(partial(play_seed, options=options), args.seeds):
            days += outcome.account_days
            generations += outcome.generations
            if outcome.violations and args.first:
                print(f"FOUND {command_of(seed, options)}: {outcome.violations[0]}")
                return 1
            if outcome.violations:
                broken.append(seed)
                print(f"{command_of(seed, options)}: {len(outcome.violations)} broken")
                print("\n".join(f"    {violation}" for violation in outcome.violations[:5]), flush=True)
    seconds = time.perf_counter() - began
    for seed in broken[:STORIES_MAX]:
        _tell_shortest(seed, options)
    speed = days / seconds / args.processes
    print(
        f"{len(args.seeds)} worlds, {len(broken)} with a broken promise; {days} account-days,"
        f" {generations} generations, {seconds:.1f} s: {speed:.1f} account-days a second and process"
    )
    return 1 if broken else 0


def command_of(seed: int, options: Options) -> str:
    """Return the arguments that play a world again."""
    kind = ("" if options.is_rough else " --fair") + (" --rushed" if options.is_rushed else "")
    kind += " --choosing" if options.is_choosing else ""
    kind += " --few" if options.is_few else ""
    kind += "" if options.database == "sqlite" else f" --database {options.database}"
    return f"--seeds {seed} --days {options.days:g}{kind}"


def _tell_of(seed: int, options: Options) -> int:
    """Play one world and tell all of it."""
    with silence():
        plan = draw(seed, options)
        outcome = play(plan, tells=True)
    print("\n".join([*summary(plan), "", *outcome.story, "", *outcome.violations]))
    print(f"{command_of(seed, options)}: {len(outcome.violations)} broken")
    return 1 if outcome.violations else 0


def _tell_shortest(seed: int, options: Options) -> None:
    """Leave out of a broken world what can be left out, and tell what is left."""
    with silence():
        plan = shrunken(draw(seed, options), lambda smaller: play(smaller).violations)
        outcome = play(plan)
    print(f"\nThe smallest world that was found for {command_of(seed, options)}:")
    print("\n".join([*summary(plan), "", *outcome.story, "", *outcome.violations]), flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=_range, default=range(20), help="one, or first-last")
    parser.add_argument("--days", type=float, default=2.0, help="for how long things go wrong")
    parser.add_argument("--fair", action="store_true", help="let nothing go wrong")
    parser.add_argument("--rushed", action="store_true", help="only worlds in which the minutes' requests run out")
    parser.add_argument("--choosing", action="store_true", help="only worlds in which a person and a hook choose")
    parser.add_argument("--few", action="store_true", help="only worlds in which a few items are tried first")
    parser.add_argument("--database", choices=get_args(Database), default="sqlite", help="where the queue is")
    parser.add_argument("--first", action="store_true", help="end with the first broken promise, for planted bugs")
    parser.add_argument("--verbose", action="store_true", help="tell what happens, one world after the other")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    return parser.parse_args()


def _range(text: str) -> range:
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


if __name__ == "__main__":
    sys.exit(main())
