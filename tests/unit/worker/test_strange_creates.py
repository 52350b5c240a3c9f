"""Replies to a create by a service that reads the document otherwise than we do: nothing is paid twice."""

from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise

import pytest

from batchkiln.core.calls import Call
from batchkiln.core.errors import InputError
from batchkiln.core.outcomes import KEY_REMEMBERED, UNDECIDED_FOR
from batchkiln.core.responses import (
    Accepted,
    AccountBlocked,
    AccountProblem,
    Busy,
    CreateReply,
    EdgeBlocked,
    ErrorInfo,
    GenerationStatus,
    IdempotencyConflict,
    NoResponse,
    NotFound,
    NotUnderstood,
    RefusalKind,
    Refused,
    Throttled,
    Unavailable,
)
from batchkiln.core.states import ItemState
from batchkiln.store.misunderstood import ask_again
from batchkiln.store.operations import preview_retry
from batchkiln.store.resolution import Decision, resolve
from batchkiln.worker.run_state import RunState
from support.builders import NO, record
from support.fake_service import Lost
from support.worker_world import World

STRANGE = NotUnderstood("names no generation", "{ok: boolean}", 202)
DENIALS = [
    *(Refused(kind, NO) for kind in RefusalKind),
    AccountBlocked(AccountProblem.NO_CREDITS, ErrorInfo("insufficient_credits", "no credits are left")),
    IdempotencyConflict(ErrorInfo("request_in_progress", "the first request is still being processed")),
    Busy(None, ErrorInfo("locked", "another task is active")),
    STRANGE,
]
NAMES = ["invalid", "over_quote", "asset_gone", "no_credits", "conflict", "busy", "strange"]


def seconds_between_creates(world: World) -> list[float]:
    times = [request.at for request in world.service.requests if request.kind == "create"]
    return [(later - earlier).total_seconds() for earlier, later in pairwise(times)]


def while_submitting(world: World, item: str, reply: object) -> Callable[[str, str], object]:
    """Answer each create of an item so, and no other."""
    return lambda kind, _: reply if kind == "create" and world.state(item) is ItemState.SUBMITTING else None


@pytest.mark.parametrize("denial", DENIALS, ids=NAMES)
async def test_refused_replay_of_what_exists_is_paid_once_and_fetched(world: World, denial: CreateReply) -> None:
    """Law 2: the first send was charged and its reply lost; what the replay is told proves nothing about it."""
    world.service.say("create", Lost.REPLY, denial, denial)
    (item,) = world.enqueue()

    await world.run()
    while world.control.blocked:  # by a person, who sees to the account and types the same command again
        world.restart(after_seconds=600)
        await world.run()

    assert world.state(item) is ItemState.DONE
    assert len(set(world.service.creates)) == 1
    assert world.service.charged == 10
    assert world.money() == (0, 10, 0)


@pytest.mark.parametrize("denial", [DENIALS[0], DENIALS[1], DENIALS[2]], ids=NAMES[:3])
async def test_replay_that_is_refused_for_an_hour_is_a_persons(world: World, denial: CreateReply) -> None:
    """Law 2: it is held with its credits reserved, the account goes on, and a retry is no way to pay again."""
    world.service.lose_reply()
    first, second = world.enqueue("first", "second")
    world.service.rule = while_submitting(world, first, denial)
    before = world.clock.instant

    await world.run()

    assert (world.state(first), world.state(second)) == (ItemState.HELD, ItemState.DONE)
    assert world.attempts(first) == ["disputed"]
    assert world.money() == (10, 10, 0)
    assert world.clock.instant - before >= UNDECIDED_FOR
    assert len([create for create in world.service.creates if b"first" in create.body]) <= 7
    assert preview_retry(world.connection, "job", []).requeued == {}


async def test_conflict_on_a_fresh_key_is_asked_again_before_it_is_believed(world: World) -> None:
    """A conflict on a fresh key is retried with the same bytes after ever longer waits. Service rule 4.3."""
    world.service.say("create", *[IdempotencyConflict(NO)] * 3)
    first, second = world.enqueue("first", "second")

    await world.run()

    assert world.states() == {"done": 2}
    assert seconds_between_creates(world)[:3] == pytest.approx([10, 60, 300], abs=1)
    assert world.service.charges_of(f"a {first}") == world.service.charges_of(f"a {second}") == 1


