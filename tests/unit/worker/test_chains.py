"""Items that are made from others: when they begin, with which image, and what happens where their source fails."""

from msgspec.structs import replace

from batchkiln.core.job import SourceRef
from batchkiln.core.responses import GenerationStatus
from batchkiln.core.selection import Selection
from batchkiln.core.states import ItemState
from batchkiln.store.operations import redo
from batchkiln.store.selected_items import select
from batchkiln.worker.run_state import RunState
from support.worker_world import World


def chain(world: World, name: str, source: str) -> None:
    """Add an item that is made from another one, whose files are there to be uploaded."""
    world.inputs.files = world.outputs.files
    world.enqueue(name, inputs=(SourceRef(source),))  # type: ignore[arg-type]  # a reference


async def test_item_begins_after_its_source_is_saved_with_its_file(world: World) -> None:
    """The upload has the very bytes of the source's file."""
    world.enqueue("still")
    chain(world, "clip", "still")

    await world.run()

    assert (world.state("still"), world.state("clip")) == (ItemState.DONE, ItemState.DONE)
    (path,) = [path for (path,) in world.rows("SELECT path FROM output ORDER BY id LIMIT 1")]
    assert world.service.puts == [world.outputs.files[path]]
    created = world.rows("SELECT item.name FROM attempt JOIN item ON item.id = attempt.item_id ORDER BY attempt.id")
    assert [name for (name,) in created] == ["still", "clip"]


async def test_source_goes_before_other_items_of_equal_priority(world: World) -> None:
    """Also where it was added behind them."""
    world.enqueue("plain-1", "plain-2", "still")
    chain(world, "clip", "still")
    world.enqueue("urgent", priority=1)

    await world.run()

    created = world.rows("SELECT item.name FROM attempt JOIN item ON item.id = attempt.item_id ORDER BY attempt.id")
    assert [name for (name,) in created][:2] == ["urgent", "still"]
    assert set(world.states()) == {"done"}


async def test_item_of_a_failed_source_stays_queued_and_the_run_ends(world: World) -> None:
    """Nothing of it is sent."""
    world.service.outcomes.extend([GenerationStatus.FAILED] * 3)
    world.enqueue("still", recipe_fields={"attempts": 1})
    chain(world, "clip", "still")

    await world.run()

    assert (world.state("still"), world.state("clip")) == (ItemState.FAILED, ItemState.QUEUED)
    assert world.attempts("clip") == []


async def test_image_that_cannot_be_uploaded_holds_its_item(world: World) -> None:
    """A gif, or one that is too large; nothing was sent, and the reason is named."""
    gif = replace(world.inputs.put("owl.gif", b"owl"), media_type="image/gif")
    large = replace(world.inputs.put("large.png", b"large"), size_bytes=31 << 20)
    (first,) = world.enqueue(inputs=(gif,))
    (second,) = world.enqueue(inputs=(large,))

    await world.run()

    for item in (first, second):
        assert (world.state(item), world.error(item)) == (ItemState.HELD, "input_unusable")
    assert world.service.puts == []


async def test_selected_item_that_needs_its_source_once_more_is_made(world: World) -> None:
    """The source is made again, and the item fails: it waits for the new file, which its run was not to begin."""
    world.service.outcomes.extend([GenerationStatus.SUCCESS, GenerationStatus.FAILED])
    world.enqueue("still")
    chain(world, "clip", "still")
    await world.run_until("clip", ItemState.ACTIVE)
    scope = select(world.connection, None, Selection(only=("clip",)))
    redo(world.connection, "job", ["still"], world.now_ms)

    await world.run(RunState(scope=scope))

    assert world.states() == {"done": 2}
    assert world.attempts("still") == ["succeeded", "succeeded"]
    assert world.attempts("clip") == ["failed", "succeeded"]
