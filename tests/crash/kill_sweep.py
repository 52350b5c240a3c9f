"""Proof by kills: a manifest of real prompts, run while one side is killed with SIGKILL again and again.

    python tests/crash/kill_sweep.py --images FILE.tsv --clips FILE.txt --kills 10 --target run
    python tests/crash/kill_sweep.py --images FILE.tsv --clips FILE.txt --kills 10 --target serve

Then the service's own ledger is read: each prompt charged once, never two active, no window exceeded, and every
file is there and opens. The seed is printed, and repeats the moments.
"""

import argparse
import csv
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from crash.process_harness import Ground, run_with_kills


def main() -> int:
    """Run the proof and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=Path, required=True, help="TSV with a column Prompt")
    parser.add_argument("--clips", type=Path, required=True, help="one prompt a line")
    parser.add_argument("--image-count", type=int, default=100)
    parser.add_argument("--clip-count", type=int, default=20)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--target", choices=("run", "serve"), default="run")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--time-scale", type=float, default=60.0)
    args = parser.parse_args()
    with args.images.open(newline="") as stream:
        images = [row["Prompt"] for row in csv.DictReader(stream, delimiter="\t")][: args.image_count]
    clips = args.clips.read_text().splitlines()[: args.clip_count]
    service_seconds = 25.0 * len(images) + 75.0 * len(clips)
    with tempfile.TemporaryDirectory() as name:
        ground = Ground(Path(name), images, clips, scale=args.time_scale)
        began = time.monotonic()
        kills = run_with_kills(
            ground,
            kills=args.kills,
            target=args.target,
            seed=args.seed,
            expected_seconds=service_seconds / args.time_scale,
        )
        violations = ground.violations()
        status = ground.status()
    seconds = time.monotonic() - began
    print(f"seed {args.seed}: {kills} kills of {args.target} in {seconds:.0f} s")
    print(f"items {status['items']}, credits {status['credits']}")
    print("\n".join(violations) or "each prompt charged once, never two active, no window exceeded, all files open")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
