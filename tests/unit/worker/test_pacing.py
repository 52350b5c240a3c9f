"""Reads of an active generation: timed by what others of its kind took, in this run and in earlier ones."""

from itertools import pairwise

from batchkiln.core.states import ItemState
from support.worker_world import World

SECONDS = 14.5
INTERVAL = 10.0


def idle_seconds(world: World) -> list[float]:
    """Return for each generation how long it had ended before a read saw it."""
    return [
        (world.service.reads[name][-1] - generation.created_at).total_seconds() - SECONDS
        for name, generation in world.service.generations.items()
    ]


async def test_reads_come_soon_after_the_end_once_a_few_were_seen(world: World) -> None:
    """The slot idles five seconds a generation with reads at fixed distances, and soon less than two."""
    world.service.duration_seconds = SECONDS
    world.enqueue(*(f"item-{n}" for n in range(40)))

    await world.run()

    idle = idle_seconds(world)
    assert max(idle[:3]) > 5.0
    assert sum(idle[20:]) / 20 < 2.0
    assert world.service.violations == []


async def test_what_was_learned_survives_a_restart(world: World) -> None:
    """The queue itself keeps what was seen, so that the next run does not begin with fixed distances."""
    world.service.duration_seconds = SECONDS
    world.enqueue(*(f"item-{n}" for n in range(40)))
    await world.run()
    world.restart(after_seconds=3600.0)
    world.enqueue("late")

    await world.run()

    assert world.state("late") is ItemState.DONE
    assert idle_seconds(world)[-1] < 3.0


async def test_a_killed_run_keeps_the_distance_all_the_same(world: World) -> None:
    """Service rule 4.4: whatever was learned, and however often the process dies."""
    world.service.duration_seconds = SECONDS
    world.enqueue(*(f"item-{n}" for n in range(20)))
    while not await world.run_killed(300):
        world.restart()

    gaps = [
        (after - before).total_seconds()
        for moments in world.service.reads.values()
        for before, after in pairwise(moments)
    ]
    assert all(gap >= INTERVAL for gap in gaps)
    assert world.states() == {"done": 20}
    assert world.service.violations == []


async def test_a_lost_reply_tells_nothing_of_the_duration(world: World) -> None:
    """Nobody knows whether the generation still went on at that read."""
    world.service.duration_seconds = SECONDS
    world.enqueue("item")
    world.service.lose_reply("read")

    await world.run()

    (going, ended) = world.rows("SELECT seen_going_ms, seen_ended_ms FROM attempt")[0]
    assert going == 0
    assert ended >= SECONDS * 1000
