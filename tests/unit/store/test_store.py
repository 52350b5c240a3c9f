"""The store's own part: news, waits and the service's time."""

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from batchkiln.core.errors import InvariantBroken
from batchkiln.core.outcomes import Answer
from batchkiln.core.planner import WaitReason
from batchkiln.core.queue_types import HeldUntil, Look, Scope, Viewpoint
from batchkiln.core.states import Event
from batchkiln.store.database import Database
from batchkiln.store.misunderstood import end_waits
from batchkiln.store.store import ChangeNotifier, Store
from support.attempt_steps import begin
from support.builders import NO, NOON, now_at, record
from support.worker_world import PROFILE, World


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

    await world.store.record_answer(attempt, Answer.UNKNOWN, NO, now_at(), is_contact=False)

    assert news.is_set()
    assert world.store.version == version + 1
    assert not world.store.news().is_set()


async def test_failed_fact_is_news_as_well(world: World) -> None:
    """A plan that broke is made again, and not waited on for ever."""
    attempt = begin(world)
    assert attempt is not None
    await world.store.record_hold(attempt, Event.KEY_CONFLICT, NO, now_at())
    version = world.store.version

    with pytest.raises(InvariantBroken):
        await world.store.record_hold(attempt, Event.KEY_CONFLICT, NO, now_at())

    assert world.store.version == version + 1


@pytest.mark.parametrize("is_first", [True, False])
async def test_what_a_record_sees_is_told_only_while_it_is_true(world: World, *, is_first: bool) -> None:
    """A change that was begun before a record is in what it sees; one that was begun after it makes that old."""
    attempt = begin(world)
    assert attempt is not None
    database = await Database.open_for_writing(world.path)  # with a thread, for which both wait
    store = Store(database, ChangeNotifier(), profile=PROFILE, day=world.day, keep_requests_seconds=60.0)
    look = Look(Viewpoint(attempt.account_id, PROFILE, "main", is_first=True, scope=Scope()), (NOON,))
    accepted = store.record_accepted(attempt, record(id="gen-1"), now_at(), look)
    wait = store.hold(attempt.account_id, creates=True, until=NOON, reason=WaitReason.THROTTLED)

    if is_first:
        progress, _ = await asyncio.gather(accepted, wait)
    else:
        _, progress = await asyncio.gather(wait, accepted)

    if is_first:
        assert progress.seen is None
    else:
        assert progress.seen == (store.version, await store.snapshot(look.viewpoint, look.days))
        assert progress.seen[1].creates_held is not None
    await database.close()


async def test_wait_is_kept(world: World) -> None:
    """Law 5: what the service imposed on creates does not hold reads, and is there for the next process."""
    account_id = await world.store.account("main")
    until = NOON + timedelta(hours=3)

    await world.store.hold(account_id, creates=True, until=until, reason=WaitReason.THROTTLED)
    world.restart()

    found = await world.store.snapshot(Viewpoint(account_id, "test", "main", is_first=True, scope=Scope()), [NOON])
    assert found.creates_held == HeldUntil(until, WaitReason.THROTTLED)
    assert found.reads_held is None


async def test_person_ends_a_wait(world: World) -> None:
    """Whatever holds an account, there is a command that frees it: a wrong Retry-After may hold it for eight days."""
    account_id = await world.store.account("main")
    await world.store.account("other")
    await world.store.hold(account_id, creates=True, until=NOON + timedelta(days=8), reason=WaitReason.THROTTLED)

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
