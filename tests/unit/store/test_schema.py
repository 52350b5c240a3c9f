"""The schema as the last guard: what no code may store."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from batchkiln.core.errors import InvariantBroken
from batchkiln.core.outcomes import Answer, Fact
from batchkiln.core.rate_limits import RequestKind, RequestNote
from batchkiln.core.responses import GenerationStatus
from batchkiln.core.states import TRANSITIONS, Event, ItemState
from batchkiln.store import attempts
from batchkiln.store.transitions import log_event, transition
from support.attempt_steps import NOW_MS, accepted, answered, begin, known, read, record
from support.builders import NO, NOON, day_of, record as generation
from support.stores import integrity_errors
from support.worker_world import World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """Two queued items, the first of them sent."""
    made = World(tmp_path)
    made.enqueue("item-1", "item-2")
    assert begin(made) is not None
    yield made
    made.close()


def test_second_unresolved_attempt_of_an_account_is_refused(world: World) -> None:
    """Law 4: the database itself allows one sent or active attempt per account."""
    with pytest.raises(integrity_errors(), match=r"attempt\.account_id|attempt_unresolved"):
        world.connection.execute(
            "INSERT INTO attempt (item_id, job_id, account_id, number, state, is_video, idempotency_key,"
            " key_fingerprint, body, checksum, quote_credits, day_start_at, sends, recorded_at)"
            " SELECT 2, job_id, account_id, number, state, is_video, 'other', key_fingerprint, body, checksum,"
            " quote_credits, day_start_at, sends, recorded_at FROM attempt"
        )


def test_second_unresolved_attempt_changes_nothing(world: World) -> None:
    """Law 4: a plan for an account that is busy by now is out of date."""
    assert record(world, 2, cost=10) is None

    assert world.money() == (10, 0, 0)
    assert world.state("item-2") is ItemState.QUEUED


def test_other_account_may_have_its_own(world: World) -> None:
    """Law 4: the limit is each account's."""
    assert record(world, 2, cost=10, account="other") is not None


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE attempt SET idempotency_key = 'other'",
        "UPDATE attempt SET body = NULL",
        "UPDATE attempt SET checksum = 1",
        "UPDATE attempt SET key_fingerprint = 'other'",
        "UPDATE attempt SET item_id = 2",
        "UPDATE attempt SET account_id = 2",
        "UPDATE attempt SET number = 2",
        "UPDATE attempt SET is_video = 1",
        "DELETE FROM attempt",
        "UPDATE history SET at = 0",
        "DELETE FROM history",
    ],
)
def test_attempts_and_history_are_never_edited(world: World, statement: str) -> None:
    """Law 2: what was sent can be neither changed nor forgotten."""
    with pytest.raises(integrity_errors(), match=r"never|append-only"):
        world.connection.execute(statement)


@pytest.mark.parametrize("value", ["'gen-2'", "NULL"])
def test_generation_id_is_never_replaced(world: World, value: str) -> None:
    """Law 3: an id, once known, stays."""
    accepted(world, 1, generation(), NOW_MS)

    with pytest.raises(integrity_errors(), match="never replaced"):
        world.connection.execute(f"UPDATE attempt SET generation_id = {value}, state = 'disputed', ended_at = 1")


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE job SET reserved = -1",
        "UPDATE job SET refunded = 1",
        "UPDATE account_day SET credits = -1",
        "UPDATE job_day SET credits = -1",
        "UPDATE item SET state = 'active', attempt_id = NULL WHERE id = 1",
        "UPDATE item SET state = 'queued' WHERE id = 1",
        "UPDATE item SET state = 'failed' WHERE id = 2",
        "UPDATE item SET state = 'unheard-of'",
        "UPDATE item SET prompt = '' WHERE id = 2",
        "UPDATE attempt SET state = 'active'",
        "UPDATE attempt SET state = 'failed', ended_at = 1",
        "UPDATE attempt SET ended_at = 1",
        "UPDATE attempt SET answers = 2",
        "UPDATE attempt SET is_refunded = 1",
        "UPDATE rest_tally SET n = -1",
        "INSERT INTO request (account_id, kind, sent_at) VALUES (1, 'other kind', 1)",
        "INSERT INTO history (at, job_id, kind, state) VALUES (1, 1, 'f', 'done')",
        "INSERT INTO history (at, job_id, kind, detail) VALUES (1, 1, 'w', '{}')",
        "INSERT INTO history (at, job_id, kind) VALUES (1, 1, 'x')",
        "INSERT INTO history (at, job_id, kind, detail) VALUES (1, 1, 'quoted', '[1]')",
    ],
)
def test_impossible_rows_are_unstorable(world: World, statement: str) -> None:
    """CHECKs tie columns to states, and no sum of money is negative."""
    with pytest.raises(integrity_errors(), match=r"(?i)check"):
        world.connection.execute(statement)


