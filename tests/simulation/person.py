"""What a person does in a simulated world: end what only they can end."""

import sqlite3
from contextlib import closing
from pathlib import Path

from batchkiln.queue.resolve import Decision, resolve


def give_up_unreachable(queue: Path) -> None:
    """Give up the items whose API key was revoked: nobody can ask for them any more, and they keep the slot (Law 4)."""
    with closing(sqlite3.connect(queue, isolation_level=None)) as connection:
        connection.row_factory = sqlite3.Row
        held = connection.execute(
            "SELECT job.name AS job, item.name AS item FROM item JOIN job ON job.id = item.job_id"
            " WHERE item.state = 'held' AND item.error_code = 'key_missing'"
        ).fetchall()
        for row in held:
            connection.execute("BEGIN IMMEDIATE")
            resolve(connection, row["job"], row["item"], Decision.FAILED, generation_id=None, now=_now(connection))
            connection.execute("COMMIT")


def _now(connection: sqlite3.Connection) -> int:
    """Return the instant of the queue's last event."""
    return int(connection.execute("SELECT max(at) FROM event").fetchone()[0])
