"""The limits of Service section 8 at the very numbers of the document, over kinds of requests and over keys."""

import io
import zlib
from collections.abc import Awaitable, Callable

import pytest
from PIL import Image

from batchkiln_service import Limits

from .service_world import CLIP, Reply, World, WorldMaker, image_with

DAY_SECONDS = 86_400
MIB = 1024 * 1024
DEAR = {  # 480 credits: the budget of a day in few generations
    **CLIP,
    "model": "alpha-2.5",
    "parameters": {"resolution": "1080p", "duration_seconds": 12},
}
Use = Callable[[World, str], Awaitable[Reply]]


async def read(world: World, key: str = "key-one-of-main") -> Reply:
    return await world.send("GET", "/models", key=key)


async def quote(world: World, key: str = "key-one-of-main") -> Reply:
    return await world.send("POST", "/quotes", body=CLIP, key=key)


async def create(world: World, key: str = "key-one-of-main") -> Reply:
    return await world.create(key=key)


async def prepare(world: World, key: str = "key-one-of-main", *, files: int = 1, size: int = 1) -> Reply:
    described = [{"name": "owl", "type": "image/png", "size": size}] * files
    return await world.send("POST", "/uploads", body={"files": described}, key=key)


async def complete(world: World, key: str = "key-one-of-main") -> Reply:
    return await world.send("POST", "/uploads/complete", body={"asset_ids": ["ast_0"]}, key=key)


async def used_before(world: World, budget: str, count: int) -> None:
    """Enter requests of the hours before into the log: sent one by one, so many would take a test too long."""
    await world.service.query(
        "INSERT INTO requests (account, ip, kind, path, arrived_at_ms, status, budget, number)"
        f" WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count})"
        f" SELECT 'main', '', 'other', '', {world.clock.now_ms()} + i, 200, '{budget}', i FROM n"
    )
    world.clock.advance(12 * 3600)


async def test_ten_creates_and_uploads_a_minute(world: World) -> None:
    """Creates, replays, preparations and completions, by any key, are ten together. Service section 8."""
    statuses = [(await world.create(idempotency_key="the-same-key-again")).status for _ in range(5)]
    for use in (prepare, complete):
        statuses += [(await use(world, key)).status for key in ("key-one-of-main", "key-two-of-main")]
    statuses.append((await prepare(world)).status)

    refused = [await use(world, "key-two-of-main") for use in (create, prepare, complete)]

    assert statuses == [202] * 5 + [200, 200, 404, 404, 200]
    assert [(reply.status, reply.code, reply.retry_after) for reply in refused] == [(429, "rate_limited", 60)] * 3


async def test_sixty_reads_and_quotes_a_minute(world: World) -> None:
    """Catalogue, balance, quotes and polls, by any key, are sixty together. Service section 8."""
    created = await world.create()
    await world.poll(created.body["id"])
    for _ in range(29):
        assert (await quote(world, "key-two-of-main")).status == 200
        assert (await read(world)).status == 200
    await world.balance()

    refused = [await read(world), await quote(world, "key-two-of-main"), await world.poll(created.body["id"])]

    assert [reply.status for reply in refused] == [429] * 3
    assert [reply.code for reply in refused[:2]] == ["rate_limited"] * 2


