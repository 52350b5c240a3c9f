"""Uploads and downloads against a real server on loopback: no key of ours, nothing half-sent, nothing told."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import aiohttp
import pytest
from yarl import URL

from batchkiln.client import ServiceClient
from batchkiln.client.transfers import LinkGuard
from batchkiln.core.responses import (
    BytesStored,
    DownloadBroken,
    DownloadStarted,
    LinkBarred,
    LinkRefused,
    NoResponse,
    NotContinued,
    OutputLink,
    TicketRefused,
    UploadTicket,
)
from integration.client.scripted_server import FakeClock, Received, Script, ScriptedServer, raw, reply, reset


async def test_an_upload_carries_the_tickets_headers_and_no_key(client: ServiceClient, server: ScriptedServer) -> None:
    """A PUT has exactly the ticket's headers beside those of HTTP itself, and its url byte for byte. Law 8."""
    server.script = reply(b"", status="200 OK")
    headers = (("x-amz-acl", "private"), ("content-type", "image/png"), ("Content-Length", "6"))
    ticket = UploadTicket("a1", f"{server.origin}/put/a%2fb?sig=%2b+%7E", headers)

    result = await client.put_upload(ticket, lambda: pieces(b"abc", b"def"), 6)

    (request,) = server.requests
    assert result == BytesStored()
    assert (request.line, request.body) == ("PUT /put/a%2fb?sig=%2b+%7E HTTP/1.1", b"abcdef")
    assert set(headers) <= set(request.headers)
    assert {name.lower() for name, _ in request.headers} - {name.lower() for name, _ in headers} == {
        "host",
        "user-agent",
    }


async def pieces(*chunks: bytes) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ("403 Forbidden", TicketRefused("the storage answered 403")),
        ("503 Busy", NoResponse("the storage answered 503")),
        ("307 Temporary Redirect", NoResponse("the storage answered 307")),
    ],
)
async def test_storage_refusals_are_distinguished_from_its_troubles(
    client: ServiceClient, server: ScriptedServer, status: str, expected: object
) -> None:
    """A 4xx needs a new ticket; anything else is tried again with the same one."""
    server.script = reply(b"", "Location: /x", status=status)

    assert await client.put_upload(UploadTicket("a", server.origin, ()), lambda: pieces(b"abc"), 3) == expected


@pytest.mark.parametrize("chunks", [(b"ab",), (b"abc", b"d")])
async def test_a_file_that_changed_is_not_stored(
    client: ServiceClient, server: ScriptedServer, chunks: tuple[bytes, ...]
) -> None:
    """Fewer or more bytes than announced break the upload off at once instead of storing another file."""
    server.script = reply(b"", status="200 OK")

    result = await client.put_upload(UploadTicket("a", server.origin, ()), lambda: pieces(*chunks), 3)

    assert result == NoResponse("the file changed while it was sent")
    assert server.requests == []


async def test_what_reading_the_file_raises_reaches_the_caller(client: ServiceClient, server: ScriptedServer) -> None:
    """An unreadable local file is not mistaken for a fault of the network."""

    async def unreadable() -> AsyncIterator[bytes]:
        yield b"a"
        raise PermissionError(13, "no")

    with pytest.raises(PermissionError):
        await client.put_upload(UploadTicket("a", server.origin, ()), unreadable, 3)


async def test_a_ticket_for_another_length_is_refused(client: ServiceClient, server: ScriptedServer) -> None:
    """The announced length belongs to the signature, so another one cannot be sent."""
    ticket = UploadTicket("a", server.origin, (("content-length", "4"),))

    assert isinstance(await client.put_upload(ticket, lambda: pieces(b"abc"), 3), TicketRefused)
    assert server.requests == []


@asynccontextmanager
async def opened(client: ServiceClient, server: ScriptedServer, **more: object) -> AsyncIterator[object]:
    link = OutputLink("image", f"{server.origin}/o/a%2fb.png?sig=%2bcanary", None)
    async with client.download(link, **more) as started:  # type: ignore[arg-type]  # a test helper's freedom
        yield started


async def test_a_download_needs_no_key(client: ServiceClient, server: ScriptedServer) -> None:
    """A signed link is fetched byte for byte and without our key. Law 8."""
    server.script = reply(b"abcdef", 'ETag: "v1"', status="200 OK", kind="image/png")

    async with opened(client, server) as started:
        assert isinstance(started, DownloadStarted)
        received = b"".join([chunk async for chunk in started.chunks])

    assert (received, started.total_bytes, started.etag, started.media_type) == (b"abcdef", 6, '"v1"', "image/png")
    assert server.requests[0].line == "GET /o/a%2fb.png?sig=%2bcanary HTTP/1.1"
    assert server.requests[0].header("Authorization") is None


