"""Accounts, their credits in double entry, and their use of each day's budgets.

The schema guards the ledger: it rejects transfers of more credits than there are, and settlements without a reserve or
a second time. Functions take the connection and the instant; none reads a clock.
"""

import sqlite3
from typing import Final, Literal

from msgspec import Struct

from batchkiln_service.db.sql import load_queries

_SQL: Final = load_queries("credits")

Movement = Literal["purchase", "reserve", "charge", "refund"]
_SIDES: Final[dict[Movement, tuple[str, str]]] = {
    "purchase": ("sold", "available"),
    "reserve": ("available", "reserved"),
    "charge": ("reserved", "charged"),
    "refund": ("reserved", "available"),
}


class CreditBalance(Struct, frozen=True):
    """The credits that an account has bought: available, reserved and charged ones."""

    account: str
    bought_credits: int
    available_credits: int
    reserved_credits: int
    charged_credits: int


def open_account(connection: sqlite3.Connection, name: str, *, subscription: bool) -> None:
    """Insert an account without credits, or update the subscription of a known one."""
    connection.execute(_SQL["upsert_account"], (name, subscription))


def buy_first(connection: sqlite3.Connection, account: str, amount: int, *, now_ms: int) -> int:
    """Buy the account's first credits, once; return how many were bought at its first start."""
    row = connection.execute(_SQL["first_credits"], (account,)).fetchone()
    if row["first_credits"] is not None:
        return int(row["first_credits"])
    connection.execute(_SQL["set_first_credits"], (amount, account))
    if amount:
        buy(connection, account, amount, now_ms=now_ms)
    return amount


def buy(connection: sqlite3.Connection, account: str, amount: int, *, now_ms: int) -> None:
    """Add bought credits to an account."""
    transfer(connection, account, "purchase", amount, generation_id=None, at_ms=now_ms)


def bought_credits(connection: sqlite3.Connection, account: str) -> int:
    """Return the number of credits that an account has bought."""
    (balance,) = list_balances(connection, account)
    return balance.bought_credits


def list_balances(connection: sqlite3.Connection, account: str | None = None) -> list[CreditBalance]:
    """Return the balances of one account or of all, by name, as of the last settlement."""
    rows = connection.execute(_SQL["balances"], (account,))
    return [CreditBalance(**row) for row in rows]


def transfer(
    connection: sqlite3.Connection, account: str, kind: Movement, amount: int, *, generation_id: str | None, at_ms: int
) -> None:
    """Move credits between two sides of an account's ledger. Raise sqlite3.IntegrityError if the schema rejects it."""
    taken_from, given_to = _SIDES[kind]
    connection.execute(_SQL["insert_transfer"], (account, kind, taken_from, given_to, amount, generation_id, at_ms))


def balance_credits(connection: sqlite3.Connection, account: str) -> int:
    """Return the available credits of an account, without those reserved."""
    row = connection.execute(_SQL["available_credits"], (account,)).fetchone()
    return int(row["credits"])


def may_use(connection: sqlite3.Connection, account: str) -> bool:
    """Return whether an account may create: it has a subscription or available credits. Service rule 5.8."""
    row = connection.execute(_SQL["subscription"], (account,)).fetchone()
    return bool(row["subscription"]) or balance_credits(connection, account) > 0


def usage_of(connection: sqlite3.Connection, account: str, day: int) -> dict[str, int]:
    """Return the usage of a day's budgets: credits, upload_files, upload_bytes."""
    row = connection.execute(_SQL["day_usage"], (account, day)).fetchone()
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
    """Add to the usage of a day's budgets, which is never reduced (Service section 8)."""
    connection.execute(_SQL["add_day_usage"], (account, day, credits, upload_files, upload_bytes))


def audit(connection: sqlite3.Connection) -> list[str]:
    """Return the inconsistencies of the ledger, a sentence each; empty unless a constraint has failed."""
    return [f"{row['subject']}: {row['fault']}" for row in connection.execute(_SQL["audit"])]
