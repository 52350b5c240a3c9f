"""Reading 100,000 inline items: what it costs beyond the bare C parser's pass over the same file.

    python benchmarks/manifest.py [--items 100000]

Each way runs in a process of its own, one after the other in one run; seconds are CPU time of the pass alone, memory is
the process's peak. The file has items as people write them: a mapping of several lines with a prompt, parameters and
metadata.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HEAD = "version: 1\njob: bench\nitems:\n"
ITEM = """  - id: item-{n}
    model: epsilon-2
    mode: text-to-image
    prompt: >-
      Plate {n} of a field guide: a red fox in fresh snow at the edge of a birch wood, low morning light,
      long blue shadows, fine engraving with hand colouring, the paper slightly foxed, a caption in italics below
    parameters: {{resolution: 1024x1024, aspect_ratio: "1:1"}}
    metadata: {{species: vulpes-vulpes, plate: {n}, season: winter}}
"""


def bare(path: Path) -> int:
    """Pass over the events of the C parser and count them."""
    import yaml  # noqa: PLC0415  each way imports only what it needs

    with path.open("rb") as stream:
        return sum(1 for _ in yaml.parse(stream, Loader=yaml.CLoader))


def whole(path: Path) -> int:
    """Read the manifest as `enqueue` does, without storing anything."""
    from batchkiln.manifest import open_manifest  # noqa: PLC0415  as above

    manifest = open_manifest(str(path), working_dir=path.parent)
    return sum(1 for _ in manifest.items())


def measure(way: str, path: Path) -> tuple[float, float]:
    """Return seconds and peak MiB of one way, in a process of its own."""
    command = [sys.executable, __file__, "--way", way, "--file", str(path)]
    seconds, peak = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return seconds, peak


def main() -> None:
    """Print the table, or measure one way."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--way", choices=("bare", "whole"), help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.way:
        began = time.process_time()
        {"bare": bare, "whole": whole}[args.way](args.file)
        seconds = time.process_time() - began
        print(json.dumps([seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024]))
        return
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "manifest.yaml"
        with path.open("w") as stream:
            stream.write(HEAD)
            stream.writelines(ITEM.format(n=n) for n in range(args.items))
        size = path.stat().st_size / 1024**2
        rows = [(way, *measure(way, path)) for way in ("bare", "whole", "bare", "whole")]
    print(f"{args.items:,} inline items, {size:.0f} MiB")
    print(f"{'way':32} {'seconds':>8} {'peak MiB':>9}")
    for way, seconds, peak in rows:
        print(f"{'C parser alone' if way == 'bare' else 'manifest, item by item':32} {seconds:8.2f} {peak:9.0f}")
    bare_seconds, whole_seconds = (min(row[1] for row in rows if row[0] == way) for way in ("bare", "whole"))
    more_memory = max(row[2] for row in rows if row[0] == "whole") - max(row[2] for row in rows if row[0] == "bare")
    ratio = whole_seconds / bare_seconds
    print(f"beyond the bare pass: {whole_seconds - bare_seconds:.2f} s (ratio {ratio:.2f}), {more_memory:.0f} MiB more")
    print("goal: at most 3 s and 100 MiB more")


if __name__ == "__main__":
    main()
