"""The items that one run may begin: what the planner sees of them, and what it costs."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from batchkiln.core.queue_types import Scope, Snapshot, Viewpoint
from batchkiln.core.selection import Selection
from batchkiln.core.states import ItemState
from batchkiln.store import planner_snapshot
from batchkiln.store.planner_snapshot import queued_heads
from batchkiln.store.selected_items import follow_changes, select, selected_queued, unselected
from support.attempt_steps import account_of, begin
from support.builders import NOON, day_of
from support.stores import open_session
from support.worker_world import World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """An empty queue."""
    made = World(tmp_path)
    account_of(made)
    yield made
    made.close()


def look(world: World, scope: Scope) -> Snapshot:
    viewpoint = Viewpoint(account_of(world, "main"), "test", "main", is_first=True, scope=scope)
    return planner_snapshot.snapshot(world.connection, viewpoint, [day_of(NOON)])


def seen(world: World, scope: Scope) -> list[tuple[int, ...]]:
    """Return the items that the planner may begin, class by class."""
    return [(found.item_id, *found.next_item_ids) for found in look(world, scope).queue.candidates]


def test_only_selected_items_are_candidates(world: World) -> None:
    """The planner begins nothing else."""
    world.enqueue("fox-1", "owl-1", "fox-2")

    scope = select(world.connection, None, Selection(("fox-*",)))

    assert seen(world, scope) == [(1, 3)]
    assert seen(world, Scope()) == [(1, 2, 3)]


def test_each_job_has_its_own_limit(world: World) -> None:
    """What is selected of one job depends on no other job."""
    world.enqueue("a", "b", "c", job="one")
    world.enqueue("d", "e", job="two")

    scope = select(world.connection, None, Selection(limit=2))
    of_two = select(world.connection, [2], Selection(limit=1))

    assert scope == Scope(None, is_selected=True)
    assert seen(world, of_two) == [(4,)]


def test_items_that_were_made_count_in_the_limit(world: World) -> None:
    """The same command resumes, and never makes more than it was asked for."""
    world.enqueue("a", "b", "c")
    world.connection.execute("UPDATE item SET state = 'failed', error_code = 'x' WHERE name = 'a'")

    scope = select(world.connection, None, Selection(limit=2))

    assert seen(world, scope) == [(2,)]


def test_canceled_items_do_not_count(world: World) -> None:
    """A person has taken them out."""
    world.enqueue("a", "b", "c")
    world.connection.execute("UPDATE item SET state = 'canceled' WHERE name = 'a'")

    assert seen(world, select(world.connection, None, Selection(limit=1))) == [(2,)]


def test_ended_items_are_passed_over(world: World) -> None:
    """However many have ended, the next ones are found at the beginning of the index."""
    world.enqueue(*(f"item-{number}" for number in range(3000)))
    scope = select(world.connection, None, Selection(limit=2999))
    world.connection.execute("UPDATE item SET state = 'failed', error_code = 'x' WHERE id < 2998")

    assert seen(world, scope) == [(2998, 2999)]
    left = world.connection.execute("SELECT count(*) FROM temp.selected WHERE is_open = 1").fetchone()[0]
    assert left == 2


@pytest.mark.parametrize("has_ended_before", [False, True])
def test_ended_item_that_is_made_again_is_begun_in_the_same_run(world: World, *, has_ended_before: bool) -> None:
    """A person or a hook asks for it again; the same command, begun anew, would select it too."""
    world.enqueue("a", "b", "c")
    end = "UPDATE item SET state = 'failed', error_code = 'x' WHERE name = 'a'"
    if has_ended_before:
        world.connection.execute(end)
    scope = select(world.connection, None, Selection(limit=2))
    world.connection.execute(end)
    during = seen(world, scope)
    world.connection.execute("UPDATE item SET state = 'queued', error_code = NULL WHERE name = 'a'")
    follow_changes(world.connection, scope)

    assert (during, seen(world, scope)) == ([(2,)], [(1, 2)])
    assert selected_queued(world.connection) == (2, 0)


def test_an_item_that_returns_to_the_queue_is_still_selected(world: World) -> None:
    """After a failure that the service verified, it is tried again in the same run."""
    world.enqueue("a", "b")
    scope = select(world.connection, None, Selection(limit=1))
    begin(world)
    during = seen(world, scope)
    world.connection.execute("UPDATE attempt SET state = 'refused', ended_at = 1")
    world.connection.execute("UPDATE item SET state = 'queued', attempt_id = NULL WHERE id = 1")

    assert (during, seen(world, scope)) == ([], [(1,)])


def test_what_was_sent_is_finished_whether_selected_or_not(world: World) -> None:
    """Law 3: a selection limits what is begun, and abandons nothing."""
    world.enqueue("a", "b")
    begin(world)
    world.connection.execute("UPDATE attempt SET sends = 1")

    found = look(world, select(world.connection, None, Selection(("b",)))).queue

    assert found.unresolved is not None
    assert not found.is_unwanted


def test_an_attempt_that_created_nothing_is_only_resent_if_selected(world: World) -> None:
    """Killed before its send, it is begun by a run that selects it."""
    world.enqueue("a", "b")
    begin(world)
    world.connection.execute("UPDATE attempt SET sends = 0")

    found = [look(world, select(world.connection, None, Selection((name,)))).queue.is_unwanted for name in "ab"]

    assert found == [False, True]


def test_a_run_ends_when_its_selection_has_ended(world: World) -> None:
    """The queued rest does not keep it going; items under way do, whichever they are."""
    world.enqueue("a", "b", "c", job="one")
    scope = select(world.connection, None, Selection(("b",)))
    before = planner_snapshot.outstanding(world.connection, scope).total
    world.connection.execute("UPDATE item SET state = 'failed', error_code = 'x' WHERE name = 'b'")

    assert (before, planner_snapshot.outstanding(world.connection, scope).total) == (1, 0)


def test_selected_items_of_paused_jobs_wait(world: World) -> None:
    """As without a selection."""
    world.enqueue("a", "b")
    select(world.connection, None, Selection(limit=1))
    world.connection.execute("UPDATE job SET is_paused = 1")

    assert selected_queued(world.connection) == (1, 1)


def test_a_changed_recipe_keeps_an_item_selected(world: World) -> None:
    """Another process may apply a manifest meanwhile."""
    world.enqueue("a", "b")
    world.enqueue("c", recipe_fields={"max_cost_credits": 7})
    scope = select(world.connection, None, Selection(("a",)))
    world.connection.execute("UPDATE item SET priority = 4, recipe_id = (SELECT recipe_id FROM item WHERE name = 'c')")

    before = seen(world, scope)
    follow_changes(world.connection, scope)

    assert before == []
    assert seen(world, scope) == [(1,)]


def test_two_connections_do_not_see_each_others_selection(world: World) -> None:
    """A selection belongs to a run, and not to the queue."""
    world.enqueue("a", "b")
    other = open_session(world.path)
    try:
        select(world.connection, None, Selection(("a",)))
        select(other, None, Selection(("b",)))
        heads = [queued_heads(each, 1, 1, 5, is_selected=True) for each in (world.connection, other)]
    finally:
        other.close()

    assert [[head["id"] for head in found] for found in heads] == [[1], [2]]


def test_the_items_beside_a_selection_are_counted_by_job_recipe_and_state(world: World) -> None:
    """Those that are under way are continued by any run, and count as the run's."""
    world.enqueue("a", "b", "c", job="one")
    world.enqueue("d", "e", job="two")
    begin(world)
    recipe = world.one("SELECT recipe_id FROM item WHERE name = 'a'")

    everywhere = select(world.connection, None, Selection(("b",)))
    found = unselected(world.connection, everywhere)
    of_one = unselected(world.connection, select(world.connection, [1], Selection(limit=1)))

    assert found == {"one": {(recipe, ItemState.QUEUED): 1}, "two": {(recipe, ItemState.QUEUED): 2}}
    assert of_one == {"one": {(recipe, ItemState.QUEUED): 2}}
