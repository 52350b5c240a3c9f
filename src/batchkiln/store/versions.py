"""Versions of an item: make the files of an earlier attempt current, and download files that are gone again.

Changes run inside the caller's transaction (for `Store.write`). `now` is milliseconds of service time. Unknown names
raise `InputError` before anything is changed. No file is renamed or overwritten: each version has files of its own.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from batchkiln.core.errors import InputError, command_arguments
from batchkiln.core.states import RETRYABLE, Event, ItemState
from batchkiln.store.chains import fill_dependents
from batchkiln.store.jobs import Jobs
from batchkiln.store.operations import Skipped, choose
from batchkiln.store.row_types import instant
from batchkiln.store.session import Row, Session
from batchkiln.store.shared_paths import local_path_of
from batchkiln.store.sql import query
from batchkiln.store.transitions import Detail, log_event, transition

_NOT_FETCHED: Final[Mapping[ItemState, str]] = {
    state: f"it is {state}, not done" for state in ItemState if state is not ItemState.DONE
}


@dataclass(frozen=True, slots=True)
class SavedOutputFile:
    """A recorded file of the current version of a done item. `path` is absolute on this machine."""

    item_id: int
    item: str
    number: int
    path: str
    size_bytes: int
    generation_created_at: datetime | None


def choose_version(connection: Session, job_name: str, item_name: str, version: int, now: int) -> ItemState:
    """Make the files of an earlier version current; return the item's state. It costs nothing.

    `version` counts from 1. A failed, rejected, expired or canceled item is done afterwards. Raise `InputError` if the
    item has no such version, or is queued, under way or held.
    """
    job_id = Jobs(connection).id_of(job_name)
    item_id, state = Jobs(connection).items_named(job_id, job=job_name, names=[item_name])[item_name]
    attempts = [row["attempt_id"] for row in connection.execute(query("versions"), {"item_id": item_id})]
    if not 1 <= version <= len(attempts):
        known = f"it has {len(attempts)}" if attempts else "it has no saved files"
        raise InputError(f"{job_name}/{item_name} has no version {version}: {known}; nothing was changed")
    attempt_id = attempts[version - 1]
    detail: Detail = {"version": version, "decided_by": "person"}
    if state in RETRYABLE:
        event = Event.VERSION_CHOSEN
        state = transition(
            connection, item_id=item_id, expected=state, event=event, now=now, attempt_id=attempt_id, detail=detail
        )
    elif state is ItemState.DONE:
        if connection.execute(query("set_version"), {"item_id": item_id, "attempt_id": attempt_id}).rowcount:
            log_event(connection, Event.VERSION_CHOSEN, item_id=item_id, now=now, attempt_id=attempt_id, detail=detail)
    else:
        asked = command_arguments(job_name, item_name)
        remedy = f"; `batchkiln cancel {asked}` ends a redo that is queued" if state is ItemState.QUEUED else ""
        raise InputError(f"{job_name}/{item_name} is {state}: its version can be chosen when it has ended{remedy}")
    fill_dependents(connection, [item_id], now)
    return state


def saved_files(
    connection: Session, job_name: str, item_names: Sequence[str]
) -> tuple[list[SavedOutputFile], tuple[Skipped, ...]]:
    """Return the recorded files of done items, and why the other named items have none to fetch.

    Without names, all done items of the job.
    """
    job_id = Jobs(connection).id_of(job_name)
    if item_names:
        ids, skipped = choose(connection, job_id, job_name, item_names, _NOT_FETCHED)
        rows = connection.execute(query("files_of_items"), {"ids": json.dumps(ids)}).fetchall()
    else:
        skipped = ()
        rows = connection.execute(query("files_of_job"), {"job_id": job_id}).fetchall()
    return [_saved_file(connection, row) for row in rows], skipped


def _saved_file(connection: Session, row: Row) -> SavedOutputFile:
    return SavedOutputFile(
        item_id=row["item_id"],
        item=row["item"],
        number=row["number"],
        path=local_path_of(connection, row["path"]),
        size_bytes=row["size_bytes"],
        generation_created_at=instant(row["generation_created_at"]),
    )


def fetch_again(connection: Session, missing: Sequence[SavedOutputFile], now: int) -> int:
    """Forget files that are gone from the disk, and download them again; return the number of items.

    It costs nothing: the generation is read again under its id (Law 3). An item that is not done any more is left
    alone.
    """
    by_item: dict[int, list[int]] = {}
    for file in missing:
        by_item.setdefault(file.item_id, []).append(file.number)
    fetched = 0
    for item_id, numbers in by_item.items():
        row = connection.execute(query("version_of"), {"item_id": item_id}).fetchone()
        if row is None:
            continue
        for number in numbers:
            connection.execute(query("forget_output"), {"attempt_id": row["version_id"], "number": number})
        transition(
            connection,
            item_id=item_id,
            expected=ItemState.DONE,
            event=Event.FETCH_REQUESTED,
            now=now,
            attempt_id=row["version_id"],
            detail={"files": len(numbers)},
        )
        fill_dependents(connection, [item_id], now)
        fetched += 1
    return fetched
