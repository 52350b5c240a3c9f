"""The client against a real server on loopback that misbehaves: what it sends, and what it makes of faults."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import aiohttp
import pytest
from structlog.testing import capture_logs

from batchkiln.client import ServiceClient, fingerprint
from batchkiln.client.client import REPLY_MAX_BYTES
from batchkiln.core.errors import InputError, InvariantBroken, LeaseLost
from batchkiln.core.responses import (
    Accepted,
    AssetsReady,
    BalanceRead,
    CatalogRead,
    NoResponse,
    Quoted,
    UploadsPrepared,
    UploadTicket,
)
from integration.client.scripted_server import (
    BODY,
    KEY,
    OLD_KEY,
    RECORD,
    FakeClock,
    Received,
    Script,
    ScriptedServer,
    create,
    raw,
    reply,
    reset,
    silence,
)


async def test_create_sends_exactly_the_stored_bytes(client: ServiceClient, server: ScriptedServer) -> None:
    """A create carries the stored bytes, the stored idempotency key and the attempt's API key. Service rule 4.2."""
    result = await create(client)

    (request,) = server.requests
    assert isinstance(result, Accepted)
    assert (request.line, request.body) == ("POST /api/v1/images HTTP/1.1", BODY)
    assert request.header("Idempotency-Key") == "key-0123456789abcdef"
    assert request.header("Authorization") == f"Bearer {OLD_KEY}"
    assert request.header("Content-Type") == "application/json"


async def test_guard_that_raises_keeps_a_request_back(
    session: aiohttp.ClientSession, server: ScriptedServer, clock: FakeClock
) -> None:
    """Between the call and the first byte a connection is made: who may send no more by then sends nothing."""

    def guard() -> None:
        raise LeaseLost("another worker drives the account")

    client = ServiceClient(
        session,
        base_url=f"{server.origin}/api/v1",
        keys={fingerprint(KEY): KEY, fingerprint(OLD_KEY): OLD_KEY},
        clock=clock,
        guard=guard,
    )

    with pytest.raises(LeaseLost):
        await create(client)
    with pytest.raises(LeaseLost):
        await client.describe()

    assert server.requests == []


CALLS: list[tuple[Callable[[ServiceClient], Awaitable[object]], str, bytes, bytes, object]] = [
    (
        lambda client: client.quote(BODY),
        "POST /api/v1/quotes",
        BODY,
        b'{"cost_credits": 7}',
        Quoted(7),
    ),
    (
        lambda client: client.prepare_uploads([("é.png", "image/png", 3)]),
        "POST /api/v1/uploads",
        '{"files":[{"name":"é.png","type":"image/png","size":3}]}'.encode(),
        b'{"files": [{"asset_id": "a", "upload_url": "https://h/p"}]}',
        UploadsPrepared((UploadTicket("a", "https://h/p", ()),)),
    ),
    (
        lambda client: client.complete_uploads(["a", "b"]),
        "POST /api/v1/uploads/complete",
        b'{"asset_ids":["a","b"]}',
        b'{"assets": [{"url": "https://h/a"}, {"url": "https://h/b"}]}',
        AssetsReady(("https://h/a", "https://h/b")),
    ),
    (lambda client: client.models(), "GET /api/v1/models", b"", b"[]", CatalogRead(())),
    (lambda client: client.balance(), "GET /api/v1/credits/balance", b"", b'{"balance": 5}', BalanceRead(5)),
]


@pytest.mark.parametrize(("call", "line", "body", "answer", "expected"), CALLS)
async def test_the_other_calls_send_what_is_documented(
    client: ServiceClient,
    server: ScriptedServer,
    *,
    call: Callable[[ServiceClient], Awaitable[object]],
    line: str,
    body: bytes,
    answer: bytes,
    expected: object,
) -> None:
    """Method, path and body are those of the document, under the newest key. Service rule 5.1."""
    server.script = reply(answer, status="200 OK")

    result = await call(client)

    (request,) = server.requests
    assert (result, request.line, request.body) == (expected, f"{line} HTTP/1.1", body)
    assert request.header("Authorization") == f"Bearer {KEY}"
    assert request.header("Idempotency-Key") is None


@pytest.mark.parametrize("base_url", ["", "host/api", "ftp://host", "https://user:pw@host", "https://host/?key=1"])
async def test_a_base_url_that_cannot_be_called_is_a_mistake(
    session: aiohttp.ClientSession, clock: FakeClock, base_url: str
) -> None:
    """It is found when the program starts, and what is wrong with it is said."""
    with pytest.raises(InputError, match="base URL"):
        ServiceClient(session, base_url=base_url, keys={}, clock=clock)


