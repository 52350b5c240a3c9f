"""Trials with real processes: what is done to `batchkiln run`, and what has to be true of it while it is done.

They happen while a service runs (`serving`), and leave work for a last run (`finish`). Then the service's books and
the disk are the judges: `Ground.violations`.
"""

import contextlib
import json
import random
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial

from crash.process_harness import PATIENCE_SECONDS, Ground, kill
from crash.proxy import Proxy
from crash.service_books import Books
from crash.small_disk import SmallDisk

CREATES = b"POST /api/v1/images"
STOPPING = "Stopping: finishing the current work"
LEAST_SECONDS_PER_IMAGE = 15.0  # of service time, from its create to the next


def interrupt(ground: Ground, *, number: signal.Signals, after_seconds: float) -> int:
    """Send a signal to a run some time after it took the queue; return its exit status."""
    with running(ground) as run:
        wait_until(ground, run, partial(is_driving, ground, run))
        time.sleep(after_seconds)
        run.send_signal(number)
        return run.wait(PATIENCE_SECONDS)


def moments(ground: Ground, *, count: int, draw: random.Random) -> list[float]:
    """Draw how long to leave each of several runs alone, in seconds: in all shorter than the work takes at least."""
    least_seconds = LEAST_SECONDS_PER_IMAGE * (len(ground.prompts) - 1) / ground.scale
    return [draw.uniform(0.0, 1.0) * least_seconds / count for _ in range(count)]


def interrupt_twice(ground: Ground, proxy: Proxy, *, first: signal.Signals, second: signal.Signals) -> int:
    """Send two signals to a run while the reply to its create does not come; return its exit status."""
    with running(ground) as run:
        proxy.hold_next = CREATES
        wait_until(ground, run, proxy.is_holding.is_set)
        before = ground.log().count(STOPPING)
        run.send_signal(first)
        wait_until(ground, run, lambda: ground.log().count(STOPPING) > before)
        run.send_signal(second)
        return run.wait(PATIENCE_SECONDS)


def fill_disk(ground: Ground, disk: SmallDisk, *, left_bytes: int, files: int) -> list[tuple[int, str]]:
    """Take all but a few bytes of the disk from a run that has saved some files, then all; then give them back.

    Returns exit status and words of the run that was at work, and of one that began without any room.
    """
    with running(ground) as run:
        wait_until(ground, run, lambda: finished_files(ground) >= files)
        disk.fill(left_bytes=left_bytes)
        ends = [(run.wait(PATIENCE_SECONDS), ground.log())]
    disk.fill()
    before = requests(ground)
    with running(ground) as again:
        ends.append((again.wait(PATIENCE_SECONDS), ground.log().removeprefix(ends[0][1])))
    assert requests(ground) == before, f"something was sent, with a full disk: {ends}"
    disk.make_room()
    return ends


def finish(ground: Ground) -> None:
    """Run to the end."""
    assert outcome(ground, "run", "manifest.yaml") == 0, ground.log()


def outcome(ground: Ground, *arguments: str) -> int:
    """Let a command run to its end, and return its exit status."""
    with running(ground, *arguments) as process:
        return process.wait(PATIENCE_SECONDS)


# --- looking on ---


def tells_of_full_disk(words: str) -> bool:
    """Tell whether words say that there is no room and what to do, and neither an accident nor a trace of one."""
    has_reason = any(reason in words for reason in ("the disk is full", "No space left on device", "MiB are free"))
    has_remedy = any(remedy in words for remedy in ("free disk space and run", "Free some space"))
    return has_reason and has_remedy and "[error" not in words and "Traceback" not in words


def is_driving(ground: Ground, process: subprocess.Popen[str]) -> bool:
    """Tell whether a process has taken the queue."""
    queue = ground.seen(ground.queue)
    with (
        contextlib.suppress(sqlite3.OperationalError),
        closing(sqlite3.connect(f"file:{queue}?mode=ro", uri=True)) as c,
    ):
        holder: tuple[int] | None = c.execute("SELECT pid FROM lease").fetchone()
        return holder == (process.pid,)
    return False


def has_generated(ground: Ground, prompt: str) -> bool:
    """Tell whether the service has been asked for a prompt."""
    made = Books.read(ground.folder / "service").generations
    return any(json.loads(row["drawing_json"])["prompt"] == prompt for row in made)


def finished_files(ground: Ground) -> int:
    """Count the files under their final names."""
    return sum(path.suffix in {".png", ".mp4"} for path in ground.files())


def requests(ground: Ground) -> int:
    """Count what the service has been asked."""
    return len(Books.read(ground.folder / "service").requests)


def wait_until(ground: Ground, process: subprocess.Popen[str], is_so: Callable[[], bool]) -> None:
    """Wait for something that a process does; fail where it ends without."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not is_so():
        assert process.poll() is None or is_so(), f"it ended too early, with {process.returncode}: {ground.log()}"
        assert time.monotonic() < deadline, f"it did not happen: {ground.log()}"
        time.sleep(0.01)


def first_to_end(*processes: subprocess.Popen[str]) -> subprocess.Popen[str]:
    """Wait until one of several processes has ended, and return it."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        for process in processes:
            if process.poll() is not None:
                return process
        time.sleep(0.01)
    raise AssertionError("none of them ended")


@contextmanager
def serving(ground: Ground) -> Iterator[subprocess.Popen[str]]:
    """Write what is needed, and let the service run."""
    ground.prepare()
    with _ended(ground.serve()) as service:
        yield service


@contextmanager
def running(ground: Ground, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Let a command run: `run` on the manifest where none is named."""
    with _ended(ground.start(*arguments) if arguments else ground.run()) as process:
        yield process


@contextmanager
def _ended(process: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    try:
        yield process
    finally:
        kill(process)
