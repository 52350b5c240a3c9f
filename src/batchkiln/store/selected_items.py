"""The selection of a run: the items that it may begin, in a temporary table of the connection that drives the queue.

The selection includes the sources that selected items wait for, and their sources in turn: without them a selected item
would wait forever. Sources that have ended, and sources in jobs outside the run, are not included.

The selection is not stored in the queue. Two runs do not see each other's selection, a crash leaves nothing behind, and
the same command selects the same items again. The planner reads the next selected items of a class by an index, in a
time that depends neither on the job nor on the selection.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from batchkiln.core.queue_types import Scope
from batchkiln.core.selection import Selectable, Selection
from batchkiln.core.states import FINAL_STATES, ItemState
from batchkiln.store.session import Cursor, Session, transaction
from batchkiln.store.sql import query

_AT_ONCE: Final = 10_000
_PASSED_AT_ONCE: Final = 50
COUNTED_AT_MOST: Final = 10_000
"""During a run, selected queued items are counted up to this number: the run only asks whether there are any."""


def select(connection: Session, job_ids: Sequence[int] | None, selection: Selection) -> Scope:
    """Select items of jobs, or of all jobs with work, and return the scope of the run. For `Store.run`."""
    connection.execute(query("drop_selection"))
    connection.execute(query("stage_selection"))
    connection.execute(query("index_selection"))
    found = [row[0] for row in connection.execute(query("open_job_ids"))] if job_ids is None else job_ids
    for job_id in found:
        chosen = selection.chosen(selectable(connection, job_id))
        while portion := list(islice(chosen, _AT_ONCE)):
            rows = [
                {"job_id": job_id, "is_open": int(item.state not in FINAL_STATES)} | item._asdict() for item in portion
            ]
            with transaction(connection):
                connection.executemany(query("select_item"), rows)
    scope = Scope(None if job_ids is None else frozenset(job_ids), is_selected=True)
    _select_sources(connection, scope)
    return scope


def _select_sources(connection: Session, scope: Scope) -> None:
    job_ids = None if scope.job_ids is None else json.dumps(sorted(scope.job_ids))
    connection.execute(query("select_sources"), {"job_ids": job_ids})


def is_anything_selected(connection: Session) -> bool:
    """Return whether the selection has items, also of those that have ended."""
    return connection.execute(query("has_selection")).fetchone() is not None


def count_needed(connection: Session) -> int:
    """Return the number of sources in the selection that were not selected themselves."""
    return int(connection.execute(query("count_needed")).fetchone()[0])


Unselected = Mapping[str, Mapping[tuple[int, ItemState], int]]
"""The numbers of items that a run does not begin: by the names of their jobs, by recipe and state."""


def unselected(connection: Session, scope: Scope) -> Unselected:
    """Return what the jobs of a scope have beside the selection, except items under way: any run continues these."""
    job_ids = None if scope.job_ids is None else json.dumps(sorted(scope.job_ids))
    found: dict[str, dict[tuple[int, ItemState], int]] = {}
    for row in connection.execute(query("unselected_tally"), {"job_ids": job_ids}):
        found.setdefault(row["job"], {})[row["recipe_id"], ItemState(row["state"])] = int(row["n"])
    return found


def selectable(connection: Session, job_id: int) -> Iterator[Selectable]:
    """Yield all items of a job but the canceled ones, read in portions."""
    for state in ItemState:
        after, page = 0, state is not ItemState.CANCELED
        while page:
            params = {"job_id": job_id, "state": state, "after": after, "limit": _AT_ONCE}
            rows = connection.execute(query("selectable_items"), params).fetchall()
            for row in rows:
                yield Selectable(*row)
            page = len(rows) == _AT_ONCE
            after = rows[-1]["id"] if rows else after


def follow_changes(connection: Session, scope: Scope) -> None:
    """Update the selection after changes by another process: recipes, priorities, and the sources that are needed.

    Selected items that had ended, and are to be made again, are begun as well.
    """
    connection.execute(query("move_selected"))
    _select_sources(connection, scope)


def selected_heads(connection: Session, job_id: int, recipe_id: int, limit: int) -> Cursor:
    """Return the next selected items of a class, after those that have ended at its beginning are marked as such."""
    place = {"job_id": job_id, "recipe_id": recipe_id}
    while (
        connection.execute(query("pass_over_ended_selected"), place | {"limit": _PASSED_AT_ONCE}).rowcount
        == _PASSED_AT_ONCE
    ):
        pass
    return connection.execute(query("selected_heads"), place | {"limit": limit})


def selected_ready_inputs(connection: Session, job_id: int, recipe_id: int, limit: int, *, account_id: int) -> Cursor:
    """Return which inputs of the next selected items are uploaded to the account."""
    params = {"job_id": job_id, "recipe_id": recipe_id, "limit": limit, "account_id": account_id}
    return connection.execute(query("selected_ready_inputs"), params)


def ask_selected(connection: Session, item_id: int) -> Cursor:
    """Send the query whether an item is selected."""
    return connection.execute(query("item_is_selected"), {"item_id": item_id})


def selected_queued(
    connection: Session, *, at_most: int = COUNTED_AT_MOST, with_waiting: bool = False
) -> tuple[int, int]:
    """Return how many selected items are queued, and how many of them in paused jobs, counted up to a bound.

    Items that wait for their inputs are counted only `with_waiting`.
    """
    rows = connection.execute(query("selected_queued"), {"limit": at_most, "waiting": int(with_waiting)})
    found = {bool(row["is_paused"]): int(row["n"]) for row in rows}
    return sum(found.values()), found.get(True, 0)
