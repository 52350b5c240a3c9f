"""Downloads: conditions, parts, and links of every kind."""

import asyncio
import hashlib
import socket
from urllib.parse import urlsplit

import pytest

from batchkiln_service.transport.links import Links

from .service_world import IMAGE, Reply, World, WorldMaker, image_with

RETENTION_SECONDS = 14 * 86_400


async def finished(world: World, body: object = None) -> tuple[str, bytes]:
    """Give the link of a finished generation, and what is there."""
    url = (await world.finish(await world.create(body))).output["url"]
    return url, (await get(world, url)).content


async def get(world: World, url: str, *, method: str = "GET", **headers: str) -> Reply:
    return await world.send(method, url, key=None, headers={name.replace("_", "-"): headers[name] for name in headers})


async def test_headers_tell_what_the_file_is(world: World) -> None:
    """Length, type, name, hash and date are exact, and the same for GET and HEAD; nobody shares what is private."""
    url, content = await finished(world)

    whole, head = await get(world, url), await get(world, url, method="HEAD")

    told = ["Content-Length", "Content-Type", "Content-Disposition", "Etag", "Last-Modified", "Accept-Ranges"]
    assert [whole.headers[name] for name in told] == [head.headers[name] for name in told]
    assert whole.headers["Content-Length"] == str(len(content))
    assert whole.headers["Etag"] == f'"{hashlib.sha256(content).hexdigest()}"'
    assert whole.headers["Content-Disposition"] == f'inline; filename="{urlsplit(url).path.split("/")[-2]}.png"'
    assert "private" in whole.headers["Cache-Control"]
    assert (head.status, head.content) == (200, b"")


async def test_download_continues_where_it_broke_off(world: World) -> None:
    """A part with If-Range joins the part before, also after the link was renewed and by date. Service section 2.1."""
    url, content = await finished(world)
    first = await get(world, url, Range="bytes=0-999")
    fresh = (await world.poll(urlsplit(url).path.split("/")[-2])).output["url"]

    by_tag = await get(world, fresh, Range="bytes=1000-", If_Range=first.headers["Etag"])
    by_date = await get(world, fresh, Range="bytes=1000-", If_Range=first.headers["Last-Modified"])

    assert [first.status, by_tag.status, by_date.status] == [206, 206, 206]
    assert first.headers["Content-Range"] == f"bytes 0-999/{len(content)}"
    assert first.content + by_tag.content == first.content + by_date.content == content


async def test_part_of_another_file_is_not_sent(world: World) -> None:
    """If-Range that names something else gets the whole file."""
    url, content = await finished(world)

    got = await get(world, url, Range="bytes=1000-", If_Range='"another"')

    assert (got.status, got.content) == (200, content)


async def test_part_beyond_the_end_is_a_json_416(world: World) -> None:
    """It says how many bytes there are."""
    url, content = await finished(world)

    got = await get(world, url, Range=f"bytes={len(content)}-")

    assert (got.status, got.code) == (416, "range_not_satisfiable")
    assert got.headers["Content-Range"] == f"bytes */{len(content)}"


async def test_known_file_is_not_sent_again(world: World) -> None:
    """304 by ETag and by date, 412 for a file that is not meant."""
    url, _ = await finished(world)
    head = await get(world, url, method="HEAD")

    by_tag = await get(world, url, If_None_Match=head.headers["Etag"])
    by_date = await get(world, url, If_Modified_Since=head.headers["Last-Modified"])
    not_meant = await get(world, url, If_Match='"another"')

    assert [by_tag.status, by_date.status, not_meant.status] == [304, 304, 412]
    assert by_tag.content == b""
    assert by_tag.headers["Etag"] == head.headers["Etag"]


async def test_file_drawn_again_is_the_same_one(world: World) -> None:
    """ETag and date survive a restart and the loss of the file, so that a download can go on."""
    url, content = await finished(world)
    before = await get(world, url, method="HEAD")
    await world.stop()
    for path in (world.config.state_dir / "media").iterdir():
        path.write_bytes(b"half of it")
    await world.start()
    world.clock.advance(5)

    after = await get(world, url, Range="bytes=9-", If_Range=before.headers["Last-Modified"])

    assert (after.status, after.content) == (206, content[9:])
    assert after.headers["Etag"] == before.headers["Etag"]


async def test_output_that_cannot_be_drawn_again_is_not_found(world: World, png: bytes) -> None:
    """If both the file and its inputs are gone, the reply is a 404 and not a server error."""
    asset = await world.upload(png)
    url, _ = await finished(world, {**IMAGE, "mode": "image-to-image", "inputs": [{"type": "image", "url": asset}]})
    for folder in ("media", "assets"):
        for path in (world.config.state_dir / folder).iterdir():
            path.unlink()

    got = await get(world, url)

    assert (got.status, got.code) == (404, "not_found")


