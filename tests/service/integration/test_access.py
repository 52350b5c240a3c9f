"""Keys, origins, ownership, and requests that are not what they should be."""

import io
import os
import stat
from pathlib import Path

import aiohttp
import pytest

from batchkiln_service import LocalService, ServiceConfig, StateFolderInUseError

from .service_world import World


@pytest.mark.parametrize("authorization", ["", "Bearer", "Bearer unknown", "Basic key-one-of-main"])
async def test_request_without_a_valid_key_is_refused(world: World, authorization: str) -> None:
    """Every business request carries a bearer key. Service rule 5.1."""
    refused = await world.send("GET", "/models", key=None, headers={"Authorization": authorization})

    assert (refused.status, refused.code) == (401, "invalid_api_key")


async def test_legacy_key_has_to_be_replaced(world: World) -> None:
    """A key from before the API is refused by its own code. Service rule 5.4."""
    refused = await world.send("GET", "/models", key="old")

    assert (refused.status, refused.code) == (403, "api_key_upgrade_required")


async def test_browser_request_is_refused(world: World) -> None:
    """A request with an Origin header is refused. Service rule 5.5."""
    refused = await world.send("GET", "/models", headers={"Origin": "https://example.invalid"})

    assert (refused.status, refused.code) == (403, "origin_not_allowed")


async def test_polling_needs_the_creators_key(world: World) -> None:
    """Another key of the account may not poll. Service rule 5.7."""
    created = await world.create()

    refused = await world.poll(created.body["id"], key="key-two-of-main")

    assert (refused.status, refused.code) == (403, "wrong_api_key")


async def test_generation_of_another_account_is_not_found(world: World) -> None:
    """Other accounts' generations do not exist."""
    created = await world.create()

    refused = await world.poll(created.body["id"], key="key-of-other")

    assert (refused.status, refused.code) == (404, "not_found")


async def test_description_is_public(world: World) -> None:
    """GET /openapi.json needs no key. Service rule 5.9."""
    described = await world.send("GET", "/openapi.json", key=None)

    assert (described.status, described.body["openapi"]) == (200, "3.1.0")


async def test_catalogue_lists_the_eleven_models(world: World) -> None:
    """Every model of Service section 1 is offered."""
    listed = (await world.send("GET", "/models")).body["models"]

    assert isinstance(listed, list)
    assert [entry["id"] for entry in listed] == [
        *("alpha-2.5", "alpha-2.5-lite", "alpha-2.0-pro", "alpha-2.0-fast", "alpha-2.0-mini"),
        *("alpha-1.5-pro", "beta-3.0", "gamma-3.1-fast", "delta-image-2", "epsilon-2", "epsilon-pro"),
    ]


async def test_every_reply_tells_the_services_time(world: World) -> None:
    """The Date header is service time, on replies and refusals alike."""
    world.clock.advance(3600)

    replies = [await world.send("GET", path, key=None) for path in ("/openapi.json", "/models", "/nowhere")]

    assert {reply.headers["Date"] for reply in replies} == {"Mon, 21 Sep 2026 01:00:00 GMT"}


async def test_unknown_path_and_method_are_answered_in_json(world: World) -> None:
    """404 and 405 have the same body as every other refusal."""
    unknown = await world.send("GET", "/nowhere")
    wrong = await world.send("DELETE", "/models")

    assert (unknown.status, unknown.code) == (404, "not_found")
    assert (wrong.status, wrong.code, wrong.headers["Allow"]) == (405, "method_not_allowed", "GET")
    assert b"The path has GET, and not DELETE." in wrong.content


async def post(
    session: aiohttp.ClientSession, world: World, content: bytes, content_type: str = "application/json"
) -> int:
    headers = {
        "Authorization": "Bearer key-one-of-main",
        "Content-Type": content_type,
        "Idempotency-Key": "an-idempotency-key",
    }
    url = world.service.base_url + "/images"
    async with session.post(url, data=io.BytesIO(content), headers=headers) as response:
        return response.status


