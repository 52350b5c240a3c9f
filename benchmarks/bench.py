"""Measure all that docs/performance.md claims, and print it as one table; each line as soon as it is known.

    python benchmarks/batchkiln-bench              everything: about twenty minutes
    python benchmarks/batchkiln-bench --quick      a tenth of each size, for a look
    python benchmarks/batchkiln-bench --only slot days

The first seven parts want a machine that does nothing else; the times of the others are virtual. Needs `.[bench]`, and
for two of the peers Debian's `redis-server` and `postgresql`.
"""

import argparse
import os
import platform
import sqlite3
import sys
from collections.abc import Callable, Iterator
from typing import Final

import accounts
import bulk
import days
import enqueue
import forecasts
import idle
import large_queue
import looks
import overhead
import pages
import reading
import rehearse
import slot
import start_up
import structure
from figure import HEAD, Figure

from batchkiln.logs import configure_logging

PARTS: Final[dict[str, Callable[[int], Iterator[Figure]]]] = {
    "overhead": lambda share: overhead.figures(2000 // share),
    "enqueue": lambda share: enqueue.figures(1_000_000 // share),
    "bulk": lambda share: bulk.figures(1_000_000 // share),
    "large": lambda share: large_queue.figures(1_000_000 // share),
    "pages": lambda share: pages.figures(1_000_000 // share),
    "rehearse": lambda share: rehearse.figures(1 / share, full=0.1),
    "start": lambda _: start_up.figures(9),
    "idle": lambda share: idle.figures(60 // share),
    "reading": lambda share: reading.figures(max(2, 16 // share)),
    "forecasts": lambda share: forecasts.figures(max(2, 20 // share)),
    "slot": lambda share: slot.figures(500 // share),
    "days": lambda share: days.figures(2000 // share),
    "accounts": lambda share: accounts.figures(1000 // share, 8),
    "looks": lambda share: looks.figures(max(6, 60 // share)),
    "structure": lambda _: structure.figures(),
}


def main() -> int:
    """Print the table; 1 where a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    configure_logging(verbosity=0, log_format="auto")
    print(f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}, {os.cpu_count()} cores\n\n{HEAD}")
    are_reached = True
    for part in args.only:
        for figure in PARTS[part](10 if args.quick else 1):
            print(figure.row(), flush=True)
            are_reached &= figure.is_reached
    return 0 if are_reached else 1


if __name__ == "__main__":
    sys.exit(main())
