"""SIGKILL of a run while the program `on_saved` works: real processes, judged by the service's books."""

import asyncio
import fcntl
import json
import os
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

from crash import trials
from crash.process_harness import PATIENCE_SECONDS, Ground, kill

HOOK = """
import fcntl, json, os, signal, subprocess, sys, time
item = json.load(sys.stdin)
times = open("times", "a+")
times.write(f"{item['version']}\\n")
times.close()
number = sum(1 for _ in open("times"))
if number == 1:  # with a child that has the lock too, and hangs
    lock = open("lock", "w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"], pass_fds=[lock.fileno()])
    open("begun", "w").close()
    time.sleep(300)
if number == 2:  # the run dies at the very end of the program
    os.kill(int(open("run.pid").read()), signal.SIGKILL)
raise SystemExit(12 if item["version"] == 1 else 10)
"""


@pytest.mark.long
async def test_killed_run_leaves_no_program_and_asks_again(tmp_path: Path) -> None:
    """Law 2: a program ends with its run, the next run asks it again, and its decision is paid once."""
    ground = Ground(tmp_path, ["A lighthouse, sea mist"], [], scale=120.0)
    with trials.serving(ground):
        (tmp_path / "hook.py").write_text(HOOK)
        with (tmp_path / "batchkiln.yaml").open("a") as config:
            config.write(f"on_saved: {json.dumps({'command': [sys.executable, 'hook.py'], 'redo_credits': 1000})}\n")
        os.mkfifo(tmp_path / "begun")

        in_flight = ground.run()
        await asyncio.wait_for(asyncio.to_thread((tmp_path / "begun").read_bytes), PATIENCE_SECONDS)
        kill(in_flight)
        is_unlocked = await _is_unlocked(tmp_path / "lock")

        at_its_end = ground.run()
        (tmp_path / "run.pid").write_text(str(at_its_end.pid))
        at_its_end.wait(PATIENCE_SECONDS)
        last = trials.outcome(ground, "run", "manifest.yaml")

    assert is_unlocked, "the program or its child goes on"
    assert (at_its_end.returncode, last) == (-9, 0), ground.log()
    assert (tmp_path / "times").read_text().split() == ["1", "1", "1", "2"]
    with closing(sqlite3.connect(tmp_path / ground.queue)) as queue:
        assert queue.execute("SELECT verdict, version_id FROM item").fetchall() == [("kept", 2)]
    with closing(sqlite3.connect(tmp_path / "service" / "service.db")) as books:
        assert books.execute("SELECT count(*) FROM generations").fetchall() == [(2,)]
    assert ground.status()["finished"] is True


async def _is_unlocked(path: Path) -> bool:
    """Return whether all processes with a lock end soon."""
    with path.open("w") as file:
        for _ in range(3000):
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                await asyncio.sleep(0.02)
            else:
                return True
    return False