@pytest.mark.parametrize(
    ("content", "content_type", "status"),
    [
        (b'{"model": ', "application/json", 400),
        (b'"\xff"', "application/json", 400),
        (b"[" * 100_000, "application/json", 400),
        (b"[]", "application/json", 422),
        (b"{}", "text/plain", 415),
        (b" " * (1024 * 1024 + 1), "application/json", 413),
    ],
)
async def test_body_that_is_no_request_is_refused(world: World, content: bytes, content_type: str, status: int) -> None:
    """A malformed body gets a status of its own, and never a 500."""
    assert await post(world.session, world, content, content_type) == status


async def test_second_process_learns_that_the_folder_is_in_use(world: World) -> None:
    """One process serves from a state folder."""
    with pytest.raises(StateFolderInUseError):
        await LocalService(world.config, world.clock).__aenter__()


async def test_made_key_is_found_again(tmp_path: Path) -> None:
    """Without a configured key one is made, kept for its owner's eyes, and used again."""
    config = ServiceConfig(state_dir=tmp_path)

    async with LocalService(config) as service:
        first, url = service.api_key(), service.base_url
    async with LocalService(config) as service:
        second, same_url = service.api_key(), service.base_url

    path = tmp_path / "key-main"
    assert (first, url) == (second, same_url)
    assert path.read_text().strip() == first
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_keys_are_not_stored_in_clear(world: World) -> None:
    """The state folder contains no configured key in plain text. Service rule 5.2."""
    await world.create()
    await world.stop()

    files = [path for path in world.config.state_dir.rglob("*") if path.is_file()]

    assert not [path for path in files if b"key-one-of-main" in path.read_bytes()]
    await world.start()


async def test_key_comes_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator may name an environment variable instead of a key."""
    monkeypatch.setitem(os.environ, "SERVICE_TEST_KEY", "from-outside")
    config = ServiceConfig.model_validate(
        {"state_dir": tmp_path, "accounts": [{"name": "main", "keys": [{"env": "SERVICE_TEST_KEY"}]}]}
    )

    async with LocalService(config) as service:
        assert service.api_key() == "from-outside"


async def test_port_is_written_where_asked(tmp_path: Path) -> None:
    """A starting script learns the port from a file."""
    port_file = tmp_path / "port-for-script"

    async with LocalService(ServiceConfig(state_dir=tmp_path / "state"), port_file=port_file) as service:
        assert f":{port_file.read_text().strip()}/" in service.base_url


async def test_port_that_is_taken_is_replaced(world: World, tmp_path: Path) -> None:
    """A remembered port that somebody else has now is given up for a free one."""
    state_dir = tmp_path / "second"
    state_dir.mkdir()
    taken = world.service.base_url.rpartition(":")[2].partition("/")[0]
    (state_dir / "port").write_text(taken)

    async with LocalService(ServiceConfig(state_dir=state_dir)) as service:
        assert f":{taken}/" not in service.base_url


async def test_port_that_was_asked_for_is_not_replaced(world: World, tmp_path: Path) -> None:
    """An operator's port is used or the service does not start."""
    taken = int(world.service.base_url.rpartition(":")[2].partition("/")[0])
    config = ServiceConfig(state_dir=tmp_path / "second", port=taken)

    with pytest.raises(OSError, match="address already in use"):
        await LocalService(config).__aenter__()


async def test_key_that_is_not_configured_any_more_is_revoked(tmp_path: Path) -> None:
    """Taking a key out of the configuration revokes it. Service rule 5.6."""
    accounts = [{"name": "main", "keys": ["old-key", "new-key"]}]
    async with LocalService(ServiceConfig.model_validate({"state_dir": tmp_path, "accounts": accounts})):
        pass
    accounts = [{"name": "main", "keys": ["new-key"]}]
    config = ServiceConfig.model_validate({"state_dir": tmp_path, "accounts": accounts})

    async with (
        LocalService(config) as service,
        aiohttp.ClientSession(headers={"Authorization": "Bearer old-key"}) as session,
        session.get(f"{service.base_url}/models") as response,
    ):
        status = response.status

    assert status == 401
