"""Rate limits, budgets, orders and options of a run, checked against the service's own ledger."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from batchkiln.core.job import Attempt, Order
from batchkiln.core.outcomes import REFUSALS_IN_A_ROW
from batchkiln.core.queue_types import LostAttempt, NewAttempt
from batchkiln.core.rate_limits import Limits, RequestKind, RequestNote, ServiceDay
from batchkiln.core.responses import (
    AccountBlocked,
    AccountProblem,
    GenerationStatus,
    IdempotencyConflict,
    RefusalKind,
    Refused,
    Throttled,
)
from batchkiln.core.states import ItemState
from batchkiln.core.timestamps import EPOCH, to_milliseconds
from batchkiln.store import operations
from batchkiln.store.resolution import Decision, resolve
from batchkiln.store.worker_store import WorkerStore
from batchkiln.worker.run_state import RunState
from support.builders import NO
from support.fake_clock import FakeClock
from support.fake_service import BUSY, Lost
from support.worker_world import World


@pytest.fixture
def two(tmp_path: Path) -> Iterator[World]:
    """Two accounts for every job."""
    made = World(tmp_path, accounts=("a", "b"))
    yield made
    made.close()


def prompts(world: World) -> list[str]:
    """Return the prompts in the order in which they were sent first."""
    seen = dict.fromkeys(
        create.body.split(b'"prompt":"a ')[1].split(b'"')[0].decode() for create in world.service.creates
    )
    return list(seen)


async def test_minute_of_creates_is_kept(world: World) -> None:
    """Law 5: short generations are sent no faster than the minute allows."""
    world.service.duration_seconds = 1.0
    world.enqueue(*(f"item-{n}" for n in range(45)))

    await world.run()

    assert world.states() == {"done": 45}
    assert world.service.violations == []


async def test_minute_is_kept_across_kills(tmp_path: Path) -> None:
    """Law 5: processes killed again and again together keep the minute's limits."""
    limits = Limits(creates_per_minute=4, reads_per_minute=12, poll_interval_seconds=1.0)
    world = World(tmp_path, limits=limits)
    world.service.duration_seconds = 1.0
    world.enqueue(*(f"item-{n}" for n in range(15)))
    while not await world.run_killed(250):
        world.restart()

    assert world.states() == {"done": 15}
    assert world.service.violations == []
    world.close()


@pytest.mark.parametrize("tells_time", [True, False])
@pytest.mark.parametrize("wrong_by", [timedelta(days=3), timedelta(days=-3)])
async def test_minute_is_kept_across_kills_though_the_clock_of_the_machine_is_wrong(
    tmp_path: Path, *, wrong_by: timedelta, tells_time: bool
) -> None:
    """Law 5: what is sent before the service has told its time hides nothing of what was sent before."""
    limits = Limits(creates_per_minute=4, reads_per_minute=12, poll_interval_seconds=1.0)
    world = World(tmp_path, limits=limits, accounts=("a", "b"))
    world.service.duration_seconds = 1.0
    world.service.tells_time = tells_time
    world.enqueue(*(f"item-{n}" for n in range(15)), accounts=("a", "b"))
    while not await world.run_killed(250):
        world.restart()
        world.clock.distrust(wrong_by)

    assert world.states() == {"done": 15}
    assert world.service.violations == []
    world.close()


async def test_request_that_outlasts_the_reset_counts_in_both_days(tmp_path: Path) -> None:
    """Law 5: the service may have counted it on either side of midnight."""
    clock = FakeClock(EPOCH + timedelta(days=20_000, seconds=-3))
    world = World(tmp_path, clock=clock)
    world.service.latencies["create"] = 4.0
    world.enqueue()

    await world.run()

    creates = [row[0] for row in world.rows("SELECT creates FROM account_day ORDER BY day_start_at")]
    assert creates == [1, 1]
    world.close()


