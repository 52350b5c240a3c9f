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

from batchkiln.core.request import idempotency_key
from batchkiln.store.meta import queue_uid
from batchkiln.store.session import Row, Session
from batchkiln_service.db.credits import audit
from crash.service_books import DAY_MS, MINUTE_MS, Books

from .fault_schedule import STRANGE_PROMPT
from .hook_programs import HookPrograms
from .object_points import SCHEME
from .plan import Plan
from .queue_sessions import reading
from .source_history import sources
from .wire_checks import MEDIA

LATE_MS: Final = 1_000  # between the delivery of bytes and the service's note of their request
_FETCHED_TOO_LATE: Final = """
    SELECT item.name, job.name AS job, asked.at AS asked_at, ended.at AS decided_at FROM event AS asked
    JOIN event AS ended ON ended.item_id = asked.item_id AND ended.id > asked.id AND ended.kind = 'retention_ended'
    JOIN item ON item.id = asked.item_id JOIN job ON job.id = item.job_id
    WHERE asked.kind = 'fetch_requested' AND item.state = 'expired' AND NOT EXISTS (
        SELECT 1 FROM event AS other WHERE other.at > asked.at + :hours AND other.at < ended.at - :minutes)
"""
"""Files that a person deleted and wanted again; nothing happened in the queue until the service had deleted them."""
UPSET_MS: Final = MINUTE_MS + LATE_MS  # for how long a late request can be in the way of others
BLIND_MS: Final = MINUTE_MS + 15_000  # a minute and a poll interval, and the start
TOO_MANY_REQUESTS: Final = 429
SERVER_ERRORS: Final = 500
UNSEEN_ANSWERS: Final = 5
RETENTION_MS: Final = 14 * DAY_MS
ATTEMPTS_MOST: Final = 40


Item = tuple[str, str]
"""An item by the names of its job and itself: several variants of a group have one prompt."""


