"""The work of the hook: each saved item once, again after a crash, and decisions within their bounds."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from batchkiln.core.states import ItemState
from batchkiln.store import hooks
from batchkiln.store.hooks import HookDecision, RedoBounds, SavedItem
from batchkiln.store.items import Items
from batchkiln.store.meta import write_meta
from batchkiln.store.operations import redo
from batchkiln.store.versions import choose_version
from support.worker_world import World

BOUNDS = RedoBounds(redos=2, credits=1000)


@pytest.fixture
def world(tmp_path: Path, _store: None) -> Iterator[World]:
    """A queue whose hook is configured from the start."""
    made = World(tmp_path)
    made.write(hooks.begin)
    yield made
    made.close()


def take(
    world: World, owner: str = "", *, running: tuple[int, ...] = (), limit: int = 10, now: int = 0
) -> list[SavedItem]:
    return world.write(hooks.take, owner, running=running, limit=limit, now=now, each_ms=1000)


def decide(world: World, item: SavedItem, decision: HookDecision, bounds: RedoBounds = BOUNDS) -> str | None:
    return world.write(hooks.decide, item.attempt_id, decision, bounds, world.now_ms)


async def done(world: World, *names: str) -> None:
    world.enqueue(*names)
    await world.run()


def names_of(items: list[SavedItem]) -> list[str]:
    return [item.origin.item for item in items]


async def test_each_saved_item_is_taken_once_and_in_order(world: World) -> None:
    """At most as many as are free."""
    await done(world, "fox", "owl", "hen")

    first = take(world, limit=2)
    second = take(world, running=tuple(item.event_id for item in first))
    for item in [*second, *first]:
        world.write(hooks.end, item.event_id)

    assert (names_of(first), names_of(second), take(world)) == (["fox", "owl"], ["hen"], [])
    assert not hooks.has_due(world.connection)
    ((number, file),) = first[0].files
    assert (number, Path(file.path).name) == (1, "fox.png")


async def test_a_new_hook_starts_with_the_next_file(world: World) -> None:
    """What was saved before it was configured is not run."""
    world.write(write_meta, "on_saved", None)
    await done(world, "fox")
    world.write(hooks.begin)
    await done(world, "owl")

    assert names_of(take(world)) == ["owl"]


async def test_what_a_crash_cut_off_is_taken_again(world: World) -> None:
    """By the same process at its next start, and by others once its time is over."""
    await done(world, "fox")
    assert names_of(take(world, "one")) == ["fox"]

    assert take(world, "two", now=999) == []
    assert names_of(take(world, "one", now=999)) == ["fox"]
    assert names_of(take(world, "two", now=2000)) == ["fox"]


async def test_an_item_that_is_made_again_meanwhile_is_passed_over(world: World) -> None:
    """Its new files come later."""
    await done(world, "fox")
    redo(world.connection, "job", ["fox"], world.now_ms)

    assert take(world) == []

    await world.run()

    (item,) = take(world)
    assert item.origin.version == 2


@pytest.mark.parametrize(("decision", "verdict"), [(HookDecision.KEEP, "kept"), (HookDecision.DROP, "dropped")])
async def test_a_verdict_is_recorded_as_the_hooks(world: World, decision: HookDecision, verdict: str) -> None:
    """It is in the history like a person's."""
    await done(world, "fox")
    (item,) = take(world)

    assert decide(world, item, decision) is None

    assert Items(world.connection).by_name("job", "fox").verdict == verdict
    assert '"by":"on_saved"' in world.one("SELECT detail FROM event WHERE kind = ?", verdict)


async def test_redo_ends_at_the_number_of_tries(world: World) -> None:
    """A hook that is never content costs no more than its bounds; each version is paid once (Law 2)."""
    await done(world, "fox")
    for _ in range(2):
        (item,) = take(world)
        assert decide(world, item, HookDecision.REDO) is None
        world.write(hooks.end, item.event_id)
        await world.run()

    (item,) = take(world)
    refusal = decide(world, item, HookDecision.REDO)

    assert refusal == "on_saved has had it made again 2 times, and on_saved.redos is 2"
    assert world.state("fox") is ItemState.DONE
    assert world.service.charged == 30


async def test_a_version_is_made_again_once_however_often_its_files_are_saved(world: World) -> None:
    """A person goes back to a version that the hook refused, and fetches its file again: that costs nothing."""
    await done(world, "fox")
    (item,) = take(world)
    assert decide(world, item, HookDecision.REDO) is None
    await world.run()
    world.write(choose_version, "job", "fox", 1, world.now_ms)

    refusal = decide(world, item, HookDecision.REDO)

    assert refusal == "on_saved has had this version made again before"
    assert world.state("fox") is ItemState.DONE
    assert world.service.charged == 20


async def test_redo_ends_at_the_budget_of_its_job(world: World) -> None:
    """The budget is of the job, so that many items do not multiply it."""
    await done(world, "fox", "owl")
    fox, owl = take(world)
    bounds = RedoBounds(redos=5, credits=19)

    assert decide(world, fox, HookDecision.REDO, bounds) is None
    refusal = decide(world, owl, HookDecision.REDO, bounds)

    assert refusal is not None
    assert refusal.startswith("making it again costs 10 credits, and 10 of on_saved.redo_credits (19) are used")
    assert (world.state("fox"), world.state("owl")) == (ItemState.QUEUED, ItemState.DONE)


@pytest.mark.parametrize("decision", HookDecision)
async def test_a_decision_about_what_has_changed_is_refused(world: World, decision: HookDecision) -> None:
    """A program that runs twice after a crash, or late, changes nothing."""
    await done(world, "fox")
    (item,) = take(world)
    assert decide(world, item, HookDecision.REDO) is None

    assert decide(world, item, decision) == "it has changed meanwhile"

    await world.run()

    assert decide(world, item, decision) == "it has changed meanwhile"
    assert world.service.charged == 20
