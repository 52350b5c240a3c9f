"""Processes that meet: signals, two drivers of one queue, and people who add to it; judged by the service's books."""

import random
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from crash import trials
from crash.process_harness import JOB, PATIENCE_SECONDS, Ground, kill
from crash.proxy import proxying

IMAGES = [f"A lighthouse on rock {number}, sea mist" for number in range(1, 13)]
MORE = [f"A harbour behind dike {number}, low tide" for number in range(1, 4)]


@pytest.mark.long
def test_signals_cost_nothing_twice_and_lose_nothing(tmp_path: Path) -> None:
    """Law 2, Law 5, Law 9: a run leaves with the signal's code; a second one ends even a create on its way at once."""
    ground = Ground(tmp_path, IMAGES, [], scale=120.0)
    early, later = trials.moments(ground, count=2, draw=random.Random(11))
    with proxying(ground.port, seed=0) as proxy:
        ground.door = proxy.port
        with trials.serving(ground):
            first = trials.interrupt(ground, number=signal.SIGTERM, after_seconds=early)
            second = trials.interrupt(ground, number=signal.SIGINT, after_seconds=later)

            twice = trials.interrupt_twice(ground, proxy, first=signal.SIGINT, second=signal.SIGTERM)

            trials.finish(ground)

    assert (first, second, twice) == (143, 130, 143), f"{ground.log()}, after {early} s and {later} s"
    assert ground.violations() == []


@pytest.mark.long
def test_queue_has_one_driver_and_takes_more_meanwhile(tmp_path: Path) -> None:
    """Law 4, Law 9: a second run is told who works, an enqueue adds to it, and who comes after a kill goes on."""
    ground = Ground(tmp_path, IMAGES[:6], [], scale=120.0, is_forked=True)
    with proxying(ground.port, seed=0) as proxy:
        ground.door = proxy.port
        with trials.serving(ground):
            proxy.hold_next = trials.CREATES  # so that nobody is too slow for the run
            with trials.running(ground) as one, trials.running(ground) as other:
                refused = trials.first_to_end(one, other)
                works = other if refused is one else one
                trials.wait_until(ground, works, proxy.is_holding.is_set)
                late = trials.outcome(ground, "run", "manifest.yaml")  # the first was refused by one just beginning
                ground.image_prompts = [*IMAGES[:3], *MORE, *IMAGES[3:6]]
                ground.write_manifest("manifest.yaml", job=JOB, image_prompts=ground.image_prompts)
                added = trials.outcome(ground, "enqueue", "manifest.yaml")
                proxy.let_go()
                trials.wait_until(ground, works, lambda: trials.has_generated(ground, MORE[0]))
                kill(works)
            said = ground.log()
            trials.finish(ground)

    assert (refused.returncode, late, added) == (6, 6, 0)
    assert f"process {works.pid} on" in said
    assert "runs this queue; nothing was sent or changed. `batchkiln enqueue --queue " in said
    assert ground.violations() == []


@pytest.mark.long
def test_enqueues_side_by_side_are_taken_up_by_work(tmp_path: Path) -> None:
    """Law 9: two at a time of the same manifests: each item is there once, and is done without a restart."""
    ground = Ground(tmp_path, IMAGES[:3], [], scale=120.0, is_forked=True)
    with trials.serving(ground), trials.running(ground, "work", "--forever") as work:
        ground.write_manifest("more.yaml", job="more", image_prompts=MORE)
        ground.image_prompts = [*IMAGES[:3], *MORE]
        enqueues = [
            ground.start("enqueue", *manifests)
            for manifests in (("manifest.yaml", "more.yaml"), ("more.yaml", "manifest.yaml"))
        ]
        codes = [enqueue.wait(PATIENCE_SECONDS) for enqueue in enqueues]
        trials.wait_until(ground, work, lambda: trials.finished_files(ground) == len(ground.prompts))
        work.send_signal(signal.SIGTERM)

        code = work.wait(PATIENCE_SECONDS)

    assert codes == [0, 0]
    assert code == 143
    assert ground.violations() == []


@pytest.mark.long
def test_broken_connections_cost_nothing_twice_and_lose_nothing(tmp_path: Path) -> None:
    """Law 2, Law 3, Law 5, Law 7: whatever of a request or a reply is lost on the way, no limit is overstepped."""
    ground = Ground(tmp_path, IMAGES, [], scale=120.0, is_forked=True)
    with proxying(ground.port, seed=4, share=0.3) as proxy:
        ground.door = proxy.port
        with trials.serving(ground):
            trials.finish(ground)

    assert ground.violations() == []
    assert len(proxy.met) > 3, proxy.met


@pytest.mark.long
def test_commands_beside_a_later_run_leave_its_log(tmp_path: Path) -> None:
    """Law 1: the first run closed the queue, so the second one opens it without a log; each command closes it again."""
    ground = Ground(tmp_path, IMAGES, [], scale=120.0, is_forked=True)
    beside = "status", "enqueue more.yaml", f"items {JOB}", "pause more", "doctor", "unpause more"
    with proxying(ground.port, seed=0) as proxy:
        ground.door = proxy.port
        with trials.serving(ground):
            ground.write_manifest("more.yaml", job="more", image_prompts=MORE)
            begun = trials.outcome(ground, "run", "manifest.yaml", "--limit", "1")
            with trials.running(ground) as run:
                proxy.hold_next = trials.CREATES  # so that the commands are quicker than the run
                trials.wait_until(ground, run, proxy.is_holding.is_set)
                log = log_of(ground).stat()
                outcomes = [trials.outcome(ground, *command.split()) for command in beside]
                is_same_log = log_of(ground).stat().st_ino == log.st_ino
                proxy.let_go()
                ended = run.wait(PATIENCE_SECONDS)
            more = trials.outcome(ground, "run", "more.yaml")

    ground.image_prompts += MORE
    assert (begun, outcomes, ended, more) == (5, [0] * len(beside), 0, 0), ground.log()
    assert is_same_log
    assert ground.violations() == []
    with closing(sqlite3.connect(ground.folder / ground.queue)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def log_of(ground: Ground) -> Path:
    """Return the path of SQLite's log of the queue."""
    return ground.folder / f"{ground.queue}-wal"
