"""Items to look at: a job's page by page, by state, model, cause and metadata; and the newest results.

Only reading, on a connection with a snapshot (for `Database.read`). A filter that few items pass would read a
million rows to fill one page, so a page looks at a bounded number of them and says where the next one goes on.
"""

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from batchkiln.core.states import ItemState
from batchkiln.store.items import ItemSummary, summaries
from batchkiln.store.name_lookup import job_id_of
from batchkiln.store.sql import query

LOOKED_AT: Final = 4000
"""How many items a page of a filter looks at: some milliseconds."""


@dataclass(frozen=True, slots=True)
class Filter:
    """What is wanted; None is anything. `value` None: any item that has the metadata `key`."""

    state: ItemState | None = None
    model: str | None = None
    code: str | None = None
    key: str | None = None
    value: str | None = None

    @property
    def is_by_content(self) -> bool:
        """Whether more than the index on states has to be looked at."""
        return any(wish is not None for wish in (self.model, self.code, self.key))


@dataclass(frozen=True, slots=True)
class GalleryPage:
    """Some items, in the job's order. `next_after` begins the next page, `previous_before` ends the one before.

    `is_cut`: the page is short because only so many items were looked at, and there may be more.
    """

    items: tuple[ItemSummary, ...]
    next_after: int | None
    previous_before: int | None
    is_cut: bool


@dataclass(frozen=True, slots=True)
class OutputFile:
    """A file as it was saved."""

    path: str
    size_bytes: int
    sha256: str
    media_type: str


def gallery_page(
    connection: sqlite3.Connection,
    job_name: str,
    wanted: Filter,
    *,
    after_id: int = 0,
    before_id: int | None = None,
    limit: int = 48,
) -> GalleryPage:
    """Give the items that pass a filter, the next ones behind an item or the last ones before one.

    Raises `InputError` for a job that is not there.
    """
    most = LOOKED_AT if wanted.is_by_content else limit + 1
    name = "item_ids" if wanted.state is None else "items_in_state"
    place = {"job_id": job_id_of(connection, job_name), "state": wanted.state, "limit": most}
    if before_id is None:
        rows = connection.execute(query(name), place | {"after": after_id})
    else:
        rows = connection.execute(query(f"{name}_before"), place | {"before": before_id})
    looked_at = [row[0] for row in rows]
    found = looked_at
    if wanted.is_by_content:
        found = _matching(connection, looked_at, wanted, limit + 1)
    shown, is_more = found[:limit], len(found) > limit
    is_cut = not is_more and len(looked_at) == most
    goes_on = shown[-1] if is_more else looked_at[-1] if is_cut else None
    items = tuple(summaries(connection, shown if before_id is None else shown[::-1]))
    if before_id is None:
        return GalleryPage(items, goes_on, after_id + 1 if after_id else None, is_cut)
    return GalleryPage(items, items[-1].id if items else before_id - 1, goes_on, is_cut)


def _matching(connection: sqlite3.Connection, ids: Sequence[int], wanted: Filter, limit: int) -> list[int]:
    place = {
        "ids": json.dumps(ids),
        "model": wanted.model,
        "code": wanted.code,
        "key": wanted.key,
        "value": wanted.value,
        "limit": limit,
    }
    return [row[0] for row in connection.execute(query("matching_items"), place)]


def newest_of_job(connection: sqlite3.Connection, job_name: str, limit: int) -> list[ItemSummary]:
    """Give the last items of a job, in its order, that are done."""
    place = {"job_id": job_id_of(connection, job_name), "state": ItemState.DONE, "limit": limit}
    return summaries(connection, [row[0] for row in connection.execute(query("newest_in_state"), place)])


def newest_results(connection: sqlite3.Connection, limit: int) -> list[tuple[str, ItemSummary]]:
    """Give the items whose files were saved last, each with its job."""
    jobs = {row["item_id"]: row["job"] for row in connection.execute(query("newest_outputs"), {"limit": limit})}
    return [(jobs[item.id], item) for item in summaries(connection, list(jobs))]


def output_file(connection: sqlite3.Connection, output_id: int) -> OutputFile | None:
    """Return a file by its key."""
    row = connection.execute(query("output_by_id"), {"id": output_id}).fetchone()
    return None if row is None else OutputFile(*row)


def job_models(connection: sqlite3.Connection, job_name: str) -> list[str]:
    """Return the models that a job's items ask for."""
    place = {"job_id": job_id_of(connection, job_name)}
    return [row[0] for row in connection.execute(query("job_models"), place)]
