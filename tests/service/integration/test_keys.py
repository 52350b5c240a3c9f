"""Whose a request is, what it may do, and what nobody learns of others. Service section 5."""

import asyncio
from pathlib import Path

import pytest

from batchkiln_service import Limits, LocalService, ServiceConfig, open_account_admin
from batchkiln_service.errors import KeyRefusedError

from .service_world import IMAGE, World, WorldMaker

BUSINESS = [
    ("GET", "/models"),
    ("GET", "/credits/balance"),
    ("POST", "/quotes"),
    ("POST", "/videos"),
    ("POST", "/images"),
    ("GET", "/generations/gen_0"),
    ("POST", "/uploads"),
    ("POST", "/uploads/complete"),
]
POOR = (
    {"name": "main", "credits": 0, "keys": ["key-one-of-main"]},
    {"name": "member", "credits": 0, "subscription": True, "keys": ["key-of-member"]},
)
UPLOAD = {"files": [{"name": "owl.png", "type": "image/png", "size": 100}]}


@pytest.mark.parametrize(("method", "path"), BUSINESS)
@pytest.mark.parametrize(
    ("key", "headers", "status", "code"),
    [
        (None, {}, 401, "invalid_api_key"),
        ("nobodys", {}, 401, "invalid_api_key"),
        ("old", {}, 403, "api_key_upgrade_required"),
        ("key-one-of-main", {"Origin": "https://example.invalid"}, 403, "origin_not_allowed"),
        ("key-one-of-main", {"Origin": ""}, 403, "origin_not_allowed"),
        ("nobodys", {"Origin": "https://example.invalid"}, 401, "invalid_api_key"),
    ],
)
async def test_every_business_request_is_let_in_or_not(  # noqa: PLR0917  parameters of the table
    world: World, method: str, path: str, key: str | None, headers: dict[str, str], status: int, code: str
) -> None:
    """Who may not ask learns nothing of the request, which is senseless here. Service rules 5.1, 5.4 and 5.5."""
    body = {"senseless": True} if method == "POST" else None

    refused = await world.send(method, path, key=key, body=body, headers=headers)

    assert (refused.status, refused.code) == (status, code)


async def test_a_refused_key_uses_up_nothing(make_world: WorldMaker) -> None:
    """What was not let in counts in no window of the account. Service section 8."""
    world = await make_world(limits=Limits(reads_per_minute=1))
    await world.send("GET", "/models", key="old")
    await world.send("GET", "/models", headers={"Origin": "https://example.invalid"})

    assert (await world.send("GET", "/models")).status == 200


async def test_anothers_generation_is_like_one_that_is_not_there(world: World) -> None:
    """Status and body are the same, but for the id that was asked for; so is the window's count."""
    created = await world.create()

    anothers = await world.poll(created.body["id"], key="key-of-other")
    nobodys = await world.poll("gen_0", key="key-of-other")

    assert anothers.status == nobodys.status == 404
    assert anothers.body == nobodys.body


async def test_anothers_generation_can_be_asked_for_at_any_pace(world: World) -> None:
    """The polling interval must not reveal that the generation exists. Service rule 4.4."""
    created = await world.create()
    await world.poll(created.body["id"])

    statuses = [(await world.poll(created.body["id"], key="key-of-other")).status for _ in range(2)]

    assert statuses == [404, 404]


async def test_anothers_asset_is_like_one_that_is_not_there(world: World, png: bytes) -> None:
    """Neither completing nor using it reveals that it exists. Service rule 2.2.5."""
    url = await world.upload(png)
    there, nowhere = url.rpartition("/")[2], "ast_0"

    def using(asset_url: str) -> dict[str, object]:
        return {**IMAGE, "mode": "image-to-image", "inputs": [{"type": "image", "url": asset_url}]}

    for asset_ids in ([there], [nowhere]):
        completed = await world.send("POST", "/uploads/complete", key="key-of-other", body={"asset_ids": asset_ids})
        assert (completed.status, completed.code) == (404, "asset_not_found")
    refusals = [
        await world.send("POST", "/quotes", key="key-of-other", body=using(asset_url))
        for asset_url in (url, url.replace(there, "ast_000000000000000000000000"))
    ]
    assert refusals[0].status == 422
    assert refusals[0].body == refusals[1].body


