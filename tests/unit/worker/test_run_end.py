"""The end of a run, and changes that arrive at that moment."""

import asyncio

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
