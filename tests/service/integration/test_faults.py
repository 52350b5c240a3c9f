"""Misbehaviour that tests of clients switch on: what a client sees of it, and what the service's books then hold."""

import asyncio
import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from hashlib import sha256
from pathlib import Path

import aiohttp
import pytest
from yarl import URL

from batchkiln_service import load_catalog
from batchkiln_service.clock import RandomStream
from batchkiln_service.faults.fault_rules import KINDS, FaultMatch

from .service_world import CLIP, IMAGE, World, WorldMaker, image_with

KEY = "an-idempotency-key"
FAULT = "X-Batchkiln-Fault"


async def on_the_wire(
    method: str, url: str, *, body: bytes = b"", headers: Mapping[str, str] | None = None
) -> tuple[bytes, str]:
    """Send a request by hand; return all bytes that come back, and how the connection ends."""
    target = URL(url)
    reader, writer = await asyncio.open_connection(target.host, target.port)
    given = {"Host": target.authority, "Content-Length": str(len(body)), **(headers or {})}
    head = "".join(f"{name}: {value}\r\n" for name, value in given.items())
    writer.write(f"{method} {target.raw_path_qs} HTTP/1.1\r\n{head}\r\n".encode() + body)
    received = b""
    try:
        async with asyncio.timeout(20):
            while chunk := await reader.read(65_536):
                received += chunk
    except ConnectionResetError:
        return received, "reset"
    finally:
        writer.transport.abort()
    return received, "closed"


async def create_on_the_wire(world: World, *, key: str = KEY) -> tuple[bytes, str]:
    """POST an image by hand."""
    headers = {
        "Authorization": "Bearer key-one-of-main",
        "Content-Type": "application/json",
        "Idempotency-Key": key,
    }
    return await on_the_wire(
        "POST", f"{world.service.base_url}/images", body=json.dumps(IMAGE).encode(), headers=headers
    )


def split(received: bytes) -> tuple[int, int, bytes]:
    """Take a raw reply apart: its status, the length it promises, and the body that came."""
    head, _, body = received.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    length = next(line.split(":")[1] for line in lines if line.lower().startswith("content-length:"))
    return int(lines[0].split()[1]), int(length), body


async def books_of(world: World) -> tuple[int, int]:
    """Return how many generations there are, and the credits that they took from what was available."""
    (row,) = await world.service.query(
        "SELECT (SELECT count(*) FROM generations) AS made, 10000 - credits AS taken FROM credit_sides"
        " WHERE account = 'main' AND side = 'available'"
    )
    return int(str(row["made"])), int(str(row["taken"]))


@pytest.mark.parametrize(
    ("kind", "end", "books"),
    [
        ("reset_before", "reset", (0, 0)),
        ("reply_lost", "closed", (1, 2)),
        ("reset_after", "reset", (1, 2)),
    ],
)
async def test_connection_ends_without_a_reply(world: World, kind: str, end: str, books: tuple[int, int]) -> None:
    """Not a byte comes; a reset is one on the wire too, and the work is done or not, as the kind says."""
    world.service.faults.add(kind, "create")  # type: ignore[arg-type]  # a kind, from the table above

    received = await create_on_the_wire(world)

    assert received == (b"", end)
    assert await books_of(world) == books
    assert (await world.create(idempotency_key=KEY)).status == 202
    assert await books_of(world) == (1, 2)


