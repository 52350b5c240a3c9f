"""A program that runs for days leaks no task, no open file and no memory."""

import asyncio
import functools
import gc
from collections.abc import Iterator
from pathlib import Path

import pytest
import yarl

from batchkiln.hooks import run_hooks
from batchkiln.rehearsal.network import MemoryNetwork
from batchkiln.rehearsal.nodes import as_node

from .leaks import left_behind
from .log_silencing import silence
from .plan import HookBounds, Plan
from .plan_runner import seeded_secrets
from .simulated_world import World
from .virtual_loop import VirtualLoop

HALF_A_DAY = 43_200.0
MANIFEST = """
version: 1
job: days
defaults: {model: alpha-2.5-lite, mode: text-to-video, parameters: {resolution: 480p, duration_seconds: 10}}
items:
"""
ITEM = "  - {{id: i{0}, prompt: A heron on day {0}}}\n"  # twenty of them are a day's credits
OBJECTS_MAX = 400  # what caches of bounded size may still fill up; a generation alone makes thousands


class WeighedWorld(World):
    """A world whose objects are counted twice a day."""

    def weigh(self) -> list[int]:
        self.counts: list[int] = []
        self.play()
        return self.counts

    async def _history(self) -> None:
        scales = asyncio.create_task(self._count())
        try:
            await super()._history()
        finally:
            scales.cancel()

    async def _count(self) -> None:
        while True:
            await asyncio.sleep(HALF_A_DAY)
            for function in vars(yarl._url).values():  # its caches of URLs are of bounded size, full or not yet
                if isinstance(function, functools._lru_cache_wrapper):
                    function.cache_clear()
            gc.collect()
            self.counts.append(len(gc.get_objects()))


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    loop = VirtualLoop(MemoryNetwork())
    yield loop
    loop.close()


@pytest.mark.long
def test_memory_does_not_grow_with_the_days(tmp_path: Path) -> None:
    """Neither done items, sent requests nor saved files stay in memory."""
    plan = Plan(manifests={"days.yaml": MANIFEST + "".join(ITEM.format(number) for number in range(90))})
    with silence(), seeded_secrets(plan.seed):
        counts = WeighedWorld(tmp_path / "world", plan).weigh()

    assert len(counts) >= 6
    assert counts[-1] - counts[1] < OBJECTS_MAX


def test_killed_program_leaves_nothing_replaced(tmp_path: Path) -> None:
    """What a world puts in the place of real parts is taken away at its end, also after kills in their midst."""
    bounds = HookBounds(redos=0, redo_credits=0)
    plan = Plan(manifests={"days.yaml": MANIFEST + ITEM.format(1)}, hook=bounds, kills=(5.0, 60.0))
    real = vars(run_hooks)["run_program"]
    with silence(), seeded_secrets(plan.seed):
        world = World(tmp_path / "world", plan)
        world.play()

    assert len(world.died_at) == len(plan.kills)
    assert vars(run_hooks)["run_program"] is real


def test_task_that_nobody_waits_for_is_reported(loop: VirtualLoop, tmp_path: Path) -> None:
    """A task left by an ended program is reported."""

    async def forgets() -> None:
        with as_node("program-1"):
            loop.create_task(asyncio.Event().wait(), name="forgotten")

    loop.run_until_complete(forgets())

    (told,) = left_behind(loop, "program-1", tmp_path)
    assert "forgotten" in told
    for task in loop.unfinished("program-1"):
        task.cancel()
    loop.run_until_complete(asyncio.sleep(0))


def test_file_that_nobody_closes_is_reported(loop: VirtualLoop, tmp_path: Path) -> None:
    """A file left open by an ended program is reported."""
    path = tmp_path / "part"
    with path.open("wb"):
        assert left_behind(loop, "program-1", tmp_path) == [f"{path} is left open"]

    assert left_behind(loop, "program-1", tmp_path) == []
