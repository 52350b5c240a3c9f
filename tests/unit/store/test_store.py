"""The store's own part: news, waits and the service's time."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from batchkiln.core.errors import InvariantBroken
from batchkiln.core.outcomes import CREATES, FACTS, Answer, Fact
from batchkiln.core.queue_changes import Facts, HoldImposed
from batchkiln.core.queue_types import Scope, Viewpoint
from batchkiln.core.rate_limits import HeldUntil
from batchkiln.core.waits import WaitReason
from batchkiln.store.misunderstood import end_waits
from support.attempt_steps import begin
from support.builders import NO, NOON, now_at
from support.worker_world import World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """One item that was sent."""
    made = World(tmp_path)
    made.enqueue("item-1")
    yield made
    made.close()


async def test_each_fact_wakes_waiting_tasks(world: World) -> None:
    """Waiting tasks are woken, and earlier snapshots are out of date."""
    attempt = begin(world)
    assert attempt is not None
    news, version = world.store.changes.next(attempt.account_id), world.store.changes.version

    await world.store.commit(attempt, CREATES[Answer.UNKNOWN, False], Facts(reason="lost"), now_at())

    assert news.is_set()
    assert world.store.changes.version == version + 1
    assert not world.store.changes.next(attempt.account_id).is_set()


async def test_failed_fact_wakes_waiting_tasks(world: World) -> None:
    """A plan that broke is made again, and not waited on for ever."""
    attempt = begin(world)
    assert attempt is not None
    await world.store.commit(attempt, FACTS[Fact.STILL_CONFLICT], Facts(error=NO), now_at())
    version = world.store.changes.version

    with pytest.raises(InvariantBroken):
        await world.store.commit(attempt, FACTS[Fact.STILL_CONFLICT], Facts(error=NO), now_at())

    assert world.store.changes.version == version + 1


async def test_wait_is_kept(world: World) -> None:
    """Law 5: what the service imposed on creates does not hold reads, and is there for the next process."""
    account_id = await world.store.account("main")
    until = NOON + timedelta(hours=3)

    hold = HoldImposed(is_of_creates=True, until=until, reason=WaitReason.THROTTLED)
    await world.store.update_account(account_id, hold, now_at())
    world.restart()

    found = await world.store.snapshot(Viewpoint(account_id, "test", "main", is_first=True, scope=Scope()), [NOON])
    assert found.creates_held == HeldUntil(until, WaitReason.THROTTLED)
    assert found.reads_held is None


async def test_person_ends_a_wait(world: World) -> None:
    """Whatever holds an account, there is a command that frees it: a wrong Retry-After may hold it for eight days."""
    account_id = await world.store.account("main")
    await world.store.account("other")
    hold = HoldImposed(is_of_creates=True, until=NOON + timedelta(days=8), reason=WaitReason.THROTTLED)
    await world.store.update_account(account_id, hold, now_at())

    ended = [world.write(end_waits, account) for account in ("test/other", "test/main", None)]

    assert ended == [(), ("test/main",), ()]
    world.restart()
    found = await world.store.snapshot(Viewpoint(account_id, "test", "main", is_first=True, scope=Scope()), [NOON])
    assert found.creates_held is None


async def test_services_time_is_remembered(world: World) -> None:
    """Law 5: the next process never believes in an earlier time than the service was known to have reached."""
    assert await world.store.remembered_time() is None

    await world.store.remember_time(now_at(5.0))
    world.restart()

    assert await world.store.remembered_time() == NOON + timedelta(seconds=5)
