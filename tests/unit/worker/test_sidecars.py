"""Sidecars through whole runs: what a picture came from stays with it, also after a crash."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from batchkiln.core.job import Sidecar
from batchkiln.core.states import ItemState
from batchkiln.store.exports import Exports
from batchkiln.store.operations import redo
from support.worker_world import World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A queue with one account."""
    made = World(tmp_path)
    yield made
    made.close()


def names(world: World) -> list[str]:
    return sorted(Path(path).name for path in world.outputs.files)


def document(world: World, name: str = "fox.json") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(world.outputs.files[f"/out/job/{name}"])
    return found


async def test_a_json_sidecar_tells_what_its_file_came_from(world: World) -> None:
    """The request as sent, the input by name and hash, the generation, its cost and the file. No link (Law 8)."""
    image = world.inputs.put("still.png", b"\x89PNG a still")
    world.enqueue("fox", inputs=(image,), sidecar=Sidecar.JSON)

    await world.run()

    told = document(world)
    (create,) = world.service.creates
    sent = json.loads(create.body)
    assert {name: told[name] for name in ("job", "item", "index", "version", "output")} == {
        "job": "job",
        "item": "fox",
        "index": 0,
        "version": 1,
        "output": 1,
    }
    assert {name: told[name] for name in ("prompt", "model", "mode", "parameters")} == {
        name: sent[name] for name in ("prompt", "model", "mode", "parameters")
    }
    assert told["inputs"] == [{"name": "still.png", "sha256": image.sha256}]
    assert told["generation_id"] == world.one("SELECT generation_id FROM attempt")
    assert told["credits"] == 10
    assert told["created_at"].endswith("Z")
    assert (told["file"], told["sha256"]) == ("fox.png", world.one("SELECT sha256 FROM output"))
    assert b"://" not in world.outputs.files["/out/job/fox.json"]
    assert b"/images" not in world.outputs.files["/out/job/fox.json"]


async def test_a_caption_is_the_text_of_exports(world: World) -> None:
    """Trainers read the prompt, as the column `text` has it, and nothing else."""
    world.enqueue("fox", sidecar=Sidecar.TXT)

    await world.run()

    (row,) = Exports(world.connection).rows("job", below=100)
    assert world.outputs.files["/out/job/fox.txt"].decode() == row.prompt


async def test_each_output_and_each_version_has_its_own(world: World) -> None:
    """Neither a second output nor a redo takes the sidecar of another file."""
    world.service.outputs_count = 2
    world.enqueue("fox", sidecar=Sidecar.JSON)
    await world.run()
    redo(world.connection, "job", ["fox"], world.now_ms)
    await world.run()

    stems = ["fox", "fox-2", "fox-2.v2", "fox.v2"]
    assert names(world) == sorted(f"{stem}.{end}" for stem in stems for end in ("json", "png"))
    told = [(document(world, f"{stem}.json")["output"], document(world, f"{stem}.json")["version"]) for stem in stems]
    assert told == [(1, 1), (2, 1), (2, 2), (1, 2)]


async def test_without_the_setting_nothing_is_beside_a_file(world: World) -> None:
    """A sidecar is written only where the manifest asks for it."""
    world.enqueue("fox")

    await world.run()

    assert names(world) == ["fox.png"]


async def test_a_crash_between_file_and_sidecar_is_mended_by_the_next_run(world: World) -> None:
    """The file is not recorded before its sidecar is written, so the next run finds it and writes what is missing."""
    world.enqueue("fox", sidecar=Sidecar.JSON)
    crash = mock.patch.object(world.outputs, "write_sidecar", side_effect=SystemError("killed"))

    with crash, pytest.raises(SystemError):
        await world.run()

    assert names(world) == ["fox.png"]
    assert world.state("fox") is ItemState.DOWNLOADING

    await world.run()

    assert names(world) == ["fox.json", "fox.png"]
    assert world.state("fox") is ItemState.DONE
    assert world.service.charged == 10


async def test_a_crash_between_sidecar_and_record_changes_neither(world: World) -> None:
    """The next run meets both files again and records the one."""
    world.enqueue("fox", sidecar=Sidecar.JSON)
    crash = mock.patch("batchkiln.store.commit.insert_output", side_effect=SystemError("killed"))
    with crash, pytest.raises(SystemError):
        await world.run()
    before = dict(world.outputs.files)

    await world.run()

    assert world.outputs.files == before
    assert world.state("fox") is ItemState.DONE
