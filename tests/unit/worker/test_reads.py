"""Replies to a poll: an id is followed to its end, whatever comes in between (Law 3)."""

from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from unittest import mock

import pytest
from msgspec.structs import replace

from batchkiln.core.polling import LOST_AFTER
from batchkiln.core.queue_types import Scope
from batchkiln.core.rate_limits import Limits
from batchkiln.core.responses import (
    AccountBlocked,
    AccountProblem,
    EdgeBlocked,
    GenerationStatus,
    NotFound,
    RecordRead,
    Throttled,
    Unavailable,
)
from batchkiln.core.states import ItemState
from batchkiln.core.timestamps import EPOCH, from_milliseconds
from batchkiln.store import worker_store
from batchkiln.store.database import in_snapshot
from batchkiln.store.jobs import Jobs
from batchkiln.store.resolution import Decision, resolve
from batchkiln.store.session import Session
from support.builders import NO, record
from support.fake_clock import FakeClock
from support.fake_service import Lost, refusing
from support.worker_world import PROFILE, World

HOUR = 3600.0


@pytest.mark.parametrize(
    "trouble",
    [
        Lost.REPLY,
        Lost.REQUEST,
        Unavailable(None, NO),
        Throttled(timedelta(minutes=5), NO),
        EdgeBlocked(),
        RecordRead(replace(record(GenerationStatus.UNKNOWN), status_word="post-processing")),
        RecordRead(record(GenerationStatus.PENDING)),
        NotFound(NO),
    ],
)
async def test_trouble_of_a_poll_changes_nothing(world: World, trouble: object) -> None:
    """Law 3: after any trouble the same id is polled on, and nothing new is sent."""
    world.service.say("read", trouble, trouble)
    (item,) = world.enqueue()

    await world.run()

    assert world.state(item) is ItemState.DONE
    assert len(world.service.creates) == 1
    assert world.service.violations == []


async def test_pending_for_hours_is_polled_on(world: World) -> None:
    """Law 3: a generation that stays pending is never replaced, and read every ten seconds. Service rules 4.4, 4.5."""
    world.service.duration_seconds = 2 * HOUR
    (item,) = world.enqueue()

    await world.run()

    times = world.service.reads["gen-1"]
    gaps = [after - before for before, after in pairwise(times[:-1])]
    assert min(gaps) >= timedelta(seconds=10)
    assert max(gaps) < timedelta(seconds=11)
    assert len(world.service.creates) == 1
    assert world.state(item) is ItemState.DONE


async def test_poll_interval_survives_restarts(world: World) -> None:
    """Processes that are killed after each poll together keep the ten seconds. Service rule 4.4."""
    world.service.duration_seconds = 120.0
    world.enqueue()
    for steps in range(60, 400, 20):
        await world.run_killed(steps)
        world.restart()

    await world.run()

    assert world.service.violations == []
    assert world.states() == {"done": 1}


async def test_verified_failure_is_tried_again_with_a_new_key(world: World) -> None:
    """Law 2: a failure that the service verified is refunded once, and the next attempt has its own key."""
    world.service.outcomes.extend([GenerationStatus.FAILED])
    (item,) = world.enqueue()

    await world.run()

    first, second = world.service.creates
    assert first.idempotency_key != second.idempotency_key
    assert world.attempts(item) == ["failed", "succeeded"]
    assert world.money() == (0, 20, 10)
    assert world.one("SELECT credits FROM account_day") == 20


async def test_attempts_are_used_up(world: World) -> None:
    """An item fails after as many verified failures as it allows, all refunded."""
    world.service.outcomes.extend([GenerationStatus.FAILED] * 9)
    (item,) = world.enqueue(recipe_fields={"attempts": 2})

    await world.run()

    assert world.state(item) is ItemState.FAILED
    assert world.attempts(item) == ["failed", "failed"]
    assert world.money() == (0, 20, 20)
    assert world.error(item) == "model_error"


async def test_canceled_by_the_service_is_not_tried_again(world: World) -> None:
    """Law 2: nothing says that a canceled generation was refunded, so a person decides."""
    world.service.outcomes.append(GenerationStatus.CANCELED)
    (item,) = world.enqueue()

    await world.run()

    assert world.state(item) is ItemState.FAILED
    assert len(world.service.creates) == 1
    assert world.money() == (0, 10, 0)


async def test_expired_outputs_end_the_item(world: World) -> None:
    """A generation whose outputs are no longer retained ends as expired: paid, and lost."""
    world.service.outcomes.append(GenerationStatus.EXPIRED)
    (item,) = world.enqueue()

    await world.run()

    assert world.state(item) is ItemState.EXPIRED
    assert world.money() == (0, 10, 0)


async def test_denied_id_is_held_after_an_hour(world: World) -> None:
    """An id that the service itself gave and denies for an hour waits for a person; the slot is free again."""
    first, second = world.enqueue("first", "second")
    await world.run_until(first, ItemState.ACTIVE)
    world.service.generations["gen-1"].is_forgotten = True

    await world.run()

    times = world.service.reads["gen-1"]
    assert times[-1] - times[0] >= timedelta(hours=1)
    assert (world.state(first), world.state(second)) == (ItemState.HELD, ItemState.DONE)
    assert world.attempts(first) == ["disputed"]