async def test_a_download_is_continued_by_range(client: ServiceClient, server: ScriptedServer) -> None:
    """The rest is asked for only of the same file, and says where it begins."""
    server.script = reply(b"def", "Content-Range: bytes 3-5/6", 'ETag: "v1"', status="206 Partial Content")

    async with opened(client, server, offset_bytes=3, etag='"v1"') as started:
        assert isinstance(started, DownloadStarted)
        assert (started.offset_bytes, started.total_bytes) == (3, 6)

    assert server.requests[0].header("Range") == "bytes=3-"
    assert server.requests[0].header("If-Range") == '"v1"'


@pytest.mark.parametrize("etag", [None, 'W/"v1"'])
async def test_without_a_strong_etag_a_download_starts_over(
    client: ServiceClient, server: ScriptedServer, etag: str | None
) -> None:
    """The rest could be of another file, so the whole is fetched."""
    server.script = reply(b"abcdef", status="200 OK")

    async with opened(client, server, offset_bytes=3, etag=etag) as started:
        assert isinstance(started, DownloadStarted)
        assert started.offset_bytes == 0

    assert server.requests[0].header("Range") is None


@pytest.mark.parametrize(
    "script",
    [
        reply(b"def", "Content-Range: bytes 3-5/6", 'ETag: "v2"', status="206 Partial Content"),
        reply(b"def", "Content-Range: bytes 3-5/6", 'ETag: W/"v1"', status="206 Partial Content"),
        reply(b"def", "Content-Range: bytes 3-5/6", status="206 Partial Content"),
        reply(b"cde", "Content-Range: bytes 2-4/6", 'ETag: "v1"', status="206 Partial Content"),
        reply(b"abc", "Content-Range: bytes 0-2/6", 'ETag: "v1"', status="206 Partial Content"),
        reply(b"def", f"Content-Range: bytes 3-5/{'9' * 5000}", 'ETag: "v1"', status="206 Partial Content"),
        reply(b"def", f"Content-Range: bytes {'3' * 5000}-5/6", 'ETag: "v1"', status="206 Partial Content"),
        reply(b"def", "Content-Range: bytes */6", 'ETag: "v1"', status="206 Partial Content"),
        reply(b"--x", 'ETag: "v1"', status="206 Partial Content", kind="multipart/byteranges; boundary=x"),
        reply(b"", "Content-Range: bytes */2", status="416 Range Not Satisfiable"),
    ],
)
async def test_another_file_or_part_is_not_joined(
    client: ServiceClient, server: ScriptedServer, script: Script
) -> None:
    """Law 7: the rest counts only where it is that of the same file, from the very place that was asked for."""
    server.script = script

    async with opened(client, server, offset_bytes=3, etag='"v1"') as started:
        assert isinstance(started, NotContinued)


async def test_whole_file_in_place_of_its_rest_starts_over(client: ServiceClient, server: ScriptedServer) -> None:
    """A 200 to a request for a range is the file as it is now, from its beginning."""
    server.script = reply(b"other!", 'ETag: "v2"', status="200 OK")

    async with opened(client, server, offset_bytes=3, etag='"v1"') as started:
        assert isinstance(started, DownloadStarted)
        assert (started.offset_bytes, started.total_bytes, started.etag) == (0, 6, '"v2"')


