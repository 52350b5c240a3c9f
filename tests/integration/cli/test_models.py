"""`models` and `balance` as a person meets them (contract, section 10)."""

import asyncio
from pathlib import Path

import pytest

from batchkiln.store.sqlite.file_database import SqliteDatabase
from batchkiln.store.usage import logged_requests
from batchkiln_service import AccountConfig, LocalService, ServiceConfig
from integration.cli.workspace import Workspace

KEY = "lk_a-key-that-nobody-may-see"


def configured(folder: Path, base_url: str) -> Workspace:
    """Configure a service by its address."""
    (folder / "key").write_text(KEY, "utf-8")
    place = Workspace(folder)
    place.configure(
        "default_profile: studio\nprofiles:\n  studio:\n"
        f"    base_url: {base_url}\n    accounts: [{{name: main, keys: [{{file: key}}]}}]\n"
    )
    return place


def test_the_local_services_models_are_listed(workspace: Workspace) -> None:
    """Without a configuration: modes, sizes, durations and limits; nothing is made in the folder."""
    before = sorted(path.name for path in workspace.folder.iterdir())

    shown, one = workspace.call("models"), workspace.call("models", "alpha-2.5-lite", "--json")

    assert shown.exit == one.exit == 0, shown.err
    assert "alpha-2.5-lite\n  modes          image-to-video, text-to-video\n" in shown.out
    (model,) = one.document["models"]
    assert model["durations_seconds"] == [2, 3, 4, 5, 6, 8, 10]
    assert model["price_range"] == [20, 100]
    assert "  price          2 to 10 credits from a text, made up by the local service" in shown.out
    assert "`batchkiln models --manifest FILE` asks for it" in shown.err
    assert (model["prompt_limit"], model["images_limit"]) == (4000, 9)
    assert sorted(path.name for path in workspace.folder.iterdir()) == before


def test_a_model_that_is_not_there_is_reported_with_what_is_near(workspace: Workspace) -> None:
    """Exit 2, and nothing on standard output."""
    result = workspace.call("models", "epsilon-3")

    assert (result.exit, result.out) == (2, "")
    assert "did you mean `epsilon-2`?" in result.err


def test_prices_of_a_manifest_and_of_a_job_are_quoted(workspace: Workspace) -> None:
    """By what is used, and by quotes; with the number of items."""
    manifest = workspace.manifest()

    planned = workspace.call("models", "epsilon-2", "--manifest", manifest, "--json").document["prices"]
    workspace.call("enqueue", manifest)
    queued = workspace.call("models", "--job", "foxes", "--json").document["prices"]

    assert planned == queued
    (price,) = planned
    assert (price["job"], price["model"], price["items"], price["cost_credits"]) == ("foxes", "epsilon-2", 2, 2)
    assert price["parameters"] == {"resolution": "512x512", "aspect_ratio": "1:1"}


def test_the_balance_of_the_local_service_outlives_a_run(workspace: Workspace) -> None:
    """Before the first run it is what the account begins with; afterwards less what was charged."""
    before = workspace.call("balance", "--json").document["accounts"][0]
    assert workspace.call("run", workspace.manifest()).exit == 0
    after = workspace.call("balance", "--json").document["accounts"][0]

    assert (before["profile"], before["account"], before["reason"]) == ("local", "main", None)
    assert before["balance"] - after["balance"] == 4


@pytest.mark.parametrize("command", ["models", "balance"])
async def test_the_one_read_is_noted_in_the_queue(tmp_path: Path, command: str) -> None:
    """It counts in the account's windows, also while another process drives the queue (Law 5)."""
    config = ServiceConfig(state_dir=tmp_path / "service", accounts=(AccountConfig(name="main", keys=(KEY,)),))
    async with LocalService(config) as service:
        place = configured(tmp_path, service.base_url)
        await asyncio.to_thread(place.call, "enqueue", place.manifest())
        result = await asyncio.to_thread(place.call, command, "--json")
        asked = [str(request["path"]) for request in await service.requests()]

    assert result.exit == 0, result.err
    assert KEY not in result.out + result.err
    assert [path.rpartition("/")[2] for path in asked] == ["models", command]
    database = await SqliteDatabase.open_for_reading(tmp_path / ".batchkiln" / "queue.db")
    noted = await database.read(logged_requests, "studio", 60)
    await database.close()
    assert len(noted) == 2


@pytest.mark.parametrize("command", ["models", "balance"])
def test_a_service_that_does_not_answer_is_reported(tmp_path: Path, command: str) -> None:
    """Exit 4, as of a run, and one document with the reason."""
    place = configured(tmp_path, "http://127.0.0.1:9/api/v1")

    result = place.call(command, "--json")

    assert result.exit == 4
    assert "does not answer" in result.out


@pytest.mark.parametrize("command", ["models", "balance"])
async def test_a_wrong_path_is_not_called_silence(tmp_path: Path, command: str) -> None:
    """Something answers at the address: what it answered is told, and what to look at."""
    async with LocalService(ServiceConfig(state_dir=tmp_path / "service")) as service:
        place = configured(tmp_path, service.base_url.replace("/api/v1", "/v1"))
        result = await asyncio.to_thread(place.call, command)

    assert result.exit == 4
    told = result.out + result.err
    assert "does not answer" not in told
    assert "the address answers, but not like this API (status 404, application/json: there is no such path" in told
