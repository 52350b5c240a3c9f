"""Clients that send nonsense, stop in the middle, or take more than their share: the server goes on for the others."""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator
from itertools import combinations
from pathlib import Path

import pytest
import pytest_asyncio
from structlog.testing import capture_logs

from batchkiln.api import LoggedEvent
from batchkiln.config import AccessScope, HttpSettings
from batchkiln.dashboard import connections, file_responses, middleware, sse, stream_places
from batchkiln.dashboard.context import AT_ONCE
from batchkiln.dashboard.http_api import event_stream
from integration.dashboard.interface import ALL, TOKENS, Client, serving, token
from integration.dashboard.sample_queue import Browser
from support.queue_file import QueueFile
from support.sockets import end_of

FORM = "application/x-www-form-urlencoded"
PLACES = {"job": "birds", "item": "picture", "number": "1"}
PATIENCE_SECONDS = 120  # only what hangs takes so long
LARGE = b":" + b"x" * 1_000_000 + b"\n\n"


@pytest_asyncio.fixture
async def client(queue: QueueFile) -> AsyncIterator[Client]:
    async with serving(queue.path) as client:
        yield client


def port_of(client: Client) -> int:
    return int(client.served.listens_at.rpartition(":")[2])


def head(start: str, client: Client, *lines: str) -> bytes:
    host = f"127.0.0.1:{port_of(client)}"
    return "\r\n".join([f"{start} HTTP/1.1", f"Host: {host}", f"Origin: http://{host}", *lines, "", ""]).encode()


@pytest.mark.parametrize(
    ("media_type", "body"),
    [
        ("multipart/form-data", b"token=x"),
        ("multipart/form-data; boundary=x", b"token=x"),
        ("multipart/form-data; boundary=x", b"--x\r\nContent-Disposition: form-data; name=token\r\n\r\nx\r\n--x--\r\n"),
        (f"{FORM}; charset=unknown", b"token=x"),
        (f"{FORM}; charset=utf-16", b"token=x"),
        (FORM, b"token=\xff"),
        ("text/plain", b"token=x"),
    ],
)
async def test_nonsense_of_strangers_is_no_bug_of_the_server(client: Client, media_type: str, body: bytes) -> None:
    """It is refused, and fills no log."""
    with capture_logs() as logged:
        async with client.session.post(
            f"{client.served.url}/sign-in", data=body, headers={"Content-Type": media_type}
        ) as answer:
            status = answer.status

    assert status in {400, 415}
    assert not logged


async def test_slow_form_is_given_up(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also that of a person who may send it."""
    monkeypatch.setattr(middleware, "FORM_SECONDS", 0.05)
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of(client))
    lines = (f"Authorization: Bearer {ALL}", f"Content-Type: {FORM}", "Content-Length: 100")
    writer.write(head("POST /jobs/birds/pause", client, *lines) + b"csrf")

    async with asyncio.timeout(PATIENCE_SECONDS):
        status = await reader.readline()
    writer.close()

    assert status.split()[1] == b"408"


@pytest.mark.long
@pytest.mark.parametrize("path", ["/live", "/api/v1/events/stream?after=0"])
async def test_client_that_does_not_read_loses_its_place(
    client: Client, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """The connection is closed, and the next client has the place."""

    def large(_: LoggedEvent | dict[str, str]) -> bytes:
        return LARGE * 20

    monkeypatch.setattr(stream_places, "STREAMS_MAX", 1)
    monkeypatch.setattr(stream_places, "SEND_SECONDS", 0.05)
    monkeypatch.setattr(event_stream, "_message", large)
    monkeypatch.setattr(sse, "_message", large)
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of(client))
    writer.write(head(f"GET {path}", client, f"Authorization: Bearer {ALL}"))
    assert b"200" in await reader.readline()

    async def next_status() -> int:
        async with client.session.get(f"{client.served.url}{path}", headers={"Authorization": f"Bearer {ALL}"}) as got:
            return got.status

    async with asyncio.timeout(PATIENCE_SECONDS):
        while await next_status() != 200:
            pass
    writer.close()


async def test_token_takes_no_stream_of_another_one(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """A visitor with many pages does not stop those of the owner."""
    monkeypatch.setattr(stream_places, "STREAMS_MAX", 1)
    url = f"{client.served.url}/api/v1/events/stream"
    visitor, owner = ({"Authorization": f"Bearer {each}"} for each in (TOKENS[AccessScope.LOOK], ALL))

    async with (
        client.session.get(url, headers=visitor) as first,
        client.session.get(url, headers=visitor) as second,
        client.session.get(url, headers=owner) as other,
    ):
        statuses = first.status, second.status, other.status

    assert statuses == (200, 503, 200)
    assert second.headers["Retry-After"]


@pytest.mark.parametrize("sent", [b"", b"GET /api/v1/jobs HT", b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "])
async def test_connection_without_a_request_is_closed(
    queue: QueueFile, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    """Whoever holds it is unknown."""
    monkeypatch.setattr(connections, "IDLE_SECONDS", 0.05)
    async with serving(queue.path) as client, asyncio.timeout(20):
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(client))
        writer.write(sent)

        assert await reader.read() == b""
        writer.close()


async def test_connections_have_a_bound(queue: QueueFile, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run in the same process needs open files too. A place is free again when its client leaves."""
    monkeypatch.setattr(connections, "CONNECTIONS_MAX", 2)
    writers: list[asyncio.StreamWriter] = []

    async def first_line(client: Client) -> bytes:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port_of(client))
            writers.append(writer)
            writer.write(head("GET /static/icon.svg", client))
            return await reader.readline()
        except ConnectionResetError:
            return b""

    async with serving(queue.path) as client, asyncio.timeout(20):
        answered = [await first_line(client) for _ in range(3)]
        writers[0].close()
        while not (again := await first_line(client)):
            pass
        for writer in writers:
            writer.close()

    assert [line.split()[1:2] for line in [*answered, again]] == [[b"200"], [b"200"], [], [b"200"]]


