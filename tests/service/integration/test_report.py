"""The report on what a client did: a small history, and every figure of it counted by hand."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import aiohttp
import pytest

import batchkiln
from batchkiln_service import Limits, LocalService, ManualClock, ServiceConfig
from batchkiln_service.db.client_report import read_report, write_report
from batchkiln_service.db.report import (
    AccountStatus,
    AddressUse,
    Creates,
    DayUse,
    EndsSeen,
    Listing,
    PollGaps,
    PromptCharges,
    RefusalCount,
    Report,
    SlotUse,
    Spread,
    WindowUse,
)

from .service_world import IMAGE, START_MS, Reply, World, WorldMaker, image_with

FOX, OWL = "A fox [stay-pending]", "An owl [stay-pending]"


class History:
    """Requests at seconds after the start of the service's day."""

    def __init__(self, world: World) -> None:
        self.world = world

    def at(self, seconds: float) -> World:
        self.world.clock.advance(START_MS / 1000 + seconds - self.world.clock.now_ms() / 1000)
        return self.world

    async def create(self, seconds: float, prompt: str, key: str, *, status: int = 202) -> str:
        reply = await self.at(seconds).create(image_with(prompt=prompt), idempotency_key=f"idempotency-key-{key}")
        assert reply.status == status, reply.body
        return str(reply.body.get("id"))

    async def poll(self, seconds: float, generation_id: str, *, status: int = 200) -> None:
        reply = await self.at(seconds).poll(generation_id)
        assert reply.status == status, reply.body

    async def get(self, seconds: float, path: str, *, key: str = "key-one-of-main") -> Reply:
        return await self.at(seconds).send("GET", path, key=key)


@pytest.fixture
async def report(make_world: WorldMaker) -> Report:
    """Report on two minutes of one client, written down here second by second."""
    world = await make_world(tiny_media=True)
    history = History(world)
    await history.get(0, "/models")
    await world.send("POST", "/quotes", body=IMAGE)
    fox = await history.create(1, FOX, "1")
    await history.create(2, FOX, "1")
    await history.create(2, OWL, "2", status=429)  # the slot is taken
    await history.poll(5, fox)
    await history.poll(14, fox, status=429)  # nine seconds after the last
    await history.poll(16, fox)
    await history.at(30).service.end_pending_generation(fox)
    await history.poll(33, fox)
    owl = await history.create(45, OWL, "2")
    await history.at(60).service.end_pending_generation(owl, "failed")
    again = await history.create(62.5, FOX, "3")
    await history.at(100).service.end_pending_generation(again)
    await history.poll(110, again)
    await history.get(120, "/models", key="nobody's")
    await history.at(130).send("POST", "/uploads", body={"files": [{"name": "a", "type": "image/png", "size": 5}]})
    return await world.service.report()


def test_period_is_that_of_the_log(report: Report) -> None:
    """From the first request to the last."""
    period = report.period

    assert (period.first_request_at, period.last_request_at) == ("2026-09-21T00:00:00.000Z", "2026-09-21T00:02:10.000Z")
    assert (period.log_kept_since, period.is_log_whole) == (period.first_request_at, True)
    assert period.written_at == period.last_request_at


def test_accounts_stand_as_their_ledger_says(report: Report) -> None:
    """Two generations of two credits are charged, the failed one is refunded. Service rule 3.1."""
    main, other = report.accounts

    assert main == AccountStatus("main", has_subscription=False, bought_credits=10_000, available_credits=9_996,
        reserved_credits=0, charged_credits=4, active_generations=0, succeeded_generations=2, failed_generations=1,
        canceled_generations=0)  # fmt: skip
    assert (other.name, other.available_credits, other.succeeded_generations) == ("other", 1_000_000, 0)
    assert report.audit == Listing((), 0)


def test_requests_are_counted_by_kind_and_answer(report: Report) -> None:
    """Every request is in one of the counts."""
    counts = [(one.kind, one.status, one.code, one.requests) for one in report.requests]

    assert counts == [
        ("create", 202, None, 4),
        ("create", 429, "generation_active", 1),
        ("quote", 200, None, 1),
        ("read", 200, None, 5),
        ("read", 401, "invalid_api_key", 1),
        ("read", 429, "rate_limited", 1),
        ("upload", 200, None, 1),
    ]


def test_refusals_and_replays_are_distinguished(report: Report) -> None:
    """What was refused, by its code; and which accepted creates were new. Service rule 4.2."""
    assert report.refused == (
        RefusalCount(401, "invalid_api_key", 1, by_faults=0),
        RefusalCount(429, "generation_active", 1, by_faults=0),
        RefusalCount(429, "rate_limited", 1, by_faults=0),
    )
    assert report.creates == Creates(accepted=4, new=3, replays=1)


