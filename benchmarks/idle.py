"""What a run costs that waits for the next day: wake-ups in nine virtual hours, and those of a real process.

In virtual time every step of the program is counted. The real ones are `batchkiln run` against `batchkiln serve`, once
with its progress in a log and once on a terminal, whose times go on. Once the credits of the day are spent, the kernel
counts.

    python benchmarks/idle.py [--seconds 60]
"""

import argparse
import contextlib
import os
import pty
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from figure import Figure
from simulated import play

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from batchkiln.cli.progress import LONGEST_PAUSE_SECONDS
from crash.process_harness import Ground
from simulation.plan import Plan
from simulation.simulated_world import World

IDLE_HOURS = 9
WAKEUPS = 50
SETTLED_SECONDS = 10
SHARE_OF_A_CORE = 0.005
CREDITS_A_DAY = 20
MANIFEST = """
version: 1
job: idle
defaults: {model: epsilon-2, mode: text-to-image, parameters: {resolution: 512x512}}
items:
  - matrix: {n: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]}
    id: "item-{{ n }}"
    prompt: "A fox, number {{ n }}"
"""


@dataclass(frozen=True)
class Idle:
    """What was used while there was nothing to do."""

    wakeups: int
    cpu_seconds: float

    def __str__(self) -> str:
        """Both in words."""
        return f"{self.wakeups} wake-ups, {self.cpu_seconds:.2f} s of CPU"


def steps_in_virtual_hours() -> int:
    """Return how many steps the program takes in nine hours that it waits for the reset."""
    counted: list[int] = []

    def look(world: World) -> None:
        counted.append(world.loop.steps["program"])

    plan = Plan(
        seed=1,
        manifests={"idle.yaml": MANIFEST},
        starts_at=Plan.starts_at.replace(hour=1, minute=0),
        limits={"credits_per_day": CREDITS_A_DAY},
    )
    play(plan, probe=look, probe_seconds=3600.0)
    middle = counted[2 : 2 + IDLE_HOURS + 1]  # an hour after its beginning the day's credits are long spent
    return middle[-1] - middle[0]


def real(seconds: float, *, is_logging: bool) -> Idle:
    """Return what a real run uses in some seconds of its wait, on a terminal or with its progress in a log."""
    with tempfile.TemporaryDirectory() as name:
        ground = Ground(Path(name), ["A fox", "A hare", "An owl"], [], scale=1.0)
        ground.prepare()
        config = Path(name, "batchkiln.yaml")
        config.write_text(config.read_text() + "    limits: {credits_per_day: 2}\n")
        service = ground.serve()
        process_id, terminal = pty.fork()
        if process_id == 0:
            os.chdir(name)
            if is_logging:
                os.dup2(os.open("log", os.O_CREAT | os.O_WRONLY), sys.stderr.fileno())
            os.execv(sys.executable, [sys.executable, "-m", "batchkiln", "run", "manifest.yaml", "--queue", "queue.db"])
        threading.Thread(target=_swallow, args=(terminal,), daemon=True).start()
        try:
            while not list(Path(name, "out").rglob("*.png")):
                time.sleep(0.5)
            time.sleep(3 * LONGEST_PAUSE_SECONDS if is_logging else SETTLED_SECONDS)
            before = _used(process_id)
            time.sleep(seconds)
            after = _used(process_id)
        finally:
            os.kill(process_id, 15)
            os.waitpid(process_id, 0)
            service.terminate()
            service.wait()
    return Idle(after.wakeups - before.wakeups, after.cpu_seconds - before.cpu_seconds)


def _swallow(terminal: int) -> None:
    with contextlib.suppress(OSError):
        while os.read(terminal, 65_536):
            pass


def _used(process_id: int) -> Idle:
    """Read what all threads of a process have used: each wake-up is a switch to it that it had waited for."""
    switches, ticks = 0, 0
    for task in Path(f"/proc/{process_id}/task").iterdir():
        status = dict(line.split(":", 1) for line in (task / "status").read_text().splitlines())
        switches += int(status["voluntary_ctxt_switches"])
        fields = (task / "stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return Idle(switches, ticks / os.sysconf("SC_CLK_TCK"))


def figures(seconds: float) -> Iterator[Figure]:
    """Give the lines of the table."""
    steps = steps_in_virtual_hours()
    yield Figure(
        f"{IDLE_HOURS} idle hours, virtual", f"{steps} wake-ups", "", None, f"under {WAKEUPS}", steps < WAKEUPS
    )
    logging, showing = real(seconds, is_logging=True), real(seconds, is_logging=False)
    work = f"{seconds:.0f} idle seconds of a real `run`"
    yield Figure(f"{work} with a log", str(logging), "", None, "none", logging.wakeups == 0)
    is_reached = showing.cpu_seconds <= SHARE_OF_A_CORE * seconds
    yield Figure(f"{work} on a terminal, in its first hour", str(showing), "", None, "0.5 % of a core", is_reached)


def main() -> None:
    """Print both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    seconds = parser.parse_args().seconds
    print(f"{IDLE_HOURS} idle hours, virtual: {steps_in_virtual_hours()} steps of the program")
    for place, is_logging in (("with a log", True), ("on a terminal", False)):
        print(f"{seconds:.0f} real seconds, {place}: {real(seconds, is_logging=is_logging)}")


if __name__ == "__main__":
    main()
