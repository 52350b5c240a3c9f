"""What one record may say of a generation's cost and of when it was made."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from batchkiln.core.job import Attempt
from batchkiln.core.outcomes import Fact
from batchkiln.core.responses import GenerationRecord, GenerationStatus
from batchkiln.core.states import ItemState
from batchkiln.core.timestamps import to_milliseconds
from batchkiln.store import operations
from batchkiln.store.resolution import Decision, resolve
from support.attempt_steps import DAY_MS, NEXT_DAY_MS, NOW_MS, accepted, begin, known, read, standing
from support.builders import NO, NOON, day_of, record as generation
from support.worker_world import World

S = GenerationStatus
HOUR_MS = 3_600_000


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """Two queued items of ten credits each."""
    made = World(tmp_path)
    made.enqueue("item-1", "item-2", recipe_fields={"attempts": 2})
    yield made
    made.close()


@pytest.fixture
def sent(world: World) -> Attempt:
    """The first item's attempt, on the way."""
    attempt = begin(world)
    assert attempt is not None
    return attempt


def tell(world: World, attempt: Attempt, *records: GenerationRecord, now: int = NOW_MS) -> None:
    """Take over the reply to the create, and what the reads after it said."""
    for number, record in enumerate(records):
        take_over = read if number else accepted
        take_over(world, attempt.id, record, now)


@pytest.mark.parametrize("told", [0, 3, None])
def test_the_quote_counts_until_the_end(world: World, sent: Attempt, told: int | None) -> None:
    """Law 6: a record of a pending generation opens no budget again. The amount charged is a success's word."""
    tell(world, sent, generation(S.PENDING, cost_credits=told), generation(S.PROCESSING, cost_credits=told))

    assert world.money() == (0, 10, 0)
    assert standing(world).days == {DAY_MS: 10}


def test_a_later_record_may_raise_the_charge(world: World, sent: Attempt) -> None:
    """Law 6: the larger of all that was told counts, in the job and in the day."""
    tell(world, sent, generation(S.PENDING), generation(cost_credits=14), generation(cost_credits=0))

    assert world.money() == (0, 14, 0)
    assert standing(world).days == standing(world).job_days == {DAY_MS: 14}


@pytest.mark.parametrize("final", [0, 7])
def test_the_word_at_a_success_is_the_last(world: World, sent: Attempt, final: int) -> None:
    """The charged amount of a generation is `credits.cost` (Service section 4); the day gets nothing back."""
    tell(world, sent, generation(S.PENDING), generation(S.SUCCESS, cost_credits=final))

    assert world.money() == (0, final, 0)
    assert world.one("SELECT cost_credits FROM attempt") == final
    assert standing(world).days == standing(world).job_days == {DAY_MS: 10}


def test_a_word_that_nobody_knows_makes_nothing_cheaper(world: World, sent: Attempt) -> None:
    """Its outputs are fetched, since that costs nothing; what was charged is known at a success alone."""
    taken = generation(S.SUCCESS, status_word="delivered", cost_credits=0)

    tell(world, sent, generation(S.PENDING), taken)

    assert world.state("item-1") is ItemState.DOWNLOADING
    assert world.money() == (0, 10, 0)


def test_a_success_at_once_is_final_as_well(world: World, sent: Attempt) -> None:
    """The reply to a replay may be the last word on the cost."""
    tell(world, sent, generation(S.SUCCESS, cost_credits=7))

    assert world.money() == (0, 7, 0)
    assert standing(world).days == {DAY_MS: 10}


@pytest.mark.parametrize(("end", "money"), [(S.FAILED, (0, 10, 10)), (S.CANCELED, (0, 10, 0)), (S.EXPIRED, (0, 10, 0))])
def test_no_other_end_makes_it_cheaper(
    world: World, sent: Attempt, end: GenerationStatus, money: tuple[int, int, int]
) -> None:
    """Service rule 3.1: only a verified failure is refunded, once; it counts for the day (Service section 8)."""
    tell(world, sent, generation(S.PENDING), generation(end, cost_credits=0))

    assert world.money() == money
    assert standing(world).days == {DAY_MS: 10}


