"""What a person does in a simulated world: end what only they can end."""

import random
import sqlite3
from contextlib import closing, suppress
from datetime import datetime
from pathlib import Path
from typing import Final
from unittest import mock

from batchkiln.core.errors import InputError
from batchkiln.store import copying, misunderstood
from batchkiln.store.attempt_journal import AttemptJournal
from batchkiln.store.operations import cancel, retry
from batchkiln.store.resolution import Decision, resolve
from batchkiln.store.session import Row, Session

from .queue_sessions import reading, writing

_KNOWN: Final = (
    "SELECT job, item, max(number) AS number FROM ("
    " SELECT job.name AS job, item.name AS item, attempt.number FROM attempt"
    " JOIN item ON item.id = attempt.item_id JOIN job ON job.id = item.job_id"
    " UNION ALL SELECT job, item, number FROM lost_attempt) GROUP BY job, item"
)


def give_up_unreachable(queue: Path) -> None:
    """Give up the items whose API key was revoked: nobody can ask for them any more, and they keep the slot (Law 4)."""
    with writing(queue) as connection:
        _end_holds(connection, _held(connection, "key_missing"), Decision.FAILED)


def fetch_again(queue: Path) -> int:
    """Have the outputs fetched again that could not be had, under the ids that are known; return of how many items."""
    with writing(queue) as connection:
        held = _held(connection, "output_unusable")
        for row in held:
            _end_holds(connection, [row], Decision.GENERATION, generation_id=row["generation_id"])
    return len(held)


def ask_again(queue: Path) -> int:
    """Have asked again what rests since it was not understood: what went wrong on the way looks like it at times."""
    with writing(queue) as connection:
        connection.execute("BEGIN IMMEDIATE")
        asked = misunderstood.ask_again(connection)
        connection.execute("COMMIT")
    return len(asked)


def end_doubts(queue: Path, service: Path, now: int) -> int:
    """End what was in doubt and is held: a person looks at the account, and sees what it was charged for.

    What the service made, or may still make under its key, is asked for again with the same request; what it would
    refuse, since its upload has expired meanwhile, is queued again. One for each account at a time, since only one can
    be under way (Law 4). What its job's daily budget has no room for is left for a later day (Law 6). Where the history
    has an answer to every send, nothing was in doubt: the item stays held, and is found. Return how many there were.
    """
    with closing(sqlite3.connect(service / "service.db")) as books:
        made = dict(books.execute("SELECT key, generation_id FROM idempotency").fetchall())
    with writing(queue) as connection:
        sql = "SELECT generation_id FROM attempt WHERE generation_id IS NOT NULL"
        known = {row["generation_id"] for row in connection.execute(sql)}
        unknown = {key for key, generation_id in made.items() if generation_id not in known}
        sql = "SELECT account_id FROM attempt WHERE state IN ('sent', 'active')"
        taken = {account_id for (account_id,) in connection.execute(sql)}
        ended = 0
        for row in _in_doubt(connection):
            key = row["idempotency_key"]
            is_refused = row["error_code"] == "asset_expired" and key not in unknown
            if not is_refused and row["account_id"] in taken:
                continue
            taken |= set() if is_refused else {row["account_id"]}
            _end_doubt(connection, row, Decision.NOT_CREATED if is_refused else Decision.ASK_AGAIN, now)
            ended += 1
    return ended


def lost_attempts_of(queue: Path) -> int:
    """Count the attempts in the journal that are newer than what the queue knows of their items."""
    with reading(queue) as connection:
        known = {(row["job"], row["item"]): row["number"] for row in connection.execute(_KNOWN)}
    entries, _ = AttemptJournal(queue).read()
    return sum(not entry.is_refused and entry.number > known.get((entry.job, entry.item), 0) for entry in entries)


def cancel_some(queue: Path, chance: random.Random, now: int) -> list[str]:
    """Cancel some of the items that are queued, or may be by now; return their names."""
    with writing(queue) as connection:
        names = _named(connection, "queued")
        for job, name in (drawn := chance.sample(names, min(3, len(names)))):
            cancel(connection, job, [name], now)
    return [name for _, name in drawn]


def retry_canceled(queue: Path, now: int) -> list[str]:
    """Retry the items that were canceled; return their names."""
    with writing(queue) as connection:
        names = _named(connection, "canceled")
        for job, name in names:
            retry(connection, job, [name], now)
    return [name for _, name in names]


def move(queue: Path, now: datetime, *, is_interrupted: bool) -> None:
    """Move the queue to another place by `queue copy`, and put what stands there in its own place."""
    target = queue.with_name("moved.db")

    def interrupt(*_: object) -> None:
        raise InterruptedError

    if is_interrupted:
        with suppress(InterruptedError), mock.patch.object(copying._Copy, "_copy_meta", interrupt):
            copying.copy_queue(queue, target, keep_image=lambda _: None, now=now)
    copying.copy_queue(queue, target, keep_image=lambda _: None, now=now)
    for path in queue.parent.glob(f"{queue.name}-*"):
        path.unlink()
    target.rename(queue)


def _named(connection: Session, state: str) -> list[tuple[str, str]]:
    sql = "SELECT job.name, item.name FROM item JOIN job ON job.id = item.job_id WHERE item.state = ? ORDER BY item.id"
    return [(job, name) for job, name in connection.execute(sql, (state,))]


def _held(connection: Session, code: str) -> list[Row]:
    return [row for row in _all_held(connection) if row["error_code"] == code]


def _in_doubt(connection: Session) -> list[Row]:
    """Return what was handed over since some send of it was never answered by a decision."""
    return [
        row
        for row in _all_held(connection)
        if row["state"] == "disputed" and not row["generation_id"] and row["sends"] > row["answers_noted"]
    ]


def _end_doubt(connection: Session, row: Row, decision: Decision, now: int) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        resolve(connection, row["job"], row["item"], decision, now=now)
    except InputError as error:
        connection.execute("ROLLBACK")
        if "credits of today" not in str(error):
            raise
    else:
        connection.execute("COMMIT")


def _all_held(connection: Session) -> list[Row]:
    return connection.execute(
        "SELECT job.name AS job, item.name AS item, item.error_code,"
        " attempt.account_id, attempt.idempotency_key, attempt.state, attempt.sends, attempt.generation_id,"
        " (SELECT count(*) FROM event WHERE event.attempt_id = attempt.id"
        "  AND event.kind IN ('create_postponed', 'create_refused', 'account_blocked')) AS answers_noted"
        " FROM item JOIN job ON job.id = item.job_id JOIN attempt ON attempt.id = item.attempt_id"
        " WHERE item.state = 'held'"
    ).fetchall()


def _end_holds(connection: Session, held: list[Row], decision: Decision, *, generation_id: str | None = None) -> None:
    for row in held:
        connection.execute("BEGIN IMMEDIATE")
        now = _now(connection)
        resolve(connection, row["job"], row["item"], decision, generation_id=generation_id, now=now)
        connection.execute("COMMIT")


def _now(connection: Session) -> int:
    """Return the instant of the queue's last event."""
    return int(connection.execute("SELECT max(at) FROM event").fetchone()[0])
