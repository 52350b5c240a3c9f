"""The end of a run, and changes that arrive at that moment."""

import asyncio

import pytest

from batchkiln.core.responses import GenerationStatus
from batchkiln.core.states import ItemState
from batchkiln.worker.run_state import RunState
from support.worker_world import World


async def test_a_change_while_the_last_hook_runs_is_not_left_to_the_next_run(world: World) -> None:
    """A person makes an item again while the run waits for its hook; the run is still there to do it."""
    control, settled = RunState(), 0

    async def settle(_changed: asyncio.Event | None) -> bool:
        nonlocal settled
        settled += 1
        if settled == 1:
            await asyncio.sleep(0)
            world.enqueue("owl")
            world.announce()
            control.recheck.set()  # as the engine does at a wakeup from another process
        return True

    control.settle = settle
    world.enqueue("fox")

    await world.run(control)

    assert world.states() == {"done": 2}
    assert settled == 2


@pytest.mark.parametrize("stays", [True, False])
async def test_run_on_a_terminal_waits_while_its_job_is_paused(world: World, *, stays: bool) -> None:
    """A person who pauses for a moment finds the run there; a program that waits for its end is not kept waiting."""
    world.enqueue("fox", "owl")
    control, paused = RunState(stays_while_paused=stays), list[int]()

    def set_paused(word: int) -> None:
        world.connection.execute("UPDATE job SET is_paused = ?", (word,))
        paused.append(word)
        world.announce()
        control.recheck.set()  # as the engine does at a wakeup from another process

    def person() -> None:
        if not paused and world.states().get("active"):
            set_paused(1)
        elif paused == [1] and world.is_waiting_in_pause:
            set_paused(0)

    await world.run_watched(person, control)

    assert world.states() == ({"done": 2} if stays else {"done": 1, "queued": 1})


async def test_run_does_not_wait_for_a_job_that_was_paused_before(world: World) -> None:
    """It says so, and ends."""
    world.enqueue("fox")
    world.connection.execute("UPDATE job SET is_paused = 1")

    await world.run(RunState(stays_while_paused=True))

    assert world.states() == {"queued": 1}


async def test_run_does_not_wait_if_an_item_comes_back_to_a_job_that_was_paused_before(world: World) -> None:
    """Nobody pauses anything: the failure of an item that was under way queues it again."""
    world.enqueue("fox", "owl")
    world.service.outcomes.append(GenerationStatus.FAILED)
    await world.run_until("fox", ItemState.ACTIVE)
    world.connection.execute("UPDATE job SET is_paused = 1")

    await world.run(RunState(stays_while_paused=True))

    assert world.states() == {"queued": 2}
