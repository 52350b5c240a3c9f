"""A request is decided and answered at one instant, however often anybody looks at the clock meanwhile."""

from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from batchkiln_service import Limits, ManualClock, ServiceConfig

from .conftest import ACCOUNTS
from .service_world import START_MS, World


class RestlessClock(ManualClock):
    """Time goes on by a millisecond whenever somebody asks for it."""

    def now_ms(self) -> int:
        self.advance(0.001)
        return super().now_ms()


@pytest.fixture
async def restless(tmp_path: Path) -> AsyncIterator[World]:
    """Start a service in which no two looks at the clock agree."""
    config = ServiceConfig(state_dir=tmp_path / "service", limits=Limits.lifted(), accounts=ACCOUNTS, tiny_media=True)
    async with aiohttp.ClientSession() as session:
        world = World(config, RestlessClock(START_MS), session)
        await world.start()
        yield world
        await world.stop()


async def test_poll_while_the_generation_ends_is_answered(restless: World) -> None:
    """Whichever step of a poll the end falls into: it is active or it is there, and never an accident."""
    statuses = []
    for lead_ms in range(12):
        created = await restless.create()
        (row,) = await restless.service.query(f"SELECT finish_at_ms FROM generations WHERE id = '{created.body['id']}'")
        finish_at_ms = row["finish_at_ms"]
        assert isinstance(finish_at_ms, int)
        restless.clock.advance((finish_at_ms - restless.clock.now_ms() - lead_ms) / 1000)
        reply = await restless.poll(created.body["id"])
        statuses.append((reply.status, reply.body.get("status")))

    assert set(statuses) == {(200, "processing"), (200, "success")}


async def test_upload_counts_from_the_instant_of_its_admission(restless: World) -> None:
    """What an upload promises begins when it was admitted, as the log has it."""
    await restless.prepare(10)

    (asset,) = await restless.service.query("SELECT link_expires_at_ms, expires_at_ms FROM assets")
    (row,) = await restless.service.requests()

    arrived_at_ms = row["arrived_at_ms"]
    assert isinstance(arrived_at_ms, int)
    assert asset == {
        "link_expires_at_ms": arrived_at_ms + 300_000,
        "expires_at_ms": arrived_at_ms + 14 * 86_400_000,
    }
