"""What a report tells of each item, page by page: beside the list's facts its request, its images and its money.

Only reading, on a connection with a snapshot. Nothing is added up here: who writes the report adds up what it
shows, so that its sums are those of its pictures also while the queue moves on.
"""

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from batchkiln.core.job import RESERVING, AttemptState, Charge, Recipe
from batchkiln.core.timestamps import from_milliseconds
from batchkiln.store.items import PAGE, ItemSummary, iter_items
from batchkiln.store.row_types import recipe_of
from batchkiln.store.sql import query


@dataclass(frozen=True, slots=True)
class ReportRow:
    """One item of a report. `inputs` are the paths of its images; `charges` has one entry an attempt."""

    item: ItemSummary
    recipe: Recipe
    inputs: tuple[str, ...]
    charges: tuple[Charge, ...]


def report_page(
    connection: sqlite3.Connection, job_name: str, *, after_id: int = 0, limit: int = PAGE
) -> list[ReportRow]:
    """Give a page of a job's items, as `iter_items` does. Raises `InputError` for a job that is not there."""
    items = iter_items(connection, job_name, after_id=after_id, limit=limit)
    place = {"ids": json.dumps([item.id for item in items])}
    recipes = {row["item_id"]: recipe_of(row) for row in connection.execute(query("report_recipes"), place)}
    inputs = _by_item(connection, "report_inputs", place)
    attempts = _by_item(connection, "report_attempts", place)
    return [
        ReportRow(
            item=item,
            recipe=recipes[item.id],
            inputs=tuple(row["path"] for row in inputs.get(item.id, ())),
            charges=tuple(_charge(row) for row in attempts.get(item.id, ())),
        )
        for item in items
    ]


def _by_item(connection: sqlite3.Connection, name: str, place: dict[str, str]) -> dict[int, Sequence[sqlite3.Row]]:
    found: dict[int, list[sqlite3.Row]] = {}
    for row in connection.execute(query(name), place):
        found.setdefault(row["item_id"], []).append(row)
    return dict(found)


def _charge(row: sqlite3.Row) -> Charge:
    cost = row["cost_credits"]
    is_reserving = cost is None and AttemptState(row["state"]) in RESERVING
    return Charge(
        day=from_milliseconds(row["day_start_at"]),
        charged=cost or 0,
        refunded=(cost or 0) if row["is_refunded"] else 0,
        reserved=row["quote_credits"] if is_reserving else 0,
        recorded_at=from_milliseconds(row["recorded_at"]),
    )