@pytest.mark.parametrize(
    ("method", "kind"),
    [
        ("record_request", "quote"),
        ("record_request", "upload"),
        ("begin_attempt", "create"),
        ("resend", "create"),
        ("record_request", "read"),
    ],
)
async def test_request_before_which_the_process_stood_still_is_recorded_again(
    world: World, method: str, kind: str
) -> None:
    """Law 5: a process that was suspended after the record may die after the request, and the next one trusts it."""
    recorded, since_record, stops = getattr(WorkerStore, method), list[int](), [40.0]

    async def stand_still(*args: Any, **named: Any) -> Any:  # noqa: ANN401
        found = await recorded(*args, **named)
        if method != "record_request" or args[1].kind == kind:
            world.clock.advance(stops.pop() if stops else 0.0)
        return found

    def arrive(arriving: str, _: str) -> Any:  # noqa: ANN401
        if arriving == kind:
            latest = "SELECT max(sent_at) FROM request WHERE kind = ?"
            since_record.append(world.now_ms - world.one(latest, kind))
        if arriving == "create" and method == "resend" and len(since_record) == 1:
            return Lost.REPLY
        return None

    world.service.rule = arrive
    world.service.duration_seconds = 30.0
    world.enqueue(inputs=(world.inputs.put("owl.png", b"owl"),))
    with mock.patch.object(WorkerStore, method, stand_still):
        await world.run()

    assert not stops, "it stood still"
    assert max(since_record) < 1_000
    assert world.states() == {"done": 1}


async def test_poll_interval_counts_from_a_read_before_which_the_process_stood_still(world: World) -> None:
    """Service rule 4.4: the process that read late is killed, and the next one knows only what it recorded."""
    recorded, stops = WorkerStore.record_request, [40.0]

    async def stand_still(store: WorkerStore, request: RequestNote, **named: Any) -> None:  # noqa: ANN401
        await recorded(store, request, **named)
        if request.kind is RequestKind.READ and stops:
            world.clock.advance(stops.pop())

    world.service.duration_seconds = 300.0
    world.enqueue()
    with mock.patch.object(WorkerStore, "record_request", stand_still):
        await world.run_until_true(lambda: any(world.service.reads.values()))
    world.restart()
    await world.run()

    assert world.service.violations == []
    assert world.states() == {"done": 1}


async def test_request_that_a_standstill_delayed_past_the_reset_counts_in_both_days(tmp_path: Path) -> None:
    """Law 5: it is sent on the new day, whose count the next process reads."""
    world = World(tmp_path, clock=FakeClock(EPOCH + timedelta(days=20_000, seconds=-20)))
    began = WorkerStore.begin_attempt

    async def stand_still(store: WorkerStore, new: NewAttempt | LostAttempt) -> Attempt | None:
        attempt = await began(store, new)
        world.clock.advance(40)
        return attempt

    days = list[int]()

    def arrive(arriving: str, _: str) -> None:
        if arriving == "create":
            days.extend(row[0] for row in world.rows("SELECT creates FROM account_day ORDER BY day_start_at"))

    world.service.rule = arrive
    world.enqueue()
    with mock.patch.object(WorkerStore, "begin_attempt", stand_still):
        await world.run()

    assert days == [1, 1]
    world.close()


async def test_upload_that_outlasts_the_reset_counts_its_files_in_both_days(tmp_path: Path) -> None:
    """Law 5: the service may have counted files and bytes on either side of midnight. Assumption 43."""
    world = World(tmp_path, clock=FakeClock(EPOCH + timedelta(days=20_000, seconds=-3)))
    world.service.latencies["upload"] = 4.0
    (item,) = world.enqueue(inputs=(world.inputs.put("owl.png", b"owl"),))

    await world.run_until_true(lambda: world.state(item) is ItemState.ACTIVE)

    days = world.rows("SELECT upload_files, upload_bytes FROM account_day ORDER BY day_start_at")
    assert [tuple(day) for day in days] == [(1, 3), (1, 3)]
    world.close()


