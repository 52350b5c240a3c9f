"""A person who tries a few items first: `--only`, `--sample` and `--limit`, through all that happens to the program.

What may be begun is told from the queue's items and from what they are made from, without the program's own selection.
"""

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from fnmatch import fnmatchcase
from hashlib import sha256
from pathlib import Path
from typing import Final

from batchkiln.core.queue_types import Scope
from batchkiln.core.request import idempotency_key
from batchkiln.core.selection import Selection
from batchkiln.store.meta import queue_uid
from batchkiln.store.selected_items import follow_changes
from batchkiln.store.session import Session
from batchkiln.store.sql import query

from .queue_sessions import reading
from .source_history import sources

_ATTEMPTS_MOST: Final = 40
_ITEMS: Final = "SELECT id, name, job_id, priority, state FROM item ORDER BY id"
_SELECTABLE: Final = (
    "SELECT id AS item_id, job_id, recipe_id, priority, is_source, 1 AS is_open FROM item WHERE state <> 'canceled'"
)
_LAST_ATTEMPT: Final = "SELECT coalesce(max(id), 0) FROM attempt"
_BEGUN: Final = "SELECT DISTINCT item_id FROM attempt WHERE id > :after"
_SOURCES: Final = "SELECT item_id, place, source_id, group_id FROM item_source"


@dataclass(frozen=True)
class Few:
    """What is tried before everything is made, and how many times: each time until the program ends by itself."""

    selection: Selection
    runs: int = 1


class FewFirst:
    """The runs of a few items in one world. A run that begins another item, or leaves one of them, breaks a promise."""

    def __init__(self, few: Few | None, queue: Path, books: Path, violations: list[str]) -> None:
        """Read from these places: the program's queue, and the service's database."""
        self._few = few
        self._queue = queue
        self._books = books
        self._violations = violations
        self._runs_left = 0 if few is None else few.runs
        self._selected: set[int] = set()
        self._allowed: set[int] = set()
        self._last_attempt_id = 0  # the newest when the run began

    @property
    def selection(self) -> Selection | None:
        """Return what the next run may begin; None for everything."""
        return None if self._few is None or not self._runs_left else self._few.selection

    def begin(self) -> None:
        """Note what a run may begin, as it begins; a run before it may have begun other items, which were canceled."""
        with reading(self._queue) as session:
            self._selected = _selected(session, self.selection or Selection())
            self._last_attempt_id = session.execute(_LAST_ATTEMPT).fetchone()[0]
            made_from = _made_from(session)
        waiting = list(self._selected)
        while waiting:
            item_id = waiting.pop()
            if item_id not in self._allowed:
                self._allowed.add(item_id)
                waiting += [source for ids in made_from.get(item_id, {}).values() for source in ids]

    def stage(self, session: Session) -> None:
        """Give a session the selection of the run, for who plans beside it.

        It includes what the run has begun: a selection grows, and a source in it may not be needed any more.
        """
        if self.selection is None:
            return
        for name in ("drop_selection", "stage_selection", "index_selection"):
            session.execute(query(name))
        begun = {row["item_id"] for row in session.execute(_BEGUN, {"after": self._last_attempt_id})}
        rows = [dict(row) for row in session.execute(_SELECTABLE) if row["item_id"] in self._selected | begun]
        session.executemany(query("select_item"), rows)
        follow_changes(session, Scope(is_selected=True))

    def end(self, *, is_complete: bool) -> bool:
        """Look at what a run leaves that has ended, by itself if it `is_complete`; return whether another one follows.

        The other one may be that of everything.
        """
        if self.selection is None:
            return False
        with reading(self._queue) as session:
            self._violations += _paid_beyond(session, self._books, self._allowed)
            if is_complete:
                self._violations += _left(session, self._selected)
        self._runs_left -= is_complete
        return is_complete


def _selected(session: Session, selection: Selection) -> set[int]:
    """Return the items of each job that a selection chooses, by the rules of the manual."""
    jobs: dict[int, list[tuple[int, int, str]]] = {}
    for row in session.execute(_ITEMS):
        is_wanted = not selection.only or any(fnmatchcase(row["name"], pattern) for pattern in selection.only)
        if is_wanted and row["state"] != "canceled":
            jobs.setdefault(row["job_id"], []).append((-row["priority"], row["id"], row["name"]))
    found: set[int] = set()
    for items in jobs.values():
        drawn = items
        if selection.sample is not None:
            drawn = sorted(items, key=lambda item: sha256(f"{selection.seed}\n{item[2]}".encode()).digest())
        found |= {item_id for _, item_id, _ in sorted(drawn[: selection.sample])[: selection.limit]}
    return found


def _made_from(session: Session) -> dict[int, dict[int, list[int]]]:
    """Return which items may fill each input of an item, by its place."""
    members: dict[int, list[int]] = {}
    for row in session.execute("SELECT id, group_id FROM item WHERE group_id IS NOT NULL ORDER BY id"):
        members.setdefault(row["group_id"], []).append(row["id"])
    found: dict[int, dict[int, list[int]]] = {}
    for row in session.execute(_SOURCES):
        ids = members.get(row["group_id"], []) if row["source_id"] is None else [row["source_id"]]
        found.setdefault(row["item_id"], {})[row["place"]] = ids
    return found


def _paid_beyond(session: Session, books: Path, allowed: set[int]) -> list[str]:
    """Return a sentence for each item that was paid for, and that no run was to begin, by the service's own books."""
    names = "SELECT item.id, item.name, job.name AS job FROM item JOIN job ON job.id = item.job_id"
    others = [row for row in session.execute(names) if row["id"] not in allowed]
    with closing(sqlite3.connect(f"{books.as_uri()}?mode=ro", uri=True)) as service:
        paid = {key for (key,) in service.execute("SELECT key FROM idempotency WHERE generation_id IS NOT NULL")}
    uid = queue_uid(session)
    return [
        f"item {row['name']} of {row['job']} was paid for, and a few others were to be tried first"
        for row in others
        if any(
            idempotency_key(uid, job=row["job"], item=row["name"], number=number) in paid
            for number in range(1, _ATTEMPTS_MOST + 1)
        )
    ]


def _left(session: Session, selected: set[int]) -> list[str]:
    """Return a sentence for each queued item that a run was to begin, and that waits for nothing.

    Such are the selected items, and what they wait for, through chains.
    """
    items = {row["id"]: row for row in session.execute(_ITEMS)}
    paused = {job_id for (job_id,) in session.execute("SELECT id FROM job WHERE is_paused = 1")}
    made_from = _made_from(session)
    waiting, seen, found = sorted(selected), set(selected), list[str]()
    while waiting:
        item = items[waiting.pop()]
        if item["state"] != "queued" or item["job_id"] in paused:
            continue
        missing = [source.place for source in sources(session, item["id"]) if source.version_id is None]
        if not missing:
            found.append(f"item {item['name']} was to be tried first, waits for nothing, and is queued")
        needed = [one for place in missing for one in made_from[item["id"]][place] if one not in seen]
        seen.update(needed)
        waiting += needed
    return found
