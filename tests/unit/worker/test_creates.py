"""Replies to a create: what becomes of the item, the money and the waits."""

from datetime import timedelta
from pathlib import Path

import pytest

from batchkiln.core.job import Mode
from batchkiln.core.polling import LOST_AFTER
from batchkiln.core.rate_limits import Limits
from batchkiln.core.responses import (
    AccountBlocked,
    AccountProblem,
    EdgeBlocked,
    ErrorInfo,
    IdempotencyConflict,
    NoResponse,
    RefusalKind,
    Refused,
    Throttled,
    Unavailable,
)
from batchkiln.core.states import Event, ItemState
from batchkiln.core.timestamps import WITNESS_GAP_SECONDS, to_milliseconds
from batchkiln.core.waits import WaitReason
from batchkiln.store import operations
from batchkiln.store.apply import ApplyOptions, compared
from batchkiln.store.resolution import Decision, resolve
from batchkiln.store.transitions import transition
from batchkiln.worker.startup import ANSWERS_ABOUT_TIME
from support.builders import NO, PlacedItem, diagnostic_at, item_spec, job_spec, recipe
from support.fake_service import BUSY, Lost, refusing
from support.stores import open_session
from support.worker_world import PROFILE, World

LIMIT = ErrorInfo("rate_limited", "too many requests per minute")
BLOCKED = AccountBlocked(AccountProblem.FORBIDDEN, NO)


@pytest.mark.parametrize("lost", [Lost.REPLY, Lost.REQUEST])
async def test_lost_create_is_replayed_and_charged_once(world: World, lost: Lost) -> None:
    """Law 2: a create without a reply is sent again byte for byte, and charged once. Service rule 4.2."""
    world.service.say("create", lost)
    (item,) = world.enqueue()

    await world.run()

    first, second = world.service.creates
    assert second == first
    assert world.service.charged == 10
    assert world.state(item) is ItemState.DONE
    assert world.money() == (0, 10, 0)


async def test_503_is_a_lost_reply(world: World) -> None:
    """A create answered 503 is sent again with the same key and bytes. Service section 7."""
    world.service.say("create", Unavailable(None, NO), Unavailable(timedelta(seconds=90), NO))
    (item,) = world.enqueue()

    await world.run()

    assert len(set(world.service.creates)) == 1
    assert world.attempts(item) == ["succeeded"]
    create_times = [request.at for request in world.service.requests if request.kind == "create"]
    assert create_times[2] - create_times[1] >= timedelta(seconds=90)


async def test_retry_after_of_hours_is_waited_out_exactly(world: World) -> None:
    """A 429 with Retry-After holds creates for just that long, and uses up no attempt. Service section 7."""
    world.service.say("create", Throttled(timedelta(hours=3), LIMIT))
    (item,) = world.enqueue()

    await world.run()

    times = [request.at for request in world.service.requests if request.kind == "create"]
    assert timedelta(hours=3) <= times[1] - times[0] < timedelta(hours=3, seconds=1)
    assert world.attempts(item) == ["succeeded"]


@pytest.mark.parametrize("after_seconds", [0.0, 3600.0])
async def test_retry_after_survives_a_restart(world: World, after_seconds: float) -> None:
    """Law 5: the wait that the service imposed is honoured by the next process as well."""
    world.service.say("create", Throttled(timedelta(hours=3), LIMIT))
    (item,) = world.enqueue()
    await world.run_until_true(lambda: "create_postponed" in world.kinds(item))

    world.restart(after_seconds=after_seconds)
    await world.run()

    times = [request.at for request in world.service.requests if request.kind == "create"]
    assert times[1] - times[0] >= timedelta(hours=3)
    assert world.state(item) is ItemState.DONE


async def test_wait_that_was_kept_by_a_wrong_clock_is_as_long_as_it_was(world: World) -> None:
    """A clock that was a year ahead holds nothing until next year, and lets nothing begin too early."""
    world.service.say("create", Throttled(timedelta(hours=3), LIMIT))
    (item,) = world.enqueue()
    await world.run_until_true(lambda: "create_postponed" in world.kinds(item))

    world.restart(after_seconds=-365 * 86_400)
    began_at = world.clock.instant
    await world.run()

    sent_at = [request.at for request in world.service.requests if request.kind == "create"][1]
    assert timedelta(hours=3) - timedelta(seconds=5) <= sent_at - began_at <= timedelta(hours=3, seconds=5)