async def test_credits_in_doubt_at_a_reset_count_in_the_later_day(tmp_path: Path) -> None:
    """Law 5: the day that is over can no longer be overstepped, so the one that begins carries them."""
    midnight = EPOCH + timedelta(days=20_000)
    clock = FakeClock(midnight - timedelta(seconds=0.5), uncertainty=timedelta(seconds=1))
    world = World(tmp_path, clock=clock)
    (item,) = world.enqueue()
    world.service.lose_reply()

    await world.run_until_true(lambda: "outcome_unknown" in world.kinds(item))

    stored = world.rows("SELECT day_start_at FROM account_day WHERE credits > 0")
    assert [row[0] for row in stored] == [int(midnight.timestamp() * 1000)]
    world.close()


async def test_day_of_creates_is_kept(tmp_path: Path) -> None:
    """Law 5: requests of a day stop at its limit and go on after the reset."""
    world = World(tmp_path, limits=Limits(creates_per_day=4, reads_per_day=60))
    world.enqueue(*(f"item-{n}" for n in range(10)))

    await world.run()

    assert world.states() == {"done": 10}
    assert world.service.violations == []
    world.close()


@pytest.mark.parametrize("offset_seconds", [-0.12, -0.07, -0.05, -0.03, 0.0])
async def test_credits_count_in_the_day_that_made_them(tmp_path: Path, offset_seconds: float) -> None:
    """Law 5: a create around midnight is paid from the day in which the service made it."""
    clock = FakeClock(EPOCH + timedelta(days=20_000, seconds=-0.1 + offset_seconds), uncertainty=timedelta(seconds=1))
    world = World(tmp_path, limits=Limits(credits_per_day=25), clock=clock)
    world.enqueue(*(f"item-{n}" for n in range(6)))

    await world.run()

    assert world.states() == {"done": 6}
    assert world.service.violations == []
    by_day: dict[datetime, int] = {}
    for generation in world.service.generations.values():
        day = world.day.start_of(generation.created_at)
        by_day[day] = by_day.get(day, 0) + generation.cost
    stored = dict(
        world.connection.execute("SELECT day_start_at, credits FROM account_day WHERE credits > 0").fetchall()
    )
    assert stored == {int(day.timestamp() * 1000): spent for day, spent in by_day.items()}
    world.close()


async def test_day_of_credits_is_kept_with_failures(tmp_path: Path) -> None:
    """Law 5: verified failures still count toward the day's credits. Service section 8."""
    world = World(tmp_path, limits=Limits(credits_per_day=50))
    world.service.outcomes.extend([GenerationStatus.FAILED, GenerationStatus.SUCCESS] * 6)
    world.enqueue(*(f"item-{n}" for n in range(6)))

    await world.run()

    assert world.states() == {"done": 6}
    assert world.service.violations == []
    assert world.clock.instant - world.service.requests[0].at > timedelta(days=1)
    world.close()


async def test_smaller_item_goes_ahead_and_the_large_one_is_first_next_day(tmp_path: Path) -> None:
    """What does not fit the day lets smaller ones go, and is first after the reset. Contract, section 7."""
    world = World(tmp_path, limits=Limits(credits_per_day=100))
    world.enqueue("seventy", cost_credits=70)
    world.enqueue("sixty", cost_credits=60)
    world.enqueue("twenty", "twenty-2", cost_credits=20)

    await world.run()

    assert prompts(world) == ["seventy", "twenty", "sixty", "twenty-2"]
    world.close()


async def test_priority_goes_first(world: World) -> None:
    """Higher priority first, then the manifest's order. Contract, section 7."""
    world.enqueue("low", "low-2")
    world.enqueue("high", priority=5)
    world.enqueue("middle", priority=1)

    await world.run()

    assert prompts(world) == ["high", "middle", "low", "low-2"]