async def test_more_files_than_a_request_takes_are_our_bug(client: ServiceClient, server: ScriptedServer) -> None:
    """The caller splits them into requests of five. Service section 8."""
    with pytest.raises(InvariantBroken):
        await client.prepare_uploads([("a.png", "image/png", 1)] * 6)

    assert server.requests == []


async def test_no_origin_and_no_cookie_is_ever_sent(client: ServiceClient, server: ScriptedServer) -> None:
    """Requests with an Origin are rejected by the service, and a cookie would be state. Service rule 5.5."""
    server.script = reply(RECORD, "Set-Cookie: session=1; Path=/")

    await create(client, is_video=True)
    await create(client, is_video=True)

    assert [request.line for request in server.requests] == ["POST /api/v1/videos HTTP/1.1"] * 2
    names = {name.lower() for request in server.requests for name, _ in request.headers}
    assert not names & {"origin", "cookie", "referer"}


async def test_an_id_is_one_path_segment(client: ServiceClient, server: ScriptedServer) -> None:
    """Whatever the service gives as id cannot lead to another address."""
    for generation_id in ("../credits/balance?x=1", "..", "a b/é"):
        await client.read_generation(generation_id, key_fingerprint=client.newest_key)

    assert [request.line.split()[1] for request in server.requests] == [
        "/api/v1/generations/..%2Fcredits%2Fbalance%3Fx%3D1",
        "/api/v1/generations/%2E%2E",
        "/api/v1/generations/a%20b%2F%C3%A9",
    ]


async def test_the_description_is_read_without_a_key(client: ServiceClient, server: ScriptedServer) -> None:
    """The public document needs no authentication, and no cache may answer in its place. Service rule 5.9."""
    server.script = reply(b'{"openapi": "3.1.0", "info": {"title": "T", "version": "1"}}', status="200 OK")

    await client.describe()

    assert server.requests[0].header("Authorization") is None
    assert server.requests[0].header("Cache-Control") == "no-cache"


async def test_a_poll_is_not_resent_on_a_closed_connection(client: ServiceClient, server: ScriptedServer) -> None:
    """A kept connection that is dropped at the second poll gives a lost reply, no third request. Service rule 4.4."""
    await client.read_generation("gen_1", key_fingerprint=client.newest_key)
    server.script = reset

    result = await client.read_generation("gen_1", key_fingerprint=client.newest_key)

    assert isinstance(result, NoResponse)
    assert [request.connection for request in server.requests] == [1, 1]


async def test_aiohttp_alone_would_resend_the_poll(server: ScriptedServer) -> None:
    """The guard above is needed: without it the same closed connection brings the request twice."""
    async with aiohttp.ClientSession() as bare:
        async with bare.get(server.origin) as response:
            await response.read()
        server.script = reset
        with pytest.raises(aiohttp.ClientConnectionError):
            await bare.get(server.origin)

    assert [request.connection for request in server.requests] == [1, 1, 2]


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (reset, "closed"),
        (raw(b"HTTP/1.1 202 Accepted\r\nContent-Length: 500\r\n\r\n", RECORD), "cut off"),
        (raw(b"HTTP/1.1 202 Accepted\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", RECORD), ""),
        (raw(b"HTTP/1.1 202 Accepted\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{", RECORD[1:5]), ""),
        (raw(b"HTTP/1.1 202 Accepted\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nnope"), ""),
        (raw(b"220 smtp.example ESMTP\r\n\r\n"), ""),
        (raw(b"HTTP/1.1 202 Accepted\r\n\r\n", RECORD[:40]), "answers, but not like this API"),
        (reply(RECORD[:60]), "answers, but not like this API"),
        (reply(b"<html><title>Sign in</title>", status="200 OK", kind="text/html"), "Sign in"),
        (reply(b"", "Location: /elsewhere", status="307 Temporary Redirect"), "path of the base URL"),
        (reply(b" " * (REPLY_MAX_BYTES + 1)), "longer than"),
    ],
)
async def test_a_create_without_a_whole_reply_has_no_outcome(
    client: ServiceClient, server: ScriptedServer, script: Script, reason: str
) -> None:
    """Whatever breaks on the way back, a create is neither accepted nor refused, and is sent once. Law 2."""
    server.script = script

    result = await create(client)

    assert isinstance(result, NoResponse)
    assert reason in result.reason
    assert len(server.requests) == 1


