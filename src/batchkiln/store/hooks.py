"""The work of the hook `on_saved`: finds the saved items that it has not seen yet, and records its decisions.

Its position in the event log is in `meta`, with the items that processes have taken beyond it. An item is taken before
the program starts, and ended after its decision is recorded: after a crash, the next start runs the program again. A
decision names the attempt whose files the program saw, so that a second run of the program does not apply a decision
twice (Law 2).
"""

import json
from collections.abc import Collection, Iterator
from enum import StrEnum
from typing import Final

from msgspec import Struct, field

from batchkiln.core.job import SavedFile
from batchkiln.core.origin import Origin
from batchkiln.core.states import Event, ItemState
from batchkiln.store.events import Events
from batchkiln.store.meta import read_meta, write_meta
from batchkiln.store.operations import make_again
from batchkiln.store.origins import origin_of
from batchkiln.store.reviews import Decided, review
from batchkiln.store.session import Row, Session
from batchkiln.store.shared_paths import local_path_of
from batchkiln.store.sql import query
from batchkiln.store.transitions import Detail, log_event

EVENTS_AT_ONCE: Final = 1000
"""The events beyond the position that are looked at: a program that hangs holds up no more than these."""

_POSITION: Final = "on_saved"
_BY: Final = "on_saved"


class HookDecision(StrEnum):
    """The hook's decision about an item, stated by its exit status."""

    KEEP = "keep"
    DROP = "drop"
    REDO = "redo"


class SavedItem(Struct, frozen=True):
    """An item whose files are saved, as the hook receives it: `files` has each output's number and file."""

    event_id: int
    attempt_id: int
    origin: Origin
    files: tuple[tuple[int, SavedFile], ...]


class RedoBounds(Struct, frozen=True):
    """The bounds for repetitions by the hook: how often for one item, and for how many credits in one job."""

    redos: int
    credits: int


class _Position(Struct):
    """The event up to which all items are ended, and those taken beyond it (owner and end in ms) or ended beyond it."""

    cursor: int
    taken: dict[str, tuple[str, int]] = field(default_factory=dict)
    ended: set[int] = field(default_factory=set)


def begin(connection: Session) -> None:
    """Start at the current event, unless the hook has a position."""
    if read_meta(connection, _POSITION) is None:
        _write(connection, _Position(Events(connection).last_id()))


def has_due(connection: Session) -> bool:
    """Return whether `take` may find something, or should advance the position."""
    position = _read(connection)
    rows = _events(connection, position)
    return len(rows) >= EVENTS_AT_ONCE or any(_is_due(row, position) for row in rows)


def take(
    connection: Session, owner: str, *, running: Collection[int], limit: int, now: int, each_ms: int
) -> list[SavedItem]:
    """Take the next items for the hook, at most `limit`.

    `owner` is this process, and `running` are the events that it works on. An item that another process has taken is
    left to that process for `each_ms` per file. Items that this owner took before a crash are taken again.
    """
    position, found = _read(connection), list[SavedItem]()
    for row in _events(connection, position):
        held_by, held_until = position.taken.get(str(row["id"]), ("", 0))
        is_held = held_until > now and held_by != owner
        if row["id"] in running or is_held or not _is_due(row, position):
            continue
        if len(found) >= limit:
            break
        item = _saved_item(connection, row["id"], row["attempt_id"])
        if item is None:
            position.ended.add(row["id"])
        else:
            position.taken[str(row["id"])] = (owner, now + len(item.files) * each_ms)
            found.append(item)
    _advance(connection, position)
    return found


def end(connection: Session, event_id: int) -> None:
    """Record that the hook is done with an item."""
    position = _read(connection)
    position.taken.pop(str(event_id), None)
    if event_id > position.cursor:
        position.ended.add(event_id)
    _advance(connection, position)


def decide(connection: Session, attempt_id: int, decision: HookDecision, bounds: RedoBounds, now: int) -> str | None:
    """Record a decision of the hook; return the reason for a refusal, or None. `now` is in ms of service time."""
    row = connection.execute(query("hooked_item"), {"attempt_id": attempt_id}).fetchone()
    if row["state"] != ItemState.DONE or row["version_id"] != attempt_id:
        return "it has changed meanwhile"
    if decision is HookDecision.REDO:
        return _redo(connection, row, attempt_id, bounds, now)
    decided = Decided.KEEP if decision is HookDecision.KEEP else Decided.DROP
    report = review(connection, row["job"], {row["name"]: None}, decided, by=_BY, now=now)
    return report.skipped[0].reason if report.skipped else None


def _redo(connection: Session, row: Row, attempt_id: int, bounds: RedoBounds, now: int) -> str | None:
    """Queue an item again, within the bounds. The spent credits are counted in the same transaction."""
    cost = row["quote_credits"] if row["cost_credits"] is None else row["cost_credits"]
    key = f"{_POSITION}/{row['job']}"
    spent = int(read_meta(connection, key) or 0)
    if row["is_redone"]:  # a person has made this version current since, and its files may have been fetched again
        return "on_saved has had this version made again before"
    if row["redos"] >= bounds.redos:
        return f"on_saved has had it made again {row['redos']} times, and on_saved.redos is {bounds.redos}"
    if spent + cost > bounds.credits:
        return (
            f"making it again costs {cost} credits, and {spent} of on_saved.redo_credits ({bounds.credits}) are used "
            "in this job"
        )
    write_meta(connection, key, str(spent + cost))
    detail: Detail = {"by": _BY, "credits": cost}
    log_event(connection, "hook_redo", item_id=row["id"], now=now, attempt_id=attempt_id, detail=detail)
    make_again(connection, [row["id"]], now)
    return None


def _events(connection: Session, position: _Position) -> list[Row]:
    params = {"after": position.cursor, "limit": EVENTS_AT_ONCE}
    return connection.execute(query("hook_events"), params).fetchall()


def _is_due(row: Row, position: _Position) -> bool:
    return row["kind"] == Event.FILES_SAVED and row["attempt_id"] is not None and row["id"] not in position.ended


def _saved_item(connection: Session, event_id: int, attempt_id: int) -> SavedItem | None:
    files = tuple(_files(connection, attempt_id))
    return SavedItem(event_id, attempt_id, origin_of(connection, attempt_id), files) if files else None


def _files(connection: Session, attempt_id: int) -> Iterator[tuple[int, SavedFile]]:
    for row in connection.execute(query("hooked_files"), {"attempt_id": attempt_id}):
        path = local_path_of(connection, row["path"])
        yield row["number"], SavedFile(path, row["size_bytes"], row["sha256"], row["media_type"])


def _advance(connection: Session, position: _Position) -> None:
    """Move the position over all events that are completely handled, and store it."""
    for row in _events(connection, position):
        if _is_due(row, position):
            break
        position.cursor = row["id"]
    position.ended = {event_id for event_id in position.ended if event_id > position.cursor}
    position.taken = {event: held for event, held in position.taken.items() if int(event) > position.cursor}
    _write(connection, position)


def _read(connection: Session) -> _Position:
    text = read_meta(connection, _POSITION)
    assert text is not None, "`begin` comes first"
    kept = json.loads(text)
    taken = {event: (str(owner), int(until)) for event, (owner, until) in kept["taken"].items()}
    return _Position(kept["cursor"], taken, set(kept["ended"]))


def _write(connection: Session, position: _Position) -> None:
    kept = {"cursor": position.cursor, "taken": position.taken, "ended": sorted(position.ended)}
    write_meta(connection, _POSITION, json.dumps(kept))