@pytest.mark.parametrize(
    ("kind", "state", "detail", "is_short"),
    [
        (Event.ATTEMPT_RECORDED, ItemState.SUBMITTING, {"number": 2, "quote_credits": 10}, True),
        (Event.ATTEMPT_RECORDED, ItemState.SUBMITTING, {"number": 2, "quote_credits": 10, "is_recovered": True}, False),
        (Event.ACCEPTED, ItemState.ACTIVE, {"generation_id": 'g"é', "cost_credits": 0, "is_replay": False}, True),
        (Event.ACCEPTED, ItemState.ACTIVE, {"generation_id": "g", "cost_credits": None, "is_replay": True}, True),
        (Event.OUTPUTS_READY, ItemState.DOWNLOADING, {}, True),
        ("status_seen", None, {"status": "\\n"}, True),
        ("file_saved", None, {"number": 1, "of": 4, "path": "/out/é 'x'\t.png", "size_bytes": 1 << 40}, True),
        ("file_saved", None, {"number": 1, "of": 1, "path": "x", "size_bytes": 9, "instead_of": "00"}, False),
        (Event.FILES_SAVED, ItemState.DONE, {}, True),
        (Event.FILES_SAVED, ItemState.DOWNLOADING, {}, False),
        (Event.FILES_SAVED, ItemState.DONE, {"reason": "r"}, False),
        ("quoted", None, {"cost_credits": 10}, False),
    ],
)
def test_fact_in_short_reads_as_a_whole_one(
    world: World,
    kind: str,
    state: ItemState | None,
    detail: dict[str, str | int | bool | None],
    is_short: bool,  # noqa: FBT001  pytest's
) -> None:
    """Nobody who reads the history sees how it is stored."""
    world.write(log_event, kind, item_id=2, now=NOW_MS, attempt_id=1, state=state, detail=detail)

    newest = "WHERE id = (SELECT max(id) FROM history)"
    told = world.connection.execute(f"SELECT at, job_id, item_id, attempt_id, kind, state, detail FROM event {newest}")
    *columns, text = told.fetchone()
    assert columns == [NOW_MS, 1, 2, 1, kind, state]
    assert json.dumps(json.loads(text or "{}")) == json.dumps(detail)
    assert (len(world.one(f"SELECT kind FROM history {newest}")) == 1) == is_short


@pytest.mark.parametrize("event", [event for state, event in TRANSITIONS if state is ItemState.ACTIVE])
def test_move_from_another_state_breaks_and_changes_nothing(world: World, event: Event) -> None:
    """An item that is not where it is believed to be stops the program."""
    before = world.one("SELECT count(*) FROM event")

    with pytest.raises(InvariantBroken):
        world.write(transition, item_id=2, expected=ItemState.ACTIVE, event=event, now=NOW_MS)

    assert world.state("item-2") is ItemState.QUEUED
    assert world.one("SELECT count(*) FROM event") == before


