"""Outputs whose place is a URL, through whole runs on an account: faults of the storage, and crashes between steps."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from batchkiln.core.errors import OutputDirNotWritable, StorageError
from batchkiln.core.job import Sidecar
from batchkiln.core.states import ItemState
from batchkiln.worker.object_uploads import LASTING_WAITS_SECONDS, WAITS_SECONDS
from support.worker_world import World

URL = "s3://studio/out"
DOWN = StorageError("the network is down")
DENIED = StorageError("access is denied", is_lasting=True)
FULL = StorageError("OSError: 507 Insufficient Storage")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A queue with one account."""
    made = World(tmp_path)
    yield made
    made.close()


def staged_count(world: World) -> int:
    return int(world.one("SELECT count(*) FROM event WHERE kind = 'file_staged'"))


async def test_an_object_is_recorded_with_its_url(world: World) -> None:
    """The local file is given up, and no other one is left."""
    world.enqueue("fox", output_dir=URL)

    await world.run()

    assert world.state("fox") is ItemState.DONE
    assert world.one("SELECT path FROM output") == f"{URL}/job/fox.png"
    assert list(world.objects.objects) == [f"{URL}/job/fox.png"]
    assert world.outputs.files == {}


async def test_a_short_outage_is_waited_out(world: World) -> None:
    """The file is sent again, and downloaded once."""
    world.enqueue("fox", output_dir=URL)
    world.objects.troubles += [DOWN] * len(WAITS_SECONDS)

    await world.run()

    assert world.state("fox") is ItemState.DONE
    assert world.objects.sends == len(WAITS_SECONDS) + 1
    assert staged_count(world) == 1


@pytest.mark.parametrize(
    ("trouble", "tries"),
    [(DOWN, len(WAITS_SECONDS) + 1), (DENIED, len(LASTING_WAITS_SECONDS) + 1), (FULL, len(WAITS_SECONDS) + 1)],
)
async def test_an_outage_that_lasts_ends_the_run_and_loses_nothing(
    world: World, trouble: StorageError, tries: int
) -> None:
    """The error names the place, the reason, where the file is, and that nothing is charged again."""
    world.enqueue("fox", output_dir=URL)
    world.objects.troubles += [trouble] * 50

    with pytest.raises((OutputDirNotWritable, BaseExceptionGroup)) as caught:
        await world.run()

    told = str(cause(caught.value))
    assert isinstance(cause(caught.value), OutputDirNotWritable)
    assert world.objects.sends == tries
    assert [
        part for part in (URL, str(trouble), "complete in /out", "nothing is charged again") if part not in told
    ] == []
    assert world.state("fox") is ItemState.DOWNLOADING
    assert len(world.outputs.files) == 1
    world.objects.troubles.clear()

    await world.run()

    assert world.state("fox") is ItemState.DONE
    assert len(world.service.creates) == 1
    assert staged_count(world) == 1


async def test_the_slot_is_busy_while_a_file_is_sent(world: World) -> None:
    """An outage of the storage delays no generation."""
    world.enqueue("fox", "owl", "elk", output_dir=URL)
    world.objects.troubles += [DOWN] * 5

    await world.run()

    sent = world.rows("SELECT at FROM event WHERE kind = 'accepted' ORDER BY at")
    saved = world.one("SELECT min(at) FROM event WHERE kind = 'file_saved'")
    assert len([at for (at,) in sent if at < saved]) == 3
    assert world.states() == {"done": 3}


async def test_a_staged_file_that_is_damaged_is_downloaded_again(world: World) -> None:
    """The service keeps it, so it costs nothing; its bytes are compared before they are sent."""
    world.enqueue("fox", output_dir=URL)
    world.objects.troubles += [DENIED] * 50
    with pytest.raises((OutputDirNotWritable, BaseExceptionGroup)):
        await world.run()
    world.outputs.files.clear()
    world.objects.troubles.clear()

    await world.run()

    assert world.state("fox") is ItemState.DONE
    assert len(world.service.creates) == 1
    assert staged_count(world) == 2


