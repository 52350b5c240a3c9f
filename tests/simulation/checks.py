"""What has to hold of a world that has come to its end, read from the service's books and the disk.

The queue's own word is compared with them, never believed. Each check tells what is wrong, in sentences.
"""

import hashlib
import json
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from itertools import accumulate
from math import inf
from pathlib import Path
from typing import Final, NamedTuple

import yaml

from batchkiln_service.db.credits import audit
from crash.service_books import DAY_MS, MINUTE_MS, Books

from .fault_schedule import STRANGE_PROMPT
from .object_points import SCHEME
from .plan import Plan
from .wire_checks import MEDIA

LATE_MS: Final = 1_000  # between the delivery of bytes and the service's note of their request
UPSET_MS: Final = MINUTE_MS + LATE_MS  # for how long a late request can be in the way of others
BLIND_MS: Final = MINUTE_MS + 15_000  # a minute and a poll interval, and the start
TOO_MANY_REQUESTS: Final = 429
RETENTION_MS: Final = 14 * DAY_MS


class Made(NamedTuple):
    """A generation, as the service knows it."""

    id: str
    prompt: str
    key_sha256: str
    cost_credits: int
    outcome: str
    day: int
    created_at_ms: int
    ended_at_ms: int | None


class Aftermath:
    """A world's folder after its end: `service/`, `program/` with the queue, and the outputs below it.

    `late_ms` tells when the network delivered something much later than its sender could know; `revoked_key` is the
    hash of a key that was revoked, so that what it created can be read no more. `blind_ms` tells when the queue was
    restored from a copy that lacks requests and no attempt: nothing tells the program that its windows are lost.
    `redone` counts by prompt how often a person had an item made again, and `chosen` has the versions that a person
    chose last.
    """

    def __init__(
        self,
        folder: Path,
        plan: Plan,
        *,
        late_ms: tuple[int, ...] = (),
        blind_ms: tuple[int, ...] = (),
        revoked_key: str | None = None,
        redone: Mapping[str, int] | None = None,
        chosen: Mapping[str, int] | None = None,
    ) -> None:
        """Read everything at once."""
        self._folder = folder
        self._plan = plan
        self._late_ms = late_ms
        self._blind_ms = blind_ms
        self._revoked_key = revoked_key
        self._redone = Counter(redone or {})
        self._chosen = dict(chosen or {})
        self._books = Books.read(folder / "service")
        with closing(sqlite3.connect(folder / "service" / "service.db")) as connection:
            connection.row_factory = sqlite3.Row
            self._audit = audit(connection)
            sql = "SELECT generation_id, sha256 FROM outputs"
            self._made_files = {(row["generation_id"], row["sha256"]) for row in connection.execute(sql)}
        every = [_made(row) for row in self._books.generations]
        self._made = [made for made in every if made.prompt != STRANGE_PROMPT]
        self._read_queue(folder / "program" / "queue.db")
        self._read_made_again()

    def _read_queue(self, path: Path) -> None:
        with closing(sqlite3.connect(path)) as connection:
            connection.row_factory = sqlite3.Row
            self._jobs = connection.execute("SELECT * FROM job").fetchall()
            self._items = connection.execute(
                "SELECT item.id, item.name, item.state, item.prompt, item.error_code, job.name AS job,"
                " (SELECT generation_id FROM attempt WHERE attempt.id = item.version_id) AS current_id,"
                " recipe.attempts AS tries_allowed FROM item JOIN job ON job.id = item.job_id"
                " JOIN recipe ON recipe.id = item.recipe_id"
            ).fetchall()
            self._attempts = connection.execute("SELECT * FROM attempt WHERE generation_id IS NOT NULL").fetchall()
            self._decisions = connection.execute(
                "SELECT item.prompt, hold.at AS asked_at, min(event.at) AS decided_at FROM event AS hold"
                " JOIN event ON event.item_id = hold.item_id AND event.id > hold.id AND event.kind = 'replay_resumed'"
                " JOIN item ON item.id = hold.item_id"
                " WHERE hold.kind = 'key_forgotten' AND item.state = 'expired' GROUP BY hold.id"
            ).fetchall()
            self._sources = connection.execute("SELECT item_id, source_id, sha256 FROM item_source").fetchall()
            self._saved = connection.execute(
                "SELECT output.item_id, output.path, output.sha256, attempt.generation_id, item.name AS item,"
                " attempt.version,"
                " job.name AS job FROM output JOIN attempt ON attempt.id = output.attempt_id"
                " JOIN item ON item.id = output.item_id JOIN job ON job.id = item.job_id"
            ).fetchall()

    def _read_made_again(self) -> None:
        """Add the item that the plan itself makes again, and whose first version it uses."""
        for row in self._items:
            if (row["job"], row["name"]) == self._plan.made_again:
                self._redone[row["prompt"]] += 1
                self._chosen[row["prompt"]] = 1

    def violations(self) -> list[str]:
        """Return everything that is wrong; nothing for a program that kept its promises."""
        books = self._in_time(self._books)
        is_alone = not self._plan.stranger_until
        return [
            *(books.violations_of_limits() if is_alone else books.violations_of_gaps()),
            *self._audit,
            *self._lost(),
            *self._paid_once(),
            *self._made_again(),
            *self._current(),
            *self._invented(),
            *self._ended_otherwise(),
            *self._undelivered(),
            *self._known_to_both(),
            *self._added_up(),
            *self._files(),
            *self._tries(),
            *self._budgets(),
            *self._made_from_others(),
        ]

    def account_days(self) -> int:
        """Count the days of accounts on which the service was asked for anything."""
        return len({(row["account"], row["arrived_at_ms"] // DAY_MS) for row in self._books.requests if row["account"]})

    def generations(self) -> int:
        """Count what the service made."""
        return len(self._books.generations)

    def _in_time(self, books: Books) -> Books:
        """Leave out the requests that the network held back, and what was refused for their sake a minute long."""
        return replace(books, requests=[row for row in books.requests if not self._is_upset(row)])

    def _is_upset(self, row: sqlite3.Row) -> bool:
        if row["code"] == "generation_active" and self._is_of_lost(row):
            return True
        after_ms = UPSET_MS if row["status"] == TOO_MANY_REQUESTS else LATE_MS
        is_blind = any(0 <= row["arrived_at_ms"] - blind_ms <= BLIND_MS for blind_ms in self._blind_ms)
        return is_blind or any(-LATE_MS <= row["arrived_at_ms"] - late_ms <= after_ms for late_ms in self._late_ms)

    def _is_of_lost(self, row: sqlite3.Row) -> bool:
        """Return whether a create met a generation from before the last restore, and none that was begun after it.

        The copy has an attempt that was refused after it was made. It is sent again, while a lost later one is active.
        """
        start_ms, at = self._plan.starts_at.timestamp() * 1000, row["arrived_at_ms"]
        before = [moment for each in self._plan.restores if (moment := start_ms + each.moment * 1000) <= at]
        active = [
            made["created_at_ms"]
            for made in self._books.generations
            if made["account"] == row["account"]
            and made["created_at_ms"] <= at <= (inf if made["ended_at_ms"] is None else made["ended_at_ms"])
        ]
        return bool(before) and bool(active) and max(active) < max(before)

    def _lost(self) -> Iterator[str]:
        """Law 9: what a manifest asks for is in the queue, as it was asked for, and nothing else."""
        asked = Counter(wish for name, text in self._plan.manifests.items() for wish in _wishes(name, text))
        queued = Counter((row["job"], row["name"], row["prompt"]) for row in self._items)
        yield from (f"item {name} of {job} was lost" for job, name, _ in asked - queued)
        yield from (f"item {name} of {job} was invented" for job, name, _ in queued - asked)

    def _paid_once(self) -> Iterator[str]:
        """Law 2: what is not refunded is paid once for each prompt, and once more for each redo."""
        for prompt, count in self._kept().items():
            if count > 1 + self._redone[prompt]:
                yield f"{prompt!r} is paid {count} times, and was to be made again {self._redone[prompt]} times"

    def _kept(self) -> Counter[str]:
        return Counter(made.prompt for made in self._made if made.outcome != "failed")

    def _made_again(self) -> Iterator[str]:
        """Law 9: what a person has made again is made again, unless it fails; a restored copy may have forgotten it."""
        if self._plan.restores or self._revoked_key is not None:
            return
        kept, states = self._kept(), {row["prompt"]: row["state"] for row in self._items}
        for prompt, count in self._redone.items():
            if states[prompt] == "done" and kept[prompt] != 1 + count:
                yield f"{prompt!r} was to be made again {count} times, and is paid {kept[prompt]} times"

    def _current(self) -> Iterator[str]:
        """The current version of a done item is the one that was chosen last, or else the one that was made last."""
        if self._plan.restores or self._revoked_key is not None:
            return
        made = {made.id: made for made in self._made}
        versions: defaultdict[str, list[Made]] = defaultdict(list)
        for generation_id in {row["generation_id"] for row in self._saved}:
            versions[made[generation_id].prompt].append(made[generation_id])
        for row in self._items:
            if row["state"] != "done":
                continue
            in_order = sorted(versions[row["prompt"]], key=lambda one: one.created_at_ms)
            chosen = self._chosen.get(row["prompt"])
            wanted = in_order[-1 if chosen is None else chosen - 1].id if in_order else None
            if row["current_id"] != wanted:
                yield f"the current version of {row['name']} is {row['current_id']}, not {wanted}"

    def _invented(self) -> Iterator[str]:
        prompts = {row["prompt"] for row in self._items}
        yield from (f"generation {made.id} belongs to no item" for made in self._made if made.prompt not in prompts)

    def _ended_otherwise(self) -> Iterator[str]:
        """Law 9, and liveness: every item is done, unless the service itself, or a key that is gone, kept it from that.

        Nothing that the scenarios ask for is refused for good, and nobody is away for longer than the retention.
        """
        failures = Counter(made.prompt for made in self._made if made.outcome == "failed")
        canceled = {made.prompt for made in self._made if made.outcome == "canceled"}
        late = self._decided_too_late()
        waiting = self._waiting_in_vain()
        paid = {made.prompt for made in self._made if made.outcome != "failed"}
        for row in self._items:
            if row["id"] in waiting and row["state"] == "queued":
                continue
            if self._plan.interventions and row["state"] == "canceled" and row["prompt"] not in paid:
                continue  # by a person, who does not want it
            is_excused = self._revoked_key is not None and row["state"] in {"failed", "held"}
            is_excused |= row["prompt"] in late and row["state"] == "expired"
            has_failed = row["prompt"] in canceled or failures[row["prompt"]] >= row["tries_allowed"]
            is_right = row["state"] == "failed" if has_failed else row["state"] == "done"
            if has_failed and self._redone[row["prompt"]]:  # it may have failed before, or when it was made again
                is_right = row["state"] in {"done", "failed"}
            is_right |= bool(self._plan.restores) and has_failed and row["state"] == "done"  # a copy forgot failures
            if not is_right and not is_excused:
                yield f"item {row['name']} is {row['state']}, not as it should be: {row['error_code']}"

    def _waiting_in_vain(self) -> set[int]:
        """Return the items that are made from an item that is not done, or that waits in vain itself."""
        done = {row["id"] for row in self._items if row["state"] == "done"}
        return {row["item_id"] for row in self._sources if row["source_id"] not in done}

    def _made_from_others(self) -> Iterator[str]:
        """What an item was made from is a file of its source; what was sent waits for nothing."""
        offered = {(row["item_id"], row["sha256"]) for row in self._saved}
        states = {row["id"]: row["state"] for row in self._items}
        for row in self._sources:
            if row["sha256"] is not None and (row["source_id"], row["sha256"]) not in offered:
                yield f"item {row['item_id']} was made from a file that item {row['source_id']} does not have"
            if row["sha256"] is None and states[row["item_id"]] == "done" and not self._plan.restores:
                yield f"item {row['item_id']} is done without its input"

    def _decided_too_late(self) -> set[str]:
        """Return the prompts that were handed to a person in time, who decided only after the service's retention.

        The program was away for almost the whole retention, and its key may have been forgotten (Service rule 4.2).
        """
        ends_at = {made.prompt: made.created_at_ms + RETENTION_MS for made in self._made}
        return {
            row["prompt"]
            for row in self._decisions
            if row["asked_at"] < ends_at.get(row["prompt"], 0) <= row["decided_at"]
        }

    def _undelivered(self) -> Iterator[str]:
        """Law 3: for all that was paid and made, the file is here."""
        here = {(row["generation_id"], row["sha256"]) for row in self._saved}
        late = self._decided_too_late()
        mine = {
            made.id
            for made in self._made
            if made.outcome == "success" and made.key_sha256 != self._revoked_key and made.prompt not in late
        }
        for generation_id, sha256 in self._made_files - here:
            if generation_id in mine:
                yield f"a file of generation {generation_id} was paid for, and is not here: {sha256}"

    def _known_to_both(self) -> Iterator[str]:
        """Law 3: the queue knows each generation, its cost and its refund as the service does."""
        ours = {row["generation_id"]: row for row in self._attempts}
        for made in self._made:
            attempt = ours.pop(made.id, None)
            if made.key_sha256 == self._revoked_key:
                continue
            if attempt is None and self._plan.restores and made.outcome == "failed":
                continue  # refunded, and forgotten with the copy: the item's next attempt is what counts
            if attempt is None:
                yield f"the queue does not know generation {made.id}, which was paid for"
            elif attempt["cost_credits"] != made.cost_credits:
                yield f"{made.id} cost {made.cost_credits} credits; the queue says {attempt['cost_credits']}"
            elif json.loads(attempt["body"])["max_cost_credits"] != made.cost_credits:
                yield f"{made.id} was allowed to cost something else than its price, {made.cost_credits} credits"
            elif bool(attempt["is_refunded"]) != (made.outcome == "failed"):
                yield f"{made.id} is {made.outcome}; the queue's word on its refund is wrong"
        yield from (f"the queue has generation {unknown}, which the service does not know" for unknown in ours)

    def _added_up(self) -> Iterator[str]:
        """What the queue says of a job's credits is what the service took and gave back for it."""
        if self._revoked_key is not None:
            return  # what became of the generations of a key that is gone cannot be asked
        jobs = {row["prompt"]: row["job"] for row in self._items}
        charged, refunded = Counter[str](), Counter[str]()
        for made in self._made:
            charged[jobs[made.prompt]] += made.cost_credits
            refunded[jobs[made.prompt]] += made.cost_credits if made.outcome == "failed" else 0
        for row in self._jobs:
            told = (row["charged"], row["refunded"], row["reserved"])
            truth = (charged[row["name"]], refunded[row["name"]], 0)
            if self._plan.restores:  # a copy may have forgotten what was refunded
                told, truth = (told[0] - told[1], 0, told[2]), (truth[0] - truth[1], 0, 0)
            if told != truth:
                yield f"job {row['name']} has charged, refunded, reserved {told} in the queue, and in truth {truth}"

    def _files(self) -> Iterator[str]:
        """Law 7: what stands under a final name is whole, and is what was paid for that item; nothing else does."""
        prompts = {made.id: made.prompt for made in self._made}
        wanted = {row["id"]: row["prompt"] for row in self._items}
        for row in self._saved:
            path = Path(row["path"].removeprefix(SCHEME))
            if not path.exists():
                yield f"{path.name} is recorded and not there"
            elif _sha256(path) != row["sha256"] or (row["generation_id"], row["sha256"]) not in self._made_files:
                yield f"{path.name} is not what was paid for"
            elif prompts[row["generation_id"]] != wanted[row["item_id"]]:
                yield f"{path.name} was made for another item"
            elif (path.parent.name, path.stem.partition("~")[0]) != (row["job"], _stem(row)):
                yield f"{path.name} has not the name of its item {row['item']} of {row['job']}"
        recorded = {row["path"].removeprefix(SCHEME) for row in self._saved}
        for path in (self._folder / "program" / "out").rglob("*"):
            if path.suffix in MEDIA and str(path) not in recorded:
                yield f"{path.name} stands there and is not recorded"

    def _tries(self) -> Iterator[str]:
        """No item is tried more often than its manifest allows."""
        tries = Counter(row["item_id"] for row in self._attempts)
        for row in self._items:
            allowed = row["tries_allowed"] * (1 + self._redone[row["prompt"]])
            if tries[row["id"]] > allowed:
                yield f"item {row['name']} was tried {tries[row['id']]} times, {allowed} are allowed"

    def _budgets(self) -> Iterator[str]:
        """Law 6: a job keeps its budgets, in the service's days and by the service's prices."""
        jobs = {row["prompt"]: row["job"] for row in self._items}
        spent: defaultdict[str, Counter[int]] = defaultdict(Counter)
        for made in self._made:
            spent[jobs[made.prompt]][made.day] += made.cost_credits
        for row in self._jobs:
            most = self._most_spent(row["name"], jobs)
            if row["budget_credits"] is not None and most > row["budget_credits"]:
                yield f"job {row['name']} had spent {most} credits, {row['budget_credits']} are allowed"
            allowed = row["budget_credits_per_day"]
            for day, count in spent[row["name"]].items():
                if allowed is not None and count > allowed:
                    yield f"job {row['name']} spent {count} credits on day {day}, {allowed} are allowed"

    def _most_spent(self, job: str, jobs: dict[str, str]) -> int:
        """Return the most that a job had spent at any time; what was refunded had been spent until then."""
        changes = [(made.created_at_ms, made.cost_credits) for made in self._made if jobs[made.prompt] == job]
        changes += [
            (made.ended_at_ms or 0, -made.cost_credits)
            for made in self._made
            if jobs[made.prompt] == job and made.outcome == "failed"
        ]
        return max(accumulate(change for _, change in sorted(changes)), default=0)


def _stem(row: sqlite3.Row) -> str:
    """Return what the name of a file begins with: each version has files of its own."""
    return str(row["item"]) if row["version"] == 1 else f"{row['item']}.v{row['version']}"


def _wishes(name: str, text: str) -> Iterator[tuple[str, str, str]]:
    """Give job, item and prompt of all that a manifest asks for."""
    if name.endswith(".yaml"):
        manifest = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        yield from ((manifest["job"], item["id"], item["prompt"]) for item in manifest["items"])


def _made(row: sqlite3.Row) -> Made:
    return Made(
        id=row["id"],
        prompt=json.loads(row["drawing_json"])["prompt"],
        key_sha256=row["key_sha256"],
        cost_credits=row["cost_credits"],
        outcome=row["outcome"],
        day=row["created_at_ms"] // DAY_MS,
        created_at_ms=row["created_at_ms"],
        ended_at_ms=row["ended_at_ms"],
    )


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
