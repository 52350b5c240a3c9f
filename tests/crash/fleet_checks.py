"""What has to hold after a round of a fleet, by the service's books, the queue, the journals, the files and logs."""

import hashlib
import re
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Final

import psycopg

from batchkiln.store.attempt_journal import AttemptJournal
from crash import lease_watch
from crash.process_harness import open_media
from crash.service_books import Books

_WRONG: Final = re.compile(r"Traceback|\bunexpected\b|InvariantBroken|not_understood|misunderstood", re.IGNORECASE)
_ATTEMPTS: Final = """
    SELECT idempotency_key, account.name, generation_id, attempt.state, cost_credits
    FROM attempt JOIN account ON account.id = attempt.account_id
"""
_LEDGER: Final = """
    SELECT idempotency.key, idempotency.account, idempotency.generation_id, generations.cost_credits
    FROM idempotency JOIN generations ON generations.id = idempotency.generation_id
"""


def violations(
    folder: Path,
    queue: psycopg.Connection,
    prompts: list[str],
    *,
    stray_reads: int,
    late_sends: int = 0,
    is_watched: bool = False,
) -> tuple[list[str], Counter[str]]:
    """Return every broken promise, in words, and what was counted.

    `stray_reads`: reads too soon after another, and requests without a lease, which workers that were stopped between
    the look at their lease and the send may have made. `late_sends`: requests refused for haste, after one that was
    sent late. A reply of the database may be held for as long as a lease, and service time runs so much faster that a
    later worker takes the request for older than a minute. `is_watched`: `lease_watch` was there from the beginning.
    """
    books = Books.read(folder / "service")
    found = books.violations(prompts)
    early = [each for each in found if " read again after " in each]
    if len(early) <= stray_reads:
        found = [each for each in found if each not in early]
    hasty = [each for each in found if "refused with 429" in each]
    if len(hasty) <= late_sends:
        found = [each for each in found if each not in hasty]
    unleased = lease_watch.unleased_requests(queue, folder / "service") if is_watched else []
    found += [*lease_watch.foreign_writes(queue)] if is_watched else []
    found += unleased if len(unleased) > stray_reads else []
    found += [
        *_of_charges(books),
        *_of_queue(folder, queue),
        *_of_files(folder, queue, len(prompts)),
        *_of_logs(folder),
    ]
    counts = {"stray reads": len(early), "stray requests": len(unleased), "hasty requests": len(hasty)}
    return found, Counter({"generations": len(books.generations)} | counts)


def _of_charges(books: Books) -> list[str]:
    """Law 2: each generation is charged exactly once."""
    charges = Counter(row["generation_id"] for row in books.entries if row["kind"] == "charge")
    return [f"{row['id']} charged {charges[row['id']]} times" for row in books.generations if charges[row["id"]] != 1]


def _of_queue(folder: Path, queue: psycopg.Connection) -> list[str]:
    """Law 1, Law 2, Law 9: the queue knows each charge, by its attempt, and nothing is left to be done."""
    with closing(sqlite3.connect(folder / "service" / "service.db")) as service:
        ledger = {(key, account): (generation, cost) for key, account, generation, cost in service.execute(_LEDGER)}
    attempts = queue.execute(_ATTEMPTS).fetchall()
    known = {(key, account): (generation, cost) for key, account, generation, _, cost in attempts if generation}
    found = [f"the charge of {key} is unknown to the queue" for key in ledger.keys() - known.keys()]
    found += [f"the queue believes in a charge of {key}" for key in known.keys() - ledger.keys()]
    found += [f"the queue and the books differ about {key}" for key, value in known.items() if ledger.get(key) != value]
    expected = {"succeeded", "refused"}
    found += [f"attempt {key} is {state}" for key, _, _, state, _ in attempts if state not in expected]
    states: Counter[str] = Counter(dict(queue.execute("SELECT state, count(*) FROM item GROUP BY state").fetchall()))
    found += [f"{count} items are {state}" for state, count in states.items() if state != "done"]
    journals = [AttemptJournal(path.with_suffix("")) for path in folder.rglob("*.attempts")]
    noted = {entry.idempotency_key for journal in journals for entry in journal.read()[0]}
    found += [f"no journal has {key}" for key, _ in ledger if key not in noted]
    return found


def _of_files(folder: Path, queue: psycopg.Connection, count: int) -> list[str]:
    """Law 7: every file is there, whole, and none beside."""
    recorded: dict[str, str] = dict(queue.execute("SELECT path, sha256 FROM output").fetchall())
    hashes = {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in (folder / "out").rglob("*")
        if path.is_file() and not path.name.startswith(".")
    }
    found = [] if len(hashes) == count else [f"{len(hashes)} files for {count} prompts"]
    if Counter(hashes.values()) != Counter(recorded.values()):
        found.append("the files are not those that the queue has recorded")
    with closing(sqlite3.connect(folder / "service" / "service.db")) as service:
        made = Counter(sha256 for (sha256,) in service.execute("SELECT sha256 FROM outputs"))
    if Counter(hashes.values()) != made:
        found.append("the files are not those that the service has made")
    for name in hashes:
        try:
            open_media(folder / name)
        except Exception as error:  # noqa: BLE001  whatever keeps a file from opening is the finding
            found.append(f"{name} does not open: {error}")
    return found


def _of_logs(folder: Path) -> list[str]:
    """Law 8, Law 10: no log has a secret, an error of this program's own, or a reply that was not understood."""
    secrets = [path.read_text().strip() for path in (folder / "service").glob("key-*")]
    found = []
    for path in sorted(folder.glob("w-*.log")):
        text = path.read_text()
        found += [f"{path.name}: {line[:300]}" for line in text.splitlines() if _WRONG.search(line)]
        found += [f"{path.name} has an API key" for secret in secrets if secret in text]
    return found