@pytest.mark.parametrize("path", ["/images", "/uploads"])
async def test_without_credits_and_subscription_nothing_is_made(make_world: WorldMaker, path: str) -> None:
    """Generations and uploads need one of both. Service rule 5.8."""
    world = await make_world(accounts=POOR)
    body = IMAGE if path == "/images" else UPLOAD

    refused = await world.send("POST", path, body=body, headers={"Idempotency-Key": "an-idempotency-key"})

    assert (refused.status, refused.code) == (403, "credits_required")


async def test_a_subscription_alone_allows_uploads_but_pays_for_nothing(make_world: WorldMaker) -> None:
    """Access is one thing, and what a generation costs another. Service rule 5.8."""
    world = await make_world(accounts=POOR)

    uploaded = await world.send("POST", "/uploads", key="key-of-member", body=UPLOAD)
    created = await world.create(key="key-of-member")

    assert uploaded.status == 200
    assert (created.status, created.code) == (402, "insufficient_credits")


@pytest.mark.parametrize(("method", "path"), [("GET", "/models"), ("GET", "/credits/balance"), ("POST", "/quotes")])
async def test_reads_work_without_credits(make_world: WorldMaker, method: str, path: str) -> None:
    """They cost nothing. Service section 4, pricing."""
    world = await make_world(accounts=POOR)

    reply = await world.send(method, path, body=IMAGE if method == "POST" else None)

    assert reply.status == 200


async def test_a_paid_generation_can_be_read_when_everything_is_spent(make_world: WorldMaker) -> None:
    """The last credit buys a result that can be fetched."""
    world = await make_world(accounts=({"name": "main", "credits": 2, "keys": ["key-one-of-main"]},))

    ended = await world.finish(await world.create())

    assert await world.balance() == 0
    assert (await world.send("GET", ended.output["url"], key=None)).status == 200


def config(folder: Path, *keys: str) -> ServiceConfig:
    accounts = [{"name": "main", "keys": list(keys)}]
    return ServiceConfig.model_validate({"state_dir": folder, "accounts": accounts})


async def test_the_first_configured_key_that_works_is_the_services_own(tmp_path: Path) -> None:
    """A program that serves for itself is not given a key that a person has revoked. Service rule 5.6."""
    async with LocalService(config(tmp_path, "first")) as service:
        before = service.api_key()
    with open_account_admin(config(tmp_path)) as desk:
        desk.revoke(desk.list("main")[0].id)

    async with LocalService(config(tmp_path, "first", "second", "third")) as service:
        after = service.api_key()

    assert (before, after) == ("first", "second")


async def test_one_key_for_two_accounts_is_refused_at_the_start(tmp_path: Path) -> None:
    """A key says whose request it is."""
    accounts = [{"name": "main", "keys": ["same"]}, {"name": "other", "keys": ["same"]}]

    with pytest.raises(KeyRefusedError, match="already belongs to account main"):
        await LocalService(ServiceConfig.model_validate({"state_dir": tmp_path, "accounts": accounts})).__aenter__()


async def test_keys_are_made_beside_a_busy_service(make_world: WorldMaker) -> None:
    """The command and the server wait for each other; neither fails. Service rule 5.2."""
    world = await make_world(instant=True, limits=Limits.lifted())

    def make_keys() -> list[str]:
        with open_account_admin(world.config) as desk:
            return [desk.create("other").secret for _ in range(5)]

    making = asyncio.create_task(asyncio.to_thread(make_keys))
    replies = []
    while not making.done():
        replies += await asyncio.gather(*(world.create() for _ in range(20)))

    assert {reply.status for reply in replies} == {202}
    statuses = [(await world.send("GET", "/models", key=key)).status for key in await making]
    assert statuses == [200] * 5


async def test_a_desk_that_knows_only_the_folder_keeps_the_days_of_the_service(tmp_path: Path) -> None:
    """Twenty keys a day are counted by the day that the server counts by. Service rule 5.3."""
    async with LocalService(ServiceConfig(state_dir=tmp_path, day_seconds=600)):
        pass

    with open_account_admin(ServiceConfig(state_dir=tmp_path)) as desk:
        day_ms = desk._calendar.day_ms

    assert day_ms == 600_000
