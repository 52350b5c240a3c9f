"""A client, and the server on loopback that it talks to."""

import asyncio
from collections.abc import AsyncIterator, Callable

import aiohttp
import pytest

from batchkiln.client import ServiceClient, Timeouts, fingerprint, new_session
from integration.client.scripted_server import KEY, OLD_KEY, FakeClock, ScriptedServer


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    scripted = ScriptedServer()
    trace_configs = await asyncio.start_server(scripted.handle, "127.0.0.1", 0)
    scripted.origin = f"http://127.0.0.1:{trace_configs.sockets[0].getsockname()[1]}"
    yield scripted
    trace_configs.close()


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with new_session() as opened:
        yield opened


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def client(server: ScriptedServer, session: aiohttp.ClientSession, clock: FakeClock) -> ServiceClient:
    return ServiceClient(
        session,
        base_url=f"{server.origin}/api/v1/",
        keys={fingerprint(KEY): KEY, fingerprint(OLD_KEY): OLD_KEY},
        clock=clock,
        timeouts=Timeouts(),
    )


@pytest.fixture
async def jump(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Put the loop's clock forward: what was to happen within these seconds is due now, and nobody waits."""
    loop = asyncio.get_running_loop()
    time = loop.time
    return lambda seconds: monkeypatch.setattr(loop, "time", lambda: time() + seconds)
