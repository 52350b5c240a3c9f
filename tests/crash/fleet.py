"""Workers of one queue in PostgreSQL as processes of their own: killed, stopped, thawed, ended and started again.

    python tests/crash/fleet.py --rounds 5 --workers 3 --accounts 8

Each round has a database and a local service of its own. Worker processes share the queue, each from an address of its
own (127.0.0.2, .3 and so on); misadventures befall them by a seed: SIGKILL, SIGTERM, and SIGSTOP for longer or shorter
than a lease. At the end every item has to be done, and the service's books are read: one charge for each prompt, one
active generation of each account, no limit of an account or an address overstepped. It needs PostgreSQL's programs.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "src"))
sys.path.insert(0, str(Path(__file__).parents[1]))

from crash.process_harness import open_media
from crash.service_books import Books
from support import postgres
from support.shared_queue import SharedQueue

SCALE = 60.0
STRAY_READS = 1  # of a worker that is stopped between the look at its lease and the send, for each stop
BLOWS = ("kill", "kill", "stop", "freeze", "doze")
SECONDS = {"kill": (0.2, 3.0), "stop": (0.2, 3.0), "freeze": (16.0, 22.0), "doze": (0.5, 10.0)}
"""How long a worker is gone or stopped, in seconds of real time. A lease holds for 15 seconds."""


@dataclass
class Round:
    """One round: its draws, what befell the workers, and what is wrong in the end."""

    shared: SharedQueue
    draw: random.Random
    worker_count: int
    item_count: int
    counts: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)

    def play(self, *, blows: int, pause_seconds: float, patience_seconds: float) -> None:
        """Let so many misadventures happen, one about every `pause_seconds`, then wait for the end of all jobs."""
        names = [f"w-{number}" for number in range(self.worker_count)]
        configs = {name: self.shared.machine(name) for name in names}
        half = self.item_count // 2
        jobs = {"birds": half, "foxes": self.item_count - half}
        manifests = [self.shared.manifest(job, items=count) for job, count in jobs.items()]
        status, _, said = self.shared.call("enqueue", *manifests, config=configs[names[0]])
        assert status == 0, said
        lives = {name: self.shared.work(name, config=configs[name]) for name in names}
        back_at: dict[str, float] = {}
        deadline = time.monotonic() + patience_seconds
        next_blow = time.monotonic() + 3 * pause_seconds
        while time.monotonic() < deadline:
            now = time.monotonic()
            for name in [name for name, at in back_at.items() if at <= now]:
                del back_at[name]
                lives[name] = self._back(name, lives[name], configs[name])
            self._look(lives, back_at)
            if blows and now >= next_blow:
                up = [name for name in names if name not in back_at]
                if up:
                    blows -= 1
                    name = self.draw.choice(up)
                    back_at[name] = now + self._strike(lives[name])
                next_blow = now + self.draw.uniform(0.5, 1.5) * pause_seconds
            if not blows and not back_at and self.shared.done(configs[names[0]]) == self.item_count:
                break
            time.sleep(0.1 if blows or back_at else 1.0)
        else:
            self.violations.append("not everything was done in time")
        self._end(lives)
        self._check(jobs)

    def _strike(self, process: subprocess.Popen[str]) -> float:
        """Let a misadventure befall a worker; return after how many seconds it is over."""
        blow = self.draw.choice(BLOWS)
        self.counts[blow] += 1
        sent = {"kill": signal.SIGKILL, "stop": signal.SIGTERM}.get(blow, signal.SIGSTOP)
        process.send_signal(sent)
        return self.draw.uniform(*SECONDS[blow])

    def _back(self, name: str, process: subprocess.Popen[str], config: str) -> subprocess.Popen[str]:
        """Let a stopped worker go on, or start one again that has ended."""
        if _is_stopped(process):
            process.send_signal(signal.SIGCONT)
            return process
        process.wait(60)
        return self.shared.work(name, config=config)

    def _look(self, lives: dict[str, subprocess.Popen[str]], back_at: dict[str, float]) -> None:
        for name, process in lives.items():
            if name not in back_at and process.poll() is not None:
                self.violations.append(f"{name} ended by itself with {process.returncode}")
                back_at[name] = time.monotonic() + 1

    def _end(self, lives: dict[str, subprocess.Popen[str]]) -> None:
        for process in lives.values():
            process.send_signal(signal.SIGTERM)
        for name, process in lives.items():
            if (code := process.wait(60)) not in {143, -signal.SIGTERM}:  # it may have just been started
                self.violations.append(f"{name} ended with {code} after SIGTERM")

    def _check(self, jobs: dict[str, int]) -> None:
        prompts = [f"{job} {number}, ink on paper" for job, count in jobs.items() for number in range(1, count + 1)]
        books = Books.read(self.shared.folder / "service")
        early = [each for each in books.violations(prompts) if " read again after " in each]
        self.violations += [each for each in books.violations(prompts) if each not in early]
        stray = STRAY_READS * (self.counts["freeze"] + self.counts["doze"])
        if len(early) > stray:
            self.violations += early
        files = [path for path in (self.shared.folder / "out").rglob("*") if path.is_file()]
        if len(files) != len(prompts):
            self.violations.append(f"{len(files)} files for {len(prompts)} prompts")
        for path in files:
            try:
                open_media(path)
            except Exception as error:  # noqa: BLE001  whatever keeps a file from opening is the finding
                self.violations.append(f"{path} does not open: {error}")
        self.counts["generations"] = len(books.generations)
        self.counts["stray reads"] = len(early)


def _is_stopped(process: subprocess.Popen[str]) -> bool:
    """Return whether a process is stopped by a signal."""
    try:
        return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    except (OSError, IndexError):
        return False


def play(
    folder: Path, seed: int, *, workers: int, accounts: int, items: int, blows: int, pause_seconds: float
) -> tuple[Counter[str], list[str]]:
    """Play a round; return what happened, and what is wrong."""
    names = [f"account-{number}" for number in range(1, accounts + 1)]
    with (
        postgres.server().database() as url,
        SharedQueue(folder, url, names, scale=SCALE).serving() as shared,
    ):
        made = Round(shared, random.Random(seed), workers, items)
        made.play(blows=blows, pause_seconds=pause_seconds, patience_seconds=300 + 5 * blows)
        if made.violations:
            made.violations.append(shared.said())
        return made.counts, made.violations


def main() -> int:
    """Play rounds, a line for each; the exit status tells whether anything was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--accounts", type=int, default=8)
    parser.add_argument("--items", type=int, default=120)
    parser.add_argument("--blows", type=int, default=12, help="misadventures in a round")
    parser.add_argument("--pause", type=float, default=3.0, help="mean seconds between two")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    args = parser.parse_args()
    has_failed = False
    with tempfile.TemporaryDirectory() as cluster:
        os.environ.setdefault("BATCHKILN_TESTS_POSTGRES", cluster)
        os.environ.setdefault("BATCHKILN_TESTS_BEGUN_BY", str(os.getpid()))
        for seed in range(args.seed, args.seed + args.rounds):
            began = time.monotonic()
            with tempfile.TemporaryDirectory() as folder:
                counts, found = play(
                    Path(folder),
                    seed,
                    workers=args.workers,
                    accounts=args.accounts,
                    items=args.items,
                    blows=args.blows,
                    pause_seconds=args.pause,
                )
            has_failed |= bool(found)
            happened = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
            print(
                f"seed {seed}: {happened}: {'; '.join(found) or 'kept'} ({time.monotonic() - began:.0f} s)", flush=True
            )
    return 1 if has_failed else 0


if __name__ == "__main__":
    sys.exit(main())
