"""Look for a broken promise, the cheapest ways first, and tell the first that is found; silent when there is none."""

import os
import shutil
import sys
from collections.abc import Iterator
from functools import partial
from multiprocessing.pool import Pool
from typing import get_args

from simulation.crash_points import How, every_turn, pairs, play_deaths, play_quietly
from simulation.log_silencing import silent_pool
from simulation.plan_runner import PLACE, Outcome, place_for_worlds
from simulation.scenarios import Options
from simulation.seeds import play_seed

SHARE = 2
PROCESSES = 2


def main() -> int:
    folder = place_for_worlds()
    os.environ[PLACE] = str(folder)
    try:
        with silent_pool(PROCESSES) as pool:
            for how, outcome in _runs(pool):
                if outcome.violations:
                    print(f"FOUND {how}: {outcome.violations[0]}")
                    return 1  # which ends the processes of the pool, in the middle of their worlds
        return 0
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _runs(pool: Pool) -> Iterator[tuple[str, Outcome]]:
    yield "standard run", play_quietly(())
    yield from _worlds(pool, range(10))
    yield from _worlds(pool, range(5), is_rushed=True)
    for how in get_args(How):
        for outcome in pool.imap(partial(play_deaths, how=how), every_turn(how, share=SHARE), chunksize=4):
            yield how, outcome
    yield from _worlds(pool, range(10, 60))
    yield from _worlds(pool, range(5, 60), is_rushed=True)
    for outcome in pool.imap(partial(play_deaths, how="power"), pairs(100, seed=1, processes=PROCESSES), chunksize=4):
        yield "two deaths", outcome


def _worlds(pool: Pool, seeds: range, *, is_rushed: bool = False) -> Iterator[tuple[str, Outcome]]:
    options = Options(days=2.0, is_rushed=is_rushed)
    for seed, outcome in pool.imap(partial(play_seed, options=options), seeds):
        yield f"{'rushed ' if is_rushed else ''}seed {seed}", outcome


if __name__ == "__main__":
    sys.exit(main())
