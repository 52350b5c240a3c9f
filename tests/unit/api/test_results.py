"""Ended items come once for each time that they ended, however the pages lie when they end."""

from collections import Counter

import pytest

from batchkiln.api.reading import Results
from batchkiln.core.states import ItemState
from batchkiln.store import Store, operations
from batchkiln.store.items import PAGE
from batchkiln.store.jobs import Jobs
from support.worker_world import World

NAMES = [f"item-{number}" for number in range(PAGE + 500)]


@pytest.mark.parametrize("seen_before_more", [0, PAGE, PAGE + 1])
async def test_items_that_end_while_pages_are_read_come_once(world: World, seen_before_more: int) -> None:
    """Some ended before, some end in the middle: on pages read already, and on pages still to come."""
    world.enqueue(*NAMES)
    operations.cancel(world.connection, "job", NAMES[::2], 0)
    results = Results(Store(world.database), Jobs(world.connection).id_of("job"), "job")
    seen: Counter[str] = Counter()

    async for item in results.so_far():
        if seen.total() == seen_before_more:
            operations.cancel(world.connection, "job", NAMES[1::2], 0)
        seen[item.name] += 1
    operations.cancel(world.connection, "job", NAMES, 0)
    async for item in results.further():
        seen[item.name] += 1

    assert seen == Counter(NAMES)


async def test_items_of_other_jobs_do_not_come(world: World) -> None:
    """Though their events stand in the same history."""
    world.enqueue("mine", job="mine")
    world.enqueue("other", job="other")
    results = Results(Store(world.database), Jobs(world.connection).id_of("mine"), "mine")

    assert [item async for item in results.so_far()] == []
    await world.run()

    assert [(item.name, item.state) async for item in results.further()] == [("mine", ItemState.DONE)]


async def test_one_that_has_left_its_state_again_waits_for_its_next_end(world: World) -> None:
    """Canceled and queued again before it was looked at: it comes when it is done."""
    world.enqueue("a")
    results = Results(Store(world.database), Jobs(world.connection).id_of("job"), "job")
    assert [item async for item in results.so_far()] == []

    operations.cancel(world.connection, "job", ["a"], 0)
    operations.retry(world.connection, "job", ["a"], 0)
    assert [item async for item in results.further()] == []
    await world.run()

    assert [item.state async for item in results.further()] == [ItemState.DONE]
