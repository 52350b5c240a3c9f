"""The request log says what clients were told, costs no commit of its own, and keeps no secret."""

from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path

import aiohttp
import pytest

from batchkiln_service import AccountConfig, Limits, ManualClock, ServiceConfig

from .conftest import ACCOUNTS
from .raw import told
from .service_world import START_MS, World, WorldMaker, image_with

SECRET = "lk_0123456789_a-key-in-the-wrong-place_XYZ-0123"


class BreakingClock(ManualClock):
    """A clock of which one look, counted from now on, fails."""

    def __init__(self, now_ms: int) -> None:
        super().__init__(now_ms)
        self.fails_after: int | None = None

    def now_ms(self) -> int:
        if self.fails_after is not None:
            self.fails_after -= 1
            if self.fails_after < 0:
                self.fails_after = None
                raise RuntimeError("this look at the clock fails")
        return super().now_ms()


@pytest.fixture
async def breaking(tmp_path: Path) -> AsyncIterator[tuple[World, BreakingClock]]:
    """Start a service with a clock that can be made to fail."""
    clock = BreakingClock(START_MS)
    async with aiohttp.ClientSession() as session:
        world = World(ServiceConfig(state_dir=tmp_path / "service", accounts=ACCOUNTS), clock, session)
        await world.start()
        yield world, clock
        await world.stop()


async def last_row(world: World) -> dict[str, object]:
    return (await world.service.requests())[-1]


# What was told -------------------------------------------------------------------------------------------------------


async def test_completion_that_finds_no_picture_is_in_the_log_as_refused(world: World) -> None:
    """It counts in its windows from the beginning, and is recorded as it ended."""
    prepared = await world.prepare(11)
    await world.put(prepared, b"no picture!")

    refused = await world.send("POST", "/uploads/complete", body={"asset_ids": [prepared.asset_id]})

    row = await last_row(world)
    assert (refused.status, refused.code) == (422, "asset_invalid")
    assert (row["status"], row["code"], row["number"]) == (422, "asset_invalid", 2)


async def test_accident_after_the_admission_is_in_the_log(breaking: tuple[World, BreakingClock], png: bytes) -> None:
    """A 500 is recorded as one, also when the request had been admitted before."""
    world, clock = breaking
    prepared = await world.prepare(len(png))
    await world.put(prepared, png)
    clock.fails_after = 2  # the arrival and the admission; then comes the look at the files

    broken = await world.send("POST", "/uploads/complete", body={"asset_ids": [prepared.asset_id]})

    row = await last_row(world)
    assert (broken.status, row["status"], row["code"], row["number"]) == (500, 500, "internal_error", 2)


async def test_fate_is_in_the_row_of_its_create(world: World) -> None:
    """The scripted outcome of a generation is logged with its create request."""
    world.service.faults.add("fail_generation")

    await world.create()

    row = await last_row(world)
    assert (row["status"], row["fault"]) == (202, "fail_generation")


async def test_link_that_dies_early_is_in_the_row_of_its_request(world: World) -> None:
    """Links are made after the admission; the log knows of them all the same."""
    world.service.faults.add("link_dies_early")
    world.service.faults.add("upload_link_dies_early")

    await world.prepare(10)
    of_upload = await last_row(world)
    await world.finish(await world.create())
    of_poll = await last_row(world)

    assert (of_upload["fault"], of_poll["fault"]) == ("upload_link_dies_early", "link_dies_early")


async def test_create_and_poll_cost_one_commit_each(make_world: WorldMaker) -> None:
    """What is durable before the reply is all of the request, in one transaction."""
    world = await make_world(tiny_media=True)
    created = await world.create()
    world.clock.advance(600)
    statements: list[str] = []
    await world.service._run(lambda books: books.set_trace_callback(statements.append))

    statements.clear()
    await world.create()
    of_create = statements.count("COMMIT")
    statements.clear()
    await world.poll(created.body["id"])
    of_poll = statements.count("COMMIT")

    assert (of_create, of_poll) == (1, 1)


# What is not written -------------------------------------------------------------------------------------------------


