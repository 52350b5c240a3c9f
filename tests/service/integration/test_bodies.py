"""Bodies on their way in: read once, of those who have a key, and never at the cost of others."""

import asyncio
import json
import logging
import socket
import struct

import pytest

from batchkiln_service import Limits
from batchkiln_service.faults.fault_rules import FaultMatch
from batchkiln_service.rules.catalog import load_catalog
from batchkiln_service.transport.bodies import MAX_BODY_BYTES

from .raw import PATIENCE_SECONDS, Line, connect
from .service_world import IMAGE, World, WorldMaker

HEAD = (
    "POST /api/v1/images HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nIdempotency-Key: 0123456789abcdef\r\n"
)


async def test_tail_of_a_body_that_is_too_large_is_no_body(world: World) -> None:
    """A rule that looks at prompts reads the body first; what that has left over creates nothing."""
    world.service.faults.add("unavailable", "create", match=FaultMatch(prompt="of another request"))
    tail = json.dumps(IMAGE).encode()
    line = await connect(world.service)
    length = MAX_BODY_BYTES + 1 + len(tail)
    await line.say(f"{HEAD}Authorization: Bearer key-one-of-main\r\nContent-Length: {length}\r\n\r\n".encode())
    await line.say(b" " * (MAX_BODY_BYTES + 1))

    head = await line.head()
    await line.close()

    assert b" 413 " in head.splitlines()[0]
    assert await world.service.query("SELECT id FROM generations") == []


@pytest.mark.parametrize(
    ("header", "status"),
    [("Authorization: Bearer nobodys-key", 401), ("X: y", 401), ("Authorization: Bearer old", 403)],
    ids=["unknown key", "no key", "legacy key"],
)
async def test_body_of_a_stranger_is_not_waited_for(world: World, header: str, status: int) -> None:
    """Who may not call is told at once, and nobody spends time on what he sends. Service rules 5.1 and 5.4."""
    line = await connect(world.service)
    await line.say(f"{HEAD}{header}\r\nContent-Length: 1000\r\n\r\n".encode())

    head = await line.head()
    await line.close()

    assert f" {status} ".encode() in head.splitlines()[0]
    assert [row["status"] for row in await world.service.requests()] == [status]


async def test_browser_with_a_key_is_refused_before_its_body(world: World) -> None:
    """An Origin header settles it, also for a key that has called before. Service rule 5.5."""
    await world.create()
    line = await connect(world.service)
    await line.say(
        f"{HEAD}Authorization: Bearer key-one-of-main\r\nOrigin: http://h\r\nContent-Length: 1000\r\n\r\n".encode()
    )

    head = await line.head()
    await line.close()

    assert b" 403 " in head.splitlines()[0]


async def test_key_that_was_revoked_meanwhile_is_refused(world: World) -> None:
    """Each request checks the key again, even if it was accepted before. Service rule 5.6."""
    await world.create()
    await world.service._run(
        lambda books: books.execute("UPDATE api_keys SET revoked_at_ms = 1, revoked_by = 'person'").rowcount
    )

    refused = await world.create()

    assert (refused.status, refused.code) == (401, "invalid_api_key")


async def test_longest_prompt_fits_however_it_is_written(make_world: WorldMaker) -> None:
    """Every character of it as two escapes of six bytes; such a body is large, and understood like any other."""
    world = await make_world(limits=Limits.lifted())
    model = max(load_catalog().values(), key=lambda each: each.prompt_limit_characters)
    parameters: dict[str, object] = {"resolution": model.resolutions[0]}
    if model.kind == "video":
        parameters["duration_seconds"] = model.durations_seconds[0]
    body = {
        "model": model.id,
        "mode": f"text-to-{model.kind}",
        "prompt": "\N{FOX FACE}" * model.prompt_limit_characters,
        "parameters": parameters,
    }

    quoted = await world.send("POST", "/quotes", body=body)

    assert len(json.dumps(body)) > 12 * 8000
    assert quoted.status == 200, quoted.body


async def test_unknown_content_encoding_is_not_taken_for_none(world: World) -> None:
    """A body in a coding that nobody here can undo is refused, even if it looks like JSON."""
    body = json.dumps(IMAGE).encode()
    headers = {"Authorization": "Bearer key-one-of-main", "Content-Type": "application/json"}
    statuses = {}
    for coding in ("foo", "identity"):
        async with world.session.post(
            f"{world.service.base_url}/quotes", data=body, headers=headers | {"Content-Encoding": coding}
        ) as response:
            statuses[coding] = (response.status, (await response.json()).get("error", {}).get("code"))

    assert statuses == {"foo": (415, "unsupported_media_type"), "identity": (200, None)}


def hang_up(line: Line, *, is_abrupt: bool) -> None:
    """Close a connection, politely or with a reset."""
    if is_abrupt:
        raw = line.writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    line.writer.close()


@pytest.mark.parametrize("is_abrupt", [False, True], ids=["close", "reset"])
async def test_client_that_hangs_up_in_mid_body_is_no_failure_of_the_service(
    world: World, caplog: pytest.LogCaptureFixture, *, is_abrupt: bool
) -> None:
    """A short timeout of a client is not logged as an error, nor counted as an internal one."""
    caplog.set_level(logging.WARNING)
    await world.create()
    line = await connect(world.service)
    await line.say(f"{HEAD}Authorization: Bearer key-one-of-main\r\nContent-Length: 1000\r\n\r\n".encode() + b"{")

    hang_up(line, is_abrupt=is_abrupt)
    rows: list[dict[str, object]] = []
    async with asyncio.timeout(PATIENCE_SECONDS):
        while len(rows) < 2:
            rows = await world.service.requests()

    assert (rows[1]["status"], rows[1]["code"]) == (400, "invalid_body")
    assert caplog.records == []
