"""Calls whose replies an account did not understand. They are stored until something changes or a person resets them.

Every function takes a connection; functions that write take it inside a transaction.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from batchkiln.core.calls import Call, Misunderstood
from batchkiln.core.errors import InputError
from batchkiln.core.suggestions import closest, did_you_mean
from batchkiln.core.timestamps import from_milliseconds, to_milliseconds
from batchkiln.store.session import Cursor, Row, Session
from batchkiln.store.sql import query

if TYPE_CHECKING:
    from batchkiln.core.queue_types import Circumstances


class AskedAgain(Struct, frozen=True):
    """A call that a person has reset, and its account."""

    profile: str
    account: str
    entry: Misunderstood


def ask_misunderstood(connection: Session, account_id: int) -> Cursor:
    """Send the query for the calls that an account did not understand. Each row is one entry."""
    return connection.execute(query("misunderstood"), {"account_id": account_id})


def misunderstood(connection: Session, account_id: int) -> tuple[Misunderstood, ...]:
    """Return the calls whose replies an account did not understand."""
    return tuple(entry_of(row) for row in ask_misunderstood(connection, account_id))


def all_misunderstood(connection: Session) -> dict[int, tuple[Misunderstood, ...]]:
    """Return the calls whose replies were not understood, by account id. Other accounts are left out."""
    found: dict[int, tuple[Misunderstood, ...]] = {}
    for row in connection.execute(query("all_misunderstood")):
        found[row["account_id"]] = (*found.get(row["account_id"], ()), entry_of(row))
    return found


def record_misunderstood(
    connection: Session, account_id: int, entry: Misunderstood, circumstances: "Circumstances"
) -> None:
    """Record that a call is not understood under these circumstances."""
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


def forget_misunderstood(connection: Session, account_id: int, call: Call) -> None:
    """Delete the entry of a call that is now understood."""
    connection.execute(query("drop_misunderstood"), {"account_id": account_id, "call": call})


def forget_other_circumstances(connection: Session, account_id: int, circumstances: "Circumstances") -> None:
    """Delete the entries from another program, configuration or description than the current ones.

    A description that could not be read, then or now, does not count as different.
    """
    params = {
        "account_id": account_id,
        "circumstances": circumstances.digest,
        "description": circumstances.description,
    }
    connection.execute(query("drop_misunderstood_elsewhere"), params)
    connection.execute(query("describe_misunderstood"), params)


def ask_again(connection: Session, account: str | None = None) -> tuple[AskedAgain, ...]:
    """Delete all entries of one account (PROFILE/NAME) or of all, so that these calls are sent again.

    Return the deleted calls. Raise `InputError` for an account that the queue does not know.
    """
    names = _names(connection)
    params = {"account_id": _chosen(names, account)}
    dropped = connection.execute(query("drop_all_misunderstood"), params).fetchall()
    return tuple(AskedAgain(*names[row["account_id"]], entry_of(row)) for row in dropped)


def end_waits(connection: Session, account: str | None = None) -> tuple[str, ...]:
    """End the stored waits that the service asked for, of one account (PROFILE/NAME) or of all.

    A single wrong Retry-After may block an account for days. Return the accounts that had a wait. A running process
    that received the wait still observes it until its end. Raise `InputError` for an unknown account.
    """
    names = _names(connection)
    ended = connection.execute(query("end_waits"), {"account_id": _chosen(names, account)}).fetchall()
    return tuple("/".join(names[row["id"]]) for row in ended)


def _names(connection: Session) -> dict[int, tuple[str, str]]:
    rows = connection.execute(query("account_names")).fetchall()
    return {row["id"]: (row["profile"], row["name"]) for row in rows}


def _chosen(names: Mapping[int, tuple[str, str]], account: str | None) -> int | None:
    """Return the id of the chosen account; None for all. Raise `InputError` for an unknown account."""
    known = {"/".join(name): account_id for account_id, name in names.items()}
    if account is not None and account not in known:
        listed = f"it knows {', '.join(known) or 'none'}"
        meant = did_you_mean(closest(account, known), "'") or listed
        raise InputError(f"the queue knows no account {account!r}; nothing was changed; {meant}")
    return None if account is None else known[account]


def entry_of(row: Row) -> Misunderstood:
    """Return an entry of `misunderstood`."""
    return Misunderstood(
        call=Call(row["call"]),
        since=from_milliseconds(row["since"]),
        lacking=row["lacking"],
        shape=row["shape"],
        status=row["status"],
        remedy=row["remedy"],
    )