async def test_pack_uses_as_few_days_as_possible(tmp_path: Path) -> None:
    """`pack` takes the dearest first, so that the days are filled. Contract, section 7."""
    world = World(tmp_path, limits=Limits(credits_per_day=100))
    for name, cost in (("a", 30), ("b", 40), ("c", 60), ("d", 70)):
        world.enqueue(name, cost_credits=cost, order=Order.PACK)
    await world.run(RunState(starts_until=world.clock.instant))
    for cost in (30, 40, 60, 70):
        world.connection.execute(
            "INSERT INTO quote SELECT 'test', price_key, CAST(? AS INTEGER), 0 FROM recipe WHERE model = ?"
            " ON CONFLICT DO NOTHING",
            (cost, f"cost-{cost}"),
        )

    await world.run()

    assert prompts(world) == ["d", "a", "c", "b"]
    assert world.clock.instant - world.service.requests[0].at < timedelta(days=1)
    world.close()


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"recipe_fields": {"max_cost_credits": 9}}, "over_cap"),
        ({"budget_credits": 9}, "over_job_budget"),
        ({"budget_credits_per_day": 9}, "over_job_day_budget"),
        ({"cost_credits": 2001}, "over_day_budget"),
    ],
)
async def test_item_that_never_fits_is_rejected_with_its_reason(
    world: World, fields: dict[str, Any], code: str
) -> None:
    """Law 6: what exceeds a budget even when empty is rejected at once, unsent. Contract, section 7."""
    (item,) = world.enqueue(**fields)

    await world.run()

    assert (world.state(item), world.error(item)) == (ItemState.REJECTED, code)
    assert world.service.creates == []


async def test_job_budget_is_never_overstepped(world: World) -> None:
    """Law 6: with failures in between, the job spends at most its budget, and the rest is rejected."""
    world.service.outcomes.extend([GenerationStatus.FAILED, GenerationStatus.SUCCESS, GenerationStatus.FAILED])
    world.enqueue(*(f"item-{n}" for n in range(5)), budget_credits=30)

    await world.run()

    reserved, charged, refunded = world.money()
    assert (reserved, charged - refunded) == (0, 30)
    assert world.states() == {"done": 3, "rejected": 2}


async def test_no_reset_is_awaited_that_leaves_no_credits_for_the_item(two: World) -> None:
    """Law 6: what is in doubt counts in each day, and on a refused account only a person ends it: the run ends, too."""
    two.service.say("create", Lost.REPLY, AccountBlocked(AccountProblem.KEY_REFUSED, NO))
    two.enqueue("doubt", "waits", cost_credits=10, accounts=("a", "b"), budget_credits_per_day=15)
    began_at = two.clock.instant

    await two.run()

    assert two.states() == {"submitting": 1, "queued": 1}
    assert two.clock.instant - began_at < timedelta(hours=1)


@pytest.mark.parametrize("budget", ["budget_credits", "budget_credits_per_day"])
async def test_two_accounts_share_a_job_budget(two: World, budget: str) -> None:
    """Law 6: two accounts that plan at the same moment do not both take what is left of their job's budget."""
    two.connection.execute("INSERT INTO account (profile, name) VALUES ('test', 'a'), ('test', 'b')")
    fields: dict[str, Any] = {budget: 80}
    day = int(two.day.start_of(two.clock.instant).timestamp() * 1000)
    # Account b has only 40 left today, so it passes over the first item and takes the second.
    two.connection.execute("INSERT INTO account_day (account_id, day_start_at, credits) VALUES (2, ?, 1960)", (day,))
    two.enqueue("sixty", cost_credits=60, accounts=("a", "b"), **fields)
    two.enqueue("forty", cost_credits=40, accounts=("a", "b"), **fields)
    for cost in (60, 40):
        two.connection.execute(
            "INSERT INTO quote SELECT 'test', price_key, ?, 0 FROM recipe WHERE model = ?", (cost, f"cost-{cost}")
        )
    most = 0

    def look() -> None:
        nonlocal most
        reserved, charged, refunded = two.money()
        today = two.rows("SELECT max(credits) FROM job_day")[0][0] or 0
        most = max(most, reserved + charged - refunded if budget == "budget_credits" else today)

    await two.run_watched(look)

    assert most <= 80


