"""What a person decides about items that are done: to make one again, to use another version, to fetch lost files."""

import random
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Final, Literal

from batchkiln.store.operations import redo
from batchkiln.store.versions import choose_version, fetch_again, saved_files

Decision = Literal["redo", "use", "fetch"]
_FETCHED_WITHIN_MS: Final = 10 * 86_400_000  # of the fourteen days for which the service keeps a result
_DONE: Final = (
    "SELECT job.name AS job, item.name AS item, item.prompt, attempt.version, attempt.generation_created_at,"
    " (SELECT count(*) FROM attempt AS made WHERE made.item_id = item.id AND made.version IS NOT NULL) AS versions"
    " FROM item JOIN job ON job.id = item.job_id JOIN attempt ON attempt.id = item.version_id"
    " WHERE item.state = 'done' AND job.budget_credits IS NULL ORDER BY item.id"
)


class Decisions:
    """The decisions of one world, one after the other, each about an item that is drawn when its time has come.

    `redone` counts by prompt how often an item was to be made again. `chosen` has the version that was chosen last,
    unless the item was made again since.
    """

    def __init__(self, seed: int, wanted: tuple[Decision, ...]) -> None:
        self.redone: Counter[str] = Counter()
        self.chosen: dict[str, int] = {}
        self._wanted = list(wanted)
        self._chance = random.Random(f"decisions {seed}")

    def next(self, queue: Path, *, is_last_call: bool = False) -> str | None:
        """Carry out the next decision, while no program runs; return what was done, None if there is nothing to do.

        A decision waits for an item that it can be about. With `is_last_call`, one that has none is dropped.
        """
        while self._wanted:
            with closing(sqlite3.connect(queue, isolation_level=None)) as connection:
                connection.row_factory = sqlite3.Row
                told = self._decide(connection, self._wanted[0])
            if told is not None or is_last_call:
                self._wanted.pop(0)
            if told is not None or not is_last_call:
                return told
        return None

    def _decide(self, connection: sqlite3.Connection, decision: Decision) -> str | None:
        now: int = connection.execute("SELECT coalesce(max(at), 0) FROM event").fetchone()[0]
        rows = [row for row in connection.execute(_DONE).fetchall() if _is_open_to(decision, row, now)]
        if not rows:
            return None
        row = self._chance.choice(rows)
        job, item, prompt = row["job"], row["item"], row["prompt"]
        if decision == "redo":
            assert redo(connection, job, [item], now).redone == 1
            self.redone[prompt] += 1
            self.chosen.pop(prompt, None)
            return f"has {job}/{item} made again"
        connection.execute("BEGIN IMMEDIATE")
        if decision == "use":
            version = self._chance.choice([one for one in range(1, row["versions"] + 1) if one != row["version"]])
            choose_version(connection, job, item, version, now)
            self.chosen[prompt] = version
        else:
            files, _ = saved_files(connection, job, [item])
            for file in files:
                Path(file.path).unlink()
            assert fetch_again(connection, files, now) == 1
        connection.execute("COMMIT")
        return f"uses version {version} of {job}/{item}" if decision == "use" else f"has {job}/{item} fetched again"


def _is_open_to(decision: Decision, row: sqlite3.Row, now: int) -> bool:
    if decision == "use":
        return bool(row["versions"] > 1)
    return decision == "redo" or now - row["generation_created_at"] < _FETCHED_WITHIN_MS
