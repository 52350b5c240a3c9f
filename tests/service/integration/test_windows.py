"""The limits of Service section 8, each at its edge."""

from collections.abc import Awaitable, Callable

import pytest

from batchkiln_service import Limits, ServiceConfig

from .raw import connect
from .service_world import CLIP, Reply, World, WorldMaker, image_with

DAY_SECONDS = 86_400
HALF_BYTES = 100
Request = Callable[[World], Awaitable[Reply]]


async def read(world: World) -> Reply:
    return await world.send("GET", "/models")


async def create(world: World) -> Reply:
    return await world.create(image_with(prompt="[fail]"))


async def upload(world: World) -> Reply:
    files = [{"name": "owl", "type": "image/png", "size": HALF_BYTES}]
    return await world.send("POST", "/uploads", body={"files": files})


@pytest.mark.parametrize(
    ("limits", "request_of", "most_seconds"),
    [
        ({"reads_per_minute": 2}, read, 60),
        ({"reads_per_day": 2}, read, DAY_SECONDS),
        ({"creates_per_minute": 2}, upload, 60),
        ({"creates_per_day": 2}, upload, DAY_SECONDS),
        ({"creates_per_day": 2, "creates_per_minute": 2}, upload, DAY_SECONDS),
        ({"credits_per_day": 4, "active_generations": 9}, create, DAY_SECONDS),
        ({"upload_files_per_day": 2}, upload, DAY_SECONDS),
        ({"upload_bytes_per_day": 2 * HALF_BYTES}, upload, DAY_SECONDS),
        ({"reads_per_minute": 2, "minute_seconds": 7.3}, read, 8),
    ],
    ids=lambda value: "+".join(value) if isinstance(value, dict) else None,
)
async def test_retry_after_is_exact(
    make_world: WorldMaker, limits: dict[str, float], request_of: Request, most_seconds: int
) -> None:
    """After the announced wait, a request is accepted; a second earlier it is not. Service section 7 and 8."""
    world = await make_world(limits=Limits.model_validate(limits))
    world.clock.advance(1234.567)
    for _ in range(2):
        assert (await request_of(world)).status < 300
        world.clock.advance(0.321)

    refused = await request_of(world)
    world.clock.advance(refused.retry_after - 1)
    early = await request_of(world)
    world.clock.advance(1)

    assert refused.status == 429
    assert 0 < refused.retry_after <= most_seconds
    assert (early.status, early.retry_after) == (429, 1)
    assert (await request_of(world)).status < 300


async def test_longer_wait_is_reported_when_two_windows_are_full(make_world: WorldMaker) -> None:
    """After the shorter one the request would be refused again. Service section 7."""
    world = await make_world(limits=Limits(reads_per_minute=1, reads_per_day=1))
    await read(world)

    refused = await read(world)

    assert (refused.code, refused.retry_after) == ("daily_limit", DAY_SECONDS)


async def test_minute_reaches_over_the_reset_of_the_day(make_world: WorldMaker) -> None:
    """A new day empties the day's windows, not the minute's. Service section 8."""
    world = await make_world(limits=Limits(reads_per_minute=1, reads_per_day=1))
    world.clock.advance(DAY_SECONDS - 10)
    await read(world)
    world.clock.advance(10)

    refused = await read(world)

    assert (refused.code, refused.retry_after) == ("rate_limited", 50)


@pytest.mark.parametrize(
    ("settings", "seconds_to_reset"),
    [
        ({}, DAY_SECONDS),
        ({"day_start": "1970-01-01T06:30:00Z"}, 6.5 * 3600),
        ({"day_start": "1970-01-01T02:00:00+02:00"}, DAY_SECONDS),
        ({"day_start": "2040-01-01T00:00:00Z", "day_seconds": 600}, 600),
    ],
    ids=["midnight in UTC", "half past six", "another zone", "days of ten minutes that begin in the future"],
)
async def test_day_resets_to_the_millisecond(
    make_world: WorldMaker, settings: dict[str, object], seconds_to_reset: float
) -> None:
    """The last millisecond of a day is of that day, the next one of the next. Service section 8."""
    world = await make_world(limits=Limits(reads_per_day=1), **settings)
    await read(world)

    world.clock.advance(seconds_to_reset - 0.001)
    last = await read(world)
    world.clock.advance(0.001)

    assert (last.code, last.retry_after) == ("daily_limit", 1)
    assert (await read(world)).status == 200


async def test_limits_have_the_names_of_the_contract() -> None:
    """What the client's configuration calls a limit, the service's does; the defaults are the documented ones."""
    documented = {
        "active_generations": 1,
        "creates_per_minute": 10,
        "creates_per_day": 1000,
        "reads_per_minute": 60,
        "reads_per_day": 20_000,
        "credits_per_day": 2000,
        "upload_files_per_day": 100,
        "upload_bytes_per_day": 500 * 1024 * 1024,
        "requests_per_minute_per_ip": 120,
        "poll_interval_seconds": 10,
        "minute_seconds": 60,
    }

    assert Limits().model_dump() == documented
    assert {"time_scale", "day_seconds", "day_start"} <= set(ServiceConfig.model_fields)


async def test_windows_count_in_one_order(world: World) -> None:
    """A body that came slowly is counted when it is whole, so that a window looks back at the right request."""
    line = await connect(world.service)
    head = "POST /api/v1/quotes HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer key-one-of-main\r\nExpect: 100-continue"
    await line.say(f"{head}\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n".encode())
    await line.head()
    world.clock.advance(5)
    await read(world)
    world.clock.advance(5)
    await line.say(b"{}")
    await line.head()
    await line.close()

    rows = await world.service.requests()

    assert [(row["kind"], row["number"]) for row in rows] == [("read", 1), ("quote", 2)]
    first, second = (row["arrived_at_ms"] for row in rows)
    assert isinstance(first, int)
    assert second == first + 5000


async def test_edge_does_not_believe_what_a_proxy_would_say(make_world: WorldMaker) -> None:
    """Anybody can write X-Forwarded-For; the address is the one of the connection. Service section 8."""
    world = await make_world(limits=Limits(requests_per_minute_per_ip=1))
    await world.send("GET", "/models", headers={"X-Forwarded-For": "10.0.0.1", "Forwarded": "for=10.0.0.1"})

    again = await world.send("GET", "/models", headers={"X-Forwarded-For": "10.0.0.2", "Forwarded": "for=10.0.0.2"})

    assert again.status == 403


async def test_edge_does_not_stand_before_the_storage(make_world: WorldMaker) -> None:
    """Only API requests are counted and blocked. Service section 8."""
    world = await make_world(limits=Limits(requests_per_minute_per_ip=2), instant=True)
    created = await world.create()
    await read(world)

    downloads = [(await world.send("GET", created.output["url"], key=None)).status for _ in range(3)]

    assert downloads == [200] * 3
    assert (await read(world)).status == 403


async def test_all_accounts_of_an_address_share_the_edge(make_world: WorldMaker) -> None:
    """The firewall counts addresses, not keys. Service section 8."""
    world = await make_world(limits=Limits(requests_per_minute_per_ip=2))
    await read(world)
    await world.send("GET", "/models", key="key-of-other")

    assert (await world.send("GET", "/models", key="key-of-other")).status == 403


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