async def test_staged_files_are_sent_without_the_service(world: World) -> None:
    """What was paid is safe on the disk, also after the service has deleted it."""
    world.enqueue("fox", output_dir=URL)
    world.objects.troubles += [DENIED] * 50
    with pytest.raises((OutputDirNotWritable, BaseExceptionGroup)):
        await world.run()
    world.objects.troubles.clear()
    world.clock.advance(20 * 86_400)

    await world.run()

    assert world.state("fox") is ItemState.DONE


async def test_what_another_machine_has_staged_is_not_given_up(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The service has deleted it, and its bytes are on a disk that is not here: a person decides."""
    world.enqueue("fox", output_dir=URL)
    world.objects.troubles += [DENIED] * 50
    with pytest.raises((OutputDirNotWritable, BaseExceptionGroup)):
        await world.run()
    world.outputs.files.clear()
    for generation in world.service.generations.values():
        generation.is_forgotten = True
    monkeypatch.setattr("socket.gethostname", lambda: "another")
    world.clock.advance(20 * 86_400)

    await world.run()

    assert world.state("fox") is ItemState.HELD
    assert world.error("fox") == "outputs_gone"


async def test_the_local_file_stays_until_its_object_is_recorded(world: World) -> None:
    """Also where the object is there already, and only its sidecar is missing."""
    world.enqueue("fox", output_dir=URL, sidecar=Sidecar.JSON)
    world.objects.sidecar_troubles += [DENIED] * 3
    with pytest.raises((OutputDirNotWritable, BaseExceptionGroup)):
        await world.run()
    for generation in world.service.generations.values():
        generation.is_forgotten = True
    world.clock.advance(20 * 86_400)

    await world.run()

    assert world.state("fox") is ItemState.DONE


async def test_several_outputs_and_their_sidecars(world: World) -> None:
    """Each is recorded for itself; the last one ends the item."""
    world.service.outputs_count = 3
    world.enqueue("fox", sidecar=Sidecar.JSON, output_dir=URL)

    await world.run()

    paths = [path for (path,) in world.rows("SELECT path FROM output ORDER BY number")]
    assert len(paths) == 3
    assert world.state("fox") is ItemState.DONE
    assert [json.loads(world.objects.objects[f"{path}.json"])["file"] for path in paths] == [
        path.rpartition("/")[2] for path in paths
    ]


async def test_a_name_with_other_content_is_left_alone(world: World) -> None:
    """An object of somebody else is never replaced."""
    world.objects.objects[f"{URL}/job/fox.png"] = b"somebody else's"
    world.enqueue("fox", output_dir=URL)

    await world.run()

    assert world.objects.objects[f"{URL}/job/fox.png"] == b"somebody else's"
    assert world.one("SELECT path FROM output") == f"{URL}/job/fox.png~2"


async def test_two_items_with_the_same_bytes_have_an_object_each(world: World) -> None:
    """An object that another output has is not taken for one that a crash has left."""
    world.service.spoils = lambda _path, _content: b"\x89PNG the same"
    for job in ("one", "two"):
        world.enqueue("fox", job=job, filename="{item}.{ext}", output_dir=URL)

    await world.run()

    paths = {path for (path,) in world.rows("SELECT path FROM output")}
    assert len(paths) == 2
    assert world.states() == {"done": 2}


async def test_death_at_any_turn_pays_once_and_loses_nothing(tmp_path: Path) -> None:
    """Between staging, sending, verifying and recording: the next run goes on (Laws 2 and 7)."""
    for steps in range(40, 400, 3):
        folder = tmp_path / str(steps)
        folder.mkdir()
        world = World(folder)
        world.enqueue("fox", output_dir=URL, sidecar=Sidecar.JSON)
        has_ended = await world.run_killed(steps)
        world.restart()

        await world.run()

        assert world.state("fox") is ItemState.DONE
        assert len({create.idempotency_key for create in world.service.creates}) == 1
        assert sorted(world.objects.objects) == [f"{URL}/job/fox.png", f"{URL}/job/fox.png.json"]
        world.close()
        if has_ended:
            break
    assert has_ended


def cause(error: BaseException) -> BaseException:
    """Return the first error of a group."""
    return cause(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error
