"""The only code that changes an item's state: `apply`, checked against the expected state, with a row of history."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from batchkiln.core.errors import InvariantBroken
from batchkiln.core.responses import ErrorInfo
from batchkiln.core.states import Event, ItemState, apply
from batchkiln.store.chains import fill_dependents, refresh_inputs
from batchkiln.store.session import Session
from batchkiln.store.sql import query

Detail = Mapping[str, str | int | bool | None]

_SHORT: Final[Mapping[tuple[str, str | None, tuple[str, ...]], str]] = {
    (Event.ATTEMPT_RECORDED, ItemState.SUBMITTING, ("number", "quote_credits")): "r",
    (Event.ACCEPTED, ItemState.ACTIVE, ("generation_id", "cost_credits", "is_replay")): "a",
    (Event.OUTPUTS_READY, ItemState.DOWNLOADING, ()): "o",
    ("file_saved", None, ("number", "of", "path", "size_bytes")): "s",
    (Event.FILES_SAVED, ItemState.DONE, ()): "f",
    ("status_seen", None, ("status",)): "w",
}
"""The facts that are stored in short, by kind, state and names of the details; the schema's view `event` reads them."""

_MOVE_ALONE: Final = query("move_item").partition("\nRETURNING")[0]
"""The same without its result, for which SQLite makes a temporary table."""

_KEEPS_ATTEMPT = frozenset(ItemState) - {ItemState.QUEUED}
_DETAILS: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def transition(
    connection: Session,
    *,
    item_id: int,
    expected: ItemState,
    event: Event,
    now: int,
    attempt_id: int | None = None,
    job_id: int | None = None,
    error: ErrorInfo | None = None,
    detail: Detail | None = None,
) -> ItemState:
    """Apply `event` to an item inside the caller's transaction, and return its new state.

    `now` is milliseconds of service time. An item that returns to the queue no longer has an attempt. An item that
    fails keeps `error`. Raise `InvariantBroken` if the item is not in the expected state.
    """
    state = apply(expected, event)
    move(connection, item_id, expected, state, event=event, now=now, attempt_id=attempt_id, error=error)
    log_event(
        connection,
        event,
        item_id=item_id,
        now=now,
        attempt_id=attempt_id,
        job_id=job_id,
        state=state,
        error=error,
        detail=detail,
    )
    return state


def move(
    connection: Session,
    item_id: int,
    expected: ItemState,
    state: ItemState,
    *,
    event: Event,
    now: int,
    attempt_id: int | None,
    error: ErrorInfo | None = None,
) -> int:
    """Move an item by events that the caller logs; `event` is the last.

    Items that are made from it get its files, or wait again, in the same transaction. Return how many items this made
    ready. Raise `InvariantBroken` if the item is in an unexpected state.
    """
    may_matter = state is ItemState.QUEUED or ItemState.DONE in {expected, state}  # to items that are made from it
    moved = connection.execute(
        query("move_item") if may_matter else _MOVE_ALONE,
        {
            "item_id": item_id,
            "expected": expected,
            "state": state,
            "attempt_id": attempt_id if state in _KEEPS_ATTEMPT else None,
            "keeps_attempt": state in _KEEPS_ATTEMPT,
            "error_code": error.code if error else None,
            "error_message": error.message if error else None,
        },
    )
    found = moved.fetchone() if may_matter else None
    if found is None and (may_matter or moved.rowcount != 1):
        raise InvariantBroken(f"item {item_id} is not {expected}, as {event} expects")
    if found is None:
        return 0
    if found["has_inputs"] and state is ItemState.QUEUED:
        refresh_inputs(connection, [item_id], now)
    if found["is_source"] and ItemState.DONE in {expected, state}:
        return fill_dependents(connection, [item_id], now)
    return 0


def transition_all(
    connection: Session, item_ids: Sequence[int], *, expected: ItemState, event: Event, now: int
) -> None:
    """Apply `event` to many items in a few statements. Raise `InvariantBroken` if one is in an unexpected state."""
    if not item_ids:
        return
    state = apply(expected, event)
    ids = json.dumps(item_ids)
    keeps_attempt = state in _KEEPS_ATTEMPT
    places = {"ids": ids, "expected": expected, "state": state, "keeps_attempt": keeps_attempt}
    with _counted_at_once(connection, ids, expected, state):
        if connection.execute(query("move_items"), places).rowcount != len(item_ids):
            raise InvariantBroken(f"some of {len(item_ids)} items are not {expected}, as {event} expects")
    connection.execute(query("insert_item_events"), {"ids": ids, "at": now, "kind": event, "state": state})
    if state is ItemState.QUEUED:
        refresh_inputs(connection, item_ids, now)
    if ItemState.DONE in {expected, state}:
        fill_dependents(connection, item_ids, now)


@contextmanager
def _counted_at_once(connection: Session, ids: str, expected: ItemState, state: ItemState) -> Iterator[None]:
    """Update the counters once for many items that change between two states at rest, without the triggers."""
    groups = connection.execute(query("items_by_tally"), {"ids": ids}).fetchall()
    connection.execute(query("begin_counted_change"))
    yield
    connection.execute(query("end_counted_change"))
    for job_id, recipe_id, is_waiting, code, number in groups:
        place = {"job_id": job_id, "recipe_id": recipe_id}
        connection.execute(query("lower_tally"), place | {"word": _tally_word(expected, is_waiting), "n": number})
        connection.execute(query("forget_tally"), place | {"word": _tally_word(expected, is_waiting)})
        connection.execute(query("raise_tally"), place | {"word": _tally_word(state, is_waiting), "n": number})
        if code is not None:
            trouble = {"job_id": job_id, "error_code": code, "state": expected, "n": number}
            connection.execute(query("lower_trouble"), trouble)


def _tally_word(state: ItemState, is_waiting: int) -> str:
    return "waiting" if state is ItemState.QUEUED and is_waiting else state


def log_event(
    connection: Session,
    event: str,
    *,
    item_id: int,
    now: int,
    attempt_id: int | None = None,
    job_id: int | None = None,
    state: ItemState | None = None,
    error: ErrorInfo | None = None,
    detail: Detail | None = None,
) -> None:
    """Write one line of an item's history. It must contain no link and no key (Law 8).

    Without `job_id`, the item's row is read for it.
    """
    facts: dict[str, str | int | bool | None] = dict(detail or {})
    if error is not None:
        facts |= {"code": error.code, "message": error.message}
    short = _SHORT.get((event, state, tuple(facts)))
    values = facts if short is None else list(facts.values())
    connection.execute(
        query("insert_item_event" if job_id is None else "insert_event"),
        {
            "at": now,
            "job_id": job_id,
            "item_id": item_id,
            "attempt_id": attempt_id,
            "kind": short or event,
            "state": state if short is None else None,
            "detail": _DETAILS.encode(values) if values else None,
        },
    )


def set_paused(connection: Session, job_id: int, now: int, *, is_paused: bool, detail: Detail | None = None) -> bool:
    """Pause or resume a job; return whether this changed anything."""
    changed = connection.execute(query("pause_job"), {"job_id": job_id, "is_paused": is_paused}).rowcount == 1
    if changed:
        kind = "job_paused" if is_paused else "job_unpaused"
        log_job_event(connection, kind, job_id=job_id, now=now, detail=detail)
    return changed


def log_job_event(connection: Session, kind: str, *, job_id: int, now: int, detail: Detail | None = None) -> None:
    """Write one line of a job's history."""
    text = _DETAILS.encode(dict(detail)) if detail else None
    connection.execute(query("insert_job_event"), {"at": now, "job_id": job_id, "kind": kind, "detail": text})
