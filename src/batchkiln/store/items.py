"""What the queue can tell of single items: a page of a job's list, or all of one item's history.

Only reading, on a connection with a snapshot (for `Database.read`). A page takes the same time wherever it
lies and however large the job is: it is found by key, never by counting rows.
"""

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from batchkiln.core.job import AttemptState, InputFile, Recipe
from batchkiln.core.responses import ErrorInfo
from batchkiln.core.states import ItemState
from batchkiln.core.timestamps import from_milliseconds
from batchkiln.store.name_lookup import items_of, job_id_of
from batchkiln.store.row_types import input_file_of, instant, recipe_of
from batchkiln.store.sql import query

PAGE: Final = 1000


@dataclass(frozen=True, slots=True)
class OutputSummary:
    """One file that stands whole under its name; `sha256` is hex."""

    id: int
    number: int
    path: str
    size_bytes: int
    sha256: str
    type: str
    media_type: str
    saved_at: datetime


@dataclass(frozen=True, slots=True)
class ItemSummary:
    """One item for a list. `id` is the key to page by; `attempts` counts those made.

    `credits` is what its attempts cost, less what was refunded; `generation_id` the latest one known.
    """

    id: int
    name: str
    index: int
    state: ItemState
    prompt: str
    model: str
    attempts: int
    generation_id: str | None
    credits: int
    outputs: tuple[OutputSummary, ...]
    error: ErrorInfo | None
    metadata: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class AttemptDetail:
    """One attempt, told to a person; the key is named by its fingerprint only (Law 8)."""

    id: int
    number: int
    state: AttemptState
    account: str
    idempotency_key: str
    key_fingerprint: str
    quote_credits: int
    cost_credits: int | None
    is_refunded: bool
    sends: int
    answers: int
    generation_id: str | None
    generation_status: str | None
    generation_created_at: datetime | None
    recorded_at: datetime
    ended_at: datetime | None
    last_read_at: datetime | None
    lost_since: datetime | None

    @property
    def made_at(self) -> datetime:
        """When the service made its generation; before a record tells it, the earliest that it can have been."""
        return self.generation_created_at or self.recorded_at


@dataclass(frozen=True, slots=True)
class EventRecord:
    """One fact of the history. `state` is the item's after it, None where it did not change."""

    id: int
    at: datetime
    kind: str
    state: ItemState | None
    attempt_id: int | None
    detail: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ItemDetail:
    """All that the queue knows of one item. `arrival` is the job's event of the manifest that brought it."""

    job: str
    item: ItemSummary
    recipe: Recipe
    priority: int
    file_name: str | None
    failures: int
    quote_credits: int | None
    inputs: tuple[InputFile, ...]
    attempts: tuple[AttemptDetail, ...]
    events: tuple[EventRecord, ...]
    arrival: EventRecord | None

    @property
    def hold_asked(self) -> str:
        """Name the hold that a person is asked about: the same item may be held once more, and for what is paid."""
        return f"{len(self.events)},{self.quote_credits}"


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """The request of one attempt, to the byte."""

    number: int
    is_video: bool
    body: bytes = field(repr=False)


def iter_items(
    connection: sqlite3.Connection,
    job_name: str,
    *,
    state: ItemState | None = None,
    after_id: int = 0,
    limit: int = PAGE,
) -> list[ItemSummary]:
    """Give a page of a job's items, in the order of their index: those whose id is above `after_id`.

    The last one's id is where the next page begins; an empty page is the end. Raises `InputError` for a
    job that is not there.
    """
    place = {"job_id": job_id_of(connection, job_name), "after": after_id, "limit": limit, "state": state}
    ids = connection.execute(query("item_ids" if state is None else "items_in_state"), place)
    return summaries(connection, [row[0] for row in ids])


def item_by_name(connection: sqlite3.Connection, job_name: str, item_name: str) -> ItemSummary:
    """Give one item. Raises `InputError` for a job or item that is not there."""
    job_id = job_id_of(connection, job_name)
    item_id, _ = items_of(connection, job_id, job=job_name, names=[item_name])[item_name]
    return summaries(connection, [item_id])[0]


