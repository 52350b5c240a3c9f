"""What is not understood rests, and what fails holds up nothing but itself."""

from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pytest
import structlog

from batchkiln.core.calls import Call
from batchkiln.core.rate_limits import Limits
from batchkiln.core.responses import EdgeBlocked, ErrorInfo, NotUnderstood, Throttled, TicketRefused, Unavailable
from batchkiln.core.states import ItemState
from batchkiln.core.waits import WaitReason
from batchkiln.presentation.explain import explain_item
from batchkiln.presentation.item_context import ItemContext
from batchkiln.store.items import Items
from batchkiln.store.jobs import Jobs
from batchkiln.store.misunderstood import ask_again
from batchkiln.worker.loop import next_due
from batchkiln.worker.run_state import RunState
from support.builders import NO
from support.fake_service import FakeService, Lost
from support.worker_world import World

STRANGE = NotUnderstood("names no price", '{"data": {"amount": string}}', 200)
LIMIT = ErrorInfo("rate_limited", "too many requests")
HOUR = 3600.0
DAY = 24 * HOUR


def times_of(world: World, kind: str) -> list[float]:
    """Return when requests of a kind arrived, in seconds since the first of all."""
    began = world.service.requests[0].at
    return [(request.at - began).total_seconds() for request in world.service.requests if request.kind == kind]


async def run_for(world: World, seconds: float) -> None:
    """Drive for so many service seconds, then stop as a signal would."""
    control = RunState()
    until = world.clock.instant + timedelta(seconds=seconds)

    def look() -> None:
        if world.clock.instant >= until:
            control.stop()

    await world.run_watched(look, control, alarm_seconds=seconds)


def always(world: World, kind: str, reply: object) -> None:
    """Answer every request of a kind with this."""
    world.service.rule = lambda asked, _account: reply if asked == kind else None


# --- a success that is not understood ---


async def test_quote_that_is_not_understood_is_asked_twice_and_then_rests(world: World) -> None:
    """Law 10: what is not understood is asked for once more after a minute, costs no limits after, and ends the run."""
    always(world, "quote", STRANGE)
    (item,) = world.enqueue()

    await world.run()

    first, second = times_of(world, "quote")
    assert second - first >= 60
    assert world.state(item) is ItemState.QUEUED
    assert (await next_due(world.workers[0])).reason is WaitReason.NOT_UNDERSTOOD
    (entry,) = (await world.workers[0].snapshot(world.clock.now()))[1].misunderstood
    assert (entry.call, entry.lacking, entry.shape, entry.status) == (
        Call.QUOTE,
        STRANGE.lacking,
        STRANGE.shape,
        STRANGE.status,
    )


async def test_items_of_known_price_go_on_while_quotes_rest(world: World) -> None:
    """A call that rests stops only what needs it."""
    world.enqueue("priced")
    await world.run()
    always(world, "quote", STRANGE)
    world.enqueue("priced-2", job="more")
    world.enqueue("unpriced", cost_credits=20, job="other")

    await world.run()

    assert world.state("priced-2") is ItemState.DONE
    assert world.state("unpriced") is ItemState.QUEUED


async def test_rest_survives_a_restart(world: World) -> None:
    """The next process asks for nothing that rests."""
    always(world, "quote", STRANGE)
    world.enqueue()
    await world.run()

    world.restart(after_seconds=DAY)
    await world.run()

    assert len(world.service.quotes) == 2


@pytest.mark.parametrize("changed", ["program", "person"])
async def test_change_of_circumstances_ends_the_rest(world: World, changed: str) -> None:
    """Another program or configuration understands more, perhaps; and a person may say so."""
    always(world, "quote", STRANGE)
    (item,) = world.enqueue()
    await world.run()
    world.service.rule = None

    world.restart()
    if changed == "program":
        world.digest = "another"
    else:
        assert [asked.entry.call for asked in world.write(ask_again)] == [Call.QUOTE]
    world.clock.is_observed = False
    await world.run()

    assert world.state(item) is ItemState.DONE


async def test_person_ends_the_rest_of_a_run_that_continues(world: World) -> None:
    """The running process notices a command of the user, and sends the request at once."""
    always(world, "quote", STRANGE)
    (item,) = world.enqueue()
    control = RunState(waits_for_more=True)

    def look() -> None:
        if world.one("SELECT count(*) FROM misunderstood") and world.service.rule is not None:
            world.service.rule = None
            world.write(ask_again)
            world.announce()
        elif world.state(item) is ItemState.DONE:
            control.stop()

    await world.run_watched(look, control)

    assert world.state(item) is ItemState.DONE