async def test_stored_wait_is_never_longer_than_what_a_service_may_ask_for(world: World) -> None:
    """Whatever is stored ends: a week covers every window of the service."""
    (item,) = world.enqueue()
    world.connection.execute(
        "INSERT INTO account (profile, name, creates_held_until, creates_held_reason)"
        " VALUES ('test', 'main', 253402300799000, 'throttled')"
    )
    began_at = world.clock.instant

    await world.run()

    assert world.state(item) is ItemState.DONE
    assert world.clock.instant - began_at < timedelta(days=9)


async def test_time_far_from_the_machines_is_asked_for_again(world: World) -> None:
    """No single reply tells the day (Law 5): nothing is begun until another one agrees."""
    world.service.dates_needed = 2
    world.clock.distrust(timedelta(days=-3))
    world.enqueue()

    await world.run()

    kinds = [request.kind for request in world.service.requests]
    first, second = (request.at for request in world.service.requests if request.kind == "other")
    assert kinds[:2] == ["other", "other"]
    assert kinds.count("other") == 2
    assert second - first >= timedelta(seconds=WITNESS_GAP_SECONDS)


async def test_time_that_no_two_replies_agree_on_is_asked_for_a_few_times(world: World) -> None:
    """Nothing is tried for ever: then this machine's clock serves, as without any `Date`."""
    world.service.dates_needed = 10**6
    world.clock.distrust(timedelta(0))
    (item,) = world.enqueue()

    await world.run()

    assert [request.kind for request in world.service.requests].count("other") == ANSWERS_ABOUT_TIME
    assert world.state(item) is ItemState.DONE


async def test_question_for_the_time_is_logged_no_later_than_what_was_sent_before(world: World) -> None:
    """Law 5: a clock that is a day ahead would make the last minute's requests look old to whoever reads the log."""
    world.enqueue("fox")
    await world.run()
    newest = world.one("SELECT max(sent_at) FROM request")

    world.restart()
    world.clock.distrust(timedelta(days=1))
    world.enqueue("owl")
    await world.run_until_true(lambda: len(world.service.creates) == 2)

    assert world.one("SELECT max(sent_at) FROM request") - newest < 3_600_000


@pytest.mark.parametrize("first", [Unavailable(None, NO), Lost.REQUEST])
async def test_stored_retry_after_outlives_a_shorter_trouble(world: World, first: object) -> None:
    """A wait of hours for reads is not cut short by a lost reply that needs only seconds."""
    world.service.duration_seconds = 60.0
    world.service.say("read", Throttled(timedelta(hours=3), LIMIT))
    (item,) = world.enqueue()
    await world.run_until_true(lambda: world.one("SELECT count(reads_held_until) FROM account") == 1)
    throttled_at = next(request.at for request in world.service.requests if request.kind == "read")

    world.restart()
    world.clock.is_observed = False
    world.service.say("other", first)
    await world.run()

    reads = [request.at for request in world.service.requests if request.kind == "read"]
    assert reads[1] - throttled_at >= timedelta(hours=3)
    assert world.state(item) is ItemState.DONE


async def test_other_generation_is_named_and_waited_out(world: World) -> None:
    """A 429 since somebody else's generation is active is named so, and costs no attempt. Contract, section 7."""
    world.service.say("create", Throttled(timedelta(minutes=7), BUSY))
    (item,) = world.enqueue()
    reasons: list[WaitReason] = []

    def look() -> None:
        for worker in world.workers:
            due = world.control.slot_wait(worker.account_id)
            reasons.extend([due.reason] if due else [])

    await world.run_watched(look)

    assert WaitReason.OTHER_GENERATION in reasons
    assert WaitReason.THROTTLED not in reasons
    assert world.attempts(item) == ["succeeded"]
    assert len(set(world.service.creates)) == 1


async def test_own_generation_in_doubt_is_not_taken_for_anothers(world: World) -> None:
    """A 429 to a replay may mean our own lost generation, so nobody else is named."""
    world.service.say("create", Lost.REQUEST, Throttled(timedelta(minutes=7), BUSY))
    world.enqueue()
    reasons: list[WaitReason] = []

    def look() -> None:
        due = world.control.slot_wait(1) if world.workers else None
        reasons.extend([due.reason] if due else [])

    await world.run_watched(look)

    assert WaitReason.THROTTLED in reasons
    assert WaitReason.OTHER_GENERATION not in reasons


