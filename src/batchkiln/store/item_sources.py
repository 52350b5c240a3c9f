"""Reads the sources of items: whether their outputs exist, and whether these were made again since."""

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct

from batchkiln.core.states import ItemState
from batchkiln.store.session import Row, Session
from batchkiln.store.sql import query


class ItemSource(Struct, frozen=True):
    """An input of an item that another item makes.

    `place` is its place among the inputs, from 1. `item` is the name of an item, with its state, or of a group, whose
    `state` is None and whose `choice` is the rank of the kept item. `sha256` is the content that the item's current
    version was made from, or that a queued item is to be made from; `made_from` is the item that made it, in its
    `version`. All are None while it is open. `is_stale` is true if the item was sent with it, and its source now has
    another current file: `is_other_chosen` if that is of another variant, or of what the manifest names instead.
    `is_withdrawn` is true if the item was sent with it, and its source offers no file now. `lacking` is the first item
    of an open group that ended without a result, with its state, if too few others can still be kept.
    """

    place: int
    job: str
    item: str
    output: int
    choice: int
    state: ItemState | None
    sha256: str | None
    is_stale: bool
    is_made: bool
    made_from: str | None = None
    version: int | None = None
    is_other_chosen: bool = False
    is_withdrawn: bool = False
    lacking: tuple[str, ItemState] | None = None

    @property
    def is_open(self) -> bool:
        """Whether the input does not exist yet, so that the item waits for it."""
        return self.sha256 is None


def sources_of(connection: Session, item_ids: Sequence[int]) -> dict[int, tuple[ItemSource, ...]]:
    """Return the sources of the items that have any, in the order of their inputs."""
    found: dict[int, list[ItemSource]] = {}
    rows = connection.execute(query("item_sources"), {"ids": json.dumps(list(item_ids))}).fetchall()
    lacking = blocked_groups(connection, {row["group_id"] for row in rows if row["sha256"] is None} - {None})
    for row in rows:
        found.setdefault(row["item_id"], []).append(_source(row, lacking))
    return {item_id: tuple(sources) for item_id, sources in found.items()}


def blocked_groups(connection: Session, group_ids: Collection[int]) -> dict[int, tuple[str, ItemState]]:
    """Return, of those groups of which too few items can still be kept, the first item that ended without a result."""
    if not group_ids:
        return {}
    rows = connection.execute(query("blocked_groups"), {"ids": json.dumps(sorted(group_ids))})
    return {row["id"]: (row["item"], ItemState(row["state"])) for row in rows}


def waiting_for(connection: Session, item_ids: Sequence[int]) -> int:
    """Return how many other queued items wait for outputs of these items."""
    return int(connection.execute(query("waiting_for"), {"ids": json.dumps(list(item_ids))}).fetchone()[0])


def waiting_for_queued(connection: Session, job_id: int) -> int:
    """Return how many queued items of other jobs wait for outputs of the queued items of a job."""
    return int(connection.execute(query("waiting_for_queued"), {"job_id": job_id}).fetchone()[0])


def stale_items(connection: Session, job_id: int) -> list[int]:
    """Return the items of a job that are stale: made from another file than their source, or group, offers now."""
    return sorted(row["item_id"] for row in connection.execute(query("stale")) if row["job_id"] == job_id)


def stale_counts(connection: Session) -> Counter[str]:
    """Return the number of done items that are stale, by the name of their job."""
    return Counter(row["job"] for row in connection.execute(query("stale")) if row["state"] == ItemState.DONE)


def _source(row: Row, lacking: Mapping[int, tuple[str, ItemState]]) -> ItemSource:
    from batchkiln.core.job import Verdict  # noqa: PLC0415  few items have a source

    was_sent = row["own_state"] not in {ItemState.QUEUED, ItemState.CANCELED}
    offered, sha256 = row["offered"], row["sha256"]
    is_stale = was_sent and None not in {offered, sha256} and offered != sha256
    is_of_group = row["source_state"] is None
    was_made_again = row["made_from_verdict"] == Verdict.KEPT and row["made_from_version"] != row["made_by"]
    is_other = not was_made_again if is_of_group else row["is_of_source"] == 0
    return ItemSource(
        place=row["place"] + 1,
        job=row["job"],
        item=row["name"],
        output=row["output"],
        choice=row["rank"],
        state=None if row["source_state"] is None else ItemState(row["source_state"]),
        sha256=sha256,
        is_stale=is_stale,
        is_made=row["version_id"] is not None,
        made_from=row["made_from"],
        version=row["made_from_number"],
        is_other_chosen=is_stale and is_other,
        is_withdrawn=was_sent and offered is None and sha256 is not None,
        lacking=lacking.get(row["group_id"]) if sha256 is None else None,
    )
