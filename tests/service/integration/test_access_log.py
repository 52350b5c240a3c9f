"""One event per request, and nothing secret in any."""

import logging
from urllib.parse import parse_qs, urlsplit

import pytest

from .raw import told
from .service_world import World, image_with

CANARY = "canary-that-nobody-may-read"
LOGGER = "batchkiln_service.access"


@pytest.fixture
def caplog(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """Listen to everything that the service logs, from its first connection on."""
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.DEBUG, LOGGER)
    return caplog


def events(caplog: pytest.LogCaptureFixture) -> list[dict[str, object]]:
    standard = set(logging.makeLogRecord({}).__dict__) | {"message", "asctime"}
    return [
        {name: value for name, value in record.__dict__.items() if name not in standard}
        for record in caplog.records
        if record.name == LOGGER
    ]


def written(caplog: pytest.LogCaptureFixture) -> str:
    """Return all that any formatter could write of what was logged."""
    formatter = logging.Formatter()
    return "\n".join(f"{formatter.format(record)} {record.__dict__}" for record in caplog.records)


async def test_request_is_reported_with_who_and_what(caplog: pytest.LogCaptureFixture, world: World) -> None:
    """A create says its route, account and generation, how long it took and how much was sent."""
    created = await world.create()

    [event] = events(caplog)

    assert isinstance(event.pop("duration_ms"), float)
    assert int(str(event.pop("bytes"))) > len(created.content)  # the head of the reply, too
    assert event == {
        "method": "POST",
        "path": "/api/v1/images",
        "status": 202,
        "ip": "127.0.0.1",
        "kind": "create",
        "account": "main",
        "generation_id": created.body["id"],
    }


async def test_poll_names_the_route_and_the_generation(caplog: pytest.LogCaptureFixture, world: World) -> None:
    """The variable part of the path is in a field of its own."""
    created = await world.create()
    await world.poll(created.body["id"])

    event = events(caplog)[-1]

    assert (event["path"], event["generation_id"]) == ("/api/v1/generations/{id}", created.body["id"])


async def test_refusal_is_reported_with_its_word(caplog: pytest.LogCaptureFixture, world: World) -> None:
    """The log says why, in the word that the client got."""
    await world.create(image_with(prompt=""))
    await world.send("GET", "/models", key=None)
    await world.send("DELETE", "/models")
    await world.send("GET", "/nowhere")

    assert [(event["status"], event["code"]) for event in events(caplog)] == [
        (422, "invalid_request"),
        (401, "invalid_api_key"),
        (405, "method_not_allowed"),
        (404, "not_found"),
    ]


async def test_fault_is_reported(caplog: pytest.LogCaptureFixture, world: World) -> None:
    """A rehearsed misbehaviour is not taken for a real one."""
    world.service.faults.add("unavailable")
    await world.send("GET", "/credits/balance")

    event = events(caplog)[-1]

    assert (event["status"], event["fault"]) == (503, "unavailable")


async def test_storage_requests_are_reported_without_their_signature(
    caplog: pytest.LogCaptureFixture, world: World, png: bytes
) -> None:
    """PUTs and downloads are in the log, and nobody can follow a link from there."""
    await world.upload(png)
    ended = await world.finish(await world.create())
    url = ended.output["url"]
    await world.send("GET", url, key=None)

    paths = [str(event["path"]) for event in events(caplog)]

    assert any(path.startswith("/storage/uploads/{") for path in paths)
    assert any(path.startswith("/storage/outputs/{") for path in paths)
    for value in parse_qs(urlsplit(url).query)["signature"]:
        assert value not in written(caplog)


async def test_no_request_puts_a_secret_into_the_log(caplog: pytest.LogCaptureFixture, world: World) -> None:
    """Keys, queries, headers, prompts and bodies are never written, wherever a client puts them."""
    await world.send("GET", "/models", key=CANARY)
    await world.send("GET", f"/models?api_key={CANARY}")
    await world.send("GET", f"/generations/{CANARY}")
    await world.send("GET", f"/{CANARY}/models", headers={"X-Api-Key": CANARY, "Origin": f"http://{CANARY}"})
    await world.send("GET", world.service.base_url.replace("/api/v1", f"/storage/outputs/{CANARY}/0.png?signature=x"))
    await world.create(image_with(prompt=CANARY))
    await world.create(image_with(prompt="x", model=CANARY), idempotency_key=CANARY)
    await world.create({"mode": CANARY, CANARY: CANARY}, idempotency_key="!" + CANARY)
    await world.send("PUT", world.service.base_url.replace("/api/v1", f"/storage/uploads/{CANARY}?signature={CANARY}"))

    assert len(events(caplog)) == 9
    assert CANARY not in written(caplog)


@pytest.mark.parametrize(
    "content",
    [
        f"{CANARY} / HTTP/1.1\r\nHost: x\r\n\r\n",
        f"GET /{CANARY} HTTP/9.9\r\nAuthorization: Bearer {CANARY}\r\n\r\n",
        f"GET / HTTP/1.1\r\nAuthorization Bearer {CANARY}\r\n\r\n",
        f"GET / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {CANARY}\r\nX: {'a' * 9000}\r\n\r\n",
        f"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {CANARY}\r\n\r\n",
    ],
    ids=["method", "version", "header", "long header", "length"],
)
async def test_malformed_request_leaves_no_secret_either(
    caplog: pytest.LogCaptureFixture, world: World, content: str
) -> None:
    """A malformed request is logged, without its content."""
    await told(world.service, content.encode())

    assert [event["status"] for event in events(caplog)] == [400]
    assert CANARY not in written(caplog)
