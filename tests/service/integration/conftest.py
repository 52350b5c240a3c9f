"""Worlds for these tests: made on demand, stopped at the end."""

import io
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import pytest
from PIL import Image

from batchkiln_service import AccountConfig, KeyConfig, Limits, ManualClock, ServiceConfig

from .service_world import START_MS, World, WorldMaker

ACCOUNTS = (
    AccountConfig(
        name="main",
        credits=10_000,
        keys=("key-one-of-main", "key-two-of-main", KeyConfig(value="old", legacy=True)),
    ),
    AccountConfig(name="other", keys=("key-of-other",)),
)


@pytest.fixture
async def make_world(tmp_path: Path) -> AsyncIterator[WorldMaker]:
    """Make worlds with other limits or accounts."""
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(aiohttp.ClientSession())

        async def make(*, limits: Limits | None = None, **settings: object) -> World:
            defaults = {"state_dir": tmp_path / "service", "limits": limits or Limits(), "accounts": ACCOUNTS}
            world = World(ServiceConfig.model_validate(defaults | settings), ManualClock(START_MS), session)
            await world.start()
            stack.push_async_callback(world.stop)
            return world

        yield make


@pytest.fixture
async def world(make_world: WorldMaker) -> World:
    """Start a service with the documented limits."""
    return await make_world()


@pytest.fixture
def png() -> bytes:
    """Draw a small green picture."""
    buffer = io.BytesIO()
    Image.new("RGB", (40, 30), (20, 200, 20)).save(buffer, "PNG")
    return buffer.getvalue()