@pytest.mark.parametrize(
    "query",
    [
        "",
        "?",
        "?expires=1",
        "?expires=\u0661\u0662&nonce=0123456789abcdef&signature=a",
        f"?expires={'9' * 5000}&nonce=0123456789abcdef&signature=a",
        "?expires=1&expires=2&nonce=0123456789abcdef&signature=a",
        "?expires=1&nonce=0123456789abcdef&signature=%ED%A0%80",
        "?expires=1&nonce=0123456789abcdef&signature=%FF%00",
        "?expires[]=1&nonce[]=2&signature[]=3",
    ],
)
async def test_link_that_was_not_given_is_refused(world: World, query: str) -> None:
    """No link, and any other query, is a JSON 403; never an accident."""
    for path in (
        "/storage/outputs/gen_1/0.png",
        "/storage/outputs/..%2f..%2fservice.db/0.png",
        "/storage/outputs/%00/%ff",
    ):
        got = await get(world, world.service.base_url.removesuffix("/api/v1") + path + query)
        assert (got.status, got.code) == (403, "link_forged")


async def test_signed_link_to_nothing_is_not_found(world: World) -> None:
    """A good link to what is not there is a 404; so is one to a generation that is still under way."""
    created = await world.create()
    await world.service.idle()
    secret = (await world.service.query("SELECT value FROM settings WHERE name = 'link_secret'"))[0]["value"]
    links = Links(bytes.fromhex(str(secret)))

    for path in ("/storage/outputs/gen_none/0.png", f"/storage/outputs/{created.body['id']}/0.png"):
        link = links.sign("GET", path, world.clock.now_ms() + 1000)
        got = await get(world, world.service.base_url.removesuffix("/api/v1") + link)
        assert (got.status, got.code) == (404, "not_found")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
async def test_other_methods_are_not_allowed(world: World, method: str) -> None:
    """An output can be read and nothing else."""
    url, _ = await finished(world)

    assert (await get(world, url, method=method)).status == 405


async def test_retention_that_ends_does_not_cut_a_download(world: World) -> None:
    """Who has begun to read a file gets all of it, while nobody else gets it any more. Service section 2.1."""
    url, _ = await finished(world, image_with(model="delta-image-2", parameters={"resolution": "1536x1024"}))
    path = next((world.config.state_dir / "media").iterdir())
    content = await _grown(world, path.name)
    end_ms = (await world.service.query("SELECT ended_at_ms FROM generations"))[0]["ended_at_ms"]
    assert isinstance(end_ms, int)
    world.clock.advance(RETENTION_SECONDS - 300 + (end_ms - world.clock.now_ms()) / 1000)
    url = (await world.poll(urlsplit(url).path.split("/")[-2])).output["url"]

    async with world.session.get(url) as response:
        begun = await response.content.read(1000)
        world.clock.advance(300)
        await world.service.retention_done()
        is_gone = not path.exists()
        rest = await response.content.read()

    assert is_gone
    assert begun + rest == content
    assert (await get(world, url)).status in {403, 404}


async def test_client_that_does_not_read_is_cut_off(make_world: WorldMaker) -> None:
    """Nobody can hold a connection and a file for ever by not reading."""
    world = await make_world(unread_seconds=0.3)
    url, _ = await finished(world)
    await _grown(world, next((world.config.state_dir / "media").iterdir()).name)
    parts = urlsplit(url)
    lazy = socket.socket()
    lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    lazy.setblocking(False)  # noqa: FBT003 - the name of the setting says it
    loop = asyncio.get_running_loop()
    await loop.sock_connect(lazy, (parts.hostname, parts.port))

    await loop.sock_sendall(lazy, f"GET {parts.path}?{parts.query} HTTP/1.1\r\nHost: x\r\n\r\n".encode())

    with lazy:
        async with asyncio.timeout(10):
            received = await _read_slowly_to_the_end(lazy)
    assert received < GROWN_BYTES


GROWN_BYTES = 40_000_000


async def _grown(world: World, file_name: str) -> bytes:
    """Make an output larger than what sockets hold back."""
    content = bytes(range(256)) * (GROWN_BYTES // 256)
    (world.config.state_dir / "media" / file_name).write_bytes(content)
    await world.service.query(f"UPDATE outputs SET size_bytes = {len(content)}")
    return content


async def _read_slowly_to_the_end(sock: socket.socket) -> int:
    """Read nothing until the other side has given up, then what is left."""
    loop, received = asyncio.get_running_loop(), 0
    await asyncio.sleep(1.5)  # real time: it is what the service measures
    while True:
        try:
            chunk = await loop.sock_recv(sock, 1 << 20)
        except ConnectionResetError:
            return received
        if not chunk:
            return received
        received += len(chunk)