async def test_a_silent_service_is_no_response(
    client: ServiceClient, server: ScriptedServer, jump: Callable[[float], None]
) -> None:
    """Nothing comes within the time that is allowed: the create has no outcome, and is sent once. Law 2."""
    server.script = silence
    call = asyncio.ensure_future(create(client))
    await server.has_heard.wait()

    jump(61)
    result = await call

    assert isinstance(result, NoResponse)
    assert "no answer came in time" in result.reason
    assert len(server.requests) == 1


async def test_an_unreachable_service_is_no_response(session: aiohttp.ClientSession, clock: FakeClock) -> None:
    """A refused connection is a value, and nothing is retried."""
    with socket.socket() as held:  # bound and not listening: nobody else can get the port meanwhile
        held.bind(("127.0.0.1", 0))
        origin = f"http://127.0.0.1:{held.getsockname()[1]}"
        client = ServiceClient(session, base_url=origin, keys={fingerprint(KEY): KEY}, clock=clock)

        assert await create_with(client, KEY) == NoResponse("could not connect (Connection refused)")


async def create_with(client: ServiceClient, key: str) -> object:
    return await client.create(
        is_video=False, body=BODY, idempotency_key="key-0123456789abcdef", key_fingerprint=fingerprint(key)
    )


async def test_cancellation_passes(client: ServiceClient, server: ScriptedServer) -> None:
    """A canceled call ends as canceled: it is no fault of the network."""
    arrived = asyncio.Event()

    async def hang(_: Received, __: asyncio.StreamWriter) -> None:
        arrived.set()

    server.script = hang
    call = asyncio.ensure_future(create(client))
    await arrived.wait()

    call.cancel()

    with pytest.raises(asyncio.CancelledError):
        await call


async def test_every_reply_tells_the_clock_its_date(
    client: ServiceClient, server: ScriptedServer, clock: FakeClock
) -> None:
    """The service's time is learned from errors as well as from successes (contract, section 6)."""
    dated = "Date: Sat, 21 Nov 2026 10:00:00 GMT"
    server.script = reply(b"{}", dated, status="503 Service Unavailable")
    await create(client)
    server.script = reply(b"{}", "Date: yesterday", status="200 OK")
    await create(client)

    assert clock.observed == [(datetime(2026, 11, 21, 10, tzinfo=UTC), 1.0, 2.0)]


@pytest.mark.parametrize(
    ("ages", "is_observed"),
    [
        ((), True),
        (("Age: 0",), True),
        (("Age: 1800",), False),
        (("Age: -1",), False),
        (("Age: soon",), False),
        (("Age: 0", "Age: 60"), False),
    ],
)
async def test_a_stored_copy_does_not_tell_the_time(
    client: ServiceClient, server: ScriptedServer, clock: FakeClock, *, ages: tuple[str, ...], is_observed: bool
) -> None:
    """Law 5: a cache answers with the Date of its copy; a reply with an Age may be such a one (RFC 9111)."""
    server.script = reply(b"{}", "Date: Sat, 21 Nov 2026 10:00:00 GMT", *ages, status="200 OK")

    await client.describe()

    assert bool(clock.observed) is is_observed


@pytest.mark.parametrize("body", [b"<html>Bad Gateway</html>", b"", b'"upstream"', b"[]", b"{"])
async def test_a_page_of_a_proxy_does_not_tell_the_time(
    client: ServiceClient, server: ScriptedServer, clock: FakeClock, body: bytes
) -> None:
    """Law 5: only a JSON object is a reply of the API, whatever stands before it has a clock of its own."""
    server.script = reply(body, "Date: Sat, 21 Nov 2026 10:00:00 GMT", status="502 Bad Gateway")

    await create(client)

    assert clock.observed == []


async def test_the_key_is_never_shown(client: ServiceClient, server: ScriptedServer) -> None:
    """No repr, log or error message contains the key, even if a reply echoes it. Law 8."""
    server.script = reply(f'{{"code":"bad","message":"Bearer {OLD_KEY} / {KEY}"}}'.encode(), status="401 No")
    with capture_logs() as logged:
        refused = await create(client)
        server.script = reset
        lost = await create(client)

    shown = f"{client!r} {client} {vars(client)!r} {refused!r} {lost!r} {logged!r}"
    assert "canary" not in shown
    assert [entry["event"] for entry in logged] == ["reply_lost"]
