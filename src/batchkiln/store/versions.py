"""Versions of an item: make the files of an earlier attempt current, and download files that are gone again.

Changes run inside the caller's transaction (for `Store.write`). `now` is milliseconds of service time. Unknown names
raise `InputError` before anything is changed. No file is renamed or overwritten: each version has files of its own.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from msgspec import Struct

from batchkiln.core.errors import Diagnostic, InputError, command_arguments
from batchkiln.core.states import RETRYABLE, Event, ItemState
from batchkiln.store.chains import fill_dependents
from batchkiln.store.jobs import Jobs
from batchkiln.store.operations import Skipped, choose
from batchkiln.store.row_types import instant
from batchkiln.store.session import Row, Session
from batchkiln.store.shared_paths import local_path_of
from batchkiln.store.sql import query
from batchkiln.store.transitions import Detail, log_event, transition

_FORGOTTEN: Final = ("path", "sha256", "size_bytes", "media_type", "type")
_NOT_FETCHED: Final[Mapping[ItemState, str]] = {
    state: f"it is {state}, not done" for state in ItemState if state is not ItemState.DONE
}


class SavedOutputFile(Struct, frozen=True):
    """A recorded file of the current version of a done item.

    `path` is absolute on this machine, unless it is in a shared folder that is not configured. `generation_created_at`
    is None if the service did not keep the result. `saved_at` is milliseconds of service time.
    """

    item_id: int
    attempt_id: int
    item: str
    number: int
    path: str
    size_bytes: int
    sha256: str
    generation_created_at: datetime | None
    saved_at: int


def choose_version(connection: Session, job_name: str, item_name: str, version: int, now: int) -> ItemState:
    """Make the files of an earlier version current; return the item's state. It costs nothing.

    `version` counts from 1. A failed, rejected, expired or canceled item is done afterwards. Raise `InputError` if the
    item has no such version, or is queued, under way or held.
    """
    job_id = Jobs(connection).id_of(job_name)
    item_id, state = Jobs(connection).items_named(job_id, job=job_name, names=[item_name])[item_name]
    attempt_id = _attempt_of(connection, item_id, f"{job_name}/{item_name}", version)
    detail: Detail = {"version": version, "decided_by": "person"}
    if state in RETRYABLE:
        event = Event.VERSION_CHOSEN
        state = transition(
            connection, item_id=item_id, expected=state, event=event, now=now, attempt_id=attempt_id, detail=detail
        )
    elif state is ItemState.DONE:
        if connection.execute(query("set_version"), {"item_id": item_id, "attempt_id": attempt_id}).rowcount:
            log_event(connection, Event.VERSION_CHOSEN, item_id=item_id, now=now, attempt_id=attempt_id, detail=detail)
            fill_dependents(connection, [item_id], now)
    else:
        asked = command_arguments(job_name, item_name)
        reason = f"{job_name}/{item_name} is {state}: a version can be chosen once it has ended; nothing was changed"
        remedy = f"`batchkiln cancel {asked}` ends a redo that is queued" if state is ItemState.QUEUED else None
        raise InputError([Diagnostic(reason, remedy=remedy)])
    return state


def _attempt_of(connection: Session, item_id: int, label: str, version: int) -> int:
    """Return the attempt of a version. Raise `InputError` if there is none, or its files are gone."""
    files = {row["version"]: row for row in connection.execute(query("saved_versions"), {"item_id": item_id})}
    row = files.get(version)
    if row is None:
        known = f"it has {', '.join(map(str, files))}" if files else "it has no saved files"
        raise InputError(f"{label} has no version {version}: {known}; nothing was changed")
    if not row["files"]:
        raise InputError(f"the files of version {version} of {label} are gone; nothing was changed")
    return int(row["attempt_id"])


def queue_lost(connection: Session, now: int, item_id: int | None = None) -> list[str]:
    """Queue ended items again if a restored copy of the queue lost a later attempt, which may be paid (Law 2).

    Without `item_id`, queue all such items. Return their names. `lost_attempts.recover_attempt` records the attempt of
    each again, to be replayed.
    """
    rows = connection.execute(query("ended_lost"), {"item_id": item_id}).fetchall()
    for row in rows:
        state = ItemState(row["state"])
        event = Event.RETRY_REQUESTED if state in RETRYABLE else Event.REDO_REQUESTED
        detail: Detail = {"decided_by": "journal"}
        transition(connection, item_id=row["item_id"], expected=state, event=event, now=now, detail=detail)
    return [f"{row['job']}/{row['item']}" for row in rows]


def saved_files(
    connection: Session, job_name: str, item_names: Sequence[str]
) -> tuple[list[SavedOutputFile], tuple[Skipped, ...]]:
    """Return the recorded files of done items, and the reasons why the other named items have none.

    Without names, return those of all done items of the job.
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
        attempt_id=row["attempt_id"],
        item=row["item"],
        number=row["number"],
        path=local_path_of(connection, row["path"]),
        size_bytes=row["size_bytes"],
        sha256=row["sha256"],
        generation_created_at=instant(row["generation_created_at"]),
        saved_at=row["saved_at"],
    )


def fetch_again(connection: Session, missing: Sequence[SavedOutputFile], now: int) -> int:
    """Forget files that are gone from the disk, and download them again; return the number of items.

    It costs nothing, because the generation is read again by its id (Law 3). An item stays unchanged if it is no longer
    done, if another version is current or the files were saved again meanwhile, or if the service did not keep its
    result.
    """
    by_item: dict[tuple[int, int], list[SavedOutputFile]] = {}
    for file in missing:
        by_item.setdefault((file.item_id, file.attempt_id), []).append(file)
    fetched = 0
    for (item_id, attempt_id), files in by_item.items():
        place = {"item_id": item_id, "attempt_id": attempt_id}
        if connection.execute(query("is_fetchable"), place).fetchone() is None:
            continue
        forgotten = sum(_forget(connection, file, now) for file in files)
        if not forgotten:
            continue
        transition(
            connection,
            item_id=item_id,
            expected=ItemState.DONE,
            event=Event.FETCH_REQUESTED,
            now=now,
            attempt_id=attempt_id,
            detail={"files": forgotten},
        )
        fetched += 1
    return fetched


def _forget(connection: Session, file: SavedOutputFile, now: int) -> bool:
    """Forget a file that is gone; return False if it was saved again since.

    Its hash stays in the history, to be compared with the file that is downloaded instead, or with the same file if it
    reappears.
    """
    place = {"attempt_id": file.attempt_id, "number": file.number, "saved_at": file.saved_at}
    gone = connection.execute(query("forget_output"), place).fetchone()
    if gone is None:
        return False
    detail: Detail = {"number": file.number} | dict(zip(_FORGOTTEN, gone, strict=True))
    log_event(connection, "file_gone", item_id=file.item_id, now=now, attempt_id=file.attempt_id, detail=detail)
    return True
