"""Rows for datasets and reports, page by page.

Each page of a dataset is read in its own snapshot (`Store.run`), so that a running process never waits for an export.
Items that a manifest adds meanwhile are left for the next export. A report sums the rows that it shows, so its totals
match its pictures even if the queue changes.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import orjson
from msgspec import Struct

from batchkiln.core.job import AttemptState, Charge, Mode, Recipe
from batchkiln.core.sample_names import DatasetRow
from batchkiln.core.states import ItemState
from batchkiln.core.timestamps import from_milliseconds
from batchkiln.store.items import PAGE, Filter, Items, ItemSummary, matching_ids
from batchkiln.store.jobs import Jobs
from batchkiln.store.row_types import recipe_of
from batchkiln.store.session import Row, Session
from batchkiln.store.shared_paths import local_path_of
from batchkiln.store.sql import query


class ItemShape(Struct, frozen=True):
    """The types that an item adds to a dataset's columns, in any state."""

    makes_video: bool
    parameters: Mapping[str, Any]
    metadata: Mapping[str, Any]


_ANY = Filter()
_RESERVING = frozenset({AttemptState.SENT, AttemptState.DISPUTED})


class ReportRow(Struct, frozen=True):
    """One item of a report. `inputs` are the paths of its images; `charges` has one entry for each attempt."""

    item: ItemSummary
    recipe: Recipe
    inputs: tuple[str, ...]
    charges: tuple[Charge, ...]


class Exports:
    """Reads rows for datasets and reports. Unknown jobs raise `InputError`."""

    def __init__(self, connection: Session) -> None:
        """Read from this connection."""
        self._connection = connection

    def item_count(self, job_name: str) -> int:
        """Return how many items a job has ever had; every index is smaller. Raise `InputError` for an unknown job."""
        return Jobs(self._connection).item_count(job_name)

    def shapes(self, job_name: str, *, below: int) -> Iterator[ItemShape]:
        """Yield the shape of each item with an index below, in the manifest's order."""
        for ids in _pages(self._connection, job_name):
            rows = self._connection.execute(query("export_shapes"), {"ids": json.dumps(ids)}).fetchall()
            for row in sorted(rows, key=lambda row: int(row["id"])):
                if row["position"] < below:
                    makes_video = Mode(row["mode"]).makes_video
                    yield ItemShape(makes_video, _parameters(row["parameters"]), _metadata(row["metadata"]))

    def rows(self, job_name: str, wanted: Filter = _ANY, *, below: int) -> Iterator[DatasetRow]:
        """Yield the current outputs of matching items with an index below `below`, by index and number.

        An item that is being made again, or whose redo failed, still has its earlier files.
        """
        for page in _pages(self._connection, job_name):
            ids = matching_ids(self._connection, page, wanted, PAGE) if wanted.is_by_content else page
            rows = self._connection.execute(query("export_rows"), {"ids": json.dumps(ids)}).fetchall()
            for row in sorted(rows, key=lambda row: (row["position"], row["number"])):
                if row["position"] < below:
                    yield _row(self._connection, row)

    def chosen_ids(self, job_name: str, states: Sequence[ItemState], wanted: Filter) -> list[int]:
        """Return the ids of the items in some states, or in all, that match a filter, in the job's order."""
        return [item.id for item in Items(self._connection).matching(job_name, states, wanted)]

    def report_rows(self, ids: Sequence[int]) -> list[ReportRow]:
        """Return the rows of items by their ids."""
        return self._report_rows(Items(self._connection).of_ids(ids))

    def report_page(self, job_name: str, *, after_id: int = 0, limit: int = PAGE) -> list[ReportRow]:
        """Return a page of a job's items, as `Items.page` does. Raise `InputError` for an unknown job."""
        return self._report_rows(Items(self._connection).page(job_name, after_id=after_id, limit=limit))

    def _report_rows(self, items: Sequence[ItemSummary]) -> list[ReportRow]:
        params = {"ids": json.dumps([item.id for item in items])}
        recipes = {row["item_id"]: recipe_of(row) for row in self._connection.execute(query("report_recipes"), params)}
        inputs = _by_item(self._connection, "report_inputs", params)
        attempts = _by_item(self._connection, "report_attempts", params)
        return [
            ReportRow(
                item=item,
                recipe=recipes[item.id],
                inputs=tuple(row["path"] for row in inputs.get(item.id, ())),
                charges=tuple(_charge(row) for row in attempts.get(item.id, ())),
            )
            for item in items
        ]


def _pages(connection: Session, job_name: str) -> Iterator[list[int]]:
    job_id, after_id = Jobs(connection).id_of(job_name), 0
    while ids := Items(connection).ids(job_id, after_id=after_id, limit=PAGE):
        yield ids
        after_id = ids[-1]


def _row(connection: Session, row: Row) -> DatasetRow:
    """Return an output with the request that made it: the item's, unless that may have changed since."""
    sent = {name: row[name] for name in ("prompt", "model", "mode")} | {"parameters": _parameters(row["parameters"])}
    if row["body"] is not None:
        sent |= {"parameters": {}} | json.loads(bytes(row["body"]))
    return DatasetRow(
        item=row["name"],
        index=row["position"],
        output=row["number"],
        path=local_path_of(connection, row["path"]),
        size_bytes=row["size_bytes"],
        sha256=row["sha256"],
        media_type=row["media_type"],
        saved_at=from_milliseconds(row["saved_at"]),
        prompt=sent["prompt"],
        model=sent["model"],
        mode=Mode(sent["mode"]),
        parameters=sent["parameters"],
        generation_id=row["generation_id"],
        metadata=_metadata(row["metadata"]),
    )


@lru_cache(maxsize=1024)
def _parameters(text: str) -> Mapping[str, Any]:
    found: dict[str, Any] = json.loads(text)
    return found


def _metadata(text: str | None) -> Mapping[str, Any]:
    found: dict[str, Any] = orjson.loads(text) if text else {}
    return found


def _by_item(connection: Session, name: str, params: dict[str, str]) -> dict[int, Sequence[Row]]:
    found: dict[int, list[Row]] = {}
    for row in connection.execute(query(name), params):
        found.setdefault(row["item_id"], []).append(row)
    return dict(found)


def _charge(row: Row) -> Charge:
    cost = row["cost_credits"]
    is_reserving = cost is None and AttemptState(row["state"]) in _RESERVING
    return Charge(
        day=from_milliseconds(row["day_start_at"]),
        charged=cost or 0,
        refunded=(cost or 0) if row["is_refunded"] else 0,
        reserved=row["quote_credits"] if is_reserving else 0,
        recorded_at=from_milliseconds(row["recorded_at"]),
    )
