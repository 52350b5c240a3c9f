"""Rules of the service's document that no other test proves whole; docs/service.md says which test proves which.

The models and their prices are in `test_rules_of_models.py`, the limits in `test_rules_of_limits.py`.
"""

import asyncio
from datetime import datetime

import pytest

from batchkiln_service import Limits, open_account_admin
from batchkiln_service.db.keys import MadeKey

from .service_world import CLIP, IMAGE, START_MS, Reply, World, WorldMaker, image_with

DAY_SECONDS = 86_400
REFUSED_BODIES = {
    "unknown field": {**IMAGE, "seed": 1},
    "unknown parameter": image_with(parameters={"resolution": "512x512", "seed": 1}),
    "unsupported model": image_with(model="omega-1"),
    "unsupported mode": image_with(mode="text-to-video"),
    "unsupported resolution": image_with(parameters={"resolution": "4K"}),
    "unsupported combination": image_with(parameters={"resolution": "512x512", "aspect_ratio": "16:9"}),
    "external URL": image_with(
        mode="image-to-image", inputs=[{"type": "image", "url": "https://example.invalid/owl.png"}]
    ),
    "empty prompt": image_with(prompt=""),
}


async def quote(world: World, body: object) -> Reply:
    return await world.send("POST", "/quotes", body=body)


async def state_of(world: World) -> list[object]:
    """Give all that a create would have changed."""
    made = await world.service.query("SELECT count(*) AS made FROM generations")
    used = await world.service.query("SELECT sum(credits) AS used FROM day_usage")
    return [await world.balance(), made, used]


def new_key(world: World) -> MadeKey:
    with open_account_admin(world.config) as desk:
        return desk.create("main")


def revoke(world: World, key_id: str) -> None:
    with open_account_admin(world.config) as desk:
        desk.revoke(key_id)


# Sections 1 and 9: what there is not


@pytest.mark.parametrize(
    "changes",
    [
        {"inputs": [{"type": "video", "url": "https://assets.batchkiln.invalid/main/ast_0"}]},
        {"inputs": [{"type": "audio", "url": "https://assets.batchkiln.invalid/main/ast_0"}]},
        {"mode": "video-to-video"},
        {"mode": "video-edit"},
        {"webhook_url": "https://example.invalid/hook"},
        {"callback_url": "https://example.invalid/hook"},
    ],
    ids=str,
)
async def test_what_this_version_has_not_is_refused(world: World, changes: dict[str, object]) -> None:
    """References to videos and sounds, editing, and being called back. Service sections 1, 6 and 9."""
    refused = await world.create({**CLIP, "mode": "image-to-video", **changes})

    assert refused.status == 422


@pytest.mark.parametrize("name", ["webhooks", "events", "videos/edits", "generations"])
async def test_there_is_nothing_to_subscribe_or_edit(world: World, name: str) -> None:
    """No endpoint of that kind exists. Service sections 1, 6 and 9."""
    assert (await world.send("POST", f"/{name}", body={})).status == 404


async def test_generation_cannot_be_canceled(world: World) -> None:
    """No way of asking for it is an endpoint, and the generation goes on. Service sections 1, 6 and 9."""
    created = await world.create()
    path = f"/generations/{created.body['id']}"

    tried = [
        await world.send("DELETE", path),
        await world.send("PATCH", path, body={"status": "canceled"}),
        await world.send("POST", path, body={"status": "canceled"}),
        await world.send("POST", f"{path}/cancel"),
        await world.send("DELETE", f"{path}/cancel"),
    ]

    assert [reply.status for reply in tried] == [405, 405, 405, 404, 404]
    assert (await world.finish(created)).body["status"] == "success"


async def test_api_is_below_its_version(world: World) -> None:
    """Paths without the prefix, or with another version, do not exist. Service section 9."""
    host = world.service.base_url.removesuffix("/api/v1")

    statuses = [(await world.send("GET", f"{host}{prefix}/models")).status for prefix in ("/api/v1", "", "/api/v2")]

    assert statuses == [200, 404, 404]


# Section 2: records and requests


