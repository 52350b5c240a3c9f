"""Items held against the service's catalogue before anything is sent (contract, sections 8 and 10)."""

import asyncio
from pathlib import Path
from textwrap import dedent

import pytest

import batchkiln
from batchkiln.store.sqlite.file_database import SqliteDatabase
from batchkiln.store.usage import logged_requests
from integration.cli.workspace import HURRIED, Workspace

from .conftest import Ground, GroundMaker

HEADER = """\
version: 1
job: foxes
defaults:
  model: epsilon-2
  mode: text-to-image
  parameters: {resolution: 512x512, aspect_ratio: "1:1"}
items:
"""


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """A folder with the hurried local service."""
    place = Workspace(tmp_path)
    place.configure(HURRIED)
    return place


def written(workspace: Workspace, items: str, *, header: str = HEADER, name: str = "foxes.yaml") -> str:
    text = "".join(f"  {line}\n" for line in dedent(items).strip().splitlines())
    (workspace.folder / name).write_text(header + text, "utf-8")
    return name


def studio(ground: Ground, base_url: str | None = None) -> Workspace:
    """Configure a service that is none of this process for commands of the same folder."""
    (ground.folder / "batchkiln.yaml").write_text(
        "default_profile: studio\nprofiles:\n  studio:\n"
        f"    base_url: {base_url or ground.service.base_url}\n"
        "    accounts: [{name: main, keys: [{file: key}]}]\n",
        "utf-8",
    )
    return Workspace(ground.folder)


@pytest.mark.parametrize("command", ["plan", "enqueue", "run"])
def test_what_the_service_would_refuse_is_a_mistake_with_its_place(workspace: Workspace, command: str) -> None:
    """All at once, with file, line and column; exit 2, and nothing is enqueued."""
    manifest = written(
        workspace,
        """
        - {id: a, prompt: x, model: epsilon-3}
        - id: b
          prompt: x
          mode: text-to-video
          parameters: {resolution: 512x512, duration_seconds: 5}
        - id: c
          prompt: x
          parameters:
            resolution: 7x77
        - {id: d, prompt: x, parameters: {aspect_ratio: "5:1"}}
        """,
    )

    result = workspace.call(command, manifest)

    assert (result.exit, result.out) == (2, "")
    assert "foxes.yaml:8:31: the service lists no model `epsilon-3`" in result.err
    assert "did you mean `epsilon-2`?" in result.err
    assert "foxes.yaml:11:11: epsilon-2 offers no text-to-video" in result.err
    assert "foxes.yaml:16:7: epsilon-2 offers no resolution 7x77" in result.err
    assert "foxes.yaml:17:37: epsilon-2 offers no aspect ratio 5:1" in result.err
    assert command == "plan" or workspace.call("status", "--json").document["jobs"] == []


@pytest.mark.parametrize("command", ["plan", "enqueue"])
def test_a_catalogue_that_is_wrong_keeps_nobody_from_going_on(workspace: Workspace, command: str) -> None:
    """It may be misunderstood: the mistake names the option with which the service decides."""
    manifest = written(workspace, "- {id: a, prompt: x, parameters: {resolution: 9x9}}")

    refused, taken = workspace.call(command, manifest), workspace.call(command, manifest, "--no-catalogue")

    assert (refused.exit, taken.exit) == (2, 0)
    assert "use --no-catalogue" in refused.err
    assert "catalogue" not in taken.err


def test_what_stands_in_the_defaults_is_reported_once_there(workspace: Workspace) -> None:
    """A million items may share it: one mistake, with their number."""
    manifest = written(workspace, "- one\n- two\n- three", header=HEADER.replace("512x512", "11x11"))

    result = workspace.call("enqueue", manifest)

    assert result.exit == 2
    assert result.err.count("offers no resolution 11x11") == 1
    assert "foxes.yaml:6:16: epsilon-2 offers no resolution 11x11 (3 items)" in result.err


def test_rows_are_named_with_their_entry(workspace: Workspace) -> None:
    """A setting that comes from a column stands in the template, with the row; a prompt in its row, with the entry."""
    rows = "prompt,size\nx,512x512\nx,9x9\n" + "y" * 4001 + ",512x512\n"
    (workspace.folder / "rows.csv").write_text(rows, "utf-8")
    manifest = written(workspace, '- {from: rows.csv, parameters: {resolution: "{{ size }}"}}')

    result = workspace.call("enqueue", manifest)

    assert result.exit == 2
    assert "foxes.yaml:8:35: epsilon-2 offers no resolution 9x9" in result.err
    assert "(first in rows.csv, line 3)" in result.err
    assert "rows.csv:4:1: the prompt is 4,001 characters long" in result.err
    assert "(the entry at foxes.yaml:8)" in result.err