def test_windows_show_their_fullest_minute_and_day(report: Report) -> None:
    """Creates at 1, 2, 2 and 45 share a minute, that at 62.5 does not; the poll that was refused was only sent."""
    midnight = "2026-09-21T00:00:00.000Z"

    assert report.windows == (
        WindowUse("main", "creates", limit_per_minute=10, busiest_minute_requests=4,
            busiest_minute_ended_at="2026-09-21T00:00:45.000Z", busiest_minute_sent=4, limit_per_day=1000,
            busiest_day_requests=6, busiest_day_began_at=midnight),
        WindowUse("main", "reads", limit_per_minute=60, busiest_minute_requests=5,
            busiest_minute_ended_at="2026-09-21T00:00:33.000Z", busiest_minute_sent=6, limit_per_day=20_000,
            busiest_day_requests=6, busiest_day_began_at=midnight),
    )  # fmt: skip
    assert report.addresses == Listing(
        (AddressUse("127.0.0.1", requests=14, limit_per_minute=120, busiest_minute_requests=10, blocked_requests=0),), 0
    )


def test_days_show_credits_and_uploads(report: Report) -> None:
    """A refund gives nothing of the day's budget back. Service section 8."""
    assert report.days == Listing(
        (
            DayUse("main", "2026-09-21T00:00:00.000Z", used_credits=6, limit_credits=2000, uploaded_files=1,
                limit_files=100, uploaded_bytes=5, limit_bytes=500 * 1024 * 1024),
        ),
        0,
    )  # fmt: skip


def test_prompts_show_what_was_paid_for_them(report: Report) -> None:
    """The fox was paid for twice, the owl not at all."""
    assert report.prompts == Listing(
        (
            PromptCharges("main", FOX, "epsilon-2", generations=2, not_refunded_generations=2, reserved_credits=4,
                charged_credits=4, refunded_credits=0),
            PromptCharges("main", OWL, "epsilon-2", generations=1, not_refunded_generations=0, reserved_credits=2,
                charged_credits=0, refunded_credits=2),
        ),
        0,
    )  # fmt: skip
    assert report.prompts_paid_more_than_once == 1


def test_violations_are_those_of_the_client(report: Report) -> None:
    """The taken slot and the early poll count, each once; the replay does not, nor the failure."""
    assert not report.ok
    assert [(broken.rule, broken.count) for broken in report.violations] == [
        ("generation_active", 1),
        ("early_poll", 1),
    ]


async def test_client_that_keeps_the_rules_has_no_violations(world: World) -> None:
    """Faults, replays of lost creates and mistakes in bodies are no violations."""
    world.service.faults.add("throttle", "create")
    world.service.faults.add("edge_block", "create")
    await world.create()
    await world.create()
    await world.create(image_with(prompt=""))
    await world.finish(await world.create())

    assert (await world.service.report()).violations == ()


async def test_new_create_in_place_of_a_replay_is_a_violation(world: World) -> None:
    """After a lost reply the same key is sent again; another key may charge twice. Service rules 4.2 and 4.5."""
    world.service.faults.add("reply_lost", "create")
    with pytest.raises(aiohttp.ClientError):
        await world.create(idempotency_key="idempotency-key-lost")
    world.clock.advance(600)
    await world.service.idle()
    await world.finish(await world.create(idempotency_key="idempotency-key-other"))
    await world.create(idempotency_key="idempotency-key-lost")
    await world.finish(await world.create(idempotency_key="idempotency-key-third"))

    (broken,) = (await world.service.report()).violations

    assert (broken.rule, broken.count, broken.source) == ("replaced_create", 1, "rules 4.2 and 4.5")


@pytest.mark.parametrize(
    ("limits", "rule"),
    [
        (Limits(creates_per_minute=1), "rate_limited"),
        (Limits(creates_per_day=1), "daily_limit"),
        (Limits(credits_per_day=2), "credit_budget_exhausted"),
        (Limits(requests_per_minute_per_ip=1), "edge_blocked"),
    ],
)
async def test_each_overstepped_limit_is_a_violation(make_world: WorldMaker, limits: Limits, rule: str) -> None:
    """The rule has the name of the refusal. Service section 8."""
    world = await make_world(limits=limits, instant=True)
    await world.create()

    refused = await world.create()

    assert refused.status in {403, 429}
    assert [(broken.rule, broken.count) for broken in (await world.service.report()).violations] == [(rule, 1)]