async def test_cut_body_is_half_of_what_was_promised(world: World) -> None:
    """Head and half of the body come, then the connection is closed; the work is done, and paid for once."""
    world.service.faults.add("cut_body", "create")

    received, end = await create_on_the_wire(world)

    status, length, body = split(received)
    assert (status, len(body), end) == (202, length // 2, "closed")
    assert (await world.create(idempotency_key=KEY)).status == 202
    assert await books_of(world) == (1, 2)


async def test_lost_reply_leaves_the_generation(world: World) -> None:
    """The work is done although the client hears nothing; a replay finds it. Service rule 4.2."""
    world.service.faults.add("reply_lost", "create")

    with pytest.raises(aiohttp.ClientError):
        await world.create(idempotency_key=KEY)

    assert (await world.create(idempotency_key=KEY)).status == 202
    assert await world.balance() == 10_000 - 2


async def test_reset_connection_leaves_nothing(world: World) -> None:
    """Nothing is done when the connection is reset before."""
    world.service.faults.add("reset_before", "create")

    with pytest.raises((aiohttp.ClientError, ConnectionResetError)):
        await world.create(idempotency_key=KEY)

    assert await world.balance() == 10_000
    rows = await world.service.requests()
    assert [(row["status"], row["fault"], row["number"]) for row in rows][:1] == [(0, "reset_before", None)]


async def test_cut_body_breaks_off(world: World) -> None:
    """Half of the promised body arrives."""
    world.service.faults.add("cut_body", "create")

    with pytest.raises(aiohttp.ClientPayloadError):
        await world.create(idempotency_key=KEY)

    assert (await world.create(idempotency_key=KEY)).status == 202


async def test_cut_download_breaks_off_once(world: World) -> None:
    """A download can break, and works when it is tried again."""
    ended = await world.finish(await world.create())
    world.service.faults.add("cut_body", "download")

    with pytest.raises(aiohttp.ClientPayloadError):
        await world.send("GET", ended.output["url"], key=None)

    assert (await world.send("GET", ended.output["url"], key=None)).status == 200


async def test_throttled_and_unavailable_replies_say_when_to_come_back(world: World) -> None:
    """429 and 503 with Retry-After, and 503 without. Service section 7."""
    world.service.faults.add("throttle", "models", seconds=7)
    world.service.faults.add("unavailable", "models", seconds=9)
    world.service.faults.add("unavailable", "models")

    replies = [await world.send("GET", "/models") for _ in range(4)]

    assert [reply.status for reply in replies] == [429, 503, 503, 200]
    assert [reply.headers.get("Retry-After") for reply in replies] == ["7", "9", None, None]


async def test_html_replies_are_not_json(world: World) -> None:
    """The firewall's page and a stranger's page, at will. Service section 7."""
    world.service.faults.add("edge_block", "read")
    world.service.faults.add("html", "read")

    replies = [await world.send("GET", "/models") for _ in range(2)]

    assert [reply.status for reply in replies] == [403, 200]
    assert all(reply.headers["Content-Type"].startswith("text/html") for reply in replies)


async def test_slow_reply_comes_when_service_time_has_passed(world: World) -> None:
    """A slow reply waits on the service's clock; the work is done at once."""
    world.service.faults.add("slow", "create", seconds=30)
    creating = asyncio.create_task(world.create())
    while not await world.service.query("SELECT 1 FROM generations"):
        assert not creating.done()

    while not creating.done():
        world.clock.advance(30)
        await asyncio.wait([creating], timeout=0.01)

    assert creating.result().status == 202


async def test_link_can_die_before_its_time(world: World) -> None:
    """A link may promise more than it keeps; the next one is good."""
    created = await world.create()
    world.service.faults.add("link_dies_early", "poll")
    ended = await world.finish(created)

    dead = await world.send("GET", ended.output["url"], key=None)
    again = await world.poll(ended.body["id"])

    assert (dead.status, dead.code) == (403, "link_expired")
    assert (await world.send("GET", again.output["url"], key=None)).status == 200


@pytest.mark.parametrize(("kind", "status"), [("fail_generation", "failed"), ("cancel_generation", "canceled")])
async def test_generation_ends_badly_at_will(make_world: WorldMaker, kind: str, status: str) -> None:
    """A rule of the configuration decides how the next generation ends; a refused create does not use it up."""
    world = await make_world(faults=[{"kind": kind, "endpoint": "create"}])
    await world.create({})

    ended = await world.finish(await world.create())

    assert (ended.body["status"], ended.body["outputs"]) == (status, [])
    assert ended.body["error"] is not None


async def test_rule_waits_its_turn_and_ends(world: World) -> None:
    """`after` lets requests pass first, `times` bounds the misbehaviour."""
    world.service.faults.add("unavailable", "models", after=1, times=2)

    statuses = [(await world.send("GET", "/models")).status for _ in range(4)]

    assert statuses == [200, 503, 503, 200]


async def test_seeded_chance_repeats_itself(make_world: WorldMaker, tmp_path: Path) -> None:
    """The same seed gives the same faults."""
    seen = []
    for name in ("a", "b"):
        world = await make_world(
            seed=7,
            faults=[{"kind": "unavailable", "times": None, "probability": 0.5}],
            state_dir=tmp_path / name,
        )
        seen.append([(await world.send("GET", "/models")).status for _ in range(12)])

    assert seen[0] == seen[1]
    assert set(seen[0]) == {200, 503}


async def test_pending_can_be_stretched(world: World) -> None:
    """A generation may stay pending for a time, and then goes on. Service section 3."""
    world.service.faults.add("stay_pending", seconds=1000)
    created = await world.create()
    world.clock.advance(999)
    before = await world.poll(created.body["id"])
    world.clock.advance(10)

    after = await world.poll(created.body["id"])

    assert (before.body["status"], after.body["status"]) == ("pending", "processing")


async def test_rules_can_be_withdrawn(world: World) -> None:
    """After `clear` the service behaves."""
    world.service.faults.add("unavailable", times=None)
    world.service.faults.clear()

    assert (await world.send("GET", "/models")).status == 200


async def test_accident_is_a_json_500(world: World) -> None:
    """An unexpected failure says nothing of its insides."""
    await world.service.query("DROP TABLE requests")

    failed = await world.send("GET", "/models")

    assert (failed.status, failed.code) == (500, "internal_error")
    assert b"sqlite" not in failed.content.lower()


@pytest.mark.parametrize("kind", ["throttle", "unavailable", "edge_block", "html"])
async def test_refusals_leave_nothing(world: World, kind: str) -> None:
    """What misbehaves in place of the work makes nothing, charges nothing, and no window counts it."""
    world.service.faults.add(kind, "create")  # type: ignore[arg-type]  # a kind, from the table above

    await world.create(idempotency_key=KEY)

    assert await books_of(world) == (0, 0)
    (row,) = await world.service.requests()
    assert (row["fault"], row["code"], row["number"]) == (kind, kind, None)


@pytest.mark.parametrize("extra_bytes", [-1, 3])
async def test_download_may_have_another_length(world: World, extra_bytes: int) -> None:
    """The reply is whole, but it is not the file: nothing of HTTP tells."""
    url = (await world.finish(await world.create())).output["url"]
    honest = (await world.send("GET", url, key=None)).content
    world.service.faults.add("wrong_length", "download", extra_bytes=extra_bytes, times=2)

    reply = await world.send("GET", url, key=None)
    part = await world.send("GET", url, key=None, headers={"Range": "bytes=10-"})

    assert int(reply.headers["Content-Length"]) == len(reply.content) == len(honest) + extra_bytes
    assert reply.content[: len(honest) + min(0, extra_bytes)] == honest[: len(honest) + min(0, extra_bytes)]
    assert (part.status, part.content) == (206, reply.content[10:])
    assert (await world.send("GET", url, key=None)).content == honest


async def test_cut_download_honours_ranges(world: World) -> None:
    """A broken download that is taken up again can break again, at the right place."""
    url = (await world.finish(await world.create())).output["url"]
    honest = (await world.send("GET", url, key=None)).content
    world.service.faults.add("cut_body", "download")

    received, _ = await on_the_wire("GET", url, headers={"Range": "bytes=100-"})

    status, length, body = split(received)
    assert (status, length, body) == (206, len(honest) - 100, honest[100:][: (len(honest) - 100) // 2])


async def test_upload_may_be_kept_in_part(world: World, png: bytes) -> None:
    """The storage says that all is well, and has lost the end of the file; the completion finds it."""
    prepared = await world.prepare(len(png))
    world.service.faults.add("wrong_length", "put", extra_bytes=-60)

    assert await world.put(prepared, png) == 200

    completed = await world.send("POST", "/uploads/complete", body={"asset_ids": [prepared.asset_id]})
    assert completed.status == 422
    assert await world.put(prepared, png) == 200
    completed = await world.send("POST", "/uploads/complete", body={"asset_ids": [prepared.asset_id]})
    assert completed.status == 200


async def test_storage_fails_as_storages_do(world: World, png: bytes) -> None:
    """500 and 503 in XML, with Retry-After where it is wanted, for uploads and downloads; then all is well."""
    url = (await world.finish(await world.create())).output["url"]
    prepared = await world.prepare(len(png))
    world.service.faults.add("storage_error", times=2)
    world.service.faults.add("storage_unavailable", "download", seconds=4)

    put = await world.put(prepared, png)
    replies = [await world.send("GET", url, key=None) for _ in range(3)]

    assert [put, *(reply.status for reply in replies)] == [500, 500, 503, 200]
    assert [reply.headers["Content-Type"].split(";")[0] for reply in replies[:2]] == ["application/xml"] * 2
    assert replies[0].content.startswith(b"<?xml")
    assert [reply.headers.get("Retry-After") for reply in replies] == [None, "4", None]
    assert await world.put(prepared, png) == 200


async def test_upload_link_can_die_before_its_time(world: World, png: bytes) -> None:
    """An upload link may promise more than it keeps; the next one is good. Service section 4, upload flow."""
    world.service.faults.add("upload_link_dies_early", "upload", seconds=60)
    dying, good = [await world.prepare(len(png)) for _ in range(2)]
    world.clock.advance(59)
    before = await world.put(dying, png)
    world.clock.advance(1)

    assert (before, await world.put(dying, png), await world.put(good, png)) == (200, 403, 200)


async def work_ms(world: World, body: object = None, *, headers: Mapping[str, str] | None = None) -> int:
    """Return how long the generation of a create will be processed, as the books have it."""
    sent = {"Idempotency-Key": KEY, **(headers or {})}
    created = await world.send("POST", "/images", body=body or IMAGE, headers=sent)
    assert created.status == 202, created.body
    (row,) = await world.service.query("SELECT finish_at_ms - processing_at_ms AS work FROM generations")
    return int(str(row["work"]))


@pytest.mark.parametrize(
    ("asked", "factor", "more_ms"),
    [("slow_generation", 10, 0), ("slow_generation; factor=3", 3, 0), ("slow_generation; seconds=30", 1, 30_000)],
)
async def test_generation_takes_longer_at_will(
    make_world: WorldMaker, tmp_path: Path, asked: str, factor: int, more_ms: int
) -> None:
    """So many seconds more, or so many times as long, as the same request takes without."""
    usual, slow = [await make_world(state_dir=tmp_path / name) for name in ("usual", "slow")]

    usual_ms, slow_ms = await work_ms(usual), await work_ms(slow, headers={FAULT: asked})

    assert slow_ms == usual_ms * factor + more_ms


async def test_prompt_can_ask_for_a_slow_generation(world: World) -> None:
    """[slow] in a prompt is how a manifest asks for ten times as long as its request would take."""
    body = image_with(prompt="A [slow] fox")
    subject, model = sha256(json.dumps(body).encode()).hexdigest(), load_catalog()["epsilon-2"]
    usual_seconds = RandomStream(0).duration_seconds(
        f"main:{subject}:0", mean=model.typical_seconds, spread=model.spread_seconds
    )

    assert await work_ms(world, body) == round(usual_seconds * 1000) * 10


async def test_prompt_can_ask_to_stay_pending(world: World) -> None:
    """[stay-pending] in a prompt: no time helps, support does. Service rules 3.2 and 4.5."""
    created = await world.create(image_with(prompt="A fox [stay-pending]"))
    world.clock.advance(86_400)
    waiting = await world.poll(created.body["id"])

    await world.service.end_pending_generation(str(created.body["id"]))
    await world.service.idle()
    world.clock.advance(20)

    assert waiting.body["status"] == "pending"
    assert (await world.poll(created.body["id"])).body["status"] == "success"


async def test_rule_is_for_one_account(world: World) -> None:
    """A match on the account strikes its requests alone, whichever key it uses."""
    world.service.faults.add("unavailable", times=None, match=FaultMatch(account="main"))

    statuses = [
        (await world.send("GET", "/models", key=key)).status
        for key in ("key-one-of-main", "key-two-of-main", "key-of-other", "nobody's")
    ]

    assert statuses == [503, 503, 200, 401]


async def test_rule_is_for_a_model_and_a_prompt(make_world: WorldMaker) -> None:
    """A match on model and prompt strikes creates, quotes, reads and downloads of it, and no others."""
    world = await make_world(tiny_media=True)
    fox = await world.finish(await world.create(image_with(prompt="A red fox")))
    owl = await world.finish(await world.create(image_with(prompt="An owl")))
    world.service.faults.add("unavailable", times=None, match=FaultMatch(model="epsilon-2", prompt="fox"))

    struck = [
        await world.create(image_with(prompt="Two foxes, or one fox")),
        await world.send("POST", "/quotes", body=image_with(prompt="fox")),
        await world.poll(fox.body["id"]),
        await world.send("GET", fox.output["url"], key=None),
    ]
    spared = [
        await world.create(CLIP | {"prompt": "A fox"}),
        await world.send("POST", "/quotes", body=image_with(prompt="owl")),
        await world.poll(owl.body["id"]),
        await world.send("GET", owl.output["url"], key=None),
        await world.send("GET", "/models"),
        await world.send("POST", "/images", body=[]),
    ]

    assert [reply.status for reply in struck] == [503] * 4
    assert [reply.status for reply in spared] == [202, 200, 200, 200, 200, 400]


async def test_rule_is_for_a_method_and_a_path(world: World) -> None:
    """A match on method and path tells the endpoints apart that share a name."""
    world.service.faults.add("html", "upload", times=None, match=FaultMatch(method="POST", path="/uploads/*"))

    prepared = await world.send("POST", "/uploads", body={"files": [{"name": "a", "type": "image/png", "size": 9}]})
    completed = await world.send("POST", "/uploads/complete", body={"asset_ids": ["ast_0"]})

    assert prepared.headers["Content-Type"].startswith("application/json")
    assert completed.headers["Content-Type"].startswith("text/html")


async def test_request_asks_for_its_own_fault(world: World) -> None:
    """The header strikes this very request, and no other."""
    replies = [
        await world.send("GET", "/models", headers={FAULT: "unavailable; seconds=7"}),
        await world.send("GET", "/models"),
        await world.send("GET", "/openapi.json", key=None, headers={FAULT: "throttle"}),
    ]

    assert [reply.status for reply in replies] == [503, 200, 429]
    assert [reply.headers.get("Retry-After") for reply in replies] == ["7", None, "1"]


async def test_create_asks_for_its_fate(world: World) -> None:
    """A create can ask for a failure that it then hears nothing of; the replay asks for nothing and finds it."""
    path, headers = "/images", {"Idempotency-Key": KEY}
    with pytest.raises(aiohttp.ClientError):
        await world.send("POST", path, body=IMAGE, headers={**headers, FAULT: "fail_generation, reply_lost"})

    ended = await world.finish(await world.send("POST", path, body=IMAGE, headers=headers))

    assert ended.body["status"] == "failed"
    assert await books_of(world) == (1, 0)


async def test_links_and_storage_can_be_asked_for(world: World) -> None:
    """A read asks for a link that is dead, a download for the storage to fail."""
    created = await world.create()
    ended = await world.finish(created)
    dead = await world.send("GET", f"/generations/{created.body['id']}", headers={FAULT: "link_dies_early"})

    replies = [
        await world.send("GET", dead.output["url"], key=None),
        await world.send("GET", ended.output["url"], key=None, headers={FAULT: "storage_error"}),
        await world.send("GET", ended.output["url"], key=None),
    ]

    assert [reply.status for reply in replies] == [403, 500, 200]


@pytest.mark.parametrize(
    "asked",
    [
        "explode",
        "link_dies_early",
        "slow; seconds=x",
        "slow; seconds=1; colour=red",
        "stay_pending; seconds=1e300",
        "stay_pending; seconds=inf",
        "stay_pending; seconds=nan",
        "slow_generation; factor=1e300",
        "slow_generation; factor=0",
    ],
)
async def test_fault_that_cannot_be_is_refused(world: World, asked: str) -> None:
    """400 names what is allowed; nothing is done and no window counts it."""
    refused = await world.send("POST", "/images", body=IMAGE, headers={"Idempotency-Key": KEY, FAULT: asked})

    assert (refused.status, refused.code) == (400, "invalid_fault")
    assert FAULT in str(refused.body)
    assert await books_of(world) == (0, 0)
    (row,) = await world.service.requests()
    assert (row["status"], row["code"], row["number"]) == (400, "invalid_fault", None)


@pytest.mark.parametrize("asked", ["stay_pending; seconds=315360000", "slow_generation; factor=1e6"])
async def test_the_largest_fate_can_be_stored(world: World, asked: str) -> None:
    """What is just allowed is answered like anything else."""
    created = await world.send("POST", "/images", body=IMAGE, headers={"Idempotency-Key": KEY, FAULT: asked})

    assert created.status == 202
    assert (await world.poll(created.body["id"])).status == 200


async def test_lengths_are_bounded(world: World) -> None:
    """A request may not ask for a reply that fills the memory."""
    storage = world.service.base_url.replace("/api/v1", "/storage/outputs/x/0.png")

    refused = await world.send(
        "HEAD", storage, key=None, headers={FAULT: f"wrong_length; extra_bytes={1024 * 1024 + 1}"}
    )

    assert refused.status == 400


async def test_an_end_whose_reply_is_lost_is_not_heard_of(world: World) -> None:
    """The report counts a success as seen by the first read that could tell of it."""
    created = await world.create()
    world.clock.advance(600)
    await world.service.idle()
    headers = {"Authorization": "Bearer key-one-of-main", FAULT: "reply_lost"}
    await on_the_wire("GET", f"{world.service.base_url}/generations/{created.body['id']}", headers=headers)
    lost = (await world.service.report()).ends_seen.unseen_ends
    world.clock.advance(20)

    await world.poll(created.body["id"])

    assert lost == 1
    assert (await world.service.report()).ends_seen.unseen_ends == 0


async def test_an_end_that_a_replay_tells_is_heard_of(world: World) -> None:
    """A replay's 202 shows a success with its link, so no read is needed after it; a lost one shows nothing."""
    await world.create(idempotency_key=KEY)
    world.clock.advance(600)
    await world.service.idle()
    world.service.faults.add("reply_lost", "create")
    await create_on_the_wire(world)
    lost = (await world.service.report()).ends_seen.unseen_ends

    replayed = await world.create(idempotency_key=KEY)

    assert (replayed.status, replayed.body["status"]) == (202, "success")
    assert lost == 1
    assert (await world.service.report()).ends_seen.unseen_ends == 0


async def test_refused_fault_names_the_kinds(world: World) -> None:
    """Who misspells a kind is told them all, as far as they can happen here."""
    refused = await world.send("GET", "/models", headers={FAULT: "reply-lost"})
    stored = await world.send(
        "GET", world.service.base_url.replace("/api/v1", "/storage/outputs/x/0.png"), key=None, headers={FAULT: "-"}
    )

    elsewhere = {"storage_error", "storage_unavailable", "wrong_length", "link_dies_early", "upload_link_dies_early"}
    elsewhere.add("refuse_replay")
    elsewhere |= {"wrong_cost", "wrong_creation"}
    fates = {kind for kind in KINDS if "generation" in kind or kind == "stay_pending"}
    assert {kind for kind in KINDS if kind in str(refused.body)} == set(KINDS) - elsewhere - fates
    assert stored.code == "invalid_fault"
    assert "storage_unavailable" in str(stored.body)


async def test_header_can_be_switched_off(make_world: WorldMaker) -> None:
    """Without `request_faults`, the service ignores the header."""
    world = await make_world(request_faults=False)

    statuses = [
        (await world.send("GET", "/models", headers={FAULT: asked})).status for asked in ("unavailable", "explode")
    ]

    assert statuses == [200, 200]


async def test_every_strike_is_counted(world: World) -> None:
    """The report tells how often which fault struck where, the storage included."""
    world.service.faults.add("fail_generation")
    world.service.faults.add("reply_lost", "balance")
    await world.create()
    headers = {"Authorization": "Bearer key-one-of-main", FAULT: "reply_lost"}
    for _ in range(2):
        await on_the_wire("GET", f"{world.service.base_url}/credits/balance", headers=headers)
    storage = world.service.base_url.replace("/api/v1", "/storage/outputs/x/0.png")
    await world.send("GET", storage, key=None, headers={FAULT: "storage_error"})

    report = await world.service.report()

    assert [(one.kind, one.endpoint, one.struck) for one in report.faults] == [
        ("fail_generation", "create", 1),
        ("reply_lost", "balance", 2),
        ("storage_error", "download", 1),
    ]


async def test_same_seed_and_requests_give_the_same_faults(make_world: WorldMaker, tmp_path: Path) -> None:
    """Several rules by chance, at several endpoints: a second run is struck exactly as the first was."""
    rules = [
        {"kind": "unavailable", "endpoint": "read", "times": None, "probability": 0.4},
        {"kind": "html", "endpoint": "quote", "times": None, "probability": 0.4},
        {"kind": "fail_generation", "times": None, "probability": 0.5},
    ]
    seen = []
    for name in ("a", "b"):
        world = await make_world(seed=11, faults=rules, state_dir=tmp_path / name, instant=True)
        for number in range(8):
            await world.send("GET", "/models")
            await world.send("POST", "/quotes", body=IMAGE)
            await world.create(idempotency_key=f"idempotency-key-{number}")
            world.clock.advance(7)
        rows = await world.service.query("SELECT kind, endpoint FROM faults_struck ORDER BY id")
        seen.append([(row["kind"], row["endpoint"]) for row in rows])

    assert seen[0] == seen[1]
    assert {kind for kind, _ in seen[0]} == {"unavailable", "html", "fail_generation"}


async def test_refused_replay_made_nothing_and_takes_nothing_back(world: World) -> None:
    """The first create is accepted as ever; its replay is refused by what has changed since, and nothing else is."""
    world.service.faults.add("refuse_replay", "create", times=None)

    first = await world.send("POST", "/images", body=IMAGE, headers={"Idempotency-Key": KEY})
    again = await world.send("POST", "/images", body=IMAGE, headers={"Idempotency-Key": KEY})
    world.service.faults.clear()
    later = await world.send("POST", "/images", body=IMAGE, headers={"Idempotency-Key": KEY})

    assert (first.status, later.status) == (202, 202)
    assert again.status in {402, 403, 409, 422}
    assert first.body["id"] == later.body["id"]


async def test_a_wrong_date_is_another_each_second(world: World) -> None:
    """A client that asks twice is not told the same wrong time twice."""
    world.service.faults.add("wrong_date", times=2, seconds=86_400)
    dates = []
    for _ in range(3):
        answer = await world.send("GET", "/openapi.json", key=None)
        dates.append(parsedate_to_datetime(answer.headers["Date"]))
        world.clock.advance(5)

    now = parsedate_to_datetime((await world.send("GET", "/openapi.json", key=None)).headers["Date"])
    errors = [(date - now).total_seconds() for date in dates]
    assert min(errors[:2]) >= 86_000
    assert abs(errors[1] - errors[0]) >= 60
    assert errors[2] == -5


async def test_a_record_may_tell_another_cost_and_creation(world: World) -> None:
    """The books are right in any case."""
    world.service.faults.add("wrong_cost", "create")
    wrong = await world.create()
    world.service.faults.add("wrong_creation", "poll", seconds=3600)
    world.clock.advance(10)
    early = await world.poll(wrong.body["id"])
    world.clock.advance(10)
    right = await world.poll(wrong.body["id"])

    assert wrong.body["credits"] == {"cost": 0} != right.body["credits"]
    told, made = (datetime.fromisoformat(str(answer.body["created_at"])) for answer in (early, right))
    assert made - told == timedelta(hours=1)
