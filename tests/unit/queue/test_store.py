"""The store's own part: news, waits and the service's time."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from batchkiln.core.errors import InvariantBroken
from batchkiln.core.planner import Reason
from batchkiln.core.views import HeldUntil, Scope, Viewpoint
from support.builders import NO, NOON, now_at
from support.ledger import begin
from support.world import World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """One item that was sent."""
    made = World(tmp_path)
    made.enqueue("item-1")
    yield made
    made.close()


async def test_each_fact_is_news(world: World) -> None:
    """Whoever waits is woken, and what was known before is out of date."""
    attempt = begin(world)
    assert attempt is not None
    news, version = world.store.news(), world.store.version

    await world.store.record_unknown(attempt, "lost", now_at())

    assert news.is_set()
    assert world.store.version == version + 1
    assert not world.store.news().is_set()


async def test_failed_fact_is_news_as_well(world: World) -> None:
    """A plan that broke is made again, and not waited on for ever."""
    attempt = begin(world)
    assert attempt is not None
    await world.store.record_conflict(attempt, NO, now_at())
    version = world.store.version

    with pytest.raises(InvariantBroken):
        await world.store.record_conflict(attempt, NO, now_at())

    assert world.store.version == version + 1


async def test_wait_is_kept(world: World) -> None:
    """Law 5: what the service imposed on creates does not hold reads, and is there for the next process."""
    account_id = await world.store.account("main")
    until = NOON + timedelta(hours=3)

    await world.store.hold(account_id, creates=True, until=until, reason=Reason.THROTTLED)
    world.restart()

    found = await world.store.snapshot(Viewpoint(account_id, "test", "main", is_first=True, scope=Scope()), [NOON])
    assert found.creates_held == HeldUntil(until, Reason.THROTTLED)
    assert found.reads_held is None


async def test_services_time_is_remembered(world: World) -> None:
    """Law 5: the next process never believes in an earlier time than the service was known to have reached."""
    assert await world.store.remembered_time() is None

    await world.store.remember_time(now_at(5.0))
    world.restart()

    assert await world.store.remembered_time() == NOON + timedelta(seconds=5)
