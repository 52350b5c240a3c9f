"""What a rehearsal costs: the whole program in virtual time, beside an interpreter that does nothing.

    python benchmarks/rehearse.py [--share 0.1]

A thousand clips and ten thousand images, or a share of them, each in a process of its own. Seconds are those of the
processor, with the start of the program. The goals are for all items, and shrink with the share.
"""

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import for_people
import start_up
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


def figures(share: float) -> Iterator[Figure]:
    """Give a line for each kind of items."""
    with tempfile.TemporaryDirectory(prefix="batchkiln-rehearse-") as name:
        folder = Path(name)
        start = start_up.seconds(["-c", "pass"], name, 9)
        for kind, items, most, defaults in WORK:
            count = round(items * share)
            lines = [f"  - {{id: i{number}, prompt: A fox number {number}}}" for number in range(count)]
            head = f"version: 1\njob: {kind}\ndefaults: {defaults}\nitems:\n"
            (folder / f"{kind}.yaml").write_text(head + "\n".join(lines))
            seconds = for_people.command(folder, "rehearse", f"{kind}.yaml", "--json").cpu_seconds
            beside = f"interpreter start: {start * 1000:.0f} ms"
            goal = most * share
            is_reached = seconds <= goal
            work = f"`rehearse` of {count:,} {kind}"
            yield Figure(work, f"{seconds:.1f} s", beside, seconds / start, f"at most {goal:g} s", is_reached)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--share", type=float, default=1.0)
    print(table(figures(parser.parse_args().share)))


if __name__ == "__main__":
    main()
