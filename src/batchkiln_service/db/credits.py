"""Accounts, their credits in double entry, and what they have used of each day.

The schema is the guard: a transfer that would take what is not there, settle what was not reserved, or settle it
twice cannot be written. Functions take the connection and the instant; none reads a clock.
"""

import sqlite3
from dataclasses import dataclass
from typing import Final, Literal

from batchkiln_service.db.sql import load_queries

_SQL: Final = load_queries("credits")

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
        _SQL["upsert_account"],
        (name, subscription),
    )


def buy_first(connection: sqlite3.Connection, account: str, amount: int, *, now_ms: int) -> int:
    """Buy what an account begins with, once; return how much that was."""
    row = connection.execute(_SQL["first_credits"], (account,)).fetchone()
    if row["first_credits"] is not None:
        return int(row["first_credits"])
    connection.execute(_SQL["set_first_credits"], (amount, account))
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
        _SQL["balances"],
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
        _SQL["insert_transfer"],
        (account, kind, taken_from, given_to, amount, generation_id, at_ms),
    )


def balance_credits(connection: sqlite3.Connection, account: str) -> int:
    """Return what an account has left to spend; what is reserved is not among it."""
    row = connection.execute(_SQL["available_credits"], (account,)).fetchone()
    return int(row["credits"])


def may_use(connection: sqlite3.Connection, account: str) -> bool:
    """Service rule 5.8: an active subscription, or credits left."""
    row = connection.execute(_SQL["subscription"], (account,)).fetchone()
    return bool(row["subscription"]) or balance_credits(connection, account) > 0


def usage_of(connection: sqlite3.Connection, account: str, day: int) -> dict[str, int]:
    """Return what an account has used on a day: credits, upload_files, upload_bytes."""
    row = connection.execute(
        _SQL["day_usage"],
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
        _SQL["add_day_usage"],
        (account, day, credits, upload_files, upload_bytes),
    )


def audit(connection: sqlite3.Connection) -> list[str]:
    """Return what is wrong with the books, a sentence each; nothing, unless a constraint has failed to hold."""
    return [f"{row['subject']}: {row['fault']}" for row in connection.execute(_SQL["audit"])]
