"""Which calls an account did not understand: kept across restarts, until something changes or a person says so.

Every function takes a connection, those that change something inside a transaction.
"""

import sqlite3
from dataclasses import dataclass

from batchkiln.core.calls import Call, Misunderstood
from batchkiln.core.instants import from_milliseconds, to_milliseconds
from batchkiln.core.views import Circumstances
from batchkiln.queue.sql import query


@dataclass(frozen=True, slots=True)
class AskedAgain:
    """A call that a person had asked again, and whose it is."""

    account_id: int
    entry: Misunderstood


def misunderstood(connection: sqlite3.Connection, account_id: int) -> tuple[Misunderstood, ...]:
    """Return what an account did not understand."""
    return tuple(_entry(row) for row in connection.execute(query("misunderstood"), {"account_id": account_id}))


def record_misunderstood(
    connection: sqlite3.Connection, account_id: int, entry: Misunderstood, circumstances: Circumstances
) -> None:
    """Keep that a call is not understood under these circumstances."""
    connection.execute(
        query("set_misunderstood"),
        {
            "account_id": account_id,
            "call": entry.call,
            "since": to_milliseconds(entry.since),
            "lacking": entry.lacking,
            "shape": entry.shape,
            "status": entry.status,
            "remedy": entry.remedy,
            "circumstances": circumstances.digest,
            "description": circumstances.description,
        },
    )


def forget_misunderstood(connection: sqlite3.Connection, account_id: int, call: Call) -> None:
    """Forget it: the call was understood."""
    connection.execute(query("drop_misunderstood"), {"account_id": account_id, "call": call})


def forget_other_circumstances(connection: sqlite3.Connection, account_id: int, circumstances: Circumstances) -> None:
    """Forget what was not understood by another program, configuration or description than today's."""
    connection.execute(
        query("drop_misunderstood_elsewhere"),
        {
            "account_id": account_id,
            "circumstances": circumstances.digest,
            "description": circumstances.description,
        },
    )


def ask_again(
    connection: sqlite3.Connection, *, profile: str | None = None, account: str | None = None
) -> tuple[AskedAgain, ...]:
    """Have everything asked again that was not understood: of one account, or of all. Returns what that was."""
    place = {"profile": profile, "account": account}
    rows = connection.execute(query("drop_all_misunderstood"), place).fetchall()
    return tuple(AskedAgain(row["account_id"], _entry(row)) for row in rows)


def _entry(row: sqlite3.Row) -> Misunderstood:
    return Misunderstood(
        call=Call(row["call"]),
        since=from_milliseconds(row["since"]),
        lacking=row["lacking"],
        shape=row["shape"],
        status=row["status"],
        remedy=row["remedy"],
    )
