"""What the planner sees of the queue."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from batchkiln.core.outcomes import Fact
from batchkiln.core.queue_changes import Uploaded
from batchkiln.core.queue_types import Candidate, Scope, Snapshot, Viewpoint
from batchkiln.core.responses import GenerationStatus
from batchkiln.store import planner_snapshot
from batchkiln.store.sql import query
from support.attempt_steps import accepted, account_of, begin, candidate, known, prepared, read
from support.builders import NO, NOON, day_of, record as generation
from support.trips import CountedTrips
from support.worker_world import World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """An empty queue."""
    made = World(tmp_path)
    account_of(made)
    yield made
    made.close()


def look(world: World, *, account: str = "main", is_first: bool = True, scope: Scope | None = None) -> Snapshot:
    viewpoint = Viewpoint(account_of(world, account), "test", account, is_first, scope or Scope())
    return planner_snapshot.snapshot(world.connection, viewpoint, [day_of(NOON)])


def candidates(snapshot: Snapshot) -> tuple[Candidate, ...]:
    return snapshot.queue.candidates


def test_candidate_is_the_first_of_its_kind(world: World) -> None:
    """By priority, then by the manifest's order."""
    world.enqueue("low", "low-2")
    world.enqueue("high", priority=3)

    (found,) = candidates(look(world))

    assert (found.item_id, found.priority, found.cost) == (3, 3, None)


def test_cost_and_money_come_with_it(world: World) -> None:
    """Law 6: quote, cap, budgets and what the job has used today."""
    world.enqueue("a", "b", budget_credits=100, budget_credits_per_day=50, recipe_fields={"max_cost_credits": 30})
    begin(world)

    (found,) = candidates(look(world))

    assert (found.cost, found.cap, found.job_is_working) == (10, 30, True)
    assert (found.money.reserved, found.money.today, found.money.budget, found.money.budget_per_day) == (
        10,
        10,
        100,
        50,
    )


@pytest.mark.parametrize(
    ("accounts", "account", "is_first", "is_seen"),
    [
        ((), "main", True, True),
        ((), "other", False, False),
        (("other",), "other", False, True),
        (("other",), "main", True, False),
        (("main", "other"), "other", False, True),
    ],
)
def test_account_sees_its_jobs(
    world: World, accounts: tuple[str, ...], account: str, *, is_first: bool, is_seen: bool
) -> None:
    """A job is sent by the accounts that it names, or by the profile's first."""
    world.enqueue("a", accounts=accounts)

    assert bool(candidates(look(world, account=account, is_first=is_first))) is is_seen


def test_paused_and_other_jobs_are_not_seen(world: World) -> None:
    """Nothing new of a paused job, of another profile, or outside the scope."""
    world.enqueue("a", job="one")
    world.enqueue("b", job="two")
    world.enqueue("c", job="three")
    world.connection.execute("UPDATE job SET is_paused = 1 WHERE name = 'one'")
    world.connection.execute("UPDATE job SET profile = 'elsewhere' WHERE name = 'two'")

    assert [found.item_id for found in candidates(look(world))] == [3]
    assert candidates(look(world, scope=Scope(frozenset({1, 2})))) == ()


def test_images_make_a_candidate_ready(world: World) -> None:
    """What the next items lack is named in the order in which it is needed."""
    owl, fox = world.inputs.put("owl.png", b"owl"), world.inputs.put("fox.png", b"fox")
    world.enqueue("a", inputs=(owl,))
    world.enqueue("b", inputs=(fox,))
    (before,) = candidates(look(world))
    prepared(world, candidate(1), Uploaded(account_of(world), [(owl.sha256, "https://assets/1")]))

    (after,) = candidates(look(world))

    assert (before.is_ready, len(before.missing_inputs)) == (False, 2)
    assert (after.is_ready, len(after.missing_inputs)) == (True, 1)


def test_held_attempt_takes_the_slot(world: World) -> None:
    """Law 4: it is unresolved, and yet not the program's to send."""
    world.enqueue("a")
    attempt = begin(world)
    assert attempt is not None
    before = look(world).queue
    known(world, attempt.id, Fact.KEY_MISSING, NO)

    after = look(world).queue

    assert (before.unresolved, before.is_slot_held) == (attempt, False)
    assert (after.unresolved, after.is_slot_held) == (None, True)


def test_outstanding_leaves_out_what_is_a_persons(world: World) -> None:
    """Held and ended items, and the queued ones of paused jobs, do not keep a run going."""
    world.enqueue("a", "b", job="one")
    world.enqueue("c", "d", job="two")
    attempt = begin(world)
    assert attempt is not None
    world.connection.execute("UPDATE job SET is_paused = 1 WHERE name = 'two'")

    found = planner_snapshot.outstanding(world.connection, Scope())
    known(world, attempt.id, Fact.KEY_MISSING, NO)

    assert (found.total, found.under_way) == (2, 1)
    assert planner_snapshot.outstanding(world.connection, Scope()).total == 1
    assert planner_snapshot.outstanding(world.connection, Scope(frozenset({2}))).total == 0


def test_look_takes_at_most_two_trips(world: World) -> None:
    """Whatever is queued and under way: a database that is far away is asked twice, and no more often."""
    world.enqueue("first", budget_credits_per_day=50)
    world.enqueue("second", priority=2)
    begin(world)
    session = CountedTrips(world.connection)
    viewpoint = Viewpoint(account_of(world, "main"), "test", "main", is_first=True, scope=Scope())

    found = planner_snapshot.snapshot(session, viewpoint, [day_of(NOON)])

    assert found.queue.unresolved is not None
    assert session.trips <= 2


def test_look_asks_for_downloads_only_where_there_are_any(world: World) -> None:
    """An account rarely has any, and looks several times an item."""
    world.enqueue("first")
    attempt = begin(world)
    assert attempt is not None
    accepted(world, attempt.id, generation())
    viewpoint = Viewpoint(account_of(world, "main"), "test", "main", is_first=True, scope=Scope())
    before, after = CountedTrips(world.connection), CountedTrips(world.connection)

    planner_snapshot.snapshot(before, viewpoint, [day_of(NOON)])
    read(world, attempt.id, generation(GenerationStatus.SUCCESS))
    found = planner_snapshot.snapshot(after, viewpoint, [day_of(NOON)])

    assert query("downloads") not in before.statements
    assert query("downloads") in after.statements
    assert (found.queue.downloads, after.trips) == ((attempt.id,), 2)