async def test_key_in_the_wrong_place_is_nowhere_in_the_state_folder(make_world: WorldMaker) -> None:
    """Wherever in a request a client pastes its key, nobody reads it in the books, nor in their log beside them."""
    accounts = (AccountConfig(name="main", keys=("key-one-of-main", SECRET)),)
    world = await make_world(accounts=accounts, limits=Limits.lifted(), tiny_media=True)
    for method, path in (
        ("GET", f"/generations/{SECRET}"),
        ("GET", f"/{SECRET}"),
        ("DELETE", f"/generations/{SECRET}"),
        ("GET", f"/models?key={SECRET}"),
        ("GET", f"/generations/{SECRET}/{SECRET}"),
    ):
        for key in (SECRET, "key-one-of-main", None):
            await world.send(method, path, key=key, headers={"X-Api-Key": SECRET, "X-Batchkiln-Fault": ""})
            await world.send(method, path, key=key, headers={"X-Api-Key": SECRET})
    pasted = await world.create(idempotency_key=SECRET)
    await world.create(image_with(prompt=""), idempotency_key=SECRET)
    await world.create(idempotency_key=SECRET, key=SECRET)
    await world.create(idempotency_key=SECRET + "!")
    await world.create(image_with(model=SECRET))
    await world.send("POST", "/uploads/complete", body={"asset_ids": [SECRET]})
    await told(world.service, f"GET /api/v1/{SECRET} HTTP/1.1\r\nHost: {SECRET}\r\nConnection: close\r\n\r\n".encode())

    files = [path for path in world.config.state_dir.rglob("*") if path.is_file()]

    assert (pasted.status, pasted.code) == (400, "invalid_idempotency_key")
    assert any(path.name.endswith("-wal") for path in files)
    assert [path.name for path in files if SECRET.encode() in path.read_bytes()] == []


async def test_path_is_reported_by_its_route(world: World) -> None:
    """The log has what the report needs, and nothing that a client has made up."""
    created = await world.create()
    await world.poll(created.body["id"])
    await world.poll("made-up")
    await world.send("GET", "/made-up")

    rows = [(row["path"], row["generation_id"]) for row in await world.service.requests()]

    assert rows == [
        ("/api/v1/images", created.body["id"]),
        ("/api/v1/generations/{id}", created.body["id"]),
        ("/api/v1/generations/{id}", None),
        ("unknown", None),
    ]


async def test_idempotency_key_is_reported_in_clear_once_it_was_accepted(world: World) -> None:
    """Who looks for an accepted create finds it by its key; another's key can be compared, and not read."""
    key = "a-key-to-look-for"
    await world.create(image_with(prompt=""), idempotency_key=key)
    await world.create(idempotency_key=key)

    rows = [(row["status"], row["idempotency_key"]) for row in await world.service.requests()]

    assert rows == [(422, f"sha256:{sha256(key.encode()).hexdigest()}"), (202, key)]


# What is dropped -----------------------------------------------------------------------------------------------------


async def test_requests_that_nobody_counts_are_dropped_too(make_world: WorldMaker) -> None:
    """A flood of strangers does not let the books grow without end, when the log is not to be kept."""
    world = await make_world(keep_requests=False, limits=Limits.lifted(), day_seconds=100)
    for number in range(499):
        await world.send("GET", "/models" if number % 2 else "/nowhere", key=None)
    world.clock.advance(201)

    await world.send("GET", "/models", key=None)

    assert len(await world.service.requests()) == 1


async def test_log_reaches_back_a_minute_however_short_the_day(make_world: WorldMaker) -> None:
    """No request is dropped that a window still needs."""
    limits = Limits(reads_per_minute=500, reads_per_day=10**6, requests_per_minute_per_ip=10**6)
    world = await make_world(keep_requests=False, limits=limits, day_seconds=1)
    for _ in range(499):
        await world.balance()
    world.clock.advance(3)
    await world.balance()

    refused = await world.send("GET", "/models")

    assert (refused.status, refused.code) == (429, "rate_limited")