def test_a_charge_above_the_maximum_is_reported_and_pauses_the_job(world: World, sent: Attempt) -> None:
    """Law 6: what was sent was `max_cost_credits`. Once told, a person's `unpause` lets the job go on."""
    tell(world, sent, generation(cost_credits=25))
    history, is_paused = world.kinds("item-1"), world.one("SELECT is_paused FROM job")
    world.write(operations.unpause, "job", NOW_MS)
    tell_again = generation(S.PROCESSING, cost_credits=25)
    read(world, sent.id, tell_again, NOW_MS)

    assert "overcharged" in history
    assert is_paused == 1
    assert world.kinds("item-1").count("overcharged") == 1
    assert world.one("SELECT is_paused FROM job") == 0


@pytest.mark.parametrize(
    "hours",
    [-24 * 30, -14, -2, 2, 14, 24 * 400, None],
    ids=["a month ago", "-14 h", "-2 h", "+2 h", "+14 h", "next year", "undated"],
)
def test_a_creation_outside_of_its_request_is_not_believed(world: World, sent: Attempt, hours: int | None) -> None:
    """Law 5 and 3: it moves no credits to a closed day, nor the end of a paid result's retention."""
    created_at = None if hours is None else NOON + timedelta(hours=hours)
    tell(world, sent, generation(created_at=created_at), now=NOW_MS + 60_000)

    assert standing(world).days == {DAY_MS: 10}
    assert world.one("SELECT generation_created_at FROM attempt") == NOW_MS + 60_000


@pytest.mark.parametrize("seconds", [-60, 0, 30, 90])
def test_a_creation_near_its_request_is_believed(world: World, sent: Attempt, seconds: int) -> None:
    """Two clocks of one service may be a minute apart."""
    tell(world, sent, generation(created_at=NOON + timedelta(seconds=seconds)), now=NOW_MS + 30_000)

    assert world.one("SELECT generation_created_at FROM attempt") == NOW_MS + seconds * 1000


def test_a_creation_just_before_the_attempts_day_counts_in_that_day(world: World) -> None:
    """Law 5: it cannot have been made before it was sent; of the two days, the later one is still open."""
    midnight = day_of(NOON) + timedelta(days=1)
    attempt = begin(world, at=midnight + timedelta(seconds=5))
    assert attempt is not None
    created_at = midnight - timedelta(seconds=20)

    tell(world, attempt, generation(created_at=created_at), now=to_milliseconds(midnight) + 6_000)

    assert standing(world).days == {NEXT_DAY_MS: 10}


def test_a_creation_after_a_long_outage_is_in_its_own_day(world: World, sent: Attempt) -> None:
    """A replay after days of doubt is told of a generation of the first day: between send and reply all is possible."""
    tell(world, sent, generation(created_at=NOON + timedelta(seconds=1)), now=NOW_MS + 3 * 24 * HOUR_MS)

    assert standing(world).days == {DAY_MS: 10}


def test_a_named_generation_is_no_older_than_its_attempt(world: World, sent: Attempt) -> None:
    """A person gives an id; what the service says of its age is believed back to the attempt's record (Law 1)."""
    known(world, sent.id, Fact.STILL_CONFLICT, NO, NOW_MS)
    world.write(resolve, "job", "item-1", Decision.GENERATION, generation_id="gen-1", now=NOW_MS)
    now, ancient = NOW_MS + 5 * 24 * HOUR_MS, generation(created_at=NOON - timedelta(days=20))

    state = read(world, sent.id, ancient, now)

    assert state is ItemState.ACTIVE
    assert world.one("SELECT generation_created_at FROM attempt") == now