async def test_a_thousand_creates_and_uploads_a_day(world: World) -> None:
    """The thousandth is taken, the next of any kind and key is told to wait for midnight. Service section 8."""
    await used_before(world, "creates", 999)

    last = await prepare(world)
    refused = [await use(world, "key-two-of-main") for use in (create, prepare, complete)]

    assert last.status == 200
    assert {(reply.status, reply.code) for reply in refused} == {(429, "daily_limit")}
    assert {reply.retry_after for reply in refused} == {DAY_SECONDS // 2}


async def test_twenty_thousand_reads_and_quotes_a_day(world: World) -> None:
    """The last is taken, the next of any kind and key is told to wait for midnight. Service section 8."""
    await used_before(world, "reads", 19_999)

    last = await quote(world)
    refused = [await use(world, "key-two-of-main") for use in (read, quote)]

    assert last.status == 200
    assert {(reply.status, reply.code) for reply in refused} == {(429, "daily_limit")}
    assert {reply.retry_after for reply in refused} == {DAY_SECONDS // 2}


async def test_two_thousand_credits_a_day(make_world: WorldMaker) -> None:
    """Spent to the last one, failures included; then not even the cheapest generation. Service section 8."""
    world = await make_world(tiny_media=True)
    for prompt in ("[fail]", "[cancel]", "A red fox", "[fail]"):
        await world.finish(await world.create({**DEAR, "prompt": prompt}))
    rest = {**CLIP, "parameters": {"resolution": "480p", "duration_seconds": 8}}
    last = await world.create(rest)
    await world.finish(last)

    refused = await world.create(key="key-two-of-main")
    world.clock.advance(refused.retry_after)

    assert (last.status, last.body["credits"]) == (202, {"cost": 2000 - 4 * 480})
    assert (refused.status, refused.code) == (429, "credit_budget_exhausted")
    assert world.clock.now_ms() % (DAY_SECONDS * 1000) == 0
    assert (await world.create(key="key-two-of-main")).status == 202


async def test_a_hundred_upload_files_a_day(world: World) -> None:
    """Twenty times five, by any key; one more waits for midnight. Service section 8."""
    for number in range(20):
        key = "key-two-of-main" if number % 2 else "key-one-of-main"
        assert (await prepare(world, key, files=5)).status == 200
        world.clock.advance(6)

    refused = await prepare(world)

    assert (refused.status, refused.code, refused.retry_after) == (429, "daily_limit", DAY_SECONDS - 120)


async def test_five_hundred_mebibytes_of_uploads_a_day(world: World) -> None:
    """To the last byte, by any key; one more waits for midnight. Service section 8."""
    statuses = [(await prepare(world, files=4, size=30 * MIB)).status for _ in range(4)]
    statuses.append((await prepare(world, "key-two-of-main", size=20 * MIB)).status)

    refused = await prepare(world, "key-two-of-main")

    assert statuses == [200] * 5
    assert (refused.status, refused.code, refused.retry_after) == (429, "daily_limit", DAY_SECONDS)


async def test_file_of_thirty_mebibytes_goes_all_the_way(world: World, png: bytes) -> None:
    """The largest file that may be announced is also taken and verified. Service section 8."""
    kind, filling = b"fiLl", bytes(30 * MIB - len(png) - 12)  # a chunk that every decoder skips
    chunk = len(filling).to_bytes(4, "big") + kind + filling + zlib.crc32(kind + filling).to_bytes(4, "big")
    picture = png[:33] + chunk + png[33:]  # behind the header
    prepared = await world.prepare(len(picture))

    headers = prepared.upload_headers
    async with world.session.put(prepared.upload_url, data=io.BytesIO(picture), headers=headers) as response:
        taken = response.status
    completed = await world.send("POST", "/uploads/complete", body={"asset_ids": [prepared.asset_id]})

    assert (len(picture), taken, completed.status) == (30 * MIB, 200, 200)


async def test_picture_of_a_hundred_megapixels_is_taken(world: World) -> None:
    """The document bounds bytes, types and numbers of files. Only what would fill the memory is refused besides."""
    buffer = io.BytesIO()
    Image.new("1", (10_000, 10_000)).save(buffer, "PNG")
    prepared = await world.prepare(len(buffer.getvalue()))
    await world.put(prepared, buffer.getvalue())

    completed = await world.send("POST", "/uploads/complete", body={"asset_ids": [prepared.asset_id]})

    assert completed.status == 200, completed.body


async def test_one_active_generation_over_all_keys(world: World) -> None:
    """The second key of the account has to wait for the first one's generation. Service section 8."""
    await world.create()
    world.clock.advance(2)

    refused = await world.create(key="key-two-of-main")

    assert (refused.status, refused.code, refused.retry_after) == (429, "generation_active", 10)
    assert (await world.create(key="key-of-other")).status == 202


@pytest.mark.parametrize(
    ("limits", "use"),
    [
        ({"creates_per_minute": 1}, prepare),
        ({"creates_per_day": 1}, prepare),
        ({"reads_per_minute": 1}, read),
        ({"reads_per_day": 1}, quote),
        ({"credits_per_day": 3, "active_generations": 9}, create),
        ({"upload_files_per_day": 1}, prepare),
        ({"upload_bytes_per_day": 1}, prepare),
        ({"active_generations": 1}, create),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
async def test_limit_is_the_accounts(make_world: WorldMaker, limits: dict[str, int], use: Use) -> None:
    """What one key uses up, another key of the account has no more; another account has its own. Service section 8."""
    world = await make_world(limits=Limits.model_validate(limits))

    first, second, others = [await use(world, key) for key in ("key-one-of-main", "key-two-of-main", "key-of-other")]

    assert (first.status < 300, second.status, others.status < 300) == (True, 429, True)
    assert second.retry_after > 0


async def test_each_active_generation_has_its_own_interval(make_world: WorldMaker) -> None:
    """Two may be polled in the same moment, where an account may have two. Service rule 4.4."""
    world = await make_world(limits=Limits(active_generations=2))
    ids = [(await world.create(image_with(prompt="[stay-pending]"))).body["id"] for _ in range(2)]

    first = [(await world.poll(each)).status for each in ids]
    world.clock.advance(9.9)
    early = [await world.poll(each) for each in ids]
    world.clock.advance(0.1)

    assert first == [200, 200]
    assert [(reply.status, reply.retry_after) for reply in early] == [(429, 1)] * 2
    assert [(await world.poll(each)).status for each in ids] == [200, 200]


async def test_firewall_lets_the_120th_pass_and_blocks_whatever_comes_next(world: World) -> None:
    """Requests of any path and key count; what is blocked is no JSON and reaches no window. Service sections 7, 8."""
    for _ in range(10):
        await read(world)
    for _ in range(110):
        assert (await world.send("GET", "/openapi.json", key=None)).status == 200

    blocked = [await read(world), await create(world), await world.send("GET", "/openapi.json", key=None)]

    assert {(reply.status, reply.headers["Content-Type"]) for reply in blocked} == {(403, "text/html; charset=utf-8")}
    assert all(reply.body == {} and b"<html" in reply.content for reply in blocked)
    world.clock.advance(60)
    assert (await read(world)).status == 200
    counted = await world.service.query("SELECT count(*) AS n FROM requests WHERE number IS NOT NULL")
    assert counted == [{"n": 11}]


async def test_punctual_client_of_a_fast_service_is_not_refused(make_world: WorldMaker) -> None:
    """At sixty times the speed, 25 ms of real jitter are 1.5 s of service time. Service rule 4.4."""
    world = await make_world(time_scale=60)
    created = await world.create(image_with(prompt="[stay-pending] a fox"))
    await world.poll(created.body["id"])

    world.clock.advance(8.5)
    punctual = await world.poll(created.body["id"])
    world.clock.advance(8)
    early = await world.poll(created.body["id"])

    assert (punctual.status, early.status, early.retry_after) == (200, 429, 2)
    assert (await world.service.report()).poll_gaps.too_short == 1
