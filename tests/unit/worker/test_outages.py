"""An outage of the service, as other programs see it: recorded after 15 seconds, and ended by the first answer."""

import json
from collections.abc import Callable
from datetime import timedelta

import pytest

from batchkiln.core.calls import Call
from batchkiln.core.responses import AccountBlocked, AccountProblem, ErrorInfo, NoResponse, Unavailable
from batchkiln.core.states import ItemState
from batchkiln.core.timestamps import from_milliseconds, to_milliseconds
from batchkiln.store.accounts import Accounts
from batchkiln.worker.run_state import RunState
from support.builders import NOON
from support.fake_service import refusing
from support.worker_world import PROFILE, World

SILENCE = NoResponse("could not connect")
BUSY = Unavailable(None, ErrorInfo("unavailable", "maintenance"))
OUTAGES = ("service_unreachable", "service_reachable")


def away(world: World, reply: object, *, seconds: float, first: float = 0.0, account: str | None = None) -> None:
    """Answer each request between two moments with a failure."""
    begin = NOON + timedelta(seconds=first)

    def rule(_asked: str, asking: str) -> object:
        is_away = begin <= world.clock.instant < begin + timedelta(seconds=seconds)
        return reply if is_away and account in {None, asking} else None

    world.service.rule = rule


def told(world: World) -> list[tuple[str, str, dict[str, object]]]:
    rows = world.rows(
        "SELECT job.name, event.kind, event.detail FROM event JOIN job ON job.id = event.job_id "
        "WHERE event.item_id IS NULL AND event.kind IN (?, ?) ORDER BY event.id",
        *OUTAGES,
    )
    return [(row[0], row[1], json.loads(row[2])) for row in rows]


def stored(world: World) -> list[tuple[int, str]]:
    return [tuple(row) for row in world.rows("SELECT outage_since, outage_reason FROM account") if row[0] is not None]


@pytest.mark.parametrize(("reply", "reason"), [(SILENCE, "could not connect"), (BUSY, "unavailable: maintenance")])
async def test_an_outage_is_in_the_history_of_each_job_at_work(world: World, reply: object, reason: str) -> None:
    """When it began and how long it lasted; a job that had ended is not concerned."""
    world.enqueue("early", job="ended")
    await world.run()
    world.enqueue("fox", job="birds")
    world.enqueue("owl", job="foxes")
    began = (world.clock.instant - NOON).total_seconds()
    away(world, reply, first=began, seconds=1000)

    await world.run()

    assert world.states() == {"done": 3}
    assert stored(world) == []
    assert [(job, kind) for job, kind, _ in told(world)] == [
        (job, kind) for kind in OUTAGES for job in ("birds", "foxes")
    ]
    (_, _, first), (_, _, last) = told(world)[0], told(world)[-1]
    assert first["reason"] == reason
    assert 15 <= int(str(first["seconds"])) < 60
    assert 1000 <= int(str(last["seconds"])) < 1200
    (past,) = world.control.outages
    assert (past.profile, (past.until - past.since).total_seconds() >= 1000) == (PROFILE, True)


async def test_a_short_outage_is_not_recorded(world: World) -> None:
    """The live display shows it; a history of hiccups would be noise."""
    world.enqueue("fox")
    away(world, SILENCE, seconds=8)

    await world.run()

    assert (told(world), world.control.outages, world.states()) == ([], [], {"done": 1})


async def test_an_outage_outlasts_the_process(world: World) -> None:
    """The next run knows since when, and the first answer ends it."""
    world.enqueue("fox")
    away(world, SILENCE, seconds=4000)
    await world.run_until_true(lambda: bool(stored(world)))
    ((since, reason),) = stored(world)
    world.control = RunState()

    world.restart(after_seconds=600)
    await world.run()

    assert reason == "could not connect"
    assert from_milliseconds(since) < NOON + timedelta(seconds=60)
    assert [kind for _, kind, _ in told(world)] == list(OUTAGES)
    lasted = (to_milliseconds(world.clock.instant) - since) / 1000
    assert told(world)[-1][2]["seconds"] == pytest.approx(lasted, abs=300)
    assert (stored(world), world.state("fox")) == ([], ItemState.DONE)