async def test_lasting_conflict_stops_the_account_and_not_one_item_after_the_other(world: World) -> None:
    """Service rule 4.3: the next key would conflict as well, so the other items stay queued."""
    world.service.rule = lambda kind, _: IdempotencyConflict(NO) if kind == "create" else None
    first, *others = world.enqueue(*(f"item-{n}" for n in range(15)))

    await world.run()

    assert world.state(first) is ItemState.HELD
    assert world.states() == {"held": 1, "queued": len(others)}
    assert world.control.blocked[1].problem is AccountProblem.KEY_CONFLICT
    assert world.money() == (10, 0, 0)


async def test_busy_account_holds_nothing(world: World) -> None:
    """Another program's generation is waited out for hours; no item ends, and no create leaves meanwhile."""
    busy = Busy(timedelta(minutes=1), ErrorInfo("task_active", "another task is active"))
    world.service.say("create", *[busy] * 200)
    world.enqueue("first", "second")

    await world.run()

    assert world.states() == {"done": 2}
    assert len(set(world.service.creates)) == 2
    assert world.service.violations == []


async def test_misunderstood_creates_rest_over_a_restart(world: World) -> None:
    """Law 10: the next run sends no second item either, until a person says so or something has changed."""
    world.service.rule = lambda kind, _: STRANGE if kind == "create" else None
    world.enqueue("first", "second")
    await world.run()

    world.restart(after_seconds=3600)
    await world.run()

    assert world.states() == {"held": 1, "queued": 1}
    assert len({create.body for create in world.service.creates}) <= 1


async def test_misunderstood_create_spends_six_creates_and_stops_the_account(world: World) -> None:
    """Law 10: each send may be charged, so no second item is sent, and the credits stay reserved."""
    world.service.rule = lambda kind, _: STRANGE if kind == "create" else None
    world.enqueue("first", "second")

    await world.run()

    creates = [request for request in world.service.requests if request.kind == "create"]
    assert len(creates) == 6
    assert seconds_between_creates(world) == pytest.approx([60, 120, 300, 1200, 3600], abs=1)
    assert world.states() == {"held": 1, "queued": 1}
    assert world.one("SELECT call FROM misunderstood") == "create"
    assert "{ok: boolean}" in world.one("SELECT error_message FROM item WHERE name = 'first'")


@pytest.mark.parametrize(
    ("poison", "code"),
    [(Unavailable(None, NO), "no"), (NoResponse("no reply of this API", 400), "no_reply")],
    ids=["500", "html_400"],
)
async def test_item_that_the_service_never_decides_lets_the_others_go_on(
    world: World, poison: CreateReply, code: str
) -> None:
    """The service works, and only this request fails: after an hour it is a person's, with its credits reserved."""
    first, *_ = world.enqueue("first", "second", "third")
    world.service.rule = while_submitting(world, first, poison)

    await world.run()

    assert (world.state(first), world.error(first)) == (ItemState.HELD, code)
    assert world.states() == {"held": 1, "done": 2}
    assert world.money() == (10, 20, 0)


async def test_outage_hands_nothing_to_a_person(world: World) -> None:
    """After five hours of errors, all items continue. Service section 7."""
    until = world.clock.instant + timedelta(hours=5)
    world.service.rule = lambda *_: Unavailable(None, NO) if world.clock.instant < until else None
    world.enqueue("first", "second")

    await world.run()

    assert world.states() == {"done": 2}


async def test_request_that_the_firewall_never_passes_is_refused(world: World) -> None:
    """It never reached the API: it is rejected without a charge, and the others continue. Service section 7."""
    first, *_ = world.enqueue("first", "second")
    world.service.rule = while_submitting(world, first, EdgeBlocked())
    control = RunState(credits_left=15)

    await world.run(control)

    assert (world.state(first), world.error(first)) == (ItemState.REJECTED, "edge_firewall")
    assert world.states() == {"rejected": 1, "done": 1}
    assert control.credits_left == 5, "of --max-credits only what was paid is gone"
    assert world.money() == (0, 10, 0)


async def test_refusals_alike_pause_and_then_stop_the_account(world: World) -> None:
    """A 400 that means "no credits" must not reject a whole queue, one create each."""
    refused = Refused(RefusalKind.INVALID, ErrorInfo("E1017", "account 4711 cannot do this, request 8a1"))
    world.service.rule = lambda kind, _: refused if kind == "create" else None
    world.enqueue(*(f"item-{n}" for n in range(20)))

    await world.run()

    assert world.states() == {"rejected": 6, "queued": 14}
    assert world.control.blocked[1].problem is AccountProblem.REFUSED_ALIKE
    assert [round(gap) >= 60 for gap in seconds_between_creates(world)] == [False, False, True, True, True]
    assert world.money() == (0, 0, 0)


