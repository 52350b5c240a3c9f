"""What a rehearsal costs: in a model, beside the whole program in virtual time with some of the items.

    python benchmarks/rehearse.py [--share 0.1] [--full 0.1]

A thousand clips and ten thousand images, or a share of them, each in a process of its own. Seconds are those of the
processor, with the start of the program. The goals are for all items, and shrink with the share. `--full` is the part
of these items that the whole program runs (`rehearse --full`). The ratio is that of the seconds for an item, both
without the start, which a rehearsal of one item takes.
"""

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import for_people
from figure import Figure, table

WORK: Final = (
    (
        "clips",
        1_000,
        3.0,
        "{model: alpha-2.0-mini, mode: text-to-video, parameters: {resolution: 480p, duration_seconds: 5}}",
    ),
    ("images", 10_000, 10.0, "{model: epsilon-2, mode: text-to-image, parameters: {resolution: 512x512}}"),
)


def figures(share: float, full: float) -> Iterator[Figure]:
    """Give a line for each kind of items."""
    with tempfile.TemporaryDirectory(prefix="batchkiln-rehearse-") as name:
        folder = Path(name)
        for kind, items, most, defaults in WORK:
            count = round(items * share)
            part = max(1, round(count * full))
            start = _seconds(folder, kind, defaults, 1)
            whole = _seconds(folder, kind, defaults, part, "--full")
            seconds = _seconds(folder, kind, defaults, count)
            ratio = ((seconds - start) / count) / ((whole - start) / part)
            goal = most * share
            work = f"`rehearse` of {count:,} {kind}"
            beside = f"one of them: {start:.1f} s; the whole program, {part:,} of them: {whole:.1f} s"
            yield Figure(work, f"{seconds:.1f} s", beside, ratio, f"at most {goal:g} s", seconds <= goal)


def _seconds(folder: Path, kind: str, defaults: str, count: int, *options: str) -> float:
    """Return the processor's seconds of a rehearsal of so many items."""
    lines = [f"  - {{id: i{number}, prompt: A fox number {number}}}" for number in range(count)]
    head = f"version: 1\njob: {kind}\ndefaults: {defaults}\nitems:\n"
    (folder / f"{kind}.yaml").write_text(head + "\n".join(lines))
    return for_people.command(folder, "rehearse", f"{kind}.yaml", "--json", *options).cpu_seconds


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--share", type=float, default=1.0)
    parser.add_argument("--full", type=float, default=0.1)
    options = parser.parse_args()
    print(table(figures(options.share, options.full)))


if __name__ == "__main__":
    main()
