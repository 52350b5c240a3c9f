"""Commands that change or read all items of a large job, each in a process of its own, against `executemany`.

    python benchmarks/bulk.py [--items 1000000]

All items are queued, of one recipe, with a prompt and metadata of 400 bytes. `cancel` and `retry` change all of them,
`items` prints all of them, and `plan` compares all of them with a manifest that has not changed. `export` writes a
tenth of them, which are done. Beside them stand the seconds of `executemany` into one table with a unique index, of as
many rows and in the same minute: it shows how fast the machine was. All seconds are those of the processor, with the
start of the process, since other work on the machine multiplies those on the wall.
"""

import argparse
import resource
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import enqueue
import for_people
from figure import Figure, table

MOST_SECONDS: Final = 10
EXPORT_SECONDS: Final = 6

_FAILED: Final = (
    "UPDATE item SET state = 'failed', error_code = 'cause-' || (id % 20), error_message = 'It went wrong.'"
)


def figures(items: int) -> Iterator[Figure]:
    """Give the lines of the table. The goals are for a million items, and shrink with them."""
    share = items / 1_000_000
    with tempfile.TemporaryDirectory(prefix="batchkiln-bulk-") as name:
        folder = Path(name)
        enqueue.write_source(folder, items)
        plain = _plain(folder, items)
        for_people.command(folder, "enqueue", "big.yaml", "--queue", "queued.db")  # with the service's catalogue
        for work, queue, line in (
            ("plan", "queued", ("plan", "big.yaml")),
            ("items --json", "queued", ("items", "big", "--json")),
            ("cancel", "changed", ("cancel", "big", "--yes")),
            ("retry", "failed", ("retry", "big", "--yes")),
        ):
            if queue != "queued":
                _copy(folder, queue)
            seconds = for_people.command(folder, *line, "--queue", f"{queue}.db").cpu_seconds
            yield _figure(f"`{work}` of {items:,}", seconds, plain, MOST_SECONDS * share)
    with tempfile.TemporaryDirectory(prefix="batchkiln-bulk-") as name:
        folder = Path(name)
        for_people.fill(folder, items // 9)
        export = ("export", "big", "--format", "jsonl", "--to", "dataset", "--queue", "done.db", "-q")
        seconds = for_people.command(folder, *export).cpu_seconds
        yield _figure(f"`export` of {items // 10:,} to jsonl", seconds, plain, EXPORT_SECONDS * share)


def _plain(folder: Path, items: int) -> float:
    """Return the processor's seconds of a plain `executemany`, in a process of its own."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    enqueue.measured("plain", folder, items)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _copy(folder: Path, queue: str) -> None:
    shutil.copyfile(folder / "queued.db", folder / f"{queue}.db")
    if queue == "failed":
        connection = enqueue.opened(folder, queue)
        connection.execute(_FAILED)
        connection.close()


def _figure(work: str, seconds: float, plain: float, goal: float) -> Figure:
    beside = f"`executemany` of as many rows as items: {plain:.1f} s"
    return Figure(work, f"{seconds:.1f} s", beside, seconds / plain, f"at most {goal:g} s", seconds <= goal)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=1_000_000)
    print(table(figures(parser.parse_args().items)))


if __name__ == "__main__":
    main()
