"""Misbehaviour that tests of clients switch on."""

import asyncio
from pathlib import Path

import aiohttp
import pytest

from .world import World, WorldMaker

KEY = "an-idempotency-key"


async def test_lost_reply_leaves_the_generation(world: World) -> None:
    """The work is done although the client hears nothing; a replay finds it. Service rule 4.2."""
    world.service.faults.add("reply_lost", "create")

    with pytest.raises(aiohttp.ClientError):
        await world.create(idempotency_key=KEY)

    assert (await world.create(idempotency_key=KEY)).status == 202
    assert await world.balance() == 10_000 - 2


async def test_reset_connection_leaves_nothing(world: World) -> None:
    """Nothing is done when the connection is reset before."""
    world.service.faults.add("reset_before", "create")

    with pytest.raises((aiohttp.ClientError, ConnectionResetError)):
        await world.create(idempotency_key=KEY)

    assert await world.balance() == 10_000
    rows = await world.service.requests()
    assert [(row["status"], row["fault"], row["number"]) for row in rows][:1] == [(0, "reset_before", None)]


async def test_cut_body_breaks_off(world: World) -> None:
    """Half of the promised body arrives."""
    world.service.faults.add("cut_body", "create")

    with pytest.raises(aiohttp.ClientPayloadError):
        await world.create(idempotency_key=KEY)

    assert (await world.create(idempotency_key=KEY)).status == 202


async def test_cut_download_breaks_off_once(world: World) -> None:
    """A download can break, and works when it is tried again."""
    ended = await world.finish(await world.create())
    world.service.faults.add("cut_body", "download")

    with pytest.raises(aiohttp.ClientPayloadError):
        await world.send("GET", ended.output["url"], key=None)

    assert (await world.send("GET", ended.output["url"], key=None)).status == 200


async def test_throttled_and_unavailable_replies_say_when_to_come_back(world: World) -> None:
    """429 and 503 with Retry-After, and 503 without. Service section 7."""
    world.service.faults.add("throttle", "models", seconds=7)
    world.service.faults.add("unavailable", "models", seconds=9)
    world.service.faults.add("unavailable", "models")

    replies = [await world.send("GET", "/models") for _ in range(4)]

    assert [reply.status for reply in replies] == [429, 503, 503, 200]
    assert [reply.headers.get("Retry-After") for reply in replies] == ["7", "9", None, None]


async def test_html_replies_are_not_json(world: World) -> None:
    """The firewall's page and a stranger's page, at will. Service section 7."""
    world.service.faults.add("edge_block", "read")
    world.service.faults.add("html", "read")

    replies = [await world.send("GET", "/models") for _ in range(2)]

    assert [reply.status for reply in replies] == [403, 200]
    assert all(reply.headers["Content-Type"].startswith("text/html") for reply in replies)


async def test_slow_reply_comes_when_service_time_has_passed(world: World) -> None:
    """A slow reply waits on the service's clock; the work is done at once."""
    world.service.faults.add("slow", "create", seconds=30)
    creating = asyncio.create_task(world.create())
    while not await world.service.query("SELECT 1 FROM generations"):
        assert not creating.done()

    while not creating.done():
        world.clock.advance(30)
        await asyncio.wait([creating], timeout=0.01)

    assert creating.result().status == 202


async def test_link_can_die_before_its_time(world: World) -> None:
    """A link may promise more than it keeps; the next one is good."""
    created = await world.create()
    world.service.faults.add("link_dies_early", "poll")
    ended = await world.finish(created)

    dead = await world.send("GET", ended.output["url"], key=None)
    again = await world.poll(ended.body["id"])

    assert (dead.status, dead.code) == (403, "link_expired")
    assert (await world.send("GET", again.output["url"], key=None)).status == 200


@pytest.mark.parametrize(("kind", "status"), [("fail_generation", "failed"), ("cancel_generation", "canceled")])
async def test_generation_ends_badly_at_will(make_world: WorldMaker, kind: str, status: str) -> None:
    """A rule of the configuration decides how the next generation ends; a refused create does not use it up."""
    world = await make_world(faults=[{"kind": kind, "endpoint": "create"}])
    await world.create({})

    ended = await world.finish(await world.create())

    assert (ended.body["status"], ended.body["outputs"]) == (status, [])
    assert ended.body["error"] is not None


async def test_rule_waits_its_turn_and_ends(world: World) -> None:
    """`after` lets requests pass first, `times` bounds the misbehaviour."""
    world.service.faults.add("unavailable", "models", after=1, times=2)

    statuses = [(await world.send("GET", "/models")).status for _ in range(4)]

    assert statuses == [200, 503, 503, 200]


async def test_seeded_chance_repeats_itself(make_world: WorldMaker, tmp_path: Path) -> None:
    """The same seed gives the same faults."""
    seen = []
    for name in ("a", "b"):
        world = await make_world(
            seed=7,
            faults=[{"kind": "unavailable", "times": None, "probability": 0.5}],
            state_dir=tmp_path / name,
        )
        seen.append([(await world.send("GET", "/models")).status for _ in range(12)])

    assert seen[0] == seen[1]
    assert set(seen[0]) == {200, 503}


async def test_pending_can_be_stretched(world: World) -> None:
    """A generation may stay pending for a time, and then goes on. Service section 3."""
    world.service.faults.add("stay_pending", seconds=1000)
    created = await world.create()
    world.clock.advance(999)
    before = await world.poll(created.body["id"])
    world.clock.advance(10)

    after = await world.poll(created.body["id"])

    assert (before.body["status"], after.body["status"]) == ("pending", "processing")


async def test_rules_can_be_withdrawn(world: World) -> None:
    """After `clear` the service behaves."""
    world.service.faults.add("unavailable", times=None)
    world.service.faults.clear()

    assert (await world.send("GET", "/models")).status == 200


async def test_accident_is_a_json_500(world: World) -> None:
    """An unexpected failure says nothing of its insides."""
    await world.service.query("DROP TABLE requests")

    failed = await world.send("GET", "/models")

    assert (failed.status, failed.code) == (500, "internal_error")
    assert b"sqlite" not in failed.content.lower()