async def test_edge_firewall_stops_all_accounts_for_a_minute(tmp_path: Path) -> None:
    """A 403 that is no JSON holds the whole machine for a minute; nothing is in doubt. Service section 7."""
    world = World(tmp_path, accounts=("a", "b"))
    world.enqueue("one", "two", "three", "four", accounts=("a", "b"))
    world.service.say("create", EdgeBlocked())

    await world.run()

    times = sorted(request.at for request in world.service.requests)
    blocked_at = next(request.at for request in world.service.requests if request.kind == "create")
    later = [at for at in times if at > blocked_at + timedelta(seconds=1)]
    assert later[0] - blocked_at >= timedelta(seconds=60)
    assert world.states() == {"done": 4}
    assert world.service.violations == []
    world.close()


@pytest.mark.parametrize("problem", list(AccountProblem))
async def test_refused_account_ends_its_worker_and_gives_the_item_back(world: World, problem: AccountProblem) -> None:
    """A JSON 401, 402 or 403 created nothing: the item is queued, its credits free, the account blocked."""
    world.service.say("create", AccountBlocked(problem, NO))
    (item,) = world.enqueue()

    await world.run()

    assert world.state(item) is ItemState.QUEUED
    assert world.money() == (0, 0, 0)
    assert world.one("SELECT credits FROM account_day") == 0
    assert world.control.blocked[1].problem is problem
    assert len(world.service.creates) == 1


async def test_account_that_is_refused_what_is_new_still_fetches_what_it_paid(tmp_path: Path) -> None:
    """Law 3: it has spent its last credits, and another account keeps the process busy beyond the retention."""
    world = World(tmp_path, accounts=("a", "b"), limits=Limits(credits_per_day=10))
    image = world.inputs.put("owl.png", b"owl")
    world.enqueue("paid", job="one", accounts=("a",))
    world.enqueue("next", job="one", accounts=("a",), inputs=(image,))
    world.enqueue(*(f"b-{n}" for n in range(16)), job="two", accounts=("b",))
    refused = AccountBlocked(AccountProblem.NO_CREDITS, NO)
    world.service.rule = lambda kind, account: (
        refused if (kind, account) == ("upload", "a") and world.attempts("paid") else None
    )

    await world.run()  # sixteen days

    assert world.state("paid") is ItemState.DONE
    assert world.state("next") is ItemState.QUEUED
    assert world.control.blocked.keys() == {1}
    world.close()


async def test_create_that_is_refused_leaves_downloads_going(world: World) -> None:
    """A paid result is fetched before the run ends, also where the file server was away for a minute."""
    world.enqueue("paid", "next")

    def rule(kind: str, _account: str) -> object:
        if kind == "create" and world.service.generations:
            return AccountBlocked(AccountProblem.NO_CREDITS, NO)
        return NoResponse("away") if kind == "download" and world.clock.monotonic < 60 else None

    world.service.rule = rule

    await world.run()

    assert world.states() == {"done": 1, "queued": 1}


async def test_revoked_key_of_what_is_in_doubt_is_held(world: World) -> None:
    """Only the old key may ask again; a newer one is configured, so that the account as such is not refused."""
    world.service.lose_reply()
    (item,) = world.enqueue()
    await world.run_until_true(lambda: "outcome_unknown" in world.kinds(item))
    world.restart(after_seconds=60)
    world.keys["main"] = ("key-2", "key-1")
    world.service.rule = refusing("create")
    before = world.clock.instant

    await world.run()

    assert (world.state(item), world.error(item)) == (ItemState.HELD, "key_missing")
    assert world.clock.instant - before >= LOST_AFTER
    assert world.control.blocked == {}


async def test_refused_account_keeps_what_is_in_doubt_for_a_replay(world: World) -> None:
    """Law 2: an attempt whose earlier send may have arrived stays, and the next run sends it again."""
    world.service.say("create", Lost.REPLY, BLOCKED)
    (item,) = world.enqueue()

    await world.run()
    state_between = world.state(item)
    world.restart(after_seconds=60)
    await world.run()

    assert state_between is ItemState.SUBMITTING
    assert len(set(world.service.creates)) == 1
    assert world.service.charged == 10
    assert world.state(item) is ItemState.DONE


