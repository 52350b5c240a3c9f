"""Slow clients, many clients, and clients whose HTTP cannot be read."""

import asyncio
import logging

import pytest

from .raw import PATIENCE_SECONDS, Line, connect, told, until
from .service_world import WorldMaker

SHORT_SECONDS = 0.05
REQUEST = b"GET /api/v1/openapi.json HTTP/1.1\r\nHost: x\r\n\r\n"
ONE_REQUEST = REQUEST[:-2] + b"Connection: close\r\n\r\n"
UNREADABLE = {
    "no http": b"\x16\x03\x01\x02\x00 hello\r\n\r\n",
    "long line": b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    "long header": b"GET / HTTP/1.1\r\nHost: x\r\nX-Long: " + b"a" * 9000 + b"\r\n\r\n",
    "many headers": b"GET / HTTP/1.1\r\nHost: x\r\n" + b"".join(b"X-%d: y\r\n" % n for n in range(500)) + b"\r\n",
    "bad header": b"GET / HTTP/1.1\r\nHost: x\r\nno colon here\r\n\r\n",
    "two lengths": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
    "length and chunks": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\nabc",
    "negative length": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
}


def status_of(answer: bytes) -> int:
    """Return the status of a reply; 0 for none."""
    return int(answer.split(b" ", 2)[1]) if answer else 0


async def test_connection_that_sends_nothing_is_closed(make_world: WorldMaker) -> None:
    """A head has to arrive whole within its time, however little of it comes."""
    world = await make_world(head_seconds=SHORT_SECONDS)
    line = await connect(world.service)

    answer = await line.rest()

    await line.close()
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b'{"error":{"code":"request_timeout"' in answer


async def test_head_that_comes_byte_by_byte_is_not_waited_for(make_world: WorldMaker) -> None:
    """Bytes that keep coming do not buy time."""
    world = await make_world(head_seconds=0.2)
    line = await connect(world.service)

    async def drip() -> None:
        await line.say(b"GET / HTTP/1.1\r\nX-Slow: ")
        while not line.reader.at_eof():
            line.writer.write(b"a")
            await asyncio.sleep(0.01)

    dripping = asyncio.create_task(drip())
    answer = await line.rest()
    dripping.cancel()
    await asyncio.gather(dripping, return_exceptions=True)

    await line.close()
    assert answer == b"" or answer.startswith(b"HTTP/1.1 408 ")


async def test_second_head_is_bounded_too(make_world: WorldMaker) -> None:
    """A connection that was served once may not be held open by half of the next request."""
    world = await make_world(head_seconds=0.5)
    line = await connect(world.service)
    await line.say(REQUEST)
    served = await line.head()
    await line.say(b"GET /api")

    answer = await line.rest()

    await line.close()
    assert served.startswith(b"HTTP/1.1 200 ")
    assert b"HTTP/1.1 408 " in answer


async def test_idle_connection_is_closed_after_its_time(make_world: WorldMaker) -> None:
    """Between two requests a connection is kept, but not for ever, and closed without a word."""
    world = await make_world(idle_seconds=SHORT_SECONDS, head_seconds=PATIENCE_SECONDS * 10)
    line = await connect(world.service)
    await line.say(REQUEST)
    await line.head()

    answer = await line.rest()

    await line.close()
    assert b"HTTP/1.1" not in answer


async def test_request_under_way_is_not_hurried(make_world: WorldMaker) -> None:
    """The bounds are for what is waited for from a client, not for how long the service takes itself."""
    world = await make_world(head_seconds=SHORT_SECONDS, idle_seconds=SHORT_SECONDS)
    world.service.faults.add("slow", seconds=60)
    asleep = len(world.clock._sleepers)
    line = await connect(world.service)
    await line.say(REQUEST)
    await until(lambda: len(world.clock._sleepers) > asleep)
    impatient = await connect(world.service)
    await impatient.rest()  # closed, and so the bound has passed for the other one as well

    world.clock.advance(61)
    answer = await line.head()

    await impatient.close()
    await line.close()
    assert answer.startswith(b"HTTP/1.1 200 ")


async def test_client_that_does_not_read_is_dropped(make_world: WorldMaker) -> None:
    """Replies that nobody reads do not pile up, and hold no connection for ever."""
    world = await make_world(unread_seconds=SHORT_SECONDS)
    line = await connect(world.service)
    line.reader._limit = 1  # type: ignore[attr-defined]  # the client stops reading at once
    line.writer.write(REQUEST * 2000)

    with pytest.raises(ConnectionError):
        await _write_for_ever(line)

    await line.close()


async def _write_for_ever(line: Line) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            line.writer.write(REQUEST * 100)
            await line.writer.drain()


async def test_more_connections_than_there_may_be_are_turned_away(make_world: WorldMaker) -> None:
    """So many at once; who goes makes room."""
    world = await make_world(max_connections=2)
    first, second = await connect(world.service), await connect(world.service)
    await first.say(REQUEST)
    await second.say(REQUEST)
    await first.head()
    await second.head()

    refused = await told(world.service, b"")
    await first.close()
    await second.close()

    assert refused.startswith(b"HTTP/1.1 503 ")
    assert b'{"error":{"code":"too_many_connections"' in refused
    async with asyncio.timeout(PATIENCE_SECONDS):
        while status_of(await told(world.service, ONE_REQUEST)) != 200:
            pass  # the service has yet to see that they are gone


@pytest.mark.parametrize("content", UNREADABLE.values(), ids=UNREADABLE.keys())
async def test_http_that_cannot_be_read_is_refused_in_json(
    make_world: WorldMaker, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """The reply is a 400 without the request's content; the connection closes, and no error is logged."""
    world = await make_world()
    caplog.set_level(logging.DEBUG)

    answer = await told(world.service, content)

    assert status_of(answer) == 400
    assert b'{"error":{"code":"bad_request"' in answer
    assert b"aaaa" not in answer
    assert b"Date: Mon, 21 Sep 2026" in answer  # service time, as everywhere
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING or record.exc_info]


async def test_expectation_that_cannot_be_met_is_refused_in_json(make_world: WorldMaker) -> None:
    """Also what aiohttp refuses by itself has the API's shape."""
    world = await make_world()

    answer = await told(
        world.service, b"GET /nowhere HTTP/1.1\r\nHost: x\r\nExpect: the-unexpected\r\nConnection: close\r\n\r\n"
    )

    assert status_of(answer) == 417
    assert b'{"error":{"code":"expectation_failed"' in answer


@pytest.mark.parametrize(
    "request_bytes",
    [ONE_REQUEST, ONE_REQUEST.replace(b"/api/v1/openapi.json", b"/nowhere"), *UNREADABLE.values()],
)
async def test_no_reply_tells_by_what_it_was_made(make_world: WorldMaker, request_bytes: bytes) -> None:
    """The header Server has a name, and neither the versions of aiohttp nor of Python."""
    line = await connect((await make_world()).service)
    await line.say(request_bytes)

    answer = await line.rest()

    await line.close()
    assert b"\r\nServer: batchkiln\r\n" in answer
    assert b"aiohttp" not in answer
