"""Look for a broken promise, the cheapest ways first, and tell the first that is found; silent when there is none.

python tests/simulation/hunt.py
"""

import sys
from collections.abc import Iterator
from functools import partial
from multiprocessing import get_context

from simulation.crash_points import every_point, pairs, play_quietly
from simulation.playing import Outcome
from simulation.scenarios import Options
from simulation.seeds import play_seed

SHARE = 8
PROCESSES = 2


def main() -> int:
    with get_context("fork").Pool(PROCESSES) as pool:
        for how, outcome in _runs(pool):
            if outcome.violations:
                print(f"{how}: {outcome.violations[0]}")
                pool.terminate()
                return 1
    return 0


def _runs(pool) -> Iterator[tuple[str, Outcome]]:
    yield from (("standard run", outcome) for outcome in pool.imap(partial(play_quietly, cuts_power=False), [()]))
    deaths = every_point(share=SHARE)
    for cuts_power in (False, True):
        how = "power cut" if cuts_power else "kill"
        for outcome in pool.imap(partial(play_quietly, cuts_power=cuts_power), deaths, chunksize=4):
            yield how, outcome
    for seed, outcome in pool.imap(partial(play_seed, options=Options(days=2.0)), range(60)):
        yield f"seed {seed}", outcome
    for outcome in pool.imap(partial(play_quietly, cuts_power=True), pairs(100, seed=1), chunksize=4):
        yield "two deaths", outcome


if __name__ == "__main__":
    sys.exit(main())
