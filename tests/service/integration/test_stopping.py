"""A service told to stop: it answers who is waiting, keeps its port, and may be hurried."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import aiohttp
import pytest

import batchkiln
from batchkiln_service import LocalService, ServiceConfig
from support.sockets import end_of

from .raw import connect, until
from .service_world import World

PATIENCE_SECONDS = 30.0


@contextmanager
def process(folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run a service of its own; gives it, and its address."""
    source = Path(batchkiln.__file__).parents[1]
    with subprocess.Popen(
        [sys.executable, "-m", "batchkiln", "serve", "-q", "--state-dir", str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(source), *sys.path])},
    ) as running:
        try:
            assert running.stdout is not None
            yield running, running.stdout.readline().split()[5]  # "The local service is at URL"
        finally:
            running.kill()


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_it_well(tmp_path: Path, number: signal.Signals) -> None:
    """Exit code 0, nothing on standard error, and the next start is at the same port."""
    with process(tmp_path) as (running, address):
        running.send_signal(number)
        code = running.wait(PATIENCE_SECONDS)
        assert running.stderr is not None
        errors = running.stderr.read()
    with process(tmp_path) as (_, again):
        pass

    assert (code, errors) == (0, "")
    assert again == address


async def test_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    """A second signal does not wait for work in progress; that is as safe as a crash."""
    with process(tmp_path) as (running, address):
        host, port = address.removeprefix("http://").partition("/")[0].split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        key = (tmp_path / "key-main").read_text().strip()
        # A body that never comes holds the stop up.
        head = f"POST /api/v1/quotes HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\nContent-Length: 9\r\n"
        writer.write(f"{head}Content-Type: application/json\r\nExpect: 100-continue\r\n\r\n".encode())
        await reader.readuntil(b"\r\n\r\n")
        running.send_signal(signal.SIGTERM)
        await _refused(host, int(port))

        running.send_signal(signal.SIGTERM)
        code = await asyncio.to_thread(running.wait, PATIENCE_SECONDS)
        writer.close()

    assert code == -signal.SIGTERM


async def _refused(host: str, port: int) -> None:
    """Wait until the service accepts no connection any more: it has seen the signal."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            try:
                _, writer = await asyncio.open_connection(host, port)
            except ConnectionError:
                return
            writer.close()


async def test_request_under_way_is_answered(world: World) -> None:
    """Stopping waits for who is being answered."""
    world.service.faults.add("slow", seconds=5)
    line = await connect(world.service)
    asleep = len(world.clock._sleepers)
    await line.say(b"GET /api/v1/openapi.json HTTP/1.1\r\nHost: x\r\n\r\n")
    await until(lambda: len(world.clock._sleepers) > asleep)

    stopping = asyncio.create_task(world.stop())
    await asyncio.sleep(0)
    world.clock.advance(6)
    head = await line.head()
    await line.close()
    await stopping

    assert head.startswith(b"HTTP/1.1 200 ")


async def test_idle_connection_does_not_hold_the_stop_up(world: World) -> None:
    """Connections that wait for nothing are closed at once."""
    line = await connect(world.service)
    await line.say(b"GET /api/v1/openapi.json HTTP/1.1\r\nHost: x\r\n\r\n")
    await line.head()
    began = asyncio.get_running_loop().time()

    await world.stop()
    await line.rest()

    await line.close()
    assert asyncio.get_running_loop().time() - began < 1.5  # less than what a request under way is given


@pytest.mark.parametrize("turns", range(5))
async def test_connection_that_comes_during_the_stop_is_closed(tmp_path: Path, turns: int) -> None:
    """Whichever turn of the event loop it comes in: nobody else would close it. A browser opens some for later use."""
    service = LocalService(ServiceConfig(state_dir=tmp_path))
    await service.__aenter__()
    port = int((tmp_path / "port").read_text())
    with socket.create_connection(("127.0.0.1", port), PATIENCE_SECONDS) as line:
        for _ in range(turns):
            await asyncio.sleep(0)

        await service.__aexit__(None, None, None)

        assert await asyncio.to_thread(end_of, line) in {"closed", "reset"}


async def test_drawing_continues_after_a_restart(world: World) -> None:
    """A generation whose picture was not drawn yet when the service stopped gets it after the next start."""
    created = await world.create()
    await world.stop()
    await world.start()

    finished = await world.finish(created)

    assert finished.body["status"] == "success"
    assert (await world.send("GET", finished.output["url"], key=None)).status == 200


async def test_links_follow_where_the_client_came_from(tmp_path: Path) -> None:
    """A service that listens everywhere gives each client links that it can reach; a Host that is none is not used."""
    config = ServiceConfig(state_dir=tmp_path, host="0.0.0.0", instant=True)
    async with LocalService(config) as service, aiohttp.ClientSession() as session:
        port = service.base_url.rsplit(":", 1)[1].partition("/")[0]
        named = await _first_link(session, service, host=f"kiln.example:{port}", number=1)
        spoiled = await _first_link(session, service, host="evil/..?", number=2)

    assert named.startswith(f"http://kiln.example:{port}/storage/")
    assert spoiled.startswith(f"http://127.0.0.1:{port}/storage/")


async def test_public_url_is_where_links_lead(tmp_path: Path) -> None:
    """Behind a proxy the operator says how clients reach the service."""
    config = ServiceConfig(state_dir=tmp_path, public_url="https://kiln.example/", instant=True)
    async with LocalService(config) as service, aiohttp.ClientSession() as session:
        port = (tmp_path / "port").read_text().strip()
        link = await _first_link(
            session, service, host="other.example", number=1, base=f"http://127.0.0.1:{port}/api/v1"
        )
        base_url = service.base_url

    assert link.startswith("https://kiln.example/storage/")
    assert base_url == "https://kiln.example/api/v1"


async def _first_link(
    session: aiohttp.ClientSession, service: LocalService, *, host: str, number: int, base: str | None = None
) -> str:
    """Create an image that is there at once; return where it can be fetched."""
    headers = {
        "Authorization": f"Bearer {service.api_key()}",
        "Host": host,
        "Idempotency-Key": f"a-new-key-{number:08}",
    }
    body = {
        "model": "epsilon-2",
        "mode": "text-to-image",
        "prompt": "A fox",
        "parameters": {"resolution": "512x512", "aspect_ratio": "1:1"},
    }
    async with session.post(f"{base or service.base_url}/images", json=body, headers=headers) as response:
        created = await response.json()
        assert response.status == 202, created
        return str(created["outputs"][0]["url"])