async def test_success_record_has_its_fields_and_no_others(world: World) -> None:
    """No status_url and no output.video_url; instants to the millisecond. Service section 2.1."""
    world.clock.advance(1.234)
    ended = await world.finish(await world.create(CLIP))

    assert ended.body == {
        "id": ended.body["id"],
        "model": "alpha-2.5-lite",
        "status": "success",
        "created_at": "2026-09-21T00:00:01.234Z",
        "credits": {"cost": 20},
        "outputs": [{"type": "video", "url": ended.output["url"], "expires_at": "2026-09-21T00:25:21.234Z"}],
        "error": None,
    }


@pytest.mark.parametrize(("prompt", "status"), [("[fail]", "failed"), ("[cancel]", "canceled")])
async def test_bad_end_has_an_error_and_no_outputs(world: World, prompt: str, status: str) -> None:
    """Outputs are there on success only; what went wrong is told otherwise. Service sections 2.1 and 3."""
    ended = await world.finish(await world.create(image_with(prompt=prompt)))

    assert (ended.body["status"], ended.body["outputs"]) == (status, [])
    assert isinstance(ended.body["error"], dict)


async def test_read_after_a_link_died_gives_one_that_works(world: World) -> None:
    """A fresh URL at each read, for as long as the output is kept. Service section 2.1."""
    ended = await world.finish(await world.create())
    world.clock.advance(13 * DAY_SECONDS)

    again = await world.poll(ended.body["id"])

    assert (await world.send("GET", ended.output["url"], key=None)).status == 403
    assert (await world.send("GET", again.output["url"], key=None)).status == 200