async def test_refused_account_leaves_the_other_account_at_work(tmp_path: Path) -> None:
    """One account that cannot work does not stop a job that has another."""
    world = World(tmp_path, accounts=("a", "b"))
    world.enqueue("one", "two", accounts=("a", "b"))
    world.service.rule = lambda kind, account: BLOCKED if (kind, account) == ("create", "a") else None

    await world.run()

    assert world.states() == {"done": 2}
    world.close()


async def test_invalid_request_is_rejected_and_not_charged(world: World) -> None:
    """A refusal before creation ends the item without a charge. Service section 7."""
    world.service.say("create", Refused(RefusalKind.INVALID, NO))
    (item,) = world.enqueue()

    await world.run()

    assert world.state(item) is ItemState.REJECTED
    assert world.error(item) == "no"
    assert world.money() == (0, 0, 0)
    assert world.one("SELECT credits FROM account_day") == 0


async def test_raised_price_is_quoted_again(world: World) -> None:
    """Law 6: after a refusal over the price, the new quote is what the next create allows. Service rule 4.6."""
    world.enqueue("item", cost_credits=10)
    prices = iter([Refused(RefusalKind.OVER_QUOTE, NO)])

    def rise(kind: str, account: str) -> object:
        assert account == "main"
        reply = next(prices, None) if kind == "create" else None
        if reply:
            world.service.prices["cost-10"] = 12
        return reply

    world.service.rule = rise
    await world.run()

    first, second = world.service.creates
    assert b'"max_cost_credits":10' in first.body
    assert b'"max_cost_credits":12' in second.body
    assert second.idempotency_key != first.idempotency_key
    assert world.attempts("item") == ["refused", "succeeded"]
    assert world.money() == (0, 12, 0)


async def test_endless_refusals_end(world: World) -> None:
    """A service that refuses every price just quoted is not asked for ever."""
    world.service.say("create", *[Refused(RefusalKind.OVER_QUOTE, NO)] * 50)
    (item,) = world.enqueue()

    await world.run()

    assert world.state(item) is ItemState.REJECTED
    assert len(world.service.creates) == 5


async def test_retry_after_endless_refusals_asks_for_a_fresh_price(world: World) -> None:
    """The price that was refused last is forgotten with the item, or a retry would be refused for it again."""
    world.service.say("create", *[Refused(RefusalKind.OVER_QUOTE, NO)] * 5)
    (item,) = world.enqueue()
    await world.run()
    asked = len(world.service.quotes)

    operations.retry(world.connection, "job", [], to_milliseconds(world.clock.instant))
    await world.run()

    assert len(world.service.quotes) > asked
    assert world.state(item) is ItemState.DONE


async def test_attempt_is_on_disk_before_it_is_sent(world: World) -> None:
    """Law 1: when the first byte leaves, key and bytes are committed, as another connection sees."""
    seen: list[tuple[str, bytes, int]] = []

    def look(kind: str, account: str) -> None:
        assert account == "main"
        if kind == "create":
            reader = open_session(world.path)
            seen.extend(tuple(row) for row in reader.execute("SELECT idempotency_key, body, sends FROM attempt"))
            reader.close()

    world.service.rule = look
    world.enqueue()

    await world.run()

    sent = world.service.creates[0]
    assert seen == [(sent.idempotency_key, sent.body, 1)]


async def test_stale_wish_of_a_manifest_pays_nothing_twice(world: World) -> None:
    """Law 2: a manifest was read while an image was lost, and is stored once the item was sent and is held in doubt."""
    file = world.inputs.put("owl.png", b"owl")
    world.enqueue("a", inputs=(file,))
    transition(world.connection, item_id=1, expected=ItemState.QUEUED, event=Event.INPUT_LOST, now=0, error=NO)
    made = recipe(model="cost-10", mode=Mode.IMAGE_TO_IMAGE, inputs_count=1)
    placed = [PlacedItem(item_spec("a", recipe=made, inputs=(file,)))]
    with compared(
        world.connection,
        job_spec("job"),
        placed,
        profile=PROFILE,
        now=0,
        options=ApplyOptions(),
        diagnostic_at=diagnostic_at,
    ) as intake:
        world.write(resolve, "job", "a", Decision.NOT_CREATED, now=0)  # the image is back, says a person
        world.service.say("create", Lost.REPLY, *[IdempotencyConflict(NO)] * 12)  # made and paid; then held
        await world.run()
        assert world.state("a") is ItemState.HELD
        report = intake.store(intake.report)
    await world.run()

    assert report.requeued == 0
    assert world.service.charges_of("a a") == 1