def test_a_matrix_is_named_by_its_entry(workspace: Workspace) -> None:
    """Its rows have no file of their own."""
    manifest = written(
        workspace, '- {matrix: {s: [512x512, 9x9]}, id: "{{ s }}", prompt: x, parameters: {resolution: "{{ s }}"}}'
    )

    result = workspace.call("enqueue", manifest)

    assert result.exit == 2
    assert "foxes.yaml:8:74: epsilon-2 offers no resolution 9x9" in result.err


def test_a_prompt_that_is_too_long_only_in_bytes_is_a_warning(workspace: Workspace) -> None:
    """The unit is not documented (docs/assumptions.md, entry 60): it is enqueued, and told."""
    manifest = written(workspace, f"- {{id: a, prompt: {'ü' * 2500}}}")

    result = workspace.call("enqueue", manifest, "--json")

    assert result.exit == 0, result.err
    (warning,) = result.document["jobs"][0]["warnings"]
    assert (warning["file"], warning["line"], warning["column"]) == ("foxes.yaml", 8, 21)
    assert "the prompt is 5,000 bytes long" in result.err


async def test_a_job_continues_though_the_catalogue_has_changed(make_ground: GroundMaker, tmp_path: Path) -> None:
    """What is known already is never a mistake, so that paid results are fetched; what is queued is warned of."""
    ground = await make_ground()
    offline, online = studio(ground, "http://127.0.0.1:9/api/v1"), studio
    manifest = written(offline, "- {id: a, prompt: x, parameters: {resolution: 9x9}}")
    first = await asyncio.to_thread(offline.call, "enqueue", manifest)

    second = await asyncio.to_thread(online(ground).call, "enqueue", manifest)
    written(offline, "- {id: a, prompt: y, parameters: {resolution: 9x9}}")
    changed = await asyncio.to_thread(Workspace(tmp_path).call, "enqueue", manifest)

    assert first.exit == 0
    assert "were not checked against the service's catalogue, which could not be read" in first.err
    assert second.exit == 0, second.err
    assert "Warning: foxes.yaml:8:37: epsilon-2 offers no resolution 9x9" in second.err
    assert changed.exit == 2


async def test_a_run_tells_the_remedy_for_a_missing_key_once(make_ground: GroundMaker) -> None:
    """The warning has the cause; the error that ends the run has what to do."""
    ground = await make_ground()
    place = studio(ground)
    (ground.folder / "key").unlink()
    manifest = written(place, "- x")

    result = await asyncio.to_thread(place.call, "run", manifest, "--yes")

    assert result.exit == 2
    assert "which could not be read (account main: no API key found in the file key); the service" in result.err
    assert result.err.count("Set it and run the same command again") == 1


async def test_the_read_is_noted_in_the_queue(make_ground: GroundMaker) -> None:
    """One read for each command, however many manifests there are; it counts in the account's windows (Law 5)."""
    ground = await make_ground()
    place = studio(ground)
    manifests = [written(place, "- x", header=HEADER.replace("foxes", job), name=f"{job}.yaml") for job in "ab"]

    result = await asyncio.to_thread(place.call, "enqueue", *manifests)

    assert result.exit == 0, result.err
    assert await ground.sent() == ["/models"]
    database = await SqliteDatabase.open_for_reading(ground.queue)
    noted = await database.read(logged_requests, "studio", 60)
    await database.close()
    assert len(noted) == 1


async def test_a_program_reads_the_catalogue_once_and_the_read_is_noted(make_ground: GroundMaker) -> None:
    """A queue that stays open asks once for several manifests, also while it holds its own lock (Law 5)."""
    ground = await make_ground()
    studio(ground)
    small: batchkiln.Defaults = {"mode": "text-to-image", "parameters": {"resolution": "512x512"}}

    async with (
        batchkiln.open_queue(ground.queue, config=ground.folder / "batchkiln.yaml", working_dir=ground.folder) as queue,
        queue._driving(command="work"),
    ):
        for job in "ab":
            await queue.enqueue_items(["x"], job=job, defaults={"model": "epsilon-2", **small})
        with pytest.raises(batchkiln.InputError, match="did you mean `epsilon-2`"):
            await queue.enqueue_items(["x"], job="c", defaults={"model": "epsilon2", **small})

    assert await ground.sent() == ["/models"]
    database = await SqliteDatabase.open_for_reading(ground.queue)
    noted = await database.read(logged_requests, "studio", 60)
    await database.close()
    assert len(noted) == 1


@pytest.mark.long
async def test_a_run_that_begins_nothing_names_why_the_catalogue_is_missing(make_ground: GroundMaker) -> None:
    """No later message tells that the API key is refused, where the selected items are done."""
    ground = await make_ground()
    workspace = studio(ground)
    manifest = written(workspace, "- {id: a, prompt: x}")
    await asyncio.to_thread(workspace.call, "run", manifest, "--yes")
    (ground.folder / "key").write_text("wrong", "utf-8")

    ended = await asyncio.to_thread(workspace.call, "run", manifest, "--yes", "--limit", "1")

    assert "could not be read (account main: its API key is refused)" in ended.err
