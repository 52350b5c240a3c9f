"""How one process wakes another."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

import batchkiln
from batchkiln.api import engine
from batchkiln.store.sqlite.wakeup import fifo_path, listen, notify

SOURCE = Path(__file__).parents[3] / "src"
CONFIG = "profiles:\n  local:\n    time_scale: 600\n"
MANIFEST = """
version: 1
job: foxes
defaults: {model: epsilon-2, mode: text-to-image, parameters: {resolution: 512x512}}
items: [A fox]
"""


async def test_bell_rings_across_processes(tmp_path: Path) -> None:
    """A process that enqueued something wakes the one that drives the queue."""
    heard = asyncio.Event()
    queue = tmp_path / "queue.db"

    with listen(queue, heard.set):
        command = (
            "import sys, pathlib; from batchkiln.store.sqlite.wakeup import notify; notify(pathlib.Path(sys.argv[1]))"
        )
        environ = os.environ | {"PYTHONPATH": str(SOURCE)}
        arguments = [sys.executable, "-c", command, str(queue)]
        await asyncio.to_thread(subprocess.run, arguments, check=True, env=environ)

        async with asyncio.timeout(5):
            await heard.wait()


async def test_bell_rings_again_and_again(tmp_path: Path) -> None:
    """A listener that has heard once listens on."""
    count = 0
    heard = asyncio.Event()

    def hear() -> None:
        nonlocal count
        count += 1
        heard.set()

    with listen(tmp_path / "queue.db", hear):
        for _ in range(3):
            heard.clear()
            notify(tmp_path / "queue.db")
            async with asyncio.timeout(5):
                await heard.wait()

    assert count == 3


def test_ring_without_a_listener_is_harmless(tmp_path: Path) -> None:
    """Nobody drives the queue: nothing waits, nothing fails, no file appears."""
    notify(tmp_path / "queue.db")

    assert not fifo_path(tmp_path / "queue.db").exists()


async def test_ring_after_the_listener_went_is_harmless(tmp_path: Path) -> None:
    """The pipe is gone with its listener: one left there would hang whoever copies the folder."""
    with listen(tmp_path / "queue.db", lambda: None):
        pass
    assert not fifo_path(tmp_path / "queue.db").exists()

    notify(tmp_path / "queue.db")


async def test_file_in_the_pipes_place_is_left_alone(tmp_path: Path) -> None:
    """Something else under that name is neither written to nor listened to."""
    fifo = fifo_path(tmp_path / "queue.db")
    fifo.parent.mkdir(mode=0o700, exist_ok=True)
    fifo.write_text("mine")

    with listen(tmp_path / "queue.db", lambda: None):
        notify(tmp_path / "queue.db")

    assert fifo.read_text() == "mine"
    fifo.unlink()


async def test_no_file_is_created_beside_the_queue(tmp_path: Path) -> None:
    """A pipe there would hang a backup or a search of the folder, also after a kill."""
    with listen(tmp_path / "queue.db", lambda: None):
        beside = list(tmp_path.iterdir())

    assert beside == []


async def test_work_that_waits_for_more_finds_without_a_wakeup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law 9: an enqueue by another user, or under another TMPDIR, rings elsewhere, and is found all the same."""
    monkeypatch.setattr(engine, "CHECK_INTERVAL_SECONDS", 0.05)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "foxes.yaml").write_text(MANIFEST)
    (tmp_path / "batchkiln.yaml").write_text(CONFIG)
    command = [sys.executable, "-m", "batchkiln", "enqueue", "foxes.yaml", "--queue", "queue.db"]
    environ = os.environ | {"PYTHONPATH": str(SOURCE), "TMPDIR": str(tmp_path / "elsewhere")}

    async with batchkiln.open_queue(
        tmp_path / "queue.db", config=tmp_path / "batchkiln.yaml", working_dir=tmp_path
    ) as queue:
        await queue.start(forever=True)
        await asyncio.to_thread(subprocess.run, command, check=True, env=environ, cwd=tmp_path, capture_output=True)
        async with asyncio.timeout(30):
            view = await queue.wait_job("foxes")

    assert view.summary.items[batchkiln.ItemState.DONE] == 1
