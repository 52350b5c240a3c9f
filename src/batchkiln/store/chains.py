"""Items that are made from other items: fills their open inputs when the source is done and chosen.

An input is filled in the transaction that makes its source available, so that a crash leaves both or neither. Only
queued items are changed, because a sent item keeps the file that it was sent with. `store/transitions.py` calls these
functions at each change of state that concerns them. `now` is milliseconds of service time.
"""

import json
from collections.abc import Collection, Sequence
from typing import Final

from batchkiln.core.states import ItemState
from batchkiln.store.session import Session
from batchkiln.store.sql import query

_ALL: Final = 2**63 - 1


def fill_dependents(connection: Session, source_ids: Sequence[int], now: int) -> int:
    """Fill, replace or reopen the inputs of queued items that are made from these items or their groups.

    Call it in the transaction that chooses a version of an item, or keeps or drops it. Return the number of items that
    no longer wait for an input.
    """
    queued = frozenset({ItemState.QUEUED})
    return _fill(connection, list(dependents(connection, source_ids, queued)), now)


def dependents(
    connection: Session, source_ids: Collection[int], states: Collection[ItemState], limit: int = _ALL
) -> dict[int, str]:
    """Return the first items in some states that are made from these items or their groups, each with its job."""
    params = {"ids": json.dumps(sorted(source_ids)), "states": json.dumps(sorted(states)), "limit": limit}
    return {row["id"]: row["job"] for row in connection.execute(query("dependents"), params)}


def refresh_inputs(connection: Session, item_ids: Sequence[int], now: int, *, is_logged: bool = True) -> int:
    """Fill the inputs of the queued ones among these items, as `fill_dependents` does.

    Call it in the transaction that queues them. Without `is_logged`, the change is not added to their histories.
    """
    rows = connection.execute(query("queued_with_sources"), {"ids": json.dumps(list(item_ids))}).fetchall()
    found = [item_id for (item_id,) in rows]
    if found:  # one that was recovered after a restore had no open inputs while it was sent
        connection.execute(query("rebuild_inputs"), {"ids": json.dumps(found)})
    return _fill(connection, found, now, is_logged=is_logged)


def rebuild_inputs(connection: Session, item_id: int) -> None:
    """Write the list of an item's inputs anew from the files that fill them."""
    connection.execute(query("rebuild_inputs"), {"ids": json.dumps([item_id])})


def _fill(connection: Session, item_ids: Sequence[int], now: int, *, is_logged: bool = True) -> int:
    """Fill the inputs of items from their sources; return the number of items whose last open input was filled."""
    if not item_ids:
        return 0
    ids = {"ids": json.dumps(item_ids)}
    changed = [
        row
        for name in ("fill_from_items", "fill_from_groups")
        for row in connection.execute(query(name), ids).fetchall()
    ]
    if not changed:
        return 0
    changed_ids = {"ids": json.dumps(sorted({row["item_id"] for row in changed}))}
    were_open = [item_id for (item_id,) in connection.execute(query("items_with_open_inputs"), changed_ids)]
    connection.execute(query("store_inputs"), changed_ids)
    connection.execute(query("rebuild_inputs"), changed_ids)
    if is_logged:
        for item_id, place, sha256 in sorted(tuple(row) for row in changed):
            detail = {"place": place, "sha256": sha256}
            event = {
                "now": now,
                "item_id": item_id,
                "kind": "input_opened" if sha256 is None else "input_filled",
                "detail": json.dumps(detail),
            }
            connection.execute(query("log_input"), event)
    are_open = connection.execute(query("items_with_open_inputs"), {"ids": json.dumps(were_open)}).fetchall()
    return len(were_open) - len(are_open)
