"""A cancellation at any moment of a drive is as safe as a kill: the queue is free afterwards."""

import asyncio
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Final

import pytest

import batchkiln

CONFIG: Final = {"profiles": {"local": {"time_scale": 600}}}
SMALL: Final[batchkiln.Defaults] = {
    "model": "epsilon-2",
    "mode": "text-to-image",
    "parameters": {"resolution": "512x512"},
}
STEPS_MAX: Final = 1000


class CanceledAt:
    """Awaits a coroutine, and cancels it where it waits for the n-th time; `is_reached` tells whether it did so."""

    def __init__(self, work: Coroutine[Any, Any, None], step: int) -> None:
        self._work = work
        self._step = step
        self.is_reached = False

    def __await__(self) -> Generator[Any, Any, None]:
        task = asyncio.current_task()
        assert task is not None
        waiting, steps = self._work.__await__(), count()
        proceed: Callable[[], Any] = partial(next, waiting)
        while True:
            try:
                waited_for = proceed()
            except StopIteration:
                return
            if next(steps) == self._step:
                self.is_reached = True
                asyncio.get_running_loop().call_soon(task.cancel)
            try:
                yield waited_for
                proceed = partial(next, waiting)
            except BaseException as error:  # noqa: BLE001  it is handed on to where it belongs
                proceed = partial(waiting.throw, error)


async def test_a_cancellation_at_any_moment_frees_the_queue(tmp_path: Path) -> None:
    """Law 9: nothing that was accepted waits for a restart of the program, wherever its drive was cut."""
    async with batchkiln.open_queue(tmp_path / "queue.db", config=CONFIG, working_dir=tmp_path) as queue:
        await queue.enqueue_items(["A fox"], job="foxes", defaults=SMALL)

        async def drive() -> None:
            async with queue._driving(command="test") as run:
                assert await run.engine.new_workers()

        async def drive_until(canceled: CanceledAt) -> None:
            await canceled

        for step in range(STEPS_MAX):
            canceled = CanceledAt(drive(), step)
            task = asyncio.create_task(drive_until(canceled))
            await asyncio.wait({task})
            assert task.cancelled() == canceled.is_reached
            async with queue._driving(command="test"):
                pass
            if not canceled.is_reached:
                break

        assert 10 < step < STEPS_MAX - 1
        assert (await queue.run("foxes")).exit_status is batchkiln.ExitStatus.OK


async def test_a_run_after_one_that_was_canceled_as_it_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`run`, canceled while it closes, is begun again in the same process."""
    from batchkiln.api.engine import Engine  # noqa: PLC0415  slow to import

    closing, close = asyncio.Event(), Engine.close

    async def slow(driver: Engine) -> None:
        closing.set()
        await asyncio.sleep(0)
        await close(driver)

    async with batchkiln.open_queue(tmp_path / "queue.db", config=CONFIG, working_dir=tmp_path) as queue:
        await queue.enqueue_items(["A fox"], job="foxes", defaults=SMALL)
        monkeypatch.setattr(Engine, "close", slow)
        running = asyncio.create_task(queue.run("foxes"))
        await closing.wait()
        running.cancel()
        await asyncio.wait({running})
        monkeypatch.undo()

        assert running.cancelled()
        assert (await queue.run()).exit_status is batchkiln.ExitStatus.OK
