"""The trials with real processes again and again, each time drawn from another seed.

    python tests/crash/process_sweep.py --rounds 20
    python tests/crash/process_sweep.py --how proxy disk --seconds 600 --seed 7

Round n of a sweep with seed s is drawn from s + n. It repeats the draws, and the processes' real time does the rest:
a finding may need several rounds to come back. `disk` needs mount namespaces.
"""

import argparse
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from crash import trials
from crash.process_harness import Ground
from crash.proxy import proxying
from crash.small_disk import small_disk

IMAGES = [f"A lighthouse on rock {number}, sea mist" for number in range(1, 25)]
CLIPS = [f"A gull circles the mast of boat {number}" for number in range(1, 4)]
SCALE = 120.0


def _signals(folder: Path, draw: random.Random, choices: list[signal.Signals]) -> list[str]:
    ground = Ground(folder, IMAGES, CLIPS, scale=SCALE)
    numbers = [draw.choice(choices) for _ in range(draw.randint(2, 6))]
    pauses = trials.moments(ground, count=len(numbers), draw=draw)
    with trials.serving(ground):
        statuses = [
            trials.interrupt(ground, number=number, after_seconds=seconds)
            for number, seconds in zip(numbers, pauses, strict=True)
        ]
        trials.finish(ground)
    found = [] if statuses == [128 + number for number in numbers] else [f"{numbers} gave {statuses}"]
    return found + ground.violations()


def term(folder: Path, draw: random.Random) -> list[str]:
    return _signals(folder, draw, [signal.SIGTERM])


def int_(folder: Path, draw: random.Random) -> list[str]:
    return _signals(folder, draw, [signal.SIGINT])


def mixed(folder: Path, draw: random.Random) -> list[str]:
    return _signals(folder, draw, [signal.SIGINT, signal.SIGTERM])


def twice(folder: Path, draw: random.Random) -> list[str]:
    ground = Ground(folder, IMAGES[:6], [], scale=SCALE)
    first, second = (draw.choice([signal.SIGINT, signal.SIGTERM]) for _ in range(2))
    with proxying(ground.port, seed=draw.randrange(2**32), share=0.2) as proxy:
        ground.door = proxy.port
        with trials.serving(ground):
            code = trials.interrupt_twice(ground, proxy, first=first, second=second)
            trials.finish(ground)
    return ([] if code == 128 + second else [f"the second signal, {second}, gave {code}"]) + ground.violations()


def proxy(folder: Path, draw: random.Random) -> list[str]:
    ground = Ground(folder, IMAGES, CLIPS, scale=SCALE)
    with proxying(ground.port, seed=draw.randrange(2**32), share=draw.uniform(0.05, 0.6)) as between:
        ground.door = between.port
        with trials.serving(ground):
            trials.finish(ground)
    return ground.violations()


def disk(folder: Path, draw: random.Random) -> list[str]:
    queue, out = draw.choice([("small/queue.db", "small/out"), ("queue.db", "small/out"), ("small/queue.db", "out")])
    with small_disk(folder / "small", size_mib=48) as small:
        ground = Ground(folder, IMAGES[:12], [], scale=SCALE, disk=small, queue=queue, out=out)
        left_bytes, files = draw.randrange(48) * 1024, draw.randint(0, 4)
        with trials.serving(ground):
            ends = trials.fill_disk(ground, small, left_bytes=left_bytes, files=files)
            trials.finish(ground)
        said = [f"{end}" for end in ends if end[0] not in {1, 2} or not trials.tells_of_full_disk(end[1])]
        return [f"{queue} {out} {left_bytes} {files}", *said] if said else ground.violations()


WAYS: dict[str, Callable[[Path, random.Random], list[str]]] = {
    "term": term,
    "int": int_,
    "mixed": mixed,
    "twice": twice,
    "proxy": proxy,
    "disk": disk,
}


def play(how: str, seed: int) -> list[str]:
    """Play one trial in a folder that vanishes; return what is wrong."""
    with tempfile.TemporaryDirectory() as name:
        try:
            return WAYS[how](Path(name), random.Random(seed))
        except AssertionError as error:
            return [str(error)]


def main() -> int:
    """Sweep, a line for each trial; the exit status tells whether anything was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--how", choices=WAYS, nargs="+", default=list(WAYS))
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no trial later than this")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    args = parser.parse_args()
    began, has_failed = time.monotonic(), False
    for seed in range(args.seed, args.seed + args.rounds):
        for how in args.how:
            at = time.monotonic()
            if at - began > args.seconds:
                return 1 if has_failed else 0
            found = play(how, seed)
            has_failed |= bool(found)
            print(f"seed {seed}, {how}: {'; '.join(found) or 'kept'} ({time.monotonic() - at:.0f} s)", flush=True)
    return 1 if has_failed else 0


if __name__ == "__main__":
    sys.exit(main())
