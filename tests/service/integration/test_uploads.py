"""The upload flow of Service section 4, and what its assets may be used for."""

import asyncio
import io
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from urllib.parse import urlsplit

import pytest
from PIL import Image

from batchkiln_service import AccountConfig

from .raw import connect, told
from .service_world import IMAGE, Reply, World, WorldMaker, image_with


def edit(url: str) -> dict[str, object]:
    return {**IMAGE, "mode": "image-to-image", "inputs": [{"type": "image", "url": url}]}


def saved(kind: str) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (8, 8)).save(buffer, kind)
    return buffer.getvalue()


async def until(is_so: Callable[[], object]) -> None:
    """Wait for what the disk tells nobody of."""
    while not is_so():  # noqa: ASYNC110 - there is no event for it
        await asyncio.sleep(0.01)


async def complete(world: World, asset_id: str, *, key: str = "key-one-of-main") -> Reply:
    return await world.send("POST", "/uploads/complete", body={"asset_ids": [asset_id]}, key=key)


@pytest.mark.parametrize(("content_type", "name"), [("image/jpeg", "JPEG"), ("image/webp", "WEBP")])
async def test_uploaded_image_can_be_used(world: World, content_type: str, name: str) -> None:
    """Prepare, put, complete, generate; in each allowed type. Service section 4, upload flow."""
    url = await world.upload(saved(name), content_type=content_type)

    assert (await world.create(edit(url))).status == 202


async def test_asset_url_does_not_depend_on_the_port(world: World, png: bytes) -> None:
    """A stored body stays valid when the service comes back elsewhere."""
    url = await world.upload(png)

    assert url.startswith("https://assets.batchkiln.invalid/main/ast_")


async def test_completing_again_gives_the_same_url(world: World, png: bytes) -> None:
    """A lost reply of a completion costs nothing but another request."""
    prepared = await world.prepare(len(png))
    await world.put(prepared, png)

    first = await complete(world, prepared.asset_id)

    assert (await complete(world, prepared.asset_id)).body == first.body


@pytest.mark.parametrize("header", ["Content-Type", "X-Upload-Asset"])
@pytest.mark.parametrize("value", [None, "image/gif", "ast_0"])
async def test_put_needs_every_header(world: World, png: bytes, header: str, value: str | None) -> None:
    """All the headers given out have to be sent, as they are. Service section 4, upload flow 2."""
    prepared = await world.prepare(len(png))
    headers = {name: given for name, given in prepared.upload_headers.items() if name != header}

    assert await world.put(prepared, png, headers=headers | ({header: value} if value else {})) == 400
    assert list((world.config.state_dir / "assets").iterdir()) == []


@pytest.mark.parametrize("more", [1, -1])
async def test_put_needs_the_exact_length(world: World, png: bytes, more: int) -> None:
    """Another size than announced is refused. Service section 4, upload flow 2."""
    prepared = await world.prepare(len(png) + more)
    headers = {**prepared.upload_headers, "Content-Length": str(len(png))}

    assert await world.put(prepared, png, headers=headers) == 400


async def test_put_in_chunks_is_refused(world: World, png: bytes) -> None:
    """Content-Length is one of the headers that have to be sent: 411 without. Service section 4, upload flow 2."""
    prepared = await world.prepare(len(png))
    headers = {name: value for name, value in prepared.upload_headers.items() if name != "Content-Length"}

    async def in_pieces() -> AsyncIterator[bytes]:
        yield png

    async with world.session.put(prepared.upload_url, data=in_pieces(), headers=headers) as response:
        assert (response.status, (await response.json())["error"]["code"]) == (411, "length_required")


async def test_put_that_would_be_unpacked_is_refused(world: World, png: bytes) -> None:
    """A Content-Encoding would let other bytes be stored than were promised, and more of them."""
    packed = zlib.compress(png * 100)
    prepared = await world.prepare(len(packed))

    status = await world.put(prepared, packed, headers={**prepared.upload_headers, "Content-Encoding": "deflate"})

    assert status == 415


