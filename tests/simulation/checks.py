"""What has to hold of a world that has come to its end, read from the service's books and the disk.

The queue's own word is compared with them, never believed. Each check returns what is wrong, in sentences.
"""

import hashlib
import json
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from batchkiln.service.books.credits import audit
from crash.ledger import DAY_MS, Books

from .fates import STRANGE_PROMPT

MEDIA: Final = {".png", ".jpg", ".mp4"}
LATE_MS: Final = 1_000  # between the delivery of bytes and the service's note of their request
UPSET_MS: Final = 10_000  # for how long a late request can be in the way of the next


@dataclass(frozen=True)
class Aftermath:
    """A world's folder after its end: `service/`, `program/` with the queue, and the outputs below it."""

    folder: Path
    late_ms: tuple[int, ...] = ()  # when the network delivered something much later than its sender could know
    has_stranger: bool = False  # whether somebody else used an account, whose requests are not ours
    revoked_key: str | None = None  # the hash of a key that was revoked: what it created can be read no more

    def violations(self) -> list[str]:
        """Return everything that is wrong; nothing for a program that kept its promises."""
        books = self._in_time(Books.read(self.folder / "service"))
        prompts = [row["prompt"] for row in self._queue("SELECT prompt FROM item")]
        return [
            *(books.violations_of_gaps() if self.has_stranger else books.violations_of_limits()),
            *self._audit(),
            *self._paid_once(),
            *self._invented(prompts),
            *self._unfinished(),
            *self._known_to_both(),
            *self._files(),
            *self._tries(),
            *self._budgets(),
            *self._rejected(),
        ]

    def _in_time(self, books: Books) -> Books:
        """Leave out the requests that the network held back, and the refusals that they caused for the next ones."""
        return replace(books, requests=[row for row in books.requests if not self._is_upset(row["arrived_at_ms"])])

    def _is_upset(self, arrived_at_ms: int) -> bool:
        return any(-LATE_MS <= arrived_at_ms - late_ms <= UPSET_MS for late_ms in self.late_ms)

    def account_days(self) -> int:
        """Count the days of accounts on which the service was asked for anything."""
        sql = f"SELECT DISTINCT account, arrived_at_ms / {DAY_MS} FROM requests WHERE account IS NOT NULL"
        return len(self._service(sql))

    def generations(self) -> int:
        """Count what the service made."""
        return len(self._service("SELECT id FROM generations"))

    def _queue(self, sql: str) -> list[sqlite3.Row]:
        return _rows(self.folder / "program" / "queue.db", sql)

    def _service(self, sql: str) -> list[sqlite3.Row]:
        return _rows(self.folder / "service" / "service.db", sql)

    def _audit(self) -> list[str]:
        with closing(sqlite3.connect(self.folder / "service" / "service.db")) as connection:
            connection.row_factory = sqlite3.Row
            return audit(connection)

    def _paid_once(self) -> Iterator[str]:
        """Law 2: what is not refunded is paid once for each prompt."""
        kept: Counter[str] = Counter()
        for row in self._service("SELECT drawing_json FROM generations WHERE outcome != 'failed'"):
            if (prompt := json.loads(row["drawing_json"])["prompt"]) != STRANGE_PROMPT:
                kept[prompt] += 1
        for prompt, count in kept.items():
            if count > 1:
                yield f"{prompt!r} is paid {count} times"

    def _invented(self, prompts: list[str]) -> Iterator[str]:
        for row in self._service("SELECT id, drawing_json FROM generations"):
            if json.loads(row["drawing_json"])["prompt"] not in [*prompts, STRANGE_PROMPT]:
                yield f"generation {row['id']} belongs to no item"

    def _unfinished(self) -> Iterator[str]:
        """Law 9, and liveness: every item has come to an end."""
        ends = {"done", "failed", "rejected", "expired", "canceled", "held"}
        for row in self._queue("SELECT name, state FROM item"):
            if row["state"] not in ends:
                yield f"item {row['name']} is still {row['state']}"

    def _known_to_both(self) -> Iterator[str]:
        """Law 3: the queue knows each generation, its cost and its refund as the service does."""
        ours = {
            row["generation_id"]: row for row in self._queue("SELECT * FROM attempt WHERE generation_id IS NOT NULL")
        }
        for theirs in self._service("SELECT id, key_sha256, cost_credits, outcome, drawing_json FROM generations"):
            attempt = ours.pop(theirs["id"], None)
            is_strange = json.loads(theirs["drawing_json"])["prompt"] == STRANGE_PROMPT
            if is_strange or theirs["key_sha256"] == self.revoked_key:
                continue
            if attempt is None:
                yield f"the queue does not know generation {theirs['id']}, which was paid for"
            elif attempt["cost_credits"] != theirs["cost_credits"]:
                yield f"{theirs['id']} cost {theirs['cost_credits']} credits; the queue says {attempt['cost_credits']}"
            elif bool(attempt["is_refunded"]) != (theirs["outcome"] == "failed"):
                yield f"{theirs['id']} is {theirs['outcome']}; the queue's word on its refund is wrong"
        for unknown in ours:
            yield f"the queue has generation {unknown}, which the service does not know"

    def _files(self) -> Iterator[str]:
        """Law 7: what stands under a final name is whole, is what was paid for, and is all that stands there."""
        theirs = {
            row["generation_id"]: row["sha256"] for row in self._service("SELECT generation_id, sha256 FROM outputs")
        }
        saved = self._queue(
            "SELECT output.path, output.sha256, attempt.generation_id FROM output"
            " JOIN attempt ON attempt.id = output.attempt_id"
        )
        recorded: dict[Path, str] = {}
        for row in saved:
            path = Path(row["path"])
            recorded[path] = row["sha256"]
            if not path.exists():
                yield f"{path.name} is recorded and not there"
            elif (
                hashlib.sha256(path.read_bytes()).hexdigest() != row["sha256"]
                or row["sha256"] != theirs[row["generation_id"]]
            ):
                yield f"{path.name} is not what was paid for"
        done = self._queue("SELECT id, name FROM item WHERE state = 'done'")
        with_files = {row["item_id"] for row in self._queue("SELECT item_id FROM output")}
        yield from (f"item {row['name']} is done and has no file" for row in done if row["id"] not in with_files)
        for path in (self.folder / "program" / "out").rglob("*"):
            if path.suffix in MEDIA and path not in recorded:
                yield f"{path.name} stands there and is not recorded"

    def _tries(self) -> Iterator[str]:
        """No item is tried more often than its manifest allows."""
        for row in self._queue(
            "SELECT item.name, recipe.attempts, count(*) AS tries FROM attempt JOIN item ON item.id = attempt.item_id"
            " JOIN recipe ON recipe.id = item.recipe_id WHERE generation_id IS NOT NULL GROUP BY item.id"
        ):
            if row["tries"] > row["attempts"]:
                yield f"item {row['name']} was tried {row['tries']} times, {row['attempts']} are allowed"

    def _budgets(self) -> Iterator[str]:
        """Law 6: a job keeps its daily budget, in the service's days and by the service's prices."""
        budgets = {
            row["name"]: row["budget_credits_per_day"]
            for row in self._queue("SELECT name, budget_credits_per_day FROM job")
            if row["budget_credits_per_day"] is not None
        }
        jobs = {
            row["prompt"]: row["name"]
            for row in self._queue("SELECT item.prompt, job.name FROM item JOIN job ON job.id = item.job_id")
        }
        spent: Counter[tuple[str, int]] = Counter()
        for row in self._service("SELECT drawing_json, created_at_ms, cost_credits FROM generations"):
            job = jobs.get(json.loads(row["drawing_json"])["prompt"])
            if job is not None and job in budgets:
                spent[job, row["created_at_ms"] // DAY_MS] += row["cost_credits"]
        for (job, day), count in spent.items():
            if count > budgets[job]:
                yield f"job {job} spent {count} credits on day {day}, {budgets[job]} are allowed"

    def _rejected(self) -> Iterator[str]:
        """Nothing that the scenarios ask for is refused for good, and nobody is away for longer than the retention."""
        for row in self._queue("SELECT name, state, error_code FROM item WHERE state IN ('rejected', 'expired')"):
            yield f"item {row['name']} is {row['state']}: {row['error_code']}"


def _rows(path: Path, sql: str) -> list[sqlite3.Row]:
    with closing(sqlite3.connect(path)) as connection:
        connection.row_factory = sqlite3.Row
        return connection.execute(sql).fetchall()