def test_polls_slot_and_ends_are_timed(report: Report) -> None:
    """Polls 9, 11 and 17 seconds apart; idle for 15 and 2.5 of 99 seconds; ends heard of after 3 and 10."""
    assert report.poll_gaps == PollGaps(10.0, 1, Spread(3, 37.0, 9.0, 12.333333, 11.0, 17.0, 17.0))
    idle = Spread(2, 17.5, 2.5, 8.75, 2.5, 15.0, 15.0)
    assert report.slots == (SlotUse("main", 3, span_seconds=99.0, busy_seconds=81.5, busy_share=0.823232, idle=idle),)
    assert report.ends_seen == EndsSeen(Spread(2, 13.0, 3.0, 6.5, 3.0, 10.0, 10.0), unseen_ends=1)
    assert (report.overlaps.pairs, report.overlaps.most_active_at_once) == (0, 1)
    assert report.faults == ()


async def test_overlaps_name_both_generations(make_world: WorldMaker) -> None:
    """If an account may have two active generations, the report names them, with start and duration. Law 4."""
    world = await make_world(limits=Limits(active_generations=2), tiny_media=True)
    history = History(world)
    first, second = [await history.create(10 * number, FOX, str(number)) for number in (1, 2)]
    await history.at(25).service.end_pending_generation(first)
    history.at(60)

    overlaps = (await world.service.report()).overlaps

    (pair,) = overlaps.first.entries
    assert (overlaps.pairs, overlaps.most_active_at_once) == (1, 2)
    assert (pair.first_id, pair.second_id, pair.overlap_seconds) == (first, second, 5.0)
    assert pair.began_at == "2026-09-21T00:00:20.000Z"


async def test_report_settles_what_has_ended(make_world: WorldMaker) -> None:
    """An end that no request has noticed yet is in the report, and its refund too."""
    world = await make_world(tiny_media=True, faults=[{"kind": "fail_generation"}])
    await world.create()
    world.clock.advance(3600)

    main = (await world.service.report()).accounts[0]

    assert (main.failed_generations, main.available_credits, main.reserved_credits) == (1, 10_000, 0)


async def test_report_is_written_at_the_end(tmp_path: Path) -> None:
    """The file holds the requests up to the last, in one piece, and the stopped service's books say the same."""
    config, clock = ServiceConfig(state_dir=tmp_path / "state", instant=True), ManualClock(START_MS)
    path = tmp_path / "reports" / "report.json"
    async with LocalService(config, clock, report_file=path) as service, aiohttp.ClientSession() as session:
        assert not path.exists()
        async with session.get(f"{service.base_url}/models") as response:
            assert response.status == 401

    written = json.loads(path.read_bytes())

    assert written["requests"] == [{"kind": "read", "status": 401, "code": "invalid_api_key", "requests": 1}]
    assert [one.name for one in path.parent.iterdir()] == ["report.json"]
    assert written == json.loads(read_report(config).as_json())


async def test_report_replaces_the_one_before(report: Report, tmp_path: Path) -> None:
    """An older report is replaced, and all of the new one can be read back from JSON."""
    path = tmp_path / "report.json"
    path.write_text("an older one, and longer" * 10_000)

    write_report(report, path)

    written = json.loads(path.read_bytes())
    assert written["poll_gaps"]["gaps"]["median_seconds"] == 11.0
    assert written["prompts"]["entries"][0]["prompt"] == FOX
    assert set(written) == set(Report.__struct_fields__)


async def test_served_process_writes_its_report(tmp_path: Path) -> None:
    """`--report` of a process of its own: written when it is told to stop."""
    source = Path(batchkiln.__file__).parents[1]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "batchkiln", "serve", "-q",
        "--state-dir", str(tmp_path / "state"), "--operator-port", "0", "--report", str(tmp_path / "report.json"),
        stdout=asyncio.subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(source), *sys.path])},
    )  # fmt: skip
    assert process.stdout is not None
    await process.stdout.readline()
    await process.stdout.readline()  # the operator's
    port = int((tmp_path / "state" / "operator-port").read_text())
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/health") as response:
        health = await response.json()
    process.send_signal(signal.SIGTERM)
    await process.wait()

    assert (process.returncode, health["status"]) == (0, "ok")
    assert json.loads((tmp_path / "report.json").read_bytes())["accounts"][0]["name"] == "main"


async def test_service_that_could_not_start_writes_no_report(make_world: WorldMaker, tmp_path: Path) -> None:
    """The report of the last run is not replaced by one of a run that never was."""
    taken = (await make_world()).service.base_url.split(":")[2].split("/")[0]
    config = ServiceConfig(state_dir=tmp_path / "second", port=int(taken))

    with pytest.raises(OSError, match="address already in use"):
        await LocalService(config, report_file=tmp_path / "report.json").__aenter__()

    assert not (tmp_path / "report.json").exists()