async def test_put_that_breaks_off_leaves_nothing(world: World, png: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """Half a file is not kept, and the whole one can be sent afterwards. It is no error of the service."""
    prepared = await world.prepare(len(png))
    parts = urlsplit(prepared.upload_url)
    head = "".join(f"{name}: {value}\r\n" for name, value in prepared.upload_headers.items())
    _, writer = await asyncio.open_connection(parts.hostname, parts.port)
    writer.write(f"PUT {parts.path}?{parts.query} HTTP/1.1\r\nHost: x\r\n{head}\r\n".encode() + png[: len(png) // 2])
    await writer.drain()
    folder = world.config.state_dir / "assets"
    await until(lambda: list(folder.glob("*.part")))

    writer.close()
    await writer.wait_closed()
    await until(lambda: not list(folder.glob("*.part")))

    assert list(folder.iterdir()) == []
    assert await world.put(prepared, png) == 200
    assert [record for record in caplog.records if record.levelname in {"WARNING", "ERROR"}] == []


async def test_silent_sender_is_answered(make_world: WorldMaker, png: bytes) -> None:
    """Who stops sending gets 408 after a while, and holds nothing any longer."""
    world = await make_world(upload_silence_seconds=0.1)
    prepared = await world.prepare(len(png))
    parts = urlsplit(prepared.upload_url)
    head = "".join(f"{name}: {value}\r\n" for name, value in prepared.upload_headers.items())
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)

    writer.write(f"PUT {parts.path}?{parts.query} HTTP/1.1\r\nHost: x\r\n{head}\r\nhalf".encode())

    assert (await reader.readline()).startswith(b"HTTP/1.1 408")
    writer.close()
    assert list((world.config.state_dir / "assets").iterdir()) == []


async def test_sender_of_a_byte_now_and_then_is_answered(make_world: WorldMaker) -> None:
    """A file has a bounded time in all: who never falls quite silent gets 408 as well."""
    world = await make_world(upload_silence_seconds=0.05)
    prepared = await world.prepare(30 * 1024 * 1024)
    parts = urlsplit(prepared.upload_url)
    head = "".join(f"{name}: {value}\r\n" for name, value in prepared.upload_headers.items())
    line = await connect(world.service)
    await line.say(f"PUT {parts.path}?{parts.query} HTTP/1.1\r\nHost: x\r\n{head}\r\n".encode())

    async def trickle() -> None:
        with suppress(ConnectionError):
            while True:
                await line.say(b"a")
                await asyncio.sleep(0.005)  # real time: it is what the service measures

    trickling = asyncio.create_task(trickle())
    answer = await line.head()
    trickling.cancel()
    await asyncio.wait([trickling])
    await line.close()

    assert answer.startswith(b"HTTP/1.1 408")
    await until(lambda: not list((world.config.state_dir / "assets").iterdir()))


async def test_put_of_more_than_announced_never_stores_more(world: World, png: bytes) -> None:
    """Bytes after a body of the exact length are not a request: the reply is 400, and the connection closes."""
    prepared = await world.prepare(len(png))
    parts = urlsplit(prepared.upload_url)
    head = "".join(f"{name}: {value}\r\n" for name, value in prepared.upload_headers.items())

    request = f"PUT {parts.path}?{parts.query} HTTP/1.1\r\nHost: x\r\n{head}\r\n".encode()
    answer = await told(world.service, request + png + b"and more\r\n\r\n")

    stored = [path.read_bytes() for path in (world.config.state_dir / "assets").iterdir()]
    assert b" 400 Bad Request" in answer
    assert stored in ([], [png])
    assert await world.put(prepared, png) == 200


async def test_forged_upload_link_does_not_tell_what_exists(world: World, png: bytes) -> None:
    """An upload that there is and one that there is not are refused alike, in every byte of the reply."""
    prepared = await world.prepare(len(png))
    there = prepared.upload_url.replace("signature=", "signature=0")
    nowhere = there.replace(prepared.asset_id, "ast_" + "0" * 24)

    answers = []
    for url in (there, nowhere):
        async with world.session.put(url, data=png, headers=prepared.upload_headers) as response:
            answers.append((response.status, dict(response.headers), await response.json()))

    assert answers[0] == answers[1]
    assert (answers[0][0], answers[0][2]["error"]["code"]) == (403, "link_forged")


async def test_put_can_be_repeated_until_it_is_complete(world: World, png: bytes) -> None:
    """The last bytes count; after the completion none are taken any more."""
    prepared = await world.prepare(len(png))
    await world.put(prepared, bytes(len(png)))

    again = await world.put(prepared, png)
    completed = await complete(world, prepared.asset_id)
    late = await world.put(prepared, bytes(len(png)))

    assert [again, completed.status, late] == [200, 200, 409]
    assert (world.config.state_dir / "assets" / prepared.asset_id).read_bytes() == png


async def test_put_during_a_completion_changes_nothing_verified(world: World, png: bytes) -> None:
    """What becomes ready is what was looked at, however many PUTs come meanwhile."""
    prepared = await world.prepare(len(png))
    await world.put(prepared, png)

    completing = asyncio.create_task(complete(world, prepared.asset_id))
    statuses = await asyncio.gather(*(world.put(prepared, bytes(len(png))) for _ in range(5)))
    completed = await completing

    kept = (world.config.state_dir / "assets" / prepared.asset_id).read_bytes()
    assert set(statuses) <= {200, 409}
    assert (completed.status, kept == png) in {(200, True), (422, False)}


async def test_upload_link_dies_after_five_minutes(world: World, png: bytes) -> None:
    """An upload URL is good for five minutes. Service section 4, upload flow 2."""
    prepared = await world.prepare(len(png))
    world.clock.advance(300)

    assert await world.put(prepared, png) == 403


async def test_completing_needs_the_bytes(world: World) -> None:
    """An asset that never arrived is not ready. Service rule 2.2.5."""
    prepared = await world.prepare(10)

    refused = await complete(world, prepared.asset_id)

    assert (refused.status, refused.code) == (422, "asset_not_ready")


@pytest.mark.parametrize("content", [b"no picture at all", b"\x89PNG\r\n\x1a\n cut off", saved("JPEG"), saved("WEBP")])
async def test_completing_needs_a_picture_of_its_type(world: World, content: bytes) -> None:
    """A file that is not an image of its declared type is refused. Service section 4, upload flow 1."""
    prepared = await world.prepare(len(content))
    await world.put(prepared, content)

    refused = await complete(world, prepared.asset_id)

    assert (refused.status, refused.code) == (422, "asset_invalid")


async def test_completion_makes_all_ready_or_none(world: World, png: bytes) -> None:
    """A bad one is named, and the good one beside it can be completed alone. Service section 4, upload flow 3."""
    good, bad = await world.prepare(len(png)), await world.prepare(len(png))
    await world.put(good, png)
    await world.put(bad, bytes(len(png)))

    refused = await world.send("POST", "/uploads/complete", body={"asset_ids": [good.asset_id, bad.asset_id]})
    states = await world.service.query("SELECT DISTINCT state FROM assets")
    alone = await complete(world, good.asset_id)

    assert (refused.status, refused.code) == (422, "asset_invalid")
    assert bad.asset_id in str(refused.body)
    assert good.asset_id not in str(refused.body)
    assert [row["state"] for row in states] == ["uploaded"]
    assert alone.status == 200


async def test_upload_with_other_bytes_than_promised_is_not_completed(world: World, png: bytes) -> None:
    """A storage that lost bytes is found out. Service section 4, upload flow 3."""
    prepared = await world.prepare(len(png))
    await world.put(prepared, png)
    (world.config.state_dir / "assets" / prepared.asset_id).write_bytes(png[:-1])

    refused = await complete(world, prepared.asset_id)

    assert (refused.status, refused.code) == (422, "asset_invalid")
    assert f"{len(png)} bytes" in str(refused.body)


async def test_large_picture_is_looked_at_in_another_process(world: World) -> None:
    """A picture of many pixels is decoded where it holds nobody up, and is ready all the same."""
    buffer = io.BytesIO()
    Image.new("RGB", (2000, 1500), "teal").save(buffer, "PNG")

    url = await world.upload(buffer.getvalue())

    assert (await world.create(edit(url))).status == 202


async def test_asset_of_another_account_cannot_be_used(world: World, png: bytes) -> None:
    """Ownership is checked at generation and at completion. Service rule 2.2.5."""
    url = await world.upload(png)
    asset_id = url.rpartition("/")[2]

    for tried in (url, url.replace("/main/", "/other/")):
        refused = await world.create(edit(tried), key="key-of-other")
        assert (refused.status, refused.code) == (422, "asset_not_found")
    assert (await complete(world, asset_id, key="key-of-other")).status == 404


async def test_asset_that_is_not_complete_cannot_be_used(world: World, png: bytes) -> None:
    """Readiness is checked at generation. Service rule 2.2.5."""
    prepared = await world.prepare(len(png))
    await world.put(prepared, png)

    refused = await world.create(edit(f"https://assets.batchkiln.invalid/main/{prepared.asset_id}"))

    assert (refused.status, refused.code) == (422, "asset_not_ready")


async def test_expired_asset_cannot_be_used(world: World, png: bytes) -> None:
    """Expiry is checked at generation. Service rule 2.2.5."""
    url = await world.upload(png)
    world.clock.advance(world.config.asset_retention_seconds)

    refused = await world.create(edit(url))

    assert (refused.status, refused.code) == (422, "asset_expired")


async def test_external_url_is_refused(world: World) -> None:
    """Images have to be uploaded first. Service rule 2.2.4."""
    refused = await world.create(edit("https://example.invalid/owl.png"))

    assert (refused.status, refused.code) == (422, "external_url_not_allowed")


@pytest.mark.parametrize(
    "files",
    [
        [],
        [{"name": "a", "type": "image/png", "size": 1}] * 6,
        [{"name": "a", "type": "image/gif", "size": 1}],
        [{"name": "a", "type": "image/png", "size": 30 * 1024 * 1024 + 1}],
        [{"name": "a", "type": "image/png", "size": 0}],
        [{"name": "a", "type": "image/png", "size": True}],
        [{"name": "a", "type": "image/png", "size": 1, "more": 1}],
        ["a"],
    ],
)
async def test_files_outside_of_the_limits_are_refused(world: World, files: list[object]) -> None:
    """Up to five files, three types, 30 MiB each. Service section 4, upload flow 1."""
    refused = await world.send("POST", "/uploads", body={"files": files})

    assert (refused.status, refused.code) == (422, "invalid_request")


async def test_upload_and_completion_count_as_uploads(world: World, png: bytes) -> None:
    """Both calls use the budget of generation and upload requests, the PUT none. Service section 8."""
    await world.upload(png)

    rows = await world.service.requests()

    assert [(row["kind"], row["budget"], row["number"]) for row in rows] == [
        ("upload", "creates", 1),
        ("upload", "creates", 2),
    ]


async def test_refund_that_is_due_is_there_for_an_upload(make_world: WorldMaker) -> None:
    """A failed generation gives its credits back by its end, whatever is asked for next. Service rules 3.1 and 5.8."""
    world = await make_world(accounts=(AccountConfig(name="main", credits=2, keys=("key-one-of-main",)),))
    await world.create(image_with(prompt="[fail]"))
    world.clock.advance(600)

    prepared = await world.send("POST", "/uploads", body={"files": [{"name": "a", "type": "image/png", "size": 9}]})

    assert prepared.status == 200, prepared.body