async def test_every_described_operation_refuses_lesser_tokens(queue: QueueFile) -> None:
    """Each operation of the served description with every set of scopes that lacks its own one, and with none."""
    sets = [each for size in (1, 2) for each in combinations(AccessScope, size)]
    bearers = {each: f"bk_{'-'.join(each)}-0123456789abcdef0123456789" for each in sets}
    http = HttpSettings(tokens=tuple(token("-".join(each), bearer, *each) for each, bearer in bearers.items()))
    before, refused = queue.all("SELECT * FROM event"), 0
    async with serving(queue.path, http) as client:
        paths = (await client.with_token(bearers[AccessScope.LOOK,]).get("/openapi.json")).json["paths"]
        for path, methods in paths.items():
            for method, operation in methods.items():
                needed = operation["security"][0]["token"]
                place = path.removeprefix("/api/v1").format(**PLACES)
                for scopes in [(), *(each for each in sets if needed and needed[0] not in each)]:
                    answer = await client.with_token(bearers.get(scopes)).send(method.upper(), place)
                    assert answer.status == (403 if scopes else 401), (method, path, scopes)
                    refused += 1

    assert refused > 4 * 20
    assert queue.all("SELECT * FROM event") == before


async def test_forms_work_as_before(client: Client, queue: QueueFile) -> None:
    """A browser's own form is read once, by whichever part needs it."""
    browser = Browser(client.served, client.session)
    headers = {"Authorization": f"Bearer {ALL}"}
    page = await browser.get("/jobs/birds/pause", headers=headers)
    own = {"Origin": client.served.url}
    done = await browser.send("POST", "/jobs/birds/pause", data=page.form, headers=headers | own)

    assert done.status in {200, 303}
    assert queue.one("SELECT is_paused FROM job") == 1


async def test_slow_object_store_takes_few_threads(
    client: Client, queue: QueueFile, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A visitor who asks for many objects leaves threads to a run in the same process."""
    queue.connection.execute("UPDATE output SET path = 's3://bucket/owl.png' WHERE path LIKE '%picture.png'")
    gate, started = threading.Event(), list[str]()

    def slow_read(path: str, **_: object) -> Path:
        started.append(path)
        gate.wait(20)
        return tmp_path / "picture.png"

    monkeypatch.setattr(file_responses, "local_file", slow_read)
    asked = [asyncio.create_task(client.get("/jobs/birds/items/picture/outputs/1")) for _ in range(6)]
    other = await client.get("/jobs")  # it is answered meanwhile
    while len(started) < AT_ONCE:  # noqa: ASYNC110 - a thread tells nobody
        await asyncio.sleep(0)
    waiting = len(started)
    gate.set()
    answers = await asyncio.gather(*asked)

    assert other.status == 200
    assert waiting == AT_ONCE
    assert [answer.status for answer in answers] == [200] * 6


@pytest.mark.parametrize("turns", range(5))
async def test_connection_that_comes_during_the_stop_is_closed(queue: QueueFile, turns: int) -> None:
    """Whichever turn of the event loop it comes in: nobody else would close it. A browser opens some for later use."""
    async with serving(queue.path) as client:
        line = socket.create_connection(("127.0.0.1", port_of(client)), PATIENCE_SECONDS)
        await client.session.close()
        for _ in range(turns):
            await asyncio.sleep(0)

    with line:
        assert await asyncio.to_thread(end_of, line) in {"closed", "reset"}