async def test_hour_of_denial_starts_again_when_the_id_was_seen(world: World) -> None:
    """A 404 now and one hours later, with good reads between them, are no hour of denial."""
    world.service.duration_seconds = 2 * HOUR
    (item,) = world.enqueue()
    denials = [0, 600]

    def deny(kind: str, account: str) -> NotFound | None:
        assert account == "main"
        return NotFound(NO) if kind == "read" and len(world.service.reads["gen-1"]) in denials[:1] else None

    def deny_once(kind: str, account: str) -> NotFound | None:
        reply = deny(kind, account)
        if reply:
            denials.pop(0)
        return reply

    world.service.rule = deny_once
    await world.run()

    assert denials == []
    assert world.state(item) is ItemState.DONE


async def test_missing_key_is_held_and_resumes(world: World) -> None:
    """Law 3: without the creator's key the id is not read; when the key is back, the next run goes on."""
    (item,) = world.enqueue()
    await world.run_until(item, ItemState.ACTIVE)
    world.restart()
    world.keys["main"] = ("key-2",)

    await world.run()
    held = (world.state(item), world.error(item))
    world.restart()
    world.keys["main"] = ("key-2", "key-1")
    await world.run()

    assert held == (ItemState.HELD, "key_missing")
    assert world.state(item) is ItemState.DONE
    assert len(world.service.creates) == 1
    assert world.service.violations == []


async def test_account_with_held_items_alone_has_nothing_to_finish(world: World) -> None:
    """A worker that is full makes room for an account whose attempts it can finish, and for no other one."""
    (item,) = world.enqueue()
    await world.run_until(item, ItemState.ACTIVE)
    active = Jobs(world.connection).work(Scope())
    world.restart()
    world.keys["main"] = ("key-2",)
    await world.run()
    held = Jobs(world.connection).work(Scope())

    assert active.under_way == active.unfinished == {(PROFILE, "main")}
    assert held.under_way == {(PROFILE, "main")}
    assert not held.unfinished


async def test_missing_key_in_doubt_is_held_and_replayed(world: World) -> None:
    """Law 2: an attempt in doubt waits for its own API key; another one may not even use the slot (Law 4)."""
    first, second = world.enqueue("first", "second")
    world.service.lose_reply()
    await world.run_until_true(lambda: "outcome_unknown" in world.kinds(first))
    world.restart()
    world.keys["main"] = ("key-2",)

    await world.run()
    between = (world.state(first), world.state(second))
    world.restart()
    world.keys["main"] = ("key-2", "key-1")
    await world.run()

    assert between == (ItemState.HELD, ItemState.QUEUED)
    assert world.states() == {"done": 2}
    assert world.service.charged == 20
    assert world.service.violations == []


async def test_missing_key_of_what_created_nothing_holds_nothing(world: World) -> None:
    """A send that was answered by 429 left no doubt: the item is begun anew with the key that is there."""
    (item,) = world.enqueue()
    world.service.say("create", Throttled(timedelta(hours=1), NO))
    await world.run_until_true(lambda: "create_postponed" in world.kinds(item))
    world.restart(after_seconds=2 * HOUR)
    world.keys["main"] = ("key-2",)

    await world.run()

    assert world.state(item) is ItemState.DONE
    assert world.service.charged == 10
    assert world.service.violations == []


async def test_revoked_key_of_what_is_active_is_held_and_the_account_continues_once_a_person_has_resolved_it(
    world: World,
) -> None:
    """With a newer key, only the generation of the old key is unreadable; the account continues."""
    first, second = world.enqueue("first", "second")
    await world.run_until(first, ItemState.ACTIVE)
    world.restart()
    world.keys["main"] = ("key-2", "key-1")
    world.service.rule = refusing("read")

    await world.run()

    assert (world.state(first), world.error(first)) == (ItemState.HELD, "key_missing")
    assert world.state(second) is ItemState.QUEUED  # Law 4: the slot is the first one's until a person says otherwise
    assert world.control.blocked == {}


async def test_older_key_that_is_refused_for_a_while_is_asked_with_again(world: World) -> None:
    """An outage of the service's doorkeeper is no revocation, and nothing that was paid waits for a person."""
    (item,) = world.enqueue()
    await world.run_until(item, ItemState.ACTIVE)
    world.restart()
    world.keys["main"] = ("key-2", "key-1")
    world.service.say("read", *[AccountBlocked(AccountProblem.KEY_REFUSED, NO)] * 5)

    await world.run()

    assert world.state(item) is ItemState.DONE