@pytest.mark.parametrize("call", [Call.UPLOAD, Call.COMPLETION])
async def test_texts_go_on_while_uploads_rest(world: World, call: Call) -> None:
    """Law 10: no image is prepared a third time, and what needs none is generated."""
    strange = NotUnderstood("has no upload_url", "{}", 201)
    asked = iter(range(100))

    def rule(kind: str, _account: str) -> object:
        if kind != "upload":
            return None
        is_completion = next(asked) % 2 == 1
        return strange if call is Call.UPLOAD or is_completion else None

    world.service.rule = rule
    world.enqueue("with-image", inputs=(world.inputs.put("fox.png", b"fox"), world.inputs.put("owl.png", b"owl")))
    world.enqueue("text", job="other")

    await world.run()

    assert (world.state("with-image"), world.state("text")) == (ItemState.QUEUED, ItemState.DONE)
    assert len(times_of(world, "upload")) == (2 if call is Call.UPLOAD else 4)
    assert world.one("SELECT max(upload_files) FROM account_day") == 2
    assert world.rows("SELECT call FROM misunderstood")[0]["call"] == call


async def test_poll_that_is_not_understood_continues_ever_more_rarely(world: World) -> None:
    """Law 3: a known id is polled until it ends; Law 5: a day of it costs few reads."""
    world.service.say("read", *[NotUnderstood("names no status", "{}", 200)] * 60)
    (item,) = world.enqueue()

    await world.run()

    gaps = [after - before for before, after in pairwise(times_of(world, "read"))]
    assert 0.7 * HOUR < max(gaps) < 1.3 * HOUR
    assert world.state(item) is ItemState.DONE
    assert world.one("SELECT count(*) FROM misunderstood") == 0
    assert len(world.service.creates) == 1


async def test_poll_that_is_not_understood_is_reported(world: World) -> None:
    """What keeps a paid result from being known is there to read for other processes, too."""
    always(world, "read", NotUnderstood("names no status", "{}", 200))
    world.enqueue()

    await run_for(world, HOUR)

    assert [row["call"] for row in world.rows("SELECT call FROM misunderstood")] == [Call.READ]
    assert len(times_of(world, "read")) < 25


async def test_description_that_is_not_understood_holds_up_nothing(world: World) -> None:
    """The description only tells the time, which other replies tell as well."""
    world.clock.is_observed = False
    world.service.tells_time = False
    always(world, "other", NotUnderstood("is no description", "text", 200))
    (item,) = world.enqueue()

    await world.run()

    assert world.state(item) is ItemState.DONE
    assert len(times_of(world, "other")) == 2


async def test_a_time_on_which_no_two_replies_agree_names_the_likely_cause(world: World) -> None:
    """A local service with a faster clock, of which this process was not told, is the usual one."""
    world.clock.distrust(timedelta(days=1))
    world.service.dates_needed = 99
    world.enqueue()

    with structlog.testing.capture_logs() as told:
        await world.run()

    (unknown,) = (one for one in told if one["event"] == "service_time_unknown")
    assert "export BATCHKILN_TIME_SCALE=N" in unknown["remedy"]


# --- each call's own backoff ---


async def test_polls_that_succeed_do_not_reset_the_backoff_of_quotes(world: World) -> None:
    """A quote that always fails is asked ever more rarely, however well the polls go."""
    world.enqueue("first")
    await world.run()
    world.service.duration_seconds = 2 * HOUR
    always(world, "quote", Unavailable(None, NO))
    world.enqueue("long", job="more")
    world.enqueue("unpriced", cost_credits=20, job="other")
    before = len(world.service.quotes)

    await run_for(world, 600)

    assert len(times_of(world, "read")) > 40
    assert len(world.service.quotes) - before <= 12


@pytest.mark.parametrize("told", [timedelta(), timedelta(seconds=-30), timedelta(seconds=1)])
@pytest.mark.parametrize("kind", ["create", "quote", "read"])
async def test_retry_after_is_a_minimum(world: World, kind: str, told: timedelta) -> None:
    """Law 5: a service that asks for no pause, and refuses again and again, does not use up the day's requests."""
    always(world, kind, Throttled(told, LIMIT))
    world.enqueue()

    await run_for(world, DAY)

    assert 20 < len(times_of(world, kind)) < 120
    assert world.service.violations == []


async def test_honest_retry_after_is_kept_exactly(world: World) -> None:
    """The first own waits are shorter than any honest one."""
    world.service.say("create", *[Throttled(timedelta(seconds=40), LIMIT)] * 3)
    world.enqueue()

    await world.run()

    gaps = [after - before for before, after in pairwise(times_of(world, "create"))]
    assert all(40 <= gap < 41 for gap in gaps)


# --- one that fails where others pass ---


