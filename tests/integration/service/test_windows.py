"""The limits of Service section 8, each at its edge."""

import pytest

from batchkiln.service import Limits

from .world import CLIP, World, WorldMaker, image_with

DAY_SECONDS = 86_400


async def test_eleventh_create_of_a_minute_waits(world: World) -> None:
    """Ten creates a minute, replays included, on a sliding window. Service section 8."""
    replies = []
    for _ in range(11):
        replies.append(await world.create(idempotency_key="the-same-key-again"))
        world.clock.advance(2)

    assert [reply.status for reply in replies] == [202] * 10 + [429]
    assert (replies[10].code, replies[10].retry_after) == ("rate_limited", 40)
    world.clock.advance(replies[10].retry_after - 2)
    assert (await world.create(idempotency_key="the-same-key-again")).status == 202


async def test_creates_and_uploads_share_a_day(make_world: WorldMaker) -> None:
    """Generation and upload requests count together, and the day resets in UTC. Service section 8."""
    world = await make_world(limits=Limits(creates_per_day=2))
    await world.create(image_with(prompt="[fail]"))
    await world.prepare(10)

    refused = await world.create()
    world.clock.advance(DAY_SECONDS)

    assert (refused.code, refused.retry_after) == ("daily_limit", DAY_SECONDS)
    assert (await world.create()).status == 202


async def test_reads_and_quotes_share_a_minute(world: World) -> None:
    """Sixty reads and quotes a minute, across all keys of the account. Service section 8."""
    for number in range(60):
        key = "key-one-of-main" if number % 2 else "key-two-of-main"
        assert (await world.send("GET", "/models", key=key)).status == 200

    assert (await world.send("POST", "/quotes", body=CLIP)).code == "rate_limited"
    assert (await world.send("GET", "/models", key="key-of-other")).status == 200


async def test_reads_of_a_day_are_bounded(make_world: WorldMaker) -> None:
    """So many reads and quotes a day. Service section 8."""
    world = await make_world(limits=Limits(reads_per_day=2))
    await world.balance()
    await world.balance()
    world.clock.advance(3600)

    refused = await world.send("GET", "/credits/balance")

    assert (refused.code, refused.retry_after) == ("daily_limit", DAY_SECONDS - 3600)


async def test_credit_budget_of_a_day_is_kept_and_reset(make_world: WorldMaker) -> None:
    """The day's credits end, failures included, and are back at the reset. Service section 8."""
    world = await make_world(limits=Limits(credits_per_day=3))
    first = await world.create(image_with(prompt="[fail]"), idempotency_key="the-first-of-today")
    await world.finish(first)

    refused = await world.create()
    replayed = await world.create(image_with(prompt="[fail]"), idempotency_key="the-first-of-today")
    world.clock.advance(refused.retry_after)

    assert (refused.status, refused.code) == (429, "credit_budget_exhausted")
    assert (replayed.status, replayed.body["id"]) == (202, first.body["id"])
    assert (await world.create()).status == 202


async def test_days_may_be_shorter_and_begin_elsewhere(make_world: WorldMaker) -> None:
    """A rehearsal's day has the configured length and beginning."""
    world = await make_world(limits=Limits(reads_per_day=1), day_seconds=100, day_start="2020-01-01T00:00:30Z")
    await world.balance()

    refused = await world.send("GET", "/credits/balance")
    world.clock.advance(refused.retry_after)

    assert refused.retry_after <= 100
    assert (await world.send("GET", "/credits/balance")).status == 200


async def test_polling_too_fast_is_refused(world: World) -> None:
    """An active generation is polled every ten seconds at most. Service rule 4.4."""
    world.service.faults.add("stay_pending")
    created = await world.create()
    await world.poll(created.body["id"])
    world.clock.advance(4)

    early = await world.poll(created.body["id"])
    world.clock.advance(6)

    assert (early.status, early.retry_after) == (429, 6)
    assert (await world.poll(created.body["id"])).status == 200


async def test_ended_generation_may_be_read_at_once(world: World) -> None:
    """The interval holds for active generations only. Service section 8."""
    ended = await world.finish(await world.create())

    assert (await world.poll(ended.body["id"])).status == 200


async def test_edge_blocks_the_121st_request_with_html(world: World) -> None:
    """The firewall stands before the API and speaks no JSON. Service section 7."""
    for _ in range(120):
        assert (await world.send("GET", "/nowhere", key=None)).status == 404

    blocked = await world.send("GET", "/openapi.json", key=None)
    world.clock.advance(60)

    assert (blocked.status, blocked.headers["Content-Type"]) == (403, "text/html; charset=utf-8")
    assert (await world.send("GET", "/openapi.json", key=None)).status == 200


async def test_edge_remembers_its_minute_over_a_restart(make_world: WorldMaker) -> None:
    """Restarting the service opens no window."""
    world = await make_world(limits=Limits(requests_per_minute_per_ip=2))
    await world.balance()
    await world.balance()

    await world.stop()
    await world.start()

    assert (await world.send("GET", "/models")).status == 403


async def test_upload_files_of_a_day_are_bounded(make_world: WorldMaker) -> None:
    """So many files a day, counted when they are announced. Service section 8."""
    world = await make_world(limits=Limits(upload_files_per_day=1, upload_bytes_per_day=100))
    await world.prepare(60)

    refused = await world.send("POST", "/uploads", body={"files": [{"name": "a", "type": "image/png", "size": 10}]})

    assert (refused.status, refused.code) == (429, "daily_limit")


async def test_upload_bytes_of_a_day_are_bounded(make_world: WorldMaker) -> None:
    """So many bytes a day. Service section 8."""
    world = await make_world(limits=Limits(upload_bytes_per_day=100))
    await world.prepare(60)

    refused = await world.send("POST", "/uploads", body={"files": [{"name": "a", "type": "image/png", "size": 41}]})

    assert (refused.status, refused.code) == (429, "daily_limit")


async def test_windows_outlive_a_restart(make_world: WorldMaker) -> None:
    """What was used stays used when the service starts again."""
    world = await make_world(limits=Limits(creates_per_minute=1))
    await world.create()

    await world.stop()
    await world.start()

    assert (await world.create()).code == "rate_limited"


async def test_every_request_is_on_record(world: World) -> None:
    """The log holds refused requests too, and tells which were counted."""
    await world.create(image_with(prompt=""))
    await world.send("GET", "/models", key="unknown")
    await world.send("GET", "/models")

    rows = await world.service.requests()

    assert [(row["kind"], row["account"], row["status"], row["number"]) for row in rows] == [
        ("create", "main", 422, 1),
        ("read", None, 401, None),
        ("read", "main", 200, 1),
    ]


@pytest.mark.parametrize("keeps_all", [True, False])
async def test_old_requests_are_dropped_when_asked(make_world: WorldMaker, keeps_all: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """The log is bounded when it is not to be kept."""
    world = await make_world(keep_requests=keeps_all, limits=Limits.lifted(), day_seconds=100)
    for _ in range(499):
        await world.balance()
    world.clock.advance(201)

    await world.balance()

    assert len(await world.service.requests()) == (500 if keeps_all else 1)