async def test_refusals_that_differ_stop_nothing(world: World) -> None:
    """Each item fails for a different reason."""
    for n in range(12):
        reason = "prompt" if n % 2 else "size"
        world.service.say("create", Refused(RefusalKind.INVALID, ErrorInfo(reason, f"the {reason} is wrong")))
    world.enqueue(*(f"item-{n}" for n in range(14)))

    await world.run()

    assert world.states() == {"rejected": 12, "done": 2}


async def test_key_that_may_be_forgotten_is_not_sent_again(world: World) -> None:
    """Law 2: a day without a reply to what is in doubt; made anew, it would be paid twice. A person decides."""
    world.service.lose_reply()
    first, second = world.enqueue("first", "second")
    await world.run_until_true(lambda: "outcome_unknown" in world.kinds(first))

    world.restart(after_seconds=KEY_REMEMBERED.total_seconds())
    await world.run()

    assert (world.state(first), world.error(first)) == (ItemState.HELD, "key_forgotten")
    assert world.state(second) is ItemState.DONE
    assert len([create for create in world.service.creates if b"first" in create.body]) == 1
    assert world.money() == (10, 10, 0)


@pytest.mark.parametrize("outage", [Unavailable(None, NO), NoResponse("a page of a proxy", 502)])
async def test_outage_does_not_keep_a_key_remembered(world: World, outage: CreateReply) -> None:
    """Law 2: a day of 503 says nothing of how long the service knows a key; then it would make the request anew."""
    world.service.lose_reply()
    (first,) = world.enqueue("first")
    await world.run_until_true(lambda: "outcome_unknown" in world.kinds(first))
    world.service.rule = while_submitting(world, first, outage)
    world.restart(after_seconds=KEY_REMEMBERED.total_seconds() - 3600)
    await world.run_until_true(lambda: world.kinds(first).count("outcome_unknown") > 1)
    world.service.rule = None

    world.restart(after_seconds=3700)
    await world.run()

    assert (world.state(first), world.error(first)) == (ItemState.HELD, "key_forgotten")


@pytest.mark.long
async def test_ids_that_the_service_denies_stop_the_account(world: World) -> None:
    """Ids that the service denies may be misread; each further create would be paid and lost."""
    world.service.rule = lambda kind, _: NotFound(NO) if kind == "read" else None
    world.enqueue(*(f"item-{n}" for n in range(6)))

    await world.run()

    assert world.states() == {"held": 2, "queued": 4}
    assert world.control.blocked[1].problem is AccountProblem.IDS_UNKNOWN


async def test_id_that_is_given_twice_stops_the_account(world: World) -> None:
    """An id that comes with every reply, such as the account's, names no generation."""
    world.service.rule = lambda kind, _: (
        Accepted(record(GenerationStatus.FAILED, id="same")) if kind == "create" else None
    )
    world.enqueue(*(f"item-{n}" for n in range(6)))

    await world.run()

    assert len(world.service.creates) == 2
    assert world.states()["held"] == 1
    assert world.control.blocked[1].problem is AccountProblem.IDS_UNKNOWN


async def test_person_has_the_same_request_sent_again(world: World) -> None:
    """`resolve --as ask-again`: the same bytes under the same key, and what the service made is fetched. Law 2."""
    world.service.lose_reply()
    (item,) = world.enqueue()
    await world.run_until_true(lambda: "outcome_unknown" in world.kinds(item))
    world.restart(after_seconds=KEY_REMEMBERED.total_seconds())
    await world.run()

    resolved = world.write(resolve, "job", item, Decision.ASK_AGAIN, now=world.now_ms)
    await world.run()

    assert resolved.state is ItemState.SUBMITTING
    assert world.state(item) is ItemState.DONE
    assert len(set(world.service.creates)) == 1
    assert world.service.charged == 10
    assert world.money() == (0, 10, 0)