async def test_two_accounts_share_max_credits(two: World) -> None:
    """--max-credits holds for all accounts together, also when both plan at the same moment."""
    two.enqueue(*(f"item-{n}" for n in range(8)), accounts=("a", "b"))

    await two.run(RunState(credits_left=30))

    assert two.service.charged == 30


async def test_max_credits_stops_with_work_left(world: World) -> None:
    """--max-credits begins nothing that exceeds it, and what was begun is finished."""
    world.enqueue(*(f"item-{n}" for n in range(5)))

    left = await world.run(RunState(credits_left=25))

    assert world.states() == {"done": 2, "queued": 3}
    assert left is not None
    assert left.total == 3


async def test_refused_create_gives_max_credits_back(world: World) -> None:
    """What was not created does not count toward --max-credits."""
    world.service.say("create", Refused(RefusalKind.INVALID, NO))
    world.enqueue("a", "b", "c")

    await world.run(RunState(credits_left=20))

    assert world.states() == {"done": 2, "rejected": 1}


async def test_refused_attempt_of_an_earlier_run_gives_nothing_back(world: World) -> None:
    """--max-credits is not raised by the refusal of an attempt that it never paid for."""
    world.enqueue("old", cost_credits=500)
    world.service.say("create", Throttled(timedelta(minutes=1), NO))
    await world.run_until_true(lambda: "create_postponed" in world.kinds("old"))
    world.restart(after_seconds=60)
    world.enqueue(*(f"item-{n}" for n in range(5)))
    world.service.say("create", Refused(RefusalKind.INVALID, NO))

    await world.run(RunState(credits_left=20))

    assert world.service.charged == 20


async def test_starts_until_begins_nothing_later(world: World) -> None:
    """--until TIME lets what was begun end, and begins nothing after it."""
    until = world.clock.instant + timedelta(seconds=50)
    world.enqueue("a", "b", "c", "d")

    left = await world.run(RunState(starts_until=until))

    assert world.states() == {"done": 2, "queued": 2}
    assert left is not None
    assert max(generation.created_at for generation in world.service.generations.values()) < until


async def test_pause_is_kept_without_a_wakeup(tmp_path: Path) -> None:
    """A job that another process paused during a wait begins nothing after it, though nobody told the run."""
    world = World(tmp_path, limits=Limits(creates_per_minute=1, poll_interval_seconds=1.0))
    world.service.duration_seconds = 1.0
    world.enqueue("a", "b")

    def look() -> None:
        if world.clock.monotonic >= 30.0 and not world.one("SELECT is_paused FROM job"):
            world.write(operations.pause, "job", 0)

    await world.run_watched(look, alarm_seconds=30.0)

    assert world.states() == {"done": 1, "queued": 1}
    world.close()


async def test_until_budget_stops_when_the_day_is_spent(tmp_path: Path) -> None:
    """--until budget ends the run where only the next day's credits help."""
    world = World(tmp_path, limits=Limits(credits_per_day=25))
    world.enqueue("a", "b", "c")

    left = await world.run(RunState(stops_at_reset=True))

    assert world.states() == {"done": 2, "queued": 1}
    assert left is not None
    assert world.clock.monotonic < 3600.0
    world.close()


async def test_graceful_stop_finishes_what_is_in_hand(world: World) -> None:
    """A stop records the reply that is under way, so that nothing is left in doubt."""
    (item,) = world.enqueue()

    await world.run_until_true(lambda: len(world.service.creates) == 1)

    assert world.state(item) is ItemState.ACTIVE
    assert world.attempts(item) == ["active"]


async def test_never_two_active_per_account(two: World) -> None:
    """Law 4: each account has one generation at a time, and both are kept busy."""
    two.enqueue(*(f"item-{n}" for n in range(10)), accounts=("a", "b"))
    most = 0

    def look() -> None:
        nonlocal most
        most = max(most, two.one("SELECT count(*) FROM attempt WHERE state IN ('sent', 'active')"))

    await two.run_watched(look)

    assert most == 2
    assert {create.account for create in two.service.creates} == {"a", "b"}
    assert two.service.violations == []