@pytest.mark.parametrize("seed", range(8))
def test_counters_equal_what_they_count(tmp_path: Path, seed: int) -> None:
    """After any walk through the states the tallies, troubles and sums agree with the rows they stand for."""
    random = Random(seed)
    world = World(tmp_path)
    for cost in (10, 20):
        world.enqueue(*(f"{cost}-{n}" for n in range(4)), cost_credits=cost, recipe_fields={"attempts": 2})

    for step in range(60):
        _random_fact(world, random, NOW_MS + step)
        world.connection.execute("UPDATE job SET is_paused = 0")  # as a charge above the quote leaves it

    counted = world.rows("SELECT job_id, recipe_id, state, count(*) FROM item GROUP BY 1, 2, 3")
    kept = world.rows("SELECT job_id, recipe_id, state, n FROM tally WHERE n > 0 ORDER BY 1, 2, 3")
    assert sorted(map(tuple, counted)) == sorted(map(tuple, kept))
    troubles = world.rows("SELECT state, error_code, count(*) FROM item WHERE error_code IS NOT NULL GROUP BY 1, 2")
    kept_troubles = world.rows("SELECT state, error_code, n FROM trouble WHERE n > 0")
    assert sorted(map(tuple, troubles)) == sorted(map(tuple, kept_troubles))
    reserved = (
        "SELECT coalesce(sum(quote_credits), 0) FROM attempt "
        "WHERE state IN ('sent', 'disputed') AND cost_credits IS NULL"
    )
    charged = "SELECT coalesce(sum(cost_credits), 0) FROM attempt"
    refunded = "SELECT coalesce(sum(cost_credits), 0) FROM attempt WHERE is_refunded = 1"
    assert world.money() == (world.one(reserved), world.one(charged), world.one(refunded))
    least = (
        "SELECT coalesce(sum(CASE WHEN cost_credits > quote_credits THEN cost_credits ELSE quote_credits END), 0)"
        " FROM attempt WHERE state <> 'refused'"
    )
    assert world.one("SELECT sum(credits) FROM account_day") >= world.one(least)  # more where an end was cheaper
    assert world.one("SELECT sum(credits) FROM job_day") == world.one("SELECT sum(credits) FROM account_day")
    world.close()


def _random_fact(world: World, random: Random, step: int) -> None:
    """Let something happen to the attempt that is on its way, or begin one."""
    row = world.rows("SELECT id, state FROM attempt WHERE state IN ('sent', 'active')")
    if not row:
        if world.one("SELECT count(*) FROM item WHERE state = 'queued'"):
            item_id, cost = world.rows(
                "SELECT item.id, CAST(replace(model, 'cost-', '') AS INTEGER)"
                " FROM item JOIN recipe ON recipe.id = recipe_id WHERE state = 'queued' ORDER BY random() LIMIT 1"
            )[0]
            world.connection.execute(
                "INSERT INTO quote SELECT 'test', price_key, CAST(? AS INTEGER), 0 FROM recipe WHERE model = ?"
                " ON CONFLICT (profile, price_key) DO UPDATE SET cost_credits = excluded.cost_credits",
                (cost, f"cost-{cost}"),
            )
            assert record(world, item_id, cost=cost) is not None
        return
    attempt_id, state = row[0]
    if state == "sent" and world.one("SELECT sends = answers FROM attempt WHERE id = ?", attempt_id):
        note = RequestNote(1, RequestKind.CREATE, NOON, (day_of(NOON),))
        world.write(attempts.resend, attempt_id, note, keep_seconds=300.0)
    reply = generation(
        random.choice(list(GenerationStatus)), id=f"gen-{attempt_id}", cost_credits=random.choice([7, 20])
    )
    if state == "active":
        read(world, attempt_id, reply, step)
        return
    kind = random.choice([Answer.INVALID, Answer.OVER_QUOTE, Answer.ASSET_GONE, Answer.BUSY, Answer.CONFLICT])
    good = generation(id=f"gen-{attempt_id}")
    facts: list[Callable[[], object]] = [
        lambda: accepted(world, attempt_id, reply, step),
        lambda: accepted(world, attempt_id, good, step),
        lambda: answered(world, attempt_id, kind, NO, step),
        lambda: answered(world, attempt_id, Answer.BLOCKED, NO, step),
        lambda: answered(world, attempt_id, Answer.LIMITED, NO, step),
        lambda: answered(world, attempt_id, Answer.UNKNOWN, NO, step),
        lambda: known(world, attempt_id, Fact.STILL_CONFLICT, NO, step),
    ]
    random.choice(facts)()