async def test_contact_keeps_a_doubt_with_the_program(world: World) -> None:
    """While the service answers the request, if only with errors, the program goes on sending it."""
    world.service.say("create", Lost.REPLY, *[Throttled(timedelta(hours=20), NO)] * 3)
    (item,) = world.enqueue()

    await world.run()

    assert world.state(item) is ItemState.DONE
    assert world.service.charged == 10


async def test_item_in_hand_can_be_ended_by_a_person(world: World) -> None:
    """Whatever blocks an account, there is a command that frees it: the attempt is disputed, or given up."""
    world.service.rule = lambda kind, _: Unavailable(None, NO) if kind == "create" else None
    first, second = world.enqueue("first", "second")
    await world.run_until_true(lambda: "outcome_unknown" in world.kinds(first))

    world.write(resolve, "job", first, Decision.FAILED, is_undriven=True, now=world.now_ms)
    world.service.rule = None
    world.restart()
    await world.run()

    assert (world.state(first), world.state(second)) == (ItemState.FAILED, ItemState.DONE)
    assert world.attempts(first) == ["abandoned"]
    assert preview_retry(world.connection, "job", [first]).paying_again == 1


async def test_wrong_id_can_be_corrected_once_the_service_denies_it(world: World) -> None:
    """Law 3: a paid result is not lost for a wrong reading of its id; the history keeps both."""
    world.service.say("create", IdempotencyConflict(NO), *[IdempotencyConflict(NO)] * 6)
    (item,) = world.enqueue()
    await world.run()
    world.write(resolve, "job", item, Decision.GENERATION, generation_id="req_77", now=world.now_ms)
    await world.run_until_true(lambda: world.state(item) is ItemState.HELD and world.error(item) == "not_found")

    with pytest.raises(InputError):
        world.write(resolve, "job", item, Decision.ASK_AGAIN, now=world.now_ms)
    world.write(resolve, "job", item, Decision.GENERATION, generation_id="gen_right", now=world.now_ms)

    assert world.one("SELECT generation_id FROM attempt") == "gen_right"
    details = [row[0] for row in world.rows("SELECT detail FROM event WHERE kind = 'poll_resumed' ORDER BY id")]
    assert ["req_77" in detail for detail in details] == [True, True]


async def misunderstand(world: World) -> None:
    """Let the first of two items come to a person, since no create is understood."""
    world.service.rule = lambda kind, _: STRANGE if kind == "create" else None
    world.enqueue("first", "second")
    await world.run()
    world.service.rule = None


async def test_person_who_asks_again_lets_creates_go_on(world: World) -> None:
    """Law 10: the next item is sent once a person says so; what is held stays a person's, and no row is left."""
    await misunderstand(world)

    asked = world.write(ask_again)
    world.restart(after_seconds=60)
    await world.run()

    assert [each.entry.call for each in asked] == [Call.CREATE]
    assert (world.state("first"), world.state("second")) == (ItemState.HELD, ItemState.DONE)
    assert world.one("SELECT count(*) FROM misunderstood") == 0


@pytest.mark.parametrize("after", [timedelta(minutes=1), 2 * KEY_REMEMBERED])
async def test_item_that_a_person_asks_again_leads_on_for_the_account(world: World, after: timedelta) -> None:
    """Law 2: it is sent under its own key, and paid once; a create that is understood ends the account's rest."""
    await misunderstand(world)

    world.restart(after_seconds=after.total_seconds())
    now = int(world.clock.instant.timestamp() * 1000)
    world.write(lambda queue: resolve(queue, "job", "first", Decision.ASK_AGAIN, now=now))
    await world.run()

    assert world.states() == {"done": 2}
    assert world.one("SELECT count(*) FROM misunderstood") == 0
    assert len({create.idempotency_key for create in world.service.creates}) == 2
    assert world.money() == (0, 20, 0)


async def test_creates_that_stay_misunderstood_take_one_more_item(world: World) -> None:
    """Law 10: a person's word sends one item more, and not the queue; that one is sent on under its own key."""
    await misunderstand(world)
    world.service.rule = lambda kind, _: STRANGE if kind == "create" else None
    world.enqueue("third")

    world.write(ask_again)
    world.restart(after_seconds=60)
    control, until = RunState(), world.clock.instant + timedelta(hours=12)
    await world.run_watched(
        lambda: control.stop() if world.clock.instant >= until else None, control, alarm_seconds=1e5
    )

    assert world.states() == {"held": 1, "submitting": 1, "queued": 1}
    assert world.one("SELECT call FROM misunderstood") == "create"