async def test_generation_that_a_person_adopts_during_a_wait_has_the_slot(tmp_path: Path) -> None:
    """Law 4: a person names a generation while the account waits for its minute; what was planned waits behind it."""
    world = World(tmp_path, limits=Limits(creates_per_minute=1))
    world.enqueue("a", "b")
    world.service.say("create", Lost.REPLY, IdempotencyConflict(NO))  # made; then held at the replay, a minute later

    def look() -> None:
        if world.clock.monotonic >= 90.0 and world.attempts("a") == ["disputed"]:
            world.write(resolve, "job", "a", Decision.GENERATION, generation_id="gen-1", now=0)

    await world.run_watched(look, alarm_seconds=90.0)

    assert world.states() == {"done": 2}
    assert len(world.service.generations) == 2
    assert world.service.violations == []
    world.close()


async def test_job_without_accounts_goes_to_the_first(two: World) -> None:
    """A job that names no account uses the profile's first."""
    two.enqueue("a", "b")

    await two.run()

    assert {create.account for create in two.service.creates} == {"a"}


async def test_slot_of_a_held_item_stays_taken(world: World) -> None:
    """Law 4: while an attempt in doubt is held for its key, nothing else is sent, and the run ends."""
    world.enqueue("first", "second")
    world.service.say("create", Lost.REPLY)
    await world.run_until_true(lambda: "outcome_unknown" in world.kinds("first"))
    world.restart(after_seconds=5)
    world.keys["main"] = ("key-2",)

    await world.run()

    assert world.states() == {"held": 1, "queued": 1}
    assert len(world.service.creates) == 1


async def test_short_days_and_minutes_of_a_sped_up_service(tmp_path: Path) -> None:
    """Law 5: every window follows the profile's own lengths."""
    limits = Limits(creates_per_minute=2, minute_seconds=6.0, credits_per_day=40, poll_interval_seconds=1.0)
    world = World(tmp_path, limits=limits, day=ServiceDay(600.0, EPOCH + timedelta(seconds=17)))
    world.service.day = world.day
    world.service.duration_seconds = 1.5
    world.enqueue(*(f"item-{n}" for n in range(14)))

    await world.run()

    assert world.states() == {"done": 14}
    assert world.service.violations == []
    assert world.clock.monotonic > 1200.0
    world.close()


async def test_machine_window_begins_with_the_last_minute_of_an_earlier_run(tmp_path: Path) -> None:
    """Law 5: repeated restarts send no more requests a minute than the firewall allows."""
    world = World(tmp_path, limits=Limits(requests_per_minute_per_ip=3))
    world.enqueue("a", "b", "c")

    for _ in range(6):
        await world.run_killed(60)
        world.restart()
    await world.run()

    assert world.service.violations == []
    assert world.states() == {"done": 3}
    world.close()


# --- what the service has postponed, and somebody no longer wants ---

POSTPONED = Throttled(timedelta(hours=3), BUSY)


async def postponed(world: World, *, cost_credits: int = 10) -> None:
    """Have a create answered by a limit, so that nothing is created, and the program ended."""
    world.enqueue("a", cost_credits=cost_credits)
    world.service.say("create", POSTPONED)
    await world.run_until_true(lambda: "create_postponed" in world.kinds("a"))
    world.restart(after_seconds=60)


async def test_max_credits_bounds_what_an_earlier_run_was_refused(world: World) -> None:
    """`--max-credits 20` of this run: nothing of the other had been charged."""
    await postponed(world, cost_credits=500)

    await world.run(RunState(credits_left=20))

    assert (world.service.charged, world.state("a")) == (0, ItemState.QUEUED)


async def test_max_credits_counts_what_an_earlier_run_was_refused(world: World) -> None:
    """It is charged in this run, and leaves nothing for another."""
    await postponed(world)
    world.enqueue("a", "b")

    await world.run(RunState(credits_left=15))

    assert world.service.charged == 10
    assert world.states() == {"done": 1, "queued": 1}
    assert world.attempts("a") == ["succeeded"]  # the same key, sent again


