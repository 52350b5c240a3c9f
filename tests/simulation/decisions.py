"""What a person decides about items that are done: to make one again, to use another version, to fetch lost files."""

import random
from collections import Counter
from pathlib import Path
from typing import Final, Literal

from batchkiln.store.operations import redo
from batchkiln.store.session import Row, Session
from batchkiln.store.versions import choose_version, fetch_again, saved_files

from .object_points import SCHEME
from .queue_sessions import writing

Item = tuple[str, str]
Decision = Literal["redo", "use", "fetch"]
_FETCHED_WITHIN_MS: Final = 10 * 86_400_000  # of the fourteen days for which the service keeps a result
_OF_SOURCES: Final = 0.5  # of the decisions: others are made from the item
_DONE: Final = (
    "SELECT job.name AS job, item.name AS item, attempt.version, attempt.generation_created_at,"
    " item.is_source,"
    " (SELECT count(*) FROM attempt AS made WHERE made.item_id = item.id AND made.version IS NOT NULL) AS versions"
    " FROM item JOIN job ON job.id = item.job_id JOIN attempt ON attempt.id = item.version_id"
    " WHERE item.state = 'done' AND job.budget_credits IS NULL ORDER BY item.id"
)


class Decisions:
    """The decisions of one world, one after the other, each about an item that is drawn when its time has come.

    `redone` counts how often each item was to be made again. `chosen` has the version that was chosen last, and when,
    in milliseconds: what is made later is current instead.
    """

    def __init__(self, seed: int, wanted: tuple[Decision, ...]) -> None:
        self.redone: Counter[Item] = Counter()
        self.chosen: dict[Item, tuple[int, float]] = {}
        self._wanted = list(wanted)
        self._chance = random.Random(f"decisions {seed}")

    def next(self, queue: Path, at_ms: int, *, is_last_call: bool = False) -> str | None:
        """Carry out the next decision, while no program runs; return what was done, None if there is nothing to do.

        A decision waits for an item that it can be about. With `is_last_call`, one that has none is dropped.
        """
        while self._wanted:
            told = self.decide(queue, self._wanted[0], at_ms)
            if told is not None or is_last_call:
                self._wanted.pop(0)
            if told is not None or not is_last_call:
                return told
        return None

    def decide(self, queue: Path, decision: Decision, at_ms: int) -> str | None:
        """Decide now, whether a program runs or not; return what was done, None if there is no item for it."""
        with writing(queue) as session:
            now: int = session.execute("SELECT coalesce(max(at), 0) FROM event").fetchone()[0]
            rows = [row for row in session.execute(_DONE).fetchall() if _is_open_to(decision, row, now)]
            if not rows:
                return None
            sources = [row for row in rows if row["is_source"]]
            row = self._chance.choice(sources if sources and self._chance.random() < _OF_SOURCES else rows)
            job, item = row["job"], row["item"]
            if decision == "redo":
                report = redo(session, job, [item], now)
                assert report.redone == 1
                self.redone[job, item] += 1
                return f"has {job}/{item} made again"
            if decision == "use":
                return self._use(session, row, now, at_ms)
            session.execute("BEGIN IMMEDIATE")
            files, _ = saved_files(session, job, [item])
            for file in files:
                Path(file.path.removeprefix(SCHEME)).unlink()
            fetched = fetch_again(session, files, now)
            session.execute("COMMIT")
            assert fetched == 1
            return f"has {job}/{item} fetched again"

    def _use(self, session: Session, row: Row, now: int, at_ms: int) -> str:
        job, item = row["job"], row["item"]
        version = self._chance.choice([one for one in range(1, row["versions"] + 1) if one != row["version"]])
        session.execute("BEGIN IMMEDIATE")
        choose_version(session, job, item, version, now)
        session.execute("COMMIT")
        self.chosen[job, item] = (version, at_ms)
        return f"uses version {version} of {job}/{item}"


def _is_open_to(decision: Decision, row: Row, now: int) -> bool:
    if decision == "use":
        return bool(row["versions"] > 1)
    return decision == "redo" or now - row["generation_created_at"] < _FETCHED_WITHIN_MS
