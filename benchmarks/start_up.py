"""What a command costs before it does anything, in starts of the interpreter.

    python benchmarks/start_up.py [--times 15]

Processor time of processes of their own, the median of several. Compiled modules are kept from one start to the next,
as for an installed program, whatever the environment says.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Final

from figure import Figure, at_most, table

GOALS: Final = {
    "import batchkiln": (["-c", "import batchkiln"], 2.0),
    **{f"{name} --help": (["-m", "batchkiln", name, "--help"], 9.0) for name in ("run", "plan", "doctor", "watch")},
    "--help": (["-m", "batchkiln", "--help"], 9.0),
    "status": (["-m", "batchkiln", "--queue", "queue.db", "status"], 12.0),
}


def seconds(arguments: Sequence[str], folder: str) -> float:
    """Return the processor time of a process, in seconds. `folder` keeps the compiled modules."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = folder
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def beside_a_start(arguments: Sequence[str], folder: str, times: int) -> tuple[float, float]:
    """Return the median seconds of an interpreter that does nothing, and of a command, by turns.

    The speed of a machine changes within seconds, so that the least of each would be of different moments.
    """
    seconds(arguments, folder)  # compiles the modules
    found = [(seconds(["-c", "pass"], folder), seconds(arguments, folder)) for _ in range(times)]
    return median(start for start, _ in found), median(own for _, own in found)


def figures(times: int) -> Iterator[Figure]:
    """Give a line for each command, in an empty folder with an empty queue."""
    with tempfile.TemporaryDirectory() as folder:
        for line in (["init"], ["--queue", "queue.db", "enqueue", "manifest.yaml"]):
            subprocess.run([sys.executable, "-m", "batchkiln", *line], cwd=folder, capture_output=True, check=True)
        for name, (arguments, goal) in GOALS.items():
            start, own = beside_a_start(arguments, folder, times)
            beside = f"interpreter start: {start * 1000:.0f} ms"
            yield at_most(f"`{name}`, CPU", f"{own * 1000:.0f} ms", beside, own / start, goal)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=15)
    print(table(figures(parser.parse_args().times)))


if __name__ == "__main__":
    main()
