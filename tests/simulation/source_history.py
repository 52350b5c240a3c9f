"""What an item offered to those that are made from it, at any instant: read from its history and the service's books.

The program's own word on it (`item_source.made_by`, `item.verdict`) is never asked: a person's decisions and the saved
files are replayed in the order in which they were recorded.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

from batchkiln.store.session import Row, Session

_EVENTS: Final = "SELECT attempt_id, kind, state FROM event WHERE item_id = ? AND id < ? ORDER BY id"
_SOURCES: Final = (
    "SELECT item_source.place, item_source.source_id, item_source.group_id, item_source.rank, variant_group.choose"
    " FROM item_source LEFT JOIN variant_group ON variant_group.id = item_source.group_id"
    " WHERE item_source.item_id = ? ORDER BY item_source.place"
)
_MEMBERS: Final = "SELECT id FROM item WHERE group_id = ? ORDER BY id"
_NOW: Final = 2**62
_VERDICTS: Final = {"kept": "kept", "dropped": "dropped", "verdict_undone": None}


class Standing(NamedTuple):
    """Where an item stood at an instant; `version_id` is the attempt whose files were current."""

    state: str = "queued"
    version_id: int | None = None
    verdict: str | None = None

    @property
    def is_kept(self) -> bool:
        """Whether it was done, and kept."""
        return self.state == "done" and self.verdict == "kept"


class Source(NamedTuple):
    """An input that others make: its place, what it offered (an attempt), and whether it could if a person chose."""

    place: int
    version_id: int | None
    needs_only_a_person: bool


def standing(session: Session, item_id: int, before: int = _NOW) -> Standing:
    """Return where an item stood before an event."""
    state, version_id, verdict = Standing()
    for event in session.execute(_EVENTS, (item_id, before)):
        state = event["state"] or state
        if event["kind"] in {"files_saved", "version_chosen"} and event["attempt_id"] != version_id:
            version_id, verdict = event["attempt_id"] or version_id, None
        elif event["kind"] in _VERDICTS:
            verdict = _VERDICTS[event["kind"]]
    return Standing(state, version_id, verdict)


def sources(session: Session, item_id: int, before: int = _NOW) -> Iterator[Source]:
    """Give what each source of an item offered before an event."""
    for row in session.execute(_SOURCES, (item_id,)).fetchall():
        if row["source_id"] is None:
            yield _of_group(session, row, before)
        else:
            sql = "SELECT needs_review FROM item WHERE id = ?"
            (needs_review,) = session.execute(sql, (row["source_id"],)).fetchone()
            found = standing(session, row["source_id"], before)
            is_offered = found.is_kept or (found.state == "done" and not needs_review and found.verdict is None)
            version_id = found.version_id if is_offered else None
            yield Source(row["place"], version_id, found.state == "done" and not is_offered)


def _of_group(session: Session, row: Row, before: int) -> Source:
    """Return what a group offered: its kept item at the rank, once enough of its items were kept."""
    ids = [item_id for (item_id,) in session.execute(_MEMBERS, (row["group_id"],)).fetchall()]
    members = [standing(session, item_id, before) for item_id in ids]
    kept = [member.version_id for member in members if member.is_kept]
    is_chosen = len(kept) >= row["choose"]
    done = sum(member.state == "done" for member in members)
    version_id = kept[row["rank"] - 1] if is_chosen else None
    return Source(row["place"], version_id, not is_chosen and done >= row["choose"])


def hash_of(session: Session, attempt_id: int, books: Path) -> str | None:
    """Return the hash of what the service made for an attempt, by the service's word."""
    sql = "SELECT generation_id FROM attempt WHERE id = ?"
    (generation_id,) = session.execute(sql, (attempt_id,)).fetchone()
    with closing(sqlite3.connect(f"{books.as_uri()}?mode=ro", uri=True)) as service:
        found = service.execute("SELECT sha256 FROM outputs WHERE generation_id = ?", (generation_id,)).fetchone()
    return None if found is None else str(found[0])