def item_detail(connection: sqlite3.Connection, job_name: str, item_name: str) -> ItemDetail:
    """Tell all of one item. Raises `InputError` for a job or item that is not there."""
    job_id = job_id_of(connection, job_name)
    item_id, _ = items_of(connection, job_id, job=job_name, names=[item_name])[item_name]
    place = {"job_id": job_id, "item_id": item_id}
    row = connection.execute(query("story_item"), place).fetchone()
    arrival = connection.execute(query("story_arrival"), {**place, "position": row["position"]}).fetchone()
    return ItemDetail(
        job=job_name,
        item=summaries(connection, [item_id])[0],
        recipe=recipe_of(row),
        priority=row["priority"],
        file_name=row["file_name"],
        failures=row["failures"],
        quote_credits=row["cost_credits"],
        inputs=tuple(input_file_of(one) for one in connection.execute(query("story_inputs"), place)),
        attempts=tuple(_attempt(one) for one in connection.execute(query("story_attempts"), place)),
        events=tuple(_event(one) for one in connection.execute(query("story_events"), place)),
        arrival=_event(arrival) if arrival else None,
    )


def item_requests(connection: sqlite3.Connection, item_id: int) -> tuple[RequestRecord, ...]:
    """Give what each attempt of an item has sent."""
    rows = connection.execute(query("story_bodies"), {"item_id": item_id})
    return tuple(RequestRecord(row["number"], bool(row["is_video"]), bytes(row["body"])) for row in rows)


def summaries(connection: sqlite3.Connection, ids: Sequence[int]) -> list[ItemSummary]:
    """Give the items of these ids, in their order."""
    place = {"ids": json.dumps(ids)}
    outputs: dict[int, list[OutputSummary]] = {}
    for row in connection.execute(query("item_outputs"), place):
        outputs.setdefault(row["item_id"], []).append(_output(row))
    details = {row["id"]: row for row in connection.execute(query("item_details"), place)}
    return [_item(details[item_id], outputs.get(item_id, [])) for item_id in ids]


def _item(row: sqlite3.Row, outputs: Sequence[OutputSummary]) -> ItemSummary:
    code = row["error_code"]
    return ItemSummary(
        id=row["id"],
        name=row["name"],
        index=row["position"],
        state=ItemState(row["state"]),
        prompt=row["prompt"],
        model=row["model"],
        attempts=row["attempts"],
        generation_id=row["generation_id"],
        credits=row["credits"] or 0,
        outputs=tuple(sorted(outputs, key=lambda output: output.number)),
        error=None if code is None else ErrorInfo(code, row["error_message"] or ""),
        metadata=json.loads(row["metadata"] or "{}"),
    )


def _output(row: sqlite3.Row) -> OutputSummary:
    return OutputSummary(
        id=row["id"],
        number=row["number"],
        path=row["path"],
        size_bytes=row["size_bytes"],
        sha256=row["sha256"],
        type=row["type"],
        media_type=row["media_type"],
        saved_at=from_milliseconds(row["saved_at"]),
    )


def _attempt(row: sqlite3.Row) -> AttemptDetail:
    return AttemptDetail(
        id=row["id"],
        number=row["number"],
        state=AttemptState(row["state"]),
        account=row["account"],
        idempotency_key=row["idempotency_key"],
        key_fingerprint=row["key_fingerprint"],
        quote_credits=row["quote_credits"],
        cost_credits=row["cost_credits"],
        is_refunded=bool(row["is_refunded"]),
        sends=row["sends"],
        answers=row["answers"],
        generation_id=row["generation_id"],
        generation_status=row["generation_status"],
        generation_created_at=instant(row["generation_created_at"]),
        recorded_at=from_milliseconds(row["recorded_at"]),
        ended_at=instant(row["ended_at"]),
        last_read_at=instant(row["last_read_at"]),
        lost_since=instant(row["lost_since"]),
    )


def _event(row: sqlite3.Row) -> EventRecord:
    return EventRecord(
        id=row["id"],
        at=from_milliseconds(row["at"]),
        kind=row["kind"],
        state=None if row["state"] is None else ItemState(row["state"]),
        attempt_id=row["attempt_id"],
        detail=json.loads(row["detail"] or "{}"),
    )
