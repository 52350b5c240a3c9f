"""The notifications from a queue's history, and from lasting conditions during a run."""

from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from batchkiln.core.notifications import Notification, NotificationKind
from batchkiln.core.rate_limits import Limits
from batchkiln.core.responses import AccountBlocked, AccountProblem, ErrorInfo, IdempotencyConflict, NotUnderstood
from batchkiln.core.states import ItemState
from batchkiln.notifications.from_events import notifications_since
from batchkiln.notifications.from_status import status_notifications
from batchkiln.notifications.run_notifications import QueueOutbox
from batchkiln.store import Reader, Store, operations
from batchkiln.store.events import Events
from batchkiln.worker.run_state import RunState
from support.fake_service import Lost
from support.worker_world import PROFILE, World

NO = ErrorInfo("conflict", "a message of the service")
CANARY = "canary prompt"


def happened(world: World, cursor: int = 0) -> list[Notification]:
    return list(notifications_since(Reader(world.connection), cursor, "uid").notifications)


def driver_of(world: World) -> Any:  # noqa: ANN401  as much of a driver as is looked at
    return SimpleNamespace(
        workers=world.workers,
        without_key={},
        control=world.control,
        store=Store(world.database),
    )


async def stands(world: World) -> list[Notification]:
    return await status_notifications(driver_of(world), Store(world.database), "uid")


async def test_end_of_a_job_is_reported_with_counts_and_credits(world: World) -> None:
    """One notice, at its last event; no prompt is in it."""
    world.enqueue("a", "b")
    await world.run()

    (notice,) = happened(world)

    assert notice.kind is NotificationKind.JOB_ENDED
    assert notice.title == "job: ended, 2 of 2 items done"
    assert notice.data["items"] == {"done": 2, "total": 2}
    assert notice.data["credits"] == {"charged": 20, "refunded": 0, "reserved": 0}
    assert happened(world) == [notice]


async def test_unfinished_job_is_not_reported(world: World) -> None:
    """Nor one that ended before the cursor; a retried one that ends again is."""
    world.enqueue("a", "b")
    await world.run_until("a", ItemState.DONE)
    assert happened(world) == []

    await world.run()
    first = happened(world)
    newest = Events(world.connection).last_id()
    assert happened(world, newest) == []

    world.enqueue("c")
    await world.run()
    (again,) = happened(world, newest)
    assert again.id not in {notice.id for notice in first}


async def test_held_items_are_one_notice(world: World) -> None:
    """They are named, at most five of them, with the reasons counted; those of two jobs are two."""
    image = world.inputs.put("fox.png", b"fox")
    world.inputs.files[image.path] = b"changed"
    world.enqueue(*(f"item-{number}" for number in range(7)), inputs=(image,))

    await world.run()

    held = [notice for notice in happened(world) if notice.kind is NotificationKind.ITEM_HELD]
    (notice,) = held
    assert notice.title == "job: 7 items need your decision"
    assert notice.data["held"] == 7
    assert notice.data["items"] == [f"item-{number}" for number in range(5)]
    assert "and 2 more" in notice.text
    assert "`batchkiln show job item-0`" in notice.text


async def test_a_paused_job_has_not_ended(world: World) -> None:
    """A person who paused it knows; its end comes when its items have ended."""
    world.enqueue("a", "b", "c")
    await world.run_until("a", ItemState.DONE)
    world.write(operations.pause, "job", 0)
    await world.run()

    assert happened(world) == []
    world.write(operations.unpause, "job", 0)
    await world.run()
    assert [notice.kind for notice in happened(world)] == [NotificationKind.JOB_ENDED]


async def test_audience_is_who_the_manifest_names(world: World) -> None:
    """None is everybody; a manifest that changes its mind is followed."""
    world.enqueue("a", job="all")
    world.enqueue("b", job="some", notify=("ci",))
    world.enqueue("c", job="nobody", notify=())
    await world.run()

    audiences = {str(notice.data["job"]): notice.recipients for notice in happened(world)}

    assert audiences == {"all": None, "some": frozenset({"ci"}), "nobody": frozenset()}
    world.enqueue("b", job="some")
    assert {str(notice.data["job"]): notice.recipients for notice in happened(world)}["some"] is None


@pytest.mark.parametrize("is_budget", [True, False])
async def test_a_spent_day_with_work_left_is_reported_once_a_day(tmp_path: Path, *, is_budget: bool) -> None:
    """With `--until budget` after the run, without it while it waits; the reset is named."""
    world = World(tmp_path, limits=Limits(credits_per_day=25))
    world.enqueue("a", "b", "c")
    if is_budget:
        await world.run(RunState(stops_at_reset=True))
    else:
        await world.run_until("b", ItemState.DONE)
        world.control = RunState()

    first, again = await stands(world), await stands(world)

    (notice,) = first
    assert notice.kind is NotificationKind.BUDGET_SPENT
    assert notice.data["left"] == 1
    assert "2026-03-03 00:00 UTC" in notice.text
    assert [one.id for one in again] == [notice.id]
    world.close()