async def test_link_promises_no_more_than_it_keeps(world: World) -> None:
    """Good to the last millisecond before the instant that it names, the end of the retention here. Section 2.1."""
    ended = await world.finish(await world.create())
    ends = await world.service.query("SELECT ended_at_ms FROM generations")
    gone_at_ms = int(str(ends[0]["ended_at_ms"])) + 14 * DAY_SECONDS * 1000
    world.clock.advance((gone_at_ms - world.clock.now_ms()) / 1000 - 100)
    late = await world.poll(ended.body["id"])

    world.clock.advance(99.999)
    last = await world.send("GET", late.output["url"], key=None)
    world.clock.advance(0.001)

    assert datetime.fromisoformat(late.output["expires_at"]).timestamp() * 1000 == gone_at_ms
    assert last.status == 200
    assert (await world.send("GET", late.output["url"], key=None)).status in {403, 404}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({name: CLIP[name] for name in CLIP if name != "model"}, "model"),
        ({name: CLIP[name] for name in CLIP if name != "mode"}, "mode"),
        ({name: CLIP[name] for name in CLIP if name != "prompt"}, "prompt"),
        ({**CLIP, "mode": "image-to-video"}, "inputs"),
        ({**CLIP, "parameters": {"duration_seconds": 2}}, "parameters.resolution"),
        ({**CLIP, "parameters": {"resolution": "480p"}}, "parameters.duration_seconds"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_required_field_is_asked_for_by_name(world: World, body: dict[str, object], field: str) -> None:
    """What a video needs, and nothing is assumed in its place. Service section 2.2."""
    refused = await quote(world, body)

    assert (refused.status, refused.code) == (422, "invalid_request")
    assert field in str(refused.body)


@pytest.mark.parametrize(("most", "status"), [(1.9, 422), (2, 202), (2.0, 202), (2.5, 202)])
async def test_price_is_held_against_the_maximum(world: World, most: float, status: int) -> None:
    """Any number; only a higher quote is refused, and creates nothing. Service sections 2.2 and 7."""
    created = await world.create(image_with(max_cost_credits=most))

    assert created.status == status
    assert await world.balance() == 10_000 - (2 if status == 202 else 0)


async def test_tickets_are_one_for_each_file(world: World) -> None:
    """Each file has its URL, its asset and its headers, the length among them. Service section 2.3."""
    files = [{"name": f"owl-{size}", "type": "image/png", "size": size} for size in (11, 22, 33)]

    reply = await world.send("POST", "/uploads", body={"files": files})

    uploads = reply.body["uploads"]
    assert isinstance(uploads, list)
    assert [upload["upload_headers"]["Content-Length"] for upload in uploads] == ["11", "22", "33"]
    assert [len({upload[name] for upload in uploads}) for name in ("upload_url", "asset_id")] == [3, 3]


async def test_completion_gives_each_asset_a_url_that_can_be_used(world: World, png: bytes) -> None:
    """Several at once, each with a URL of its own, in the order asked. Service section 2.3."""
    prepared = [await world.prepare(len(png)) for _ in range(2)]
    for each in prepared:
        await world.put(each, png)

    reply = await world.send(
        "POST", "/uploads/complete", body={"asset_ids": [each.asset_id for each in reversed(prepared)]}
    )

    assets = reply.body["assets"]
    assert isinstance(assets, list)
    assert [asset["asset_id"] for asset in assets] == [each.asset_id for each in reversed(prepared)]
    both = [{"type": "image", "url": asset["url"]} for asset in assets]
    assert (await world.create(image_with(mode="image-to-image", inputs=both))).status == 202


# Section 3: states


async def test_generation_goes_through_its_states(world: World) -> None:
    """Pending, processing, success. Service section 3."""
    created = await world.create()
    world.clock.advance(2)
    working = await world.poll(created.body["id"])
    ended = await world.finish(created)

    assert [reply.body["status"] for reply in (created, working, ended)] == ["pending", "processing", "success"]
    assert working.body["outputs"] == []


async def test_pending_is_not_refunded_because_time_passes(world: World) -> None:
    """A year later the credits are still reserved, and the generation still pending. Service rule 3.2."""
    created = await world.create(image_with(prompt="[stay-pending]"))
    world.clock.advance(365 * DAY_SECONDS)
    await world.stop()
    await world.start()

    late = await world.poll(created.body["id"])

    assert (late.body["status"], await world.balance()) == ("pending", 10_000 - 2)
    rows = await world.service.query("SELECT kind FROM transfers WHERE account = 'main' ORDER BY id")
    assert [row["kind"] for row in rows] == ["purchase", "reserve"]


# Section 4: creating, uploading, paying


@pytest.mark.parametrize("path", ["/images", "/videos"])
async def test_create_needs_an_idempotency_key(world: World, path: str) -> None:
    """Without the header nothing is created, on both paths. Service rule 4.1."""
    before = await state_of(world)

    refused = await world.send("POST", path, body=IMAGE if path == "/images" else CLIP)

    assert (refused.status, refused.code) == (400, "invalid_idempotency_key")
    assert await state_of(world) == before


@pytest.mark.parametrize(("path", "body"), [("/images", CLIP), ("/videos", IMAGE)])
async def test_each_path_creates_its_own_kind(world: World, path: str, body: object) -> None:
    """A video is not made by POST /images, nor an image by POST /videos. Service section 4."""
    refused = await world.send("POST", path, body=body, headers={"Idempotency-Key": "an-idempotency-key"})

    assert (refused.status, refused.code) == (422, "unsupported_option")


async def test_quote_makes_and_charges_nothing(world: World) -> None:
    """It says a price, also while another generation is active. Service section 4, pricing."""
    await world.create()
    before = await state_of(world)

    quoted = await quote(world, CLIP)

    assert (quoted.status, quoted.body) == (200, {"cost_credits": 20})
    assert await state_of(world) == before


async def test_reads_and_downloads_cost_nothing(world: World) -> None:
    """Only the generation itself is paid for. Service section 4, pricing."""
    ended = await world.finish(await world.create())
    await world.send("GET", "/models")
    await world.send("GET", ended.output["url"], key=None)
    await world.poll(ended.body["id"])

    assert await world.balance() == 10_000 - 2
    assert await world.service.query("SELECT credits FROM day_usage") == [{"credits": 2}]


async def test_upload_may_be_as_large_as_the_limits_say(world: World) -> None:
    """Five files of 30 MiB each, of all three types. Service section 4, upload flow 1."""
    types = ["image/jpeg", "image/png", "image/webp", "image/png", "image/png"]
    files = [{"name": "owl", "type": content_type, "size": 30 * 1024 * 1024} for content_type in types]

    assert (await world.send("POST", "/uploads", body={"files": files})).status == 200


async def test_upload_link_lives_for_five_minutes(world: World, png: bytes) -> None:
    """To the last millisecond. Service section 4, upload flow 2."""
    prepared = await world.prepare(len(png))
    world.clock.advance(299.999)

    assert await world.put(prepared, png) == 200


# Sections 5 and 7: access and refusals


async def test_revoked_key_is_refused_by_a_running_service(world: World) -> None:
    """From the next request on, and for its own generations too. Service rule 5.6."""
    made = await asyncio.to_thread(new_key, world)
    created = await world.create(key=made.secret)
    before = await world.poll(created.body["id"], key=made.secret)

    await asyncio.to_thread(revoke, world, made.id)

    assert (before.status, (await world.poll(created.body["id"], key=made.secret)).status) == (200, 401)


async def test_browser_is_refused_the_public_description_too(world: World) -> None:
    """Public frees from the key, not from being a server. Service rules 5.5 and 5.9."""
    refused = await world.send("GET", "/openapi.json", key=None, headers={"Origin": "https://example.invalid"})

    assert (refused.status, refused.code) == (403, "origin_not_allowed")


@pytest.mark.parametrize("account", [{"credits": 100}, {"credits": 0, "subscription": True}], ids=str)
async def test_subscription_or_credits_give_access(make_world: WorldMaker, account: dict[str, object]) -> None:
    """Either alone is enough to prepare an upload. Service rule 5.8."""
    world = await make_world(accounts=({"name": "main", "keys": ["key-one-of-main"], **account},))
    files = [{"name": "owl", "type": "image/png", "size": 1}]

    assert (await world.send("POST", "/uploads", body={"files": files})).status == 200


@pytest.mark.parametrize("body", REFUSED_BODIES.values(), ids=REFUSED_BODIES.keys())
async def test_refused_request_uses_nothing_up(make_world: WorldMaker, body: dict[str, object]) -> None:
    """Neither credits, nor the day's budget, nor the one active place, nor its key. Service section 7."""
    world = await make_world(limits=Limits(credits_per_day=2))
    before = await state_of(world)

    refused = await world.create(body, idempotency_key="the-key-of-both-requests")
    quoted = await quote(world, body)

    assert (refused.status, quoted.status) == (422, 422)
    assert await state_of(world) == before
    assert (await world.create(idempotency_key="the-key-of-both-requests")).status == 202


async def test_unavailable_service_takes_the_same_request_later(world: World) -> None:
    """After a 503 the identical request under its key is accepted, and paid for once. Service section 7."""
    world.service.faults.add("unavailable", "create")

    replies = [await world.create(idempotency_key="the-key-of-all-sends") for _ in range(3)]

    assert [reply.status for reply in replies] == [503, 202, 202]
    assert replies[1].body["id"] == replies[2].body["id"]
    assert await world.balance() == 10_000 - 2


@pytest.mark.parametrize(
    ("key", "headers", "code"),
    [
        ("old", {}, "api_key_upgrade_required"),
        ("key-one-of-main", {"Origin": "https://example.invalid"}, "origin_not_allowed"),
        ("key-of-poor", {}, "credits_required"),
    ],
)
async def test_json_403_names_a_requirement(
    make_world: WorldMaker, key: str, headers: dict[str, str], code: str
) -> None:
    """The API's own 403 is JSON and tells of the account or the server, unlike the firewall's. Service section 7."""
    accounts = (
        {"name": "main", "keys": ["key-one-of-main", {"value": "old", "legacy": True}]},
        {"name": "poor", "credits": 0, "keys": ["key-of-poor"]},
    )
    world = await make_world(accounts=accounts)
    keyed = {"Idempotency-Key": "an-idempotency-key", **headers}

    refused = await world.send("POST", "/images", body=IMAGE, key=key, headers=keyed)

    assert (refused.status, refused.code) == (403, code)
    assert refused.headers["Content-Type"].startswith("application/json")


async def test_days_of_the_tests_begin_at_midnight(world: World) -> None:
    """What these tests take for midnight in UTC is one by the service's clock. Service section 8."""
    assert world.clock.now_ms() == START_MS
    assert (await world.send("GET", "/models")).headers["Date"] == "Mon, 21 Sep 2026 00:00:00 GMT"
