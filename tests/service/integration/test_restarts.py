"""The state that survives a restart: the counters of faults, and results that expired in between."""

import logging

import pytest

from .service_world import World, WorldMaker

ONCE = {"kind": "unavailable", "endpoint": "read"}


async def statuses(world: World, count: int) -> list[int]:
    return [(await world.send("GET", "/models")).status for _ in range(count)]


async def restarted(world: World) -> None:
    await world.stop()
    await world.start()


async def test_a_fault_that_was_asked_for_once_applies_once(make_world: WorldMaker) -> None:
    """A rehearsal that is stopped and goes on has the faults that were configured, and no more."""
    world = await make_world(faults=[ONCE])
    before = await statuses(world, 2)

    await restarted(world)

    assert (before, await statuses(world, 2)) == ([503, 200], [200, 200])


async def test_a_fault_that_has_struck_is_in_the_books_when_its_reply_leaves(make_world: WorldMaker) -> None:
    """Nothing has to be written at the end: the service may be killed."""
    world = await make_world(faults=[ONCE])
    await statuses(world, 1)

    rows = await world.service.query("SELECT met, struck FROM fault_tallies")

    assert rows == [{"met": 1, "struck": 1}]


async def test_a_rule_counts_on_over_a_restart(make_world: WorldMaker) -> None:
    """`after` and `every` go on where they were."""
    world = await make_world(faults=[{**ONCE, "times": None, "after": 1, "every": 3}])
    before = await statuses(world, 3)

    await restarted(world)

    assert before + await statuses(world, 5) == [200, 200, 200, 503, 200, 200, 503, 200]


async def test_chance_continues_over_a_restart(make_world: WorldMaker) -> None:
    """The same seed and requests give the same faults, whether the service was stopped in between or not."""
    rule = {**ONCE, "times": None, "probability": 0.5, "seed": 3}
    world = await make_world(faults=[rule], state_dir=(await make_world()).config.state_dir / "whole")
    whole = await statuses(world, 24)
    world = await make_world(faults=[rule], state_dir=world.config.state_dir / "parted")

    parted = await statuses(world, 7)
    await restarted(world)
    parted += await statuses(world, 17)

    assert parted == whole
    assert set(whole) == {200, 503}


async def test_a_changed_rule_starts_again(make_world: WorldMaker) -> None:
    """So does one that is switched on at run time: what is counted is what the configuration asks for."""
    world = await make_world(faults=[ONCE])
    await statuses(world, 1)
    await world.stop()

    world.config = world.config.model_copy(update={"faults": (world.config.faults[0].model_copy(update={"times": 2}),)})
    await world.start()

    assert await statuses(world, 3) == [503, 503, 200]


async def test_results_that_expire_while_nothing_serves_are_reported(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """Service time goes on, at its speed: a night at sixty times is longer than results are kept."""
    await world.finish(await world.create())
    await world.stop()
    world.clock.advance(20 * 86_400)

    with caplog.at_level(logging.WARNING, logger="batchkiln_service"):
        await world.start()

    (told,) = [record for record in caplog.records if record.getMessage() == "results_expired_meanwhile"]
    assert (told.__dict__["items"], told.__dict__["duration_seconds"]) == (1, 20 * 86_400)


@pytest.mark.parametrize("days", [1, 20])
async def test_a_start_is_silent_where_nothing_expired(
    world: World, caplog: pytest.LogCaptureFixture, days: int
) -> None:
    """Neither time alone nor a result alone is worth a warning."""
    if days == 1:
        await world.finish(await world.create())
    await world.stop()
    world.clock.advance(days * 86_400)

    with caplog.at_level(logging.WARNING, logger="batchkiln_service"):
        await world.start()

    assert caplog.records == []
