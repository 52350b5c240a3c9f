"""Accounts, their credits in double entry, and what they have used of each day.

The schema is the guard: a transfer that would take what is not there, settle what was not reserved, or settle it
twice cannot be written. Functions take the connection and the instant; none reads a clock.
"""

import sqlite3
from dataclasses import dataclass
from typing import Final, Literal

Movement = Literal["purchase", "reserve", "charge", "refund"]
_SIDES: Final[dict[Movement, tuple[str, str]]] = {
    "purchase": ("sold", "available"),
    "reserve": ("available", "reserved"),
    "charge": ("reserved", "charged"),
    "refund": ("reserved", "available"),
}


@dataclass(frozen=True, slots=True)
class CreditBalance:
    """What an account has bought in all, and where it is now."""

    account: str
    bought_credits: int
    available_credits: int
    reserved_credits: int
    charged_credits: int


def open_account(connection: sqlite3.Connection, name: str, *, subscription: bool) -> None:
    """Enter an account, which has bought nothing yet; of a known one the subscription follows the configuration."""
    connection.execute(
        "INSERT INTO accounts (name, subscription) VALUES (?, ?)"
        " ON CONFLICT (name) DO UPDATE SET subscription = excluded.subscription",
        (name, subscription),
    )


def buy_first(connection: sqlite3.Connection, account: str, amount: int, *, now_ms: int) -> int:
    """Buy what an account begins with, once; return how much that was."""
    row = connection.execute("SELECT first_credits FROM accounts WHERE name = ?", (account,)).fetchone()
    if row["first_credits"] is not None:
        return int(row["first_credits"])
    connection.execute("UPDATE accounts SET first_credits = ? WHERE name = ?", (amount, account))
    if amount:
        buy(connection, account, amount, now_ms=now_ms)
    return amount


def buy(connection: sqlite3.Connection, account: str, amount: int, *, now_ms: int) -> None:
    """Buy credits."""
    transfer(connection, account, "purchase", amount, generation_id=None, at_ms=now_ms)


def bought_credits(connection: sqlite3.Connection, account: str) -> int:
    """Return how many credits an account has bought in all."""
    (purse,) = list_balances(connection, account)
    return purse.bought_credits


def list_balances(connection: sqlite3.Connection, account: str | None = None) -> list[CreditBalance]:
    """Return what one account has, or all, by name; as far as ends are written down."""
    rows = connection.execute(
        "SELECT account, -sum(credits) FILTER (WHERE side = 'sold') AS bought_credits,"
        " sum(credits) FILTER (WHERE side = 'available') AS available_credits,"
        " sum(credits) FILTER (WHERE side = 'reserved') AS reserved_credits,"
        " sum(credits) FILTER (WHERE side = 'charged') AS charged_credits"
        " FROM credit_sides WHERE account = coalesce(?, account) GROUP BY account ORDER BY account",
        (account,),
    )
    return [CreditBalance(**row) for row in rows]


def transfer(
    connection: sqlite3.Connection,
    account: str,
    kind: Movement,
    amount: int,
    *,
    generation_id: str | None,
    at_ms: int,
) -> None:
    """Move credits between two sides of an account's books. Raises sqlite3.IntegrityError when that cannot be."""
    taken_from, given_to = _SIDES[kind]
    connection.execute(
        "INSERT INTO transfers (account, kind, taken_from, given_to, credits, generation_id, at_ms)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        (account, kind, taken_from, given_to, amount, generation_id, at_ms),
    )


def balance_credits(connection: sqlite3.Connection, account: str) -> int:
    """Return what an account has left to spend; what is reserved is not among it."""
    row = connection.execute(
        "SELECT credits FROM credit_sides WHERE account = ? AND side = 'available'", (account,)
    ).fetchone()
    return int(row["credits"])


def may_use(connection: sqlite3.Connection, account: str) -> bool:
    """Service rule 5.8: an active subscription, or credits left."""
    row = connection.execute("SELECT subscription FROM accounts WHERE name = ?", (account,)).fetchone()
    return bool(row["subscription"]) or balance_credits(connection, account) > 0


def usage_of(connection: sqlite3.Connection, account: str, day: int) -> dict[str, int]:
    """Return what an account has used on a day: credits, upload_files, upload_bytes."""
    row = connection.execute(
        "SELECT credits, upload_files, upload_bytes FROM day_usage WHERE account = ? AND day = ?",
        (account, day),
    ).fetchone()
    return dict(row) if row else {"credits": 0, "upload_files": 0, "upload_bytes": 0}


def add_usage(
    connection: sqlite3.Connection,
    account: str,
    day: int,
    *,
    credits: int = 0,  # noqa: A002 - the field's word
    upload_files: int = 0,
    upload_bytes: int = 0,
) -> None:
    """Count towards a day's budgets; nothing is ever taken back (Service section 8)."""
    connection.execute(
        "INSERT INTO day_usage VALUES (?, ?, ?, ?, ?) ON CONFLICT (account, day) DO UPDATE SET"
        " credits = credits + excluded.credits, upload_files = upload_files + excluded.upload_files,"
        " upload_bytes = upload_bytes + excluded.upload_bytes",
        (account, day, credits, upload_files, upload_bytes),
    )


def audit(connection: sqlite3.Connection) -> list[str]:
    """Return what is wrong with the books, a sentence each; nothing, unless a constraint has failed to hold."""
    return [f"{row['subject']}: {row['fault']}" for row in connection.execute(_AUDIT)]


_AUDIT: Final = """
SELECT account AS subject, 'the sides of its books do not add up to zero' AS fault
FROM credit_sides GROUP BY account HAVING sum(credits) != 0
UNION ALL
SELECT s.account || ' ' || s.side, 'the transfers do not add up to what the side holds'
FROM credit_sides s
WHERE s.credits != (
    SELECT coalesce(sum(CASE s.side WHEN given_to THEN credits WHEN taken_from THEN -credits ELSE 0 END), 0)
    FROM transfers t WHERE t.account = s.account)
UNION ALL
SELECT g.id, 'its cost was not reserved' FROM generations g
WHERE NOT EXISTS (SELECT 1 FROM transfers WHERE generation_id = g.id AND kind = 'reserve' AND credits = g.cost_credits)
UNION ALL
SELECT g.id, 'it has ended, and is neither charged nor refunded' FROM generations g
WHERE ended_at_ms IS NOT NULL AND NOT EXISTS (
    SELECT 1 FROM transfers WHERE generation_id = g.id AND kind IN ('charge', 'refund')  -- for the index
    AND kind = CASE g.outcome WHEN 'failed' THEN 'refund' ELSE 'charge' END)
UNION ALL
SELECT g.id, 'it is active, and already charged or refunded' FROM generations g
WHERE ended_at_ms IS NULL AND EXISTS (
    SELECT 1 FROM transfers WHERE generation_id = g.id AND kind IN ('charge', 'refund'))
UNION ALL
SELECT g.id, 'no idempotency key leads to it' FROM generations g
WHERE NOT EXISTS (SELECT 1 FROM idempotency WHERE generation_id = g.id)
UNION ALL
SELECT a.name, 'the days do not add up to what its generations cost' FROM accounts a
WHERE (SELECT coalesce(sum(credits), 0) FROM day_usage WHERE account = a.name)
    != (SELECT coalesce(sum(cost_credits), 0) FROM generations WHERE account = a.name)
UNION ALL
SELECT name, 'its count of active generations is wrong' FROM accounts a
WHERE active_generations != (SELECT count(*) FROM generations g WHERE g.account = a.name AND ended_at_ms IS NULL)
"""