class Made(NamedTuple):
    """A generation, as the service knows it; its item is who its idempotency key was drawn for."""

    id: str
    item: Item
    prompt: str
    idempotency_key: str
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
    `redone` counts how often a person had each item made again, and `chosen` has the version that a person chose last,
    and when. `hooks` are the programs of the hook; `is_hook_over` where none may be left to start.
    """

    def __init__(
        self,
        folder: Path,
        plan: Plan,
        *,
        late_ms: tuple[int, ...] = (),
        blind_ms: tuple[int, ...] = (),
        revoked_key: str | None = None,
        redone: Mapping[Item, int] | None = None,
        chosen: Mapping[Item, tuple[int, float]] | None = None,
        hooks: HookPrograms | None = None,
        is_hook_over: bool = False,
    ) -> None:
        """Read everything at once."""
        self._folder = folder
        self._plan = plan
        self._late_ms = late_ms
        self._blind_ms = blind_ms
        self._revoked_key = revoked_key
        self._redone = Counter(redone or {})
        self._chosen = dict(chosen or {})
        self._hooks = hooks
        self._is_hook_over = is_hook_over
        self._books = Books.read(folder / "service")
        with closing(sqlite3.connect(folder / "service" / "service.db")) as connection:
            connection.row_factory = sqlite3.Row
            self._audit = audit(connection)
            sent = connection.execute("SELECT generation_id, key FROM idempotency").fetchall()
            sql = "SELECT generation_id, sha256 FROM outputs"
            self._made_files = {(row["generation_id"], row["sha256"]) for row in connection.execute(sql)}
        self._queue = folder / "program" / "queue.db"
        with reading(self._queue) as session:
            self._read_queue(session)
            owners = KeyOwners(session, [(row["job"], row["name"]) for row in self._items])
        keys = dict(sent)
        every = [_made(row, keys[row["id"]], owners) for row in self._books.generations]
        self._made = [made for made in every if made.prompt != STRANGE_PROMPT]
        self._read_made_again()

    def _read_queue(self, session: Session) -> None:
        self._jobs = session.execute("SELECT * FROM job").fetchall()
        self._items = session.execute(
            "SELECT item.id, item.name, item.state, item.prompt, item.error_code, job.name AS job,"
            " (SELECT generation_id FROM attempt WHERE attempt.id = item.version_id) AS current_id,"
            " recipe.attempts AS tries_allowed,"
            " (SELECT count(*) FROM event WHERE event.item_id = item.id AND event.kind = 'hook_redo') AS hook_redos"
            " FROM item JOIN job ON job.id = item.job_id JOIN recipe ON recipe.id = item.recipe_id"
        ).fetchall()
        self._outages = session.execute(
            "SELECT name, outage_since FROM account WHERE outage_since IS NOT NULL"
        ).fetchall()
        self._attempts = session.execute("SELECT * FROM attempt WHERE generation_id IS NOT NULL").fetchall()
        self._decisions = session.execute(
            "SELECT item.name, job.name AS job, hold.at AS asked_at, min(event.at) AS decided_at FROM event AS hold"
            " JOIN event ON event.item_id = hold.item_id AND event.id > hold.id AND event.kind = 'replay_resumed'"
            " JOIN item ON item.id = hold.item_id JOIN job ON job.id = item.job_id"
            " WHERE hold.kind = 'key_forgotten' AND item.state = 'expired'"
            " GROUP BY hold.id, item.name, job.name, hold.at"
        ).fetchall()
        self._resent = session.execute("SELECT at FROM event WHERE kind = 'replay_resumed' ORDER BY at").fetchall()
        self._decisions += session.execute(_FETCHED_TOO_LATE, {"hours": 2 * 3_600_000, "minutes": 600_000}).fetchall()
        self._sources = session.execute("SELECT item_id, source_id, group_id, sha256 FROM item_source").fetchall()
        self._members = session.execute("SELECT id, group_id FROM item WHERE group_id IS NOT NULL").fetchall()
        gone = session.execute("SELECT item_id, detail FROM event WHERE kind = 'file_gone'").fetchall()
        self._gone = {(row["item_id"], json.loads(row["detail"])["sha256"]) for row in gone}
        queued = [row["id"] for row in self._items if row["state"] == "queued"]
        self._offers = {item_id: list(sources(session, item_id)) for item_id in queued}
        self._saved = session.execute(
            "SELECT output.item_id, output.path, output.sha256, attempt.generation_id, item.name AS item,"
            " attempt.version,"
            " job.name AS job FROM output JOIN attempt ON attempt.id = output.attempt_id"
            " JOIN item ON item.id = output.item_id JOIN job ON job.id = item.job_id"
        ).fetchall()

    def _read_made_again(self) -> None:
        """Add the item that the plan itself makes again, and whose first version it uses, and what the hook redoes."""
        if self._plan.made_again is not None:
            self._redone[self._plan.made_again] += 1
            self._chosen[self._plan.made_again] = (1, inf)
        self._by_person = Counter(self._redone)
        self._redone.update({_item(row): row["hook_redos"] for row in self._items})

    def violations(self) -> list[str]:
        """Return everything that is wrong; nothing for a program that kept its promises."""
        books = self._in_time(self._books)
        is_alone = not self._plan.stranger_until
        return [
            *(books.violations_of_limits() if is_alone else books.violations_of_gaps()),
            *self._audit,
            *self._lost(),
            *self._paid_once(),
            *self._hooked(),
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
            *self._outages_over(),
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
        if row["code"] == "credit_budget_exhausted" and self._is_first_resend(row):
            return True
        is_of_minute = row["status"] == TOO_MANY_REQUESTS or row["code"] == "edge_blocked"
        after_ms = UPSET_MS if is_of_minute else LATE_MS
        is_blind = any(0 <= row["arrived_at_ms"] - blind_ms <= BLIND_MS for blind_ms in self._blind_ms)
        return is_blind or any(-LATE_MS <= row["arrived_at_ms"] - late_ms <= after_ms for late_ms in self._late_ms)

    def _is_first_resend(self, row: sqlite3.Row) -> bool:
        """Return whether a create is the first one refused since a person had a request of another day sent again.

        The service has forgotten its key, which only its reply tells. What follows waits for the next day's credits.
        """
        at = row["arrived_at_ms"]
        resent = max((each["at"] for each in self._resent if each["at"] <= at + LATE_MS), default=inf)
        return (
            not any(
                each["code"] == row["code"] and resent - LATE_MS <= each["arrived_at_ms"] < at
                for each in self._books.requests
            )
            and resent < inf
        )

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
        """Law 2: what is not refunded is paid once for each attempt, for each item, and once more for each redo."""
        for key, count in Counter(made.idempotency_key for made in self._made).items():
            if count > 1:
                yield f"the attempt {key} is paid {count} times"
        for item, count in self._kept().items():
            if count > 1 + self._redone[item]:
                yield f"{item} is paid {count} times, and was to be made again {self._redone[item]} times"

    def _kept(self) -> Counter[Item]:
        return Counter(made.item for made in self._made if made.outcome != "failed")

    def _made_again(self) -> Iterator[str]:
        """Law 9: what was to be made again is made again, unless it fails; a restored copy may have forgotten it."""
        if self._plan.restores or self._revoked_key is not None:
            return
        kept, states = self._kept(), {_item(row): row["state"] for row in self._items}
        for item, count in self._redone.items():
            if states[item] == "done" and kept[item] != 1 + count:
                yield f"{item} was to be made again {count} times, and is paid {kept[item]} times"

    def _hooked(self) -> Iterator[str]:
        """The hook has seen what is saved, and spends no more than it may: once for each file that it refused."""
        if self._hooks is None or self._plan.hook is None:
            return
        yield from self._hooks.violations
        prices = {made.item: made.cost_credits for made in self._made}
        spent = Counter[str]()
        for row in self._items:
            item, asked = _item(row), len(self._hooks.asked_again[_item(row)])
            extra = self._kept()[item] - 1 - self._by_person[item] if row["hook_redos"] else 0
            if row["hook_redos"] > min(asked, self._plan.hook.redos) or extra > asked:
                yield f"the hook had {item} made again {row['hook_redos']} times, and asked for it {asked} times"
            spent[item[0]] += row["hook_redos"] * prices.get(item, 0)
            is_due = self._is_hook_over and row["state"] == "done" and item not in self._chosen
            if is_due and row["current_id"] not in self._hooks.seen:
                yield f"the hook has never seen the file of {item}"
        for job, credit_count in spent.items():
            if credit_count > self._plan.hook.redo_credits:
                yield f"the hook spent {credit_count} credits of {job}, {self._plan.hook.redo_credits} are allowed"

    def _current(self) -> Iterator[str]:
        """The current version of a done item is the one that was chosen last, unless another was made since."""
        if self._plan.restores or self._revoked_key is not None:
            return
        made = {made.id: made for made in self._made}
        versions: defaultdict[Item, list[Made]] = defaultdict(list)
        for generation_id in {row["generation_id"] for row in self._saved}:
            versions[made[generation_id].item].append(made[generation_id])
        for row in self._items:
            if row["state"] != "done":
                continue
            in_order = sorted(versions[_item(row)], key=lambda one: one.created_at_ms)
            version, chosen_at = self._chosen.get(_item(row), (0, -inf))
            if in_order and in_order[-1].created_at_ms > chosen_at:
                version = len(in_order)
            wanted = in_order[version - 1].id if in_order else None
            if row["current_id"] != wanted:
                yield f"the current version of {row['name']} is {row['current_id']}, not {wanted}"

    def _invented(self) -> Iterator[str]:
        prompts = {_item(row): row["prompt"] for row in self._items}
        yield from (
            f"generation {made.id} belongs to no item" for made in self._made if prompts.get(made.item) != made.prompt
        )

    def _ended_otherwise(self) -> Iterator[str]:
        """Law 9, and liveness: every item is done, unless the service itself, or a key that is gone, kept it from that.

        Nothing that the scenarios ask for is refused for good, and nobody is away for longer than the retention.
        """
        failures = Counter(made.item for made in self._made if made.outcome == "failed")
        canceled = {made.item for made in self._made if made.outcome == "canceled"}
        late = self._decided_too_late()
        waiting = self._waiting_in_vain()
        paid = {made.item for made in self._made if made.outcome != "failed"}
        for row in self._items:
            item = _item(row)
            if row["id"] in waiting and row["state"] == "queued":
                continue
            if self._plan.interventions and row["state"] == "canceled" and item not in paid:
                continue  # by a person, who does not want it
            is_excused = self._revoked_key is not None and row["state"] in {"failed", "held"}
            is_excused |= item in late and row["state"] == "expired"
            has_failed = item in canceled or failures[item] >= row["tries_allowed"]
            is_right = row["state"] == "failed" if has_failed else row["state"] == "done"
            if has_failed and self._redone[item]:  # it may have failed before, or when it was made again
                is_right = row["state"] in {"done", "failed"}
            if self._plan.restores:
                is_right |= has_failed and row["state"] == "done"  # a copy forgot failures
                is_right |= row["error_code"] == "over_job_budget" and item not in paid  # which may not pay for all
            if not is_right and not is_excused:
                yield f"item {row['name']} is {row['state']}, not as it should be: {row['error_code']}"

    def _waiting_in_vain(self) -> set[int]:
        """Return the items that are made from what nobody can offer: not even a person who keeps all that is done."""
        return {
            item_id
            for item_id, offers in self._offers.items()
            if any(offer.version_id is None and not offer.needs_only_a_person for offer in offers)
        }

    def _made_from_others(self) -> Iterator[str]:
        """What an item was made from is or was a file of its source; what was sent waits for nothing."""
        offered = {(row["item_id"], row["sha256"]) for row in self._saved} | self._gone
        groups = {row["id"]: row["group_id"] for row in self._members}
        offered |= {(("group", groups[item_id]), sha256) for item_id, sha256 in offered if item_id in groups}
        states = {row["id"]: row["state"] for row in self._items}
        for row in self._sources:
            source = ("group", row["group_id"]) if row["source_id"] is None else row["source_id"]
            if row["sha256"] is not None and (source, row["sha256"]) not in offered:
                yield f"item {row['item_id']} was made from a file that item {source} does not have"
            if row["sha256"] is None and states[row["item_id"]] == "done" and not self._plan.restores:
                yield f"item {row['item_id']} is done without its input"

    def _decided_too_late(self) -> set[Item]:
        """Return the items that were handed to a person in time, who decided only after the service's retention.

        The program was away for almost the whole retention, and its key may have been forgotten (Service rule 4.2).
        Likewise those whose file a person deleted, and wanted again shortly before the program was away.
        """
        ends_at = {made.item: made.created_at_ms + RETENTION_MS for made in self._made}
        return {
            _item(row) for row in self._decisions if row["asked_at"] < ends_at.get(_item(row), 0) <= row["decided_at"]
        }

    def _undelivered(self) -> Iterator[str]:
        """Law 3: for all that was paid and made, the file is here."""
        here = {(row["generation_id"], row["sha256"]) for row in self._saved}
        late = self._decided_too_late()
        mine = {
            made.id
            for made in self._made
            if made.outcome == "success" and made.key_sha256 != self._revoked_key and made.item not in late
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
        charged, refunded = Counter[str](), Counter[str]()
        for made in self._made:
            charged[made.item[0]] += made.cost_credits
            refunded[made.item[0]] += made.cost_credits if made.outcome == "failed" else 0
        for row in self._jobs:
            told = (row["charged"], row["refunded"], row["reserved"])
            truth = (charged[row["name"]], refunded[row["name"]], 0)
            if self._plan.restores:  # a copy may have forgotten what was refunded
                told, truth = (told[0] - told[1], 0, told[2]), (truth[0] - truth[1], 0, 0)
            if told != truth:
                yield f"job {row['name']} has charged, refunded, reserved {told} in the queue, and in truth {truth}"

    def _files(self) -> Iterator[str]:
        """Law 7: what stands under a final name is whole, and is what was paid for that item; nothing else does."""
        owners = {made.id: made.item for made in self._made}
        for row in self._saved:
            path = Path(row["path"].removeprefix(SCHEME))
            if not path.exists():
                yield f"{path.name} is recorded and not there"
            elif _sha256(path) != row["sha256"] or (row["generation_id"], row["sha256"]) not in self._made_files:
                yield f"{path.name} is not what was paid for"
            elif owners[row["generation_id"]] != (row["job"], row["item"]):
                yield f"{path.name} was made for another item"
            elif (path.parent.name, path.stem.partition("~")[0]) != (row["job"], _stem(row)):
                yield f"{path.name} has not the name of its item {row['item']} of {row['job']}"
        recorded = {row["path"].removeprefix(SCHEME) for row in self._saved}
        for path in (self._folder / "program" / "out").rglob("*"):
            if path.suffix in MEDIA and str(path) not in recorded and not self._is_cut_off(path):
                yield f"{path.name} stands there and is not recorded"

    def _is_cut_off(self, path: Path) -> bool:
        """Return whether a program died between naming this file and recording it, and could never ask for it again.

        The next download recognises such a file. A key that is revoked meanwhile permits none.
        """
        states, sha256 = {_item(row): row["state"] for row in self._items}, _sha256(path)
        return any(
            made.key_sha256 == self._revoked_key
            and (made.id, sha256) in self._made_files
            and made.item[0] == path.parent.name
            and states[made.item] in {"failed", "held"}
            for made in self._made
        )

    def _tries(self) -> Iterator[str]:
        """No item is tried more often than its manifest allows."""
        tries = Counter(row["item_id"] for row in self._attempts)
        for row in self._items:
            allowed = row["tries_allowed"] * (1 + self._redone[_item(row)])
            if tries[row["id"]] > allowed:
                yield f"item {row['name']} was tried {tries[row['id']]} times, {allowed} are allowed"

    def _outages_over(self) -> Iterator[str]:
        """The queue says that the service is away only until it answers; a few answers may be lost, or die unseen."""
        for row in self._outages:
            answered = [
                request
                for request in self._books.requests
                if request["arrived_at_ms"] > row["outage_since"] and (request["status"] or 500) < SERVER_ERRORS
            ]
            if len(answered) > UNSEEN_ANSWERS:
                yield f"{row['name']} is said to have no service, which has answered {len(answered)} times since"

    def _budgets(self) -> Iterator[str]:
        """Law 6: a job keeps its budgets, in the service's days and by the service's prices.

        A restored copy does not know what failed, and that it was refunded, so that this does not count in its day.
        """
        spent: defaultdict[str, Counter[int]] = defaultdict(Counter)
        for made in self._made:
            if made.outcome != "failed" or not self._plan.restores:
                spent[made.item[0]][made.day] += made.cost_credits
        for row in self._jobs:
            most = self._most_spent(row["name"])
            if row["budget_credits"] is not None and most > row["budget_credits"]:
                yield f"job {row['name']} had spent {most} credits, {row['budget_credits']} are allowed"
            allowed = row["budget_credits_per_day"]
            for day, count in spent[row["name"]].items():
                if allowed is not None and count > allowed:
                    yield f"job {row['name']} spent {count} credits on day {day}, {allowed} are allowed"

    def _most_spent(self, job: str) -> int:
        """Return the most that a job had spent at any time; what was refunded had been spent until then."""
        changes = [(made.created_at_ms, made.cost_credits) for made in self._made if made.item[0] == job]
        changes += [
            (made.ended_at_ms or 0, -made.cost_credits)
            for made in self._made
            if made.item[0] == job and made.outcome == "failed"
        ]
        return max(accumulate(change for _, change in sorted(changes)), default=0)


def _stem(row: sqlite3.Row) -> str:
    """Return what the name of a file begins with: each version has files of its own."""
    return str(row["item"]) if row["version"] == 1 else f"{row['item']}.v{row['version']}"


def _wishes(name: str, text: str) -> Iterator[tuple[str, str, str]]:
    """Give job, item and prompt of all that a manifest asks for."""
    if name.endswith(".yaml"):
        manifest = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        for item in manifest["items"]:
            variants = range(1, 1 + item.get("variants", 0))
            for own in [f"{item['id']}-{number}" for number in variants] or [item["id"]]:
                yield manifest["job"], own, item["prompt"]


class KeyOwners:
    """Knows for which item an idempotency key was drawn: by the queue's attempts, or by drawing all keys again.

    A restored copy has lost attempts; their keys are made of the names of job and item.
    """

    def __init__(self, session: Session, items: list[Item]) -> None:
        """Take the items of the queue."""
        sql = (
            "SELECT attempt.idempotency_key, job.name, item.name FROM attempt JOIN item ON item.id = attempt.item_id"
            " JOIN job ON job.id = item.job_id"
        )
        self._known = {key: (job, item) for key, job, item in session.execute(sql).fetchall()}
        self._uid = queue_uid(session)
        self._items = items
        self._are_drawn = False

    def of(self, key: str) -> Item:
        """Return the item of a key; one without a name where nobody has drawn it."""
        if key not in self._known and not self._are_drawn:
            self._are_drawn = True
            for job, item in self._items:
                for number in range(1, ATTEMPTS_MOST + 1):
                    self._known[idempotency_key(self._uid, job=job, item=item, number=number)] = (job, item)
        return self._known.get(key, ("", ""))


def _item(row: Row) -> Item:
    return (row["job"], row["name"])


def _made(row: sqlite3.Row, key: str, owners: KeyOwners) -> Made:
    return Made(
        id=row["id"],
        item=owners.of(key),
        prompt=json.loads(row["drawing_json"])["prompt"],
        idempotency_key=key,
        key_sha256=row["key_sha256"],
        cost_credits=row["cost_credits"],
        outcome=row["outcome"],
        day=row["created_at_ms"] // DAY_MS,
        created_at_ms=row["created_at_ms"],
        ended_at_ms=row["ended_at_ms"],
    )


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