async def test_a_spent_day_without_work_left_is_no_news(tmp_path: Path) -> None:
    """All is done."""
    world = World(tmp_path, limits=Limits(credits_per_day=20))
    world.enqueue("a", "b")
    await world.run()

    assert await stands(world) == []
    world.close()


async def test_a_refused_account_is_reported_with_the_problem(world: World) -> None:
    """The message of the service stays in the queue; the problem says enough."""
    world.service.say("create", AccountBlocked(AccountProblem.KEY_REFUSED, NO))
    world.enqueue("a")
    await world.run()

    (notice,) = await stands(world)

    assert notice.kind is NotificationKind.ACCOUNT_BLOCKED
    assert notice.data == {"profile": PROFILE, "account": "main", "problem": "key_refused"}
    assert NO.message not in notice.text


async def test_paid_results_are_reported_before_they_expire(world: World) -> None:
    """From three days before the end of their retention, once a day, gathered by job."""
    world.service.say("download", *[Lost.REQUEST] * 400)
    world.enqueue("a")
    await world.run_until("a", ItemState.DOWNLOADING)
    assert await stands(world) == []

    world.clock.advance(timedelta(days=11, minutes=1).total_seconds())
    (notice,) = await stands(world)
    world.clock.advance(timedelta(days=1).total_seconds())
    (next_day,) = await stands(world)

    assert notice.kind is NotificationKind.RESULTS_EXPIRING
    assert notice.data["items"] == ["a"]
    assert "2026-03-16 12:00 UTC" in notice.text
    assert next_day.id != notice.id


async def ledger_of(world: World) -> QueueOutbox:
    return await QueueOutbox.open(driver_of(world), Store(world.database), "ci", None, uid="uid")


async def test_delivered_notifications_survive_a_restart(world: World) -> None:
    """A new notifier is told from now on; what was told is not told again; what was not, is, under the same id."""
    world.enqueue("old", job="old")
    await world.run()
    ledger = await ledger_of(world)
    assert await ledger.pending() == []

    world.enqueue("a", job="first")
    world.enqueue("b", job="second")
    await world.run()
    told, untold = await ledger.pending()
    await ledger.mark_delivered(told)

    after_a_kill = await ledger_of(world)
    (again,) = await after_a_kill.pending()
    assert again.id == untold.id
    await after_a_kill.mark_delivered(again)

    assert await (await ledger_of(world)).pending() == []


async def test_no_prompt_reaches_a_notice(world: World) -> None:
    """Law 8, and the user's privacy: names and counts only."""
    world.service.say("create", IdempotencyConflict(ErrorInfo("conflict", CANARY)))
    world.enqueue("a", "b")
    world.connection.execute("UPDATE item SET prompt = ?", (CANARY,))
    await world.run()

    assert CANARY not in repr(happened(world)) + repr(await stands(world))


async def test_what_is_not_understood_is_reported_once(world: World) -> None:
    """Law 10: with what the reply lacks and its shape, and never as an outage."""
    strange = NotUnderstood("names no price", '{"amount": string}', 200)
    world.service.say("quote", strange, strange)
    world.enqueue("a")
    await world.run()

    (notice,) = await stands(world)
    world.clock.advance(timedelta(days=1).total_seconds())

    assert notice.kind is NotificationKind.NOT_UNDERSTOOD
    assert "not understood" in notice.title
    assert strange.lacking in notice.text
    assert strange.shape in notice.text
    assert "usable answer" not in notice.text
    assert [one.id for one in await stands(world)] == [notice.id]


@pytest.mark.parametrize(("made", "share"), [(3, None), (5, 50), (8, 80), (19, 95)])
async def test_shares_of_a_budget_are_reported(world: World, made: int, share: int | None) -> None:
    """The highest share of 50, 80 and 95 % that items of 10 credits reach, once, while work is left."""
    world.enqueue(*(f"item-{number}" for number in range(1, made + 2)), budget_credits=100 if made < 10 else 200)
    await world.run_until(f"item-{made}", ItemState.DONE)

    found = [notice for notice in await stands(world) if notice.kind is NotificationKind.BUDGET_SHARE]

    assert [notice.data["share"] for notice in found] == ([] if share is None else [share])
    assert len({notice.id for notice in [*found, *await stands(world)]}) == len(found)
