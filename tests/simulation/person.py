"""What a person does in a simulated world: end what only they can end."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from batchkiln.queue.resolve import Decision, resolve


def give_up_unreachable(queue: Path) -> None:
    """Give up the items whose API key was revoked: nobody can ask for them any more, and they keep the slot (Law 4)."""
    with _queue(queue) as connection:
        _end_holds(connection, _held(connection, "key_missing"), Decision.FAILED)


def ask_again(queue: Path) -> int:
    """Have the items sent again whose key may be forgotten: the service of these worlds never forgets one.

    Only those that are in doubt by their history, as `end_doubts` has it, and one for each account at a time, since
    only one of them can be under way (Law 4). Return how many there were.
    """
    with _queue(queue) as connection:
        taken = {
            row[0] for row in connection.execute("SELECT account_id FROM attempt WHERE state IN ('sent', 'active')")
        }
        asked = 0
        for row in _in_doubt(connection, "key_forgotten"):
            if row["account_id"] not in taken:
                taken.add(row["account_id"])
                _end_holds(connection, [row], Decision.ASK_AGAIN)
                asked += 1
    return asked


def end_doubts(queue: Path, service: Path) -> int:
    """Queue the items again that were in doubt and are refused, since their uploads have expired meanwhile.

    The program cannot know whether such an item was paid for. A person looks at the account: what the service made
    for its prompt, the queue has to know. Return how many there were. Where the history has an answer to every
    send, nothing was in doubt: the item stays held, and is found.
    """
    with closing(sqlite3.connect(service / "service.db")) as books:
        sql = "SELECT id, json_extract(drawing_json, '$.prompt') FROM generations"
        made = books.execute(sql).fetchall()
    with _queue(queue) as connection:
        sql = "SELECT generation_id FROM attempt WHERE generation_id IS NOT NULL"
        known = {row["generation_id"] for row in connection.execute(sql)}
        unknown = {prompt for generation_id, prompt in made if generation_id not in known}
        held = [row for row in _in_doubt(connection, "asset_expired") if row["prompt"] not in unknown]
        _end_holds(connection, held, Decision.NOT_CREATED)
    return len(held)


@contextmanager
def _queue(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.row_factory = sqlite3.Row
        yield connection


def _in_doubt(connection: sqlite3.Connection, code: str) -> list[sqlite3.Row]:
    return [row for row in _held(connection, code) if row["sends"] > row["answers_noted"]]


def _held(connection: sqlite3.Connection, code: str) -> list[sqlite3.Row]:
    return connection.execute(
        "SELECT job.name AS job, item.name AS item, item.prompt, attempt.account_id, attempt.sends,"
        " (SELECT count(*) FROM event WHERE event.attempt_id = attempt.id"
        "  AND event.kind IN ('create_postponed', 'create_refused', 'account_blocked')) AS answers_noted"
        " FROM item JOIN job ON job.id = item.job_id JOIN attempt ON attempt.id = item.attempt_id"
        " WHERE item.state = 'held' AND item.error_code = ?",
        (code,),
    ).fetchall()


def _end_holds(connection: sqlite3.Connection, held: list[sqlite3.Row], decision: Decision) -> None:
    for row in held:
        connection.execute("BEGIN IMMEDIATE")
        resolve(connection, row["job"], row["item"], decision, now=_now(connection))
        connection.execute("COMMIT")


def _now(connection: sqlite3.Connection) -> int:
    """Return the instant of the queue's last event."""
    return int(connection.execute("SELECT max(at) FROM event").fetchone()[0])