async def test_a_refusal_is_an_answer(world: World) -> None:
    """The run ends, and the queue must not go on to say that nobody answers."""
    world.enqueue("fox")
    outage_ends = NOON + timedelta(seconds=600)
    refusal = AccountBlocked(AccountProblem.KEY_REFUSED, ErrorInfo("invalid_api_key", "revoked"))
    world.service.rule = lambda _asked, _account: SILENCE if world.clock.instant < outage_ends else refusal

    await world.run()

    assert ([kind for _, kind, _ in told(world)], stored(world)) == (list(OUTAGES), [])
    assert world.state("fox") is ItemState.QUEUED


async def test_a_refused_older_key_is_no_outage(world: World) -> None:
    """The service answers each read of the old generation, for an hour, with a refusal of its key."""
    world.enqueue("fox")
    await world.run_until("fox", ItemState.ACTIVE)
    world.keys["main"] = ("key-2", "key-1")
    world.service.rule = refusing("read")

    world.restart()
    await world.run()

    assert world.state("fox") is ItemState.HELD
    assert (told(world), stored(world)) == ([], [])


async def test_last_refusal_of_an_older_key_ends_an_outage(world: World) -> None:
    """It holds the item, and the run ends with it: nothing else is asked, and the service is there."""
    world.enqueue("fox")
    await world.run_until("fox", ItemState.ACTIVE)
    world.keys["main"] = ("key-2", "key-1")
    refused = refusing("read")
    begin = world.clock.instant

    def rule(asked: str, account: str) -> object:
        passed = (world.clock.instant - begin).total_seconds()
        return SILENCE if 600 < passed < 3600 else refused(asked, account)

    world.service.rule = rule
    world.restart()
    await world.run()

    assert world.state("fox") is ItemState.HELD
    assert ([kind for _, kind, _ in told(world)], stored(world)) == (list(OUTAGES), [])


async def test_a_refused_call_beside_answers_is_no_outage(world: World) -> None:
    """Creates fail for an hour while everything else is answered."""
    world.enqueue("fox", "owl")
    world.service.rule = _creates_fail(world)

    await world.run()

    assert (told(world), world.states()) == ([], {"done": 2})


def _creates_fail(world: World) -> Callable[[str, str], object]:
    def rule(asked: str, _account: str) -> object:
        is_early = world.clock.instant < NOON + timedelta(hours=1)
        world.workers[0].on_success(Call.READ)  # as of another account of this machine
        return BUSY if asked == "create" and is_early else None

    return rule


async def test_accounts_of_one_service_record_one_outage(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Seventeen accounts would write seventeen lines a job."""
    world = World(tmp_path_factory.mktemp("two"), accounts=("main", "second"))
    try:
        world.enqueue("fox", "owl", "hen")
        away(world, SILENCE, seconds=600)

        await world.run()

        assert [kind for _, kind, _ in told(world)] == list(OUTAGES)
        assert {account.outage for account in Accounts(world.connection).summaries()} == {None}
    finally:
        world.close()


async def test_any_answer_ends_the_outage_of_an_idle_account(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The account that recorded it has nothing left to ask: another one of the machine works for it."""
    world = World(tmp_path_factory.mktemp("idle"), accounts=("main", "second"))
    try:
        world.enqueue("fox", "owl", accounts=("main",))
        await world.run_until("fox", ItemState.ACTIVE)
        row = (to_milliseconds(world.clock.instant), "no route")
        world.write(
            lambda connection: connection.execute(
                "UPDATE account SET outage_since = ?, outage_reason = ? WHERE name = 'second'", row
            )
        )
        world.control = RunState()

        world.restart()
        await world.run()

        assert (stored(world), world.states()) == ([], {"done": 2})
    finally:
        world.close()
