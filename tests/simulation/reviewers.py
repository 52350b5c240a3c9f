"""A simulated person who reviews: keeps, drops, takes back, and decides late about what was seen earlier."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from batchkiln.store.reviews import Decided, review
from batchkiln.store.session import Row, Session

from .queue_sessions import writing

Item = tuple[str, str]
_KEPT: Final = 0.7
_LATE: Final = 0.3  # of the items of a visit: looked at now, decided about at a later visit
_BY: Final = "a person"
_TAKEN_BACK: Final = (Decided.UNDO, Decided.DROP)
_SHOWN: Final = (
    "SELECT job.name AS job, item.name AS item, item.verdict, item.group_id, variant_group.choose, attempt.version,"
    " item.needs_review,"
    " CASE WHEN EXISTS (SELECT 1 FROM item_source WHERE source_id = item.id) THEN 1 ELSE 0 END AS is_named"
    " FROM item JOIN job ON job.id = item.job_id JOIN attempt ON attempt.id = item.version_id"
    " LEFT JOIN variant_group ON variant_group.id = item.group_id"
    " WHERE item.state = 'done' AND (item.needs_review = 1 OR item.group_id IS NOT NULL OR item.is_source = 1)"
    " ORDER BY item.id"
)
_KEPT_OF_GROUP: Final = "SELECT count(*) FROM item WHERE group_id = ? AND state = 'done' AND verdict = 'kept'"
_VERDICT: Final = (
    "SELECT item.verdict, attempt.version FROM item JOIN job ON job.id = item.job_id"
    " JOIN attempt ON attempt.id = item.version_id WHERE job.name = ? AND item.name = ?"
)


class Reviewer:
    """The reviews of one world. A verdict about a version that is not current any more must change nothing."""

    def __init__(self, queue: Path, violations: list[str]) -> None:
        self._queue = queue
        self._violations = violations
        self._seen: dict[Item, int] = {}
        self.refused = 0

    def review(self, chance: random.Random, now: int, *, is_last_call: bool = False) -> list[str]:
        """Give verdicts about what waits for one: keep most, drop some, keep what was dropped before.

        Return the names. With `is_last_call`, all is decided now. Else some is only looked at, and some verdicts are
        about what was seen at an earlier visit.
        """
        decided = list[str]()
        with writing(self._queue) as session:
            for row in session.execute(_SHOWN).fetchall():
                item = (row["job"], row["item"])
                if not is_last_call and chance.random() < _LATE:
                    self._seen[item] = row["version"]
                elif self._is_open(session, row):
                    seen = self._seen.pop(item, None) if not is_last_call else None
                    decision = Decided.KEEP if row["verdict"] or chance.random() < _KEPT else Decided.DROP
                    self._decide(session, item, seen, decision, now)
                    decided.append(row["item"])
        return decided

    def take_back(self, chance: random.Random, now: int) -> list[str]:
        """Take a verdict back, perhaps one about what was seen earlier; return the names of the items."""
        sql = (
            "SELECT job.name, item.name FROM item JOIN job ON job.id = item.job_id"
            " WHERE item.verdict = 'kept' AND item.state = 'done' ORDER BY item.id"
        )
        with writing(self._queue) as session:
            names = [(job, name) for job, name in session.execute(sql)]
            drawn = chance.sample(names, min(1, len(names)))
            for item in drawn:
                self._decide(session, item, self._seen.pop(item, None), chance.choice(_TAKEN_BACK), now)
        return [name for _, name in drawn]

    @staticmethod
    def _is_open(session: Session, row: Row) -> bool:
        """Return whether others may wait for a verdict about the item."""
        is_undecided = row["verdict"] == "dropped" or (row["verdict"] is None and bool(row["needs_review"]))
        if row["group_id"] is None or (row["is_named"] and is_undecided):
            return is_undecided
        kept = session.execute(_KEPT_OF_GROUP, (row["group_id"],)).fetchone()[0]
        return row["verdict"] != "kept" and row["choose"] is not None and bool(kept < row["choose"])

    def _decide(self, session: Session, item: Item, seen: int | None, decision: Decided, now: int) -> None:
        verdict, version = session.execute(_VERDICT, item).fetchone()
        session.execute("BEGIN IMMEDIATE")
        report = review(session, item[0], {item[1]: seen}, decision, by=_BY, now=now)
        session.execute("COMMIT")
        if seen in {None, version}:
            return
        self.refused += 1
        if report.changed or session.execute(_VERDICT, item).fetchone()[0] != verdict:
            self._violations.append(f"a verdict about version {seen} of {item[1]} counted for version {version}")


def moments_near(chance: random.Random, kills: tuple[float, ...]) -> Iterator[float]:
    """Give moments shortly before and after some of the kills."""
    for kill in kills:
        if chance.random() < 0.3:
            yield max(0.0, kill + chance.uniform(-2.0, 6.0))