def failing_quotes_of(service: FakeService, text: str, reply: object) -> None:
    """Answer each quote with this text in it so, and others as they come."""

    def rule(kind: str, _account: str) -> object:
        return reply if kind == "quote" and text.encode() in service.quotes[-1] else None

    service.rule = rule


@pytest.mark.parametrize("trouble", [Lost.REPLY, Unavailable(None, NO), EdgeBlocked(), STRANGE, Throttled(None, LIMIT)])
async def test_recipe_whose_quote_always_fails_starves_no_other(world: World, trouble: object) -> None:
    """Others are priced and generated meanwhile; its own items wait, and are told as waiting."""
    failing_quotes_of(world.service, "cost-7", trouble)
    world.enqueue("poison", cost_credits=7, job="a-first")
    others = [world.enqueue(f"item-{cost}", cost_credits=cost, job="b-then")[0] for cost in range(20, 30)]

    await run_for(world, 900)

    assert [world.state(item) for item in others] == [ItemState.DONE] * len(others)
    assert world.state("poison") is ItemState.QUEUED
    assert world.service.violations == []


async def test_recipe_that_always_fails_is_reported_and_asked_rarely(tmp_path: Path) -> None:
    """No retry without a word to the person."""
    world = World(tmp_path, limits=Limits(poll_interval_seconds=120.0))
    failing_quotes_of(world.service, "cost-7", Unavailable(None, NO))
    world.service.duration_seconds = DAY
    world.enqueue("poison", cost_credits=7, job="a-first")
    world.enqueue("item", cost_credits=20, job="b-then")

    await run_for(world, 4 * HOUR)

    assert world.kinds("poison").count("price_not_had") == 1
    *_, before, last = times_of(world, "quote")
    assert 0.7 * HOUR < last - before < 1.3 * HOUR
    _, account, _ = await world.workers[0].snapshot(world.clock.now())
    assert WaitReason.NO_PRICE in {due.reason for due in account.waits.quotes.values()}
    detail, summary = Items(world.connection).detail("a-first", "poison"), Jobs(world.connection).summary("a-first")
    assert summary is not None
    told = explain_item(detail, summary, ItemContext(world.clock.instant, is_driven=True))
    assert f"the service does not supply its price: {NO.code}" in told.situation
    world.close()


async def test_item_whose_text_cannot_be_priced_holds_up_none_of_its_recipe(world: World) -> None:
    """The price is the recipe's: after a trouble it is asked by way of another item."""
    failing_quotes_of(world.service, "a fox", EdgeBlocked())
    world.enqueue("fox", "owl", "crow")

    await run_for(world, 600)

    assert world.states() == {"done": 3}


async def test_content_that_the_firewall_refuses_stops_no_machine(world: World) -> None:
    """A 403 before the API for one body, where others pass, is about that body: others do not wait for it."""
    failing_quotes_of(world.service, "cost-7", EdgeBlocked())
    world.service.duration_seconds = DAY
    world.enqueue("poison", cost_credits=7, job="a-first")
    world.enqueue("item", cost_credits=20, job="b-then")

    await run_for(world, 2 * HOUR)
    late = times_of(world, "read")[-200:]

    assert max(after - before for before, after in pairwise(late)) < 15
    assert 5 <= len([body for body in world.service.quotes if b"cost-7" in body]) < 40


async def test_image_whose_upload_always_fails_starves_no_other(world: World) -> None:
    """Law 5: it is uploaded ever more rarely, while items with other images are uploaded and generated."""
    service = world.service
    service.rule = lambda kind, _account: TicketRefused("no") if kind == "put" and service.puts[-1] == b"p" else None
    world.enqueue("poison", inputs=(world.inputs.put("poison.png", b"p"),))
    names = [f"image-{number}" for number in range(4)]
    for name in names:
        world.enqueue(name, inputs=(world.inputs.put(name, name.encode()),))

    await run_for(world, HOUR)

    assert [world.state(name) for name in names] == [ItemState.DONE] * len(names)
    assert world.state("poison") is ItemState.QUEUED
    assert "upload_not_had" in world.kinds("poison")
    assert world.one("SELECT max(upload_files) FROM account_day") < 40


async def test_images_that_the_storage_took_are_not_sent_again(world: World) -> None:
    """Law 5: one refused file of a request costs no other one a second upload."""
    world.service.say("put", None, None, TicketRefused("expired"))
    for name in ("fox", "owl", "crow", "elk"):
        world.enqueue(name, inputs=(world.inputs.put(name, name.encode()),))

    await world.run()

    assert world.states() == {"done": 4}
    assert world.service.puts.count(b"owl") == 1
    assert world.service.puts.count(b"crow") == 2