async def test_lowered_budget_binds_what_was_not_created(world: World) -> None:
    """Law 6: the manifest was applied again with less, before anything was created."""
    await postponed(world, cost_credits=500)
    world.enqueue("a", cost_credits=500, budget_credits=100, budget_credits_per_day=100)

    await world.run()

    assert world.service.charged == 0
    assert world.money() == (0, 0, 0)


@pytest.mark.parametrize("after_seconds", [60, 86_400])
async def test_lowered_limit_binds_what_was_not_created(world: World, after_seconds: int) -> None:
    """Law 5: the configuration allows less a day than it did; on the next day, too, which would carry the credits."""
    await postponed(world, cost_credits=500)
    world.limits = world.service.limits = Limits(credits_per_day=100)
    world.restart(after_seconds=after_seconds)

    await world.run()

    assert world.service.charged == 0
    assert world.service.violations == []


async def test_pause_holds_what_was_not_created(world: World) -> None:
    """An attempt that created nothing waits while its job is paused."""
    await postponed(world)
    world.write(operations.pause, "job", 0)

    await world.run()

    assert (world.service.charged, world.state("a")) == (0, ItemState.QUEUED)


async def test_end_at_a_time_does_not_wait_for_what_was_not_created(world: World) -> None:
    """`--until TIME`: the service asks for a longer wait than that."""
    until = world.clock.instant + timedelta(hours=1)
    world.enqueue("a", "b")
    world.service.say("create", POSTPONED)

    await world.run(RunState(starts_until=until))

    assert world.service.charged == 0
    assert until <= world.clock.instant < until + timedelta(minutes=1)


async def test_what_was_postponed_often_is_not_refused_for_that(world: World) -> None:
    """Only refusals of the request itself are counted, however often a limit came before."""
    world.enqueue("a")
    for _ in range(REFUSALS_IN_A_ROW):
        world.service.say("create", POSTPONED)
        await world.run(RunState(starts_until=world.clock.instant + timedelta(minutes=1)))
        world.restart(after_seconds=4 * 3600)
    world.service.say("create", Refused(RefusalKind.OVER_QUOTE, NO))

    await world.run()

    assert world.states() == {"done": 1}


async def test_cost_of_zero_while_pending_opens_no_budget(world: World) -> None:
    """Law 6: the quote counts until the end, in the job's budgets as in what the account's day has left."""
    world.service.cost_told = lambda cost, status: cost if status is GenerationStatus.SUCCESS else 0
    world.enqueue(*(f"item-{n}" for n in range(6)), budget_credits=30)
    most = 0

    def look() -> None:
        nonlocal most
        most = max(most, sum(world.money()[:2]))

    await world.run_watched(look)

    assert world.service.charged == most == 30
    assert world.states() == {"done": 3, "rejected": 3}


async def test_charge_above_the_maximum_stops_the_account(world: World) -> None:
    """Law 6: the service breaks its own promise of a maximum, so nothing more is begun until a person says so."""
    world.service.cost_told = lambda cost, _: cost * 4
    world.enqueue("a", "b", "c")

    await world.run()
    stopped, problem = world.states(), next(iter(world.control.blocked.values())).problem
    await world.run()
    again = world.states()
    world.write(operations.unpause, "job", to_milliseconds(world.clock.instant))
    world.service.cost_told = lambda cost, _: cost
    await world.run()

    assert problem is AccountProblem.OVERCHARGED
    assert stopped == again == {"done": 1, "queued": 2}
    assert world.states() == {"done": 3}


async def test_charge_above_the_maximum_counts_in_max_credits(world: World) -> None:
    """--max-credits is what a run may spend, and not what it was quoted."""
    world.service.cost_told = lambda cost, _: cost + 5
    world.enqueue("a", "b")
    control = RunState(credits_left=20)

    await world.run(control)

    assert control.credits_left == 5
