"""What a command costs before it does anything, in starts of the interpreter.

    python benchmarks/start_up.py [--times 9]

Processor time of processes of their own, the least of several. Compiled modules are kept from one start to the next, as
for an installed program, whatever the environment says.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from typing import Final

from figure import Figure, at_most, table

GOALS: Final = {
    "import batchkiln": (["-c", "import batchkiln"], 2.0),
    **{f"{name} --help": (["-m", "batchkiln", name, "--help"], 9.0) for name in ("run", "plan", "doctor", "watch")},
    "--help": (["-m", "batchkiln", "--help"], 9.0),
    "status": (["-m", "batchkiln", "--queue", "queue.db", "status"], 12.0),
}


def seconds(arguments: Sequence[str], folder: str, times: int) -> float:
    """Return the least processor time of several processes, in seconds. `folder` keeps the compiled modules."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = folder
    found = []
    for _ in range(times):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, check=False)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        found.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(found)


def figures(times: int) -> Iterator[Figure]:
    """Give a line for each command, in an empty folder with an empty queue."""
    with tempfile.TemporaryDirectory() as folder:
        for line in (["init"], ["--queue", "queue.db", "enqueue", "manifest.yaml"]):
            subprocess.run([sys.executable, "-m", "batchkiln", *line], cwd=folder, capture_output=True, check=True)
        start = seconds(["-c", "pass"], folder, times)
        for name, (arguments, goal) in GOALS.items():
            own = seconds(arguments, folder, times)
            beside = f"interpreter start: {start * 1000:.0f} ms"
            yield at_most(f"`{name}`, CPU", f"{own * 1000:.0f} ms", beside, own / start, goal)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=9)
    print(table(figures(parser.parse_args().times)))


if __name__ == "__main__":
    main()