async def test_trickling_download_is_broken_off(
    client: ServiceClient, server: ScriptedServer, jump: Callable[[float], None]
) -> None:
    """A byte now and then, never long enough apart for a timeout, is no download: its place is wanted by others."""
    more = asyncio.Event()

    async def trickle(_request: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9000000\r\n\r\n")
        while True:
            writer.write(b"a")
            await more.wait()
            more.clear()

    server.script = trickle
    async with opened(client, server) as started:
        assert isinstance(started, DownloadStarted)
        chunks = started.chunks

        async def read_all() -> None:
            for seconds in range(0, 200, 20):
                asked = asyncio.ensure_future(anext(chunks))
                await asyncio.sleep(0)
                jump(seconds)
                more.set()
                await asked

        with pytest.raises(DownloadBroken, match="fewer than 65536 bytes came in 30 seconds"):
            await read_all()


async def test_link_from_https_to_http_is_not_followed(server: ScriptedServer, session: aiohttp.ClientSession) -> None:
    """What the service gave in secret is not asked for in clear, unless the profile allows it."""
    link, ticket = OutputLink("image", f"{server.origin}/a?sig=canary", None), UploadTicket("a", server.origin, ())
    client = new_client(session)

    async with client.download(link) as started:
        assert isinstance(started, LinkBarred)
    refused = await client.put_upload(ticket, lambda: pieces(b"abc"), 3)

    assert isinstance(refused, TicketRefused)
    assert "allow_http_links" in started.reason
    assert "canary" not in started.reason
    assert server.requests == []


async def test_link_from_https_to_http_is_followed_where_allowed(
    server: ScriptedServer, session: aiohttp.ClientSession
) -> None:
    """A person may know that the way to the storage is safe."""
    server.script = reply(b"abc", status="200 OK")

    async with new_client(session, allows_http_links=True).download(
        OutputLink("image", f"{server.origin}/a", None)
    ) as started:
        assert isinstance(started, DownloadStarted)


def new_client(session: aiohttp.ClientSession, *, allows_http_links: bool = False) -> ServiceClient:
    return ServiceClient(
        session,
        base_url="https://127.0.0.1/api/v1",
        keys={"k-1": "key"},
        clock=FakeClock(),
        allows_http_links=allows_http_links,
    )


@pytest.mark.parametrize(
    ("origin", "url", "is_barred"),
    [
        ("https://a/", "http://a/x", True),
        ("https://a/", "https://b/x", False),
        ("http://a/", "http://b/x", False),
        ("http://a/", "https://b/x", False),
    ],
)
def test_each_step_of_a_link_is_judged(origin: str, url: str, *, is_barred: bool) -> None:
    """A redirect is a step like the first one: only from https to http is something lost."""
    assert (LinkGuard(URL("https://a/")).rejection(URL(origin), URL(url)) is not None) is is_barred
    assert LinkGuard(URL("https://a/"), allows_http=True).rejection(URL(origin), URL(url)) is None


async def test_redirects_end(client: ServiceClient, server: ScriptedServer) -> None:
    """A storage that leads in a circle is left after three steps."""
    server.script = reply(b"", "Location: /again", status="302 Found")

    async with opened(client, server) as started:
        assert isinstance(started, NoResponse)

    assert len(server.requests) == 4


@pytest.mark.parametrize("is_closed", [True, False])
async def test_a_broken_download_says_so_without_the_link(
    client: ServiceClient, server: ScriptedServer, jump: Callable[[float], None], *, is_closed: bool
) -> None:
    """Cut off or gone silent: what came is given, then the break is raised, without the signed link. Law 8."""
    server.script = raw(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", close=is_closed)

    async with opened(client, server) as started:
        assert isinstance(started, DownloadStarted)
        received = await anext(started.chunks)
        jump(31)
        with pytest.raises(DownloadBroken) as broken:
            await anext(started.chunks)

    assert received == b"abc"
    assert "canary" not in f"{broken.value!r} {broken.value.__cause__!r} {broken.value.__context__!r}"


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        (reply(b"", status="403 Forbidden"), LinkRefused(403)),
        (reply(b"", status="410 Gone"), LinkRefused(410)),
        (reply(b"", status="503 Busy"), NoResponse("the storage answered 503")),
        (reply(b"", status="429 Slow"), NoResponse("the storage answered 429")),
        (reply(b"x", "Content-Range: bytes 0-0/10", status="206 Partial Content"), None),
        (reset, None),
    ],
)
async def test_a_download_that_does_not_start(
    client: ServiceClient, server: ScriptedServer, script: Script, expected: object
) -> None:
    """An expired link is told from a storage that is only in trouble."""
    server.script = script

    async with opened(client, server) as started:
        assert started == expected or (expected is None and isinstance(started, NoResponse))


async def test_the_body_of_a_download_may_raise_its_own(client: ServiceClient, server: ScriptedServer) -> None:
    """What the caller raises inside the context is not mistaken for a fault of the network."""
    server.script = reply(b"abcdef", status="200 OK")

    with pytest.raises(OSError, match="disk"):
        async with opened(client, server):
            raise OSError("disk")


async def test_a_download_follows_a_redirect_of_the_storage(client: ServiceClient, server: ScriptedServer) -> None:
    """A link may lead on to where the file is: that is another request, and not one sent twice."""
    whole = reply(b"abcdef", status="200 OK")

    async def redirect_once(request: Received, writer: asyncio.StreamWriter) -> None:
        is_first = len(server.requests) == 1
        await (reply(b"", "Location: /there", status="302 Found") if is_first else whole)(request, writer)

    server.script = redirect_once

    async with opened(client, server) as started:
        assert isinstance(started, DownloadStarted)
        assert await anext(started.chunks) == b"abcdef"