async def test_an_accepted_replay_ends_the_doubt_about_an_older_key(world: World) -> None:
    """Two refusals an hour apart are no hour of refusal, when the key was accepted in between."""
    world.service.duration_seconds = 2 * HOUR
    world.service.lose_reply()
    (item,) = world.enqueue()
    await world.run_until_true(lambda: "outcome_unknown" in world.kinds(item))
    world.restart(after_seconds=60)
    world.keys["main"] = ("key-2", "key-1")
    world.service.say("create", AccountBlocked(AccountProblem.KEY_REFUSED, NO))
    world.service.say("read", Throttled(LOST_AFTER, NO), AccountBlocked(AccountProblem.KEY_REFUSED, NO))

    await world.run()

    assert world.state(item) is ItemState.DONE


async def test_refused_account_leaves_the_id_for_the_next_run(world: World) -> None:
    """An account refused at a poll ends the run; the generation is polled by the next."""
    world.service.say("read", AccountBlocked(AccountProblem.KEY_REFUSED, NO))
    (item,) = world.enqueue()

    await world.run()
    between = world.state(item)
    world.restart(after_seconds=30)
    await world.run()

    assert between is ItemState.ACTIVE
    assert world.state(item) is ItemState.DONE


# --- a generation that a person named ---


async def adopted(world: World) -> None:
    """Lose the key of what is in doubt, have a person find the generation, and put the key back."""
    world.keys["main"] = ("key-2",)
    world.restart(after_seconds=60)
    await world.run()
    assert world.state("a") is ItemState.HELD
    world.write(resolve, "job", "a", Decision.GENERATION, generation_id="gen-1", now=0)
    world.keys["main"] = ("key-2", "key-1")
    world.restart(after_seconds=60)


async def test_named_generation_is_retained_from_when_it_was_made(world: World) -> None:
    """Law 3: recorded without a network, it was made a fortnight later, when the machine was on again."""
    world.enqueue("a")
    world.service.say("create", Lost.REQUEST)
    await world.run_until_true(lambda: "outcome_unknown" in world.kinds("a"))
    world.restart(after_seconds=15 * 86_400)
    await world.run_until_true(lambda: world.state("a") is ItemState.HELD)
    world.write(resolve, "job", "a", Decision.ASK_AGAIN, now=world.now_ms)
    world.service.say("create", Lost.REPLY)
    await world.run_until_true(lambda: world.kinds("a").count("outcome_unknown") == 2)
    await adopted(world)
    await world.run_until_true(lambda: world.state("a") is ItemState.DOWNLOADING)
    world.restart(after_seconds=60)
    world.service.say("read", NotFound(NO))  # a delay inside the service

    await world.run()

    assert world.state("a") is ItemState.DONE


async def test_named_generation_counts_in_the_day_that_made_it(tmp_path: Path) -> None:
    """Law 5: its create left before the reset and arrived after it."""
    clock = FakeClock(EPOCH + timedelta(days=20_000, seconds=-1))
    world = World(tmp_path, limits=Limits(credits_per_day=50), clock=clock)
    world.service.latencies["create"] = 2.0
    world.enqueue("a", cost_credits=50)
    world.service.say("create", Lost.REPLY)
    await world.run_until_true(lambda: "outcome_unknown" in world.kinds("a"))
    await adopted(world)
    world.service.latencies.clear()
    world.enqueue("b", cost_credits=10, job="other")

    await world.run()

    assert world.service.violations == []
    assert world.states() == {"done": 2}
    world.close()


async def test_result_under_an_unknown_word_is_fetched(world: World) -> None:
    """Law 3: a service may call a success otherwise; once its outputs have stood for minutes they are saved."""
    world.service.word_told = lambda status: "delivered" if status is GenerationStatus.SUCCESS else status.value
    world.enqueue("a", "b")

    await world.run()

    assert world.states() == {"done": 2}
    assert world.kinds("a").count("status_seen") == 1
    assert "unknown_status_taken_for_success" in world.kinds("a")


async def test_outcome_counts_where_the_read_of_the_queue_after_it_fails(world: World) -> None:
    """The read spares a later one, and nothing depends on it; the outcome is committed."""
    failed: list[str] = []

    def failing(session: Session, *_: object) -> None:
        failed.append("a read")
        in_snapshot(session, lambda connection: connection.execute("SELECT no_such_column FROM item"), (), {})

    world.enqueue("a", "b")
    with mock.patch.object(worker_store, "in_snapshot", failing):
        await world.run()

    assert failed
    assert world.states() == {"done": 2}
    assert world.service.charged == 20
    assert world.service.violations == []


async def test_time_of_a_read_is_recorded_as_the_latest_that_it_can_be(tmp_path: Path) -> None:
    """Service rule 4.4: the next process waits from there. A process that was suspended knows the time by a minute."""
    world = World(tmp_path, clock=FakeClock(uncertainty=timedelta(minutes=1)))
    world.enqueue()

    await world.run()

    arrived_at = max(request.at for request in world.service.requests if request.kind == "read")
    recorded_at = from_milliseconds(world.rows("SELECT last_read_at FROM attempt")[0][0])
    assert timedelta(seconds=59) < recorded_at - arrived_at <= timedelta(minutes=1)
    world.close()
