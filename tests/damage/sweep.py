"""Damage every page of a queue file in many ways, and check that nothing is charged twice.

    python tests/damage/sweep.py --seeds 0-9
    python tests/damage/sweep.py --seeds 0-2 --how flip --large

Each harm is a lost page, a page of another file, or one flipped bit. The queue is then driven to its end with the
service that knows its generations. What a person is not told well, and what costs twice, is printed; the seed
repeats it. With --large, only what is checked of a large queue is checked.
"""

import argparse
import asyncio
import contextlib
import io
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

from batchkiln.store.sqlite import page_checks

sys.path.insert(0, str(Path(__file__).parents[1]))

from damage.file_damage import HARMS, PAGE, Fate, fate_of, is_said, pages, sound_queue


def main() -> int:
    """Sweep, and print what was found and how many runs were refused, stopped or ran to their end."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0-4", help="first-last")
    parser.add_argument("--how", choices=list(HARMS), action="append", help="default: all")
    parser.add_argument("--large", action="store_true", help="treat the queue as a large one")
    args = parser.parse_args()
    if args.large:
        vars(page_checks)["CHECKED_WHOLE_BYTES"] = 0
    first, last = map(int, args.seeds.split("-"))
    ends: Counter[str] = Counter()
    is_bad = False
    for seed in range(first, last + 1):
        for how in args.how or HARMS:
            for page, fate in _harmed(how, seed):
                ends[f"{how}: {_end(fate)}"] += 1
                for finding in _findings(fate):
                    is_bad = True
                    print(f"{how}, seed {seed}, page {page}: {finding}", flush=True)
    print(dict(ends))
    return int(is_bad)


def _harmed(how: str, seed: int) -> Iterator[tuple[int, Fate]]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = sound_queue(folder)
        sound = path.read_bytes()
        for page in pages(path):
            harmed = bytearray(sound)
            HARMS[how](harmed, page * PAGE, Random(f"{how} {seed} {page}"))
            for left in folder.glob("queue.db-*"):
                left.unlink()
            path.write_bytes(harmed)
            with contextlib.redirect_stdout(io.StringIO()):  # log lines
                yield page, asyncio.run(fate_of(folder))


def _end(fate: Fate) -> str:
    if fate.refusal is None:
        return "ran"
    return "stopped on the way" if fate.service else "refused"


def _findings(fate: Fate) -> list[str]:
    untold = [] if fate.refusal is None or is_said(fate.refusal) else [f"not said: {fate.refusal!r}"]
    return untold + fate.troubles()


if __name__ == "__main__":
    sys.exit(main())
