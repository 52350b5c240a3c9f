"""Which calls an account did not understand: kept across restarts, until something changes or a person says so.

Every function takes a connection, those that change something inside a transaction.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from batchkiln.core.calls import Call, Misunderstood
from batchkiln.core.errors import InputError
from batchkiln.core.queue_types import Circumstances
from batchkiln.core.timestamps import from_milliseconds, to_milliseconds
from batchkiln.store.session import Cursor, Row, Session
from batchkiln.store.sql import query


@dataclass(frozen=True, slots=True)
class AskedAgain:
    """A call that a person had asked again, and whose it is."""

    profile: str
    account: str
    entry: Misunderstood


def ask_misunderstood(connection: Session, account_id: int) -> Cursor:
    """Ask what an account did not understand; each row is an entry."""
    return connection.execute(query("misunderstood"), {"account_id": account_id})


def misunderstood(connection: Session, account_id: int) -> tuple[Misunderstood, ...]:
    """Return what an account did not understand."""
    return tuple(entry_of(row) for row in ask_misunderstood(connection, account_id))


def record_misunderstood(
    connection: Session, account_id: int, entry: Misunderstood, circumstances: Circumstances
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


def forget_misunderstood(connection: Session, account_id: int, call: Call) -> None:
    """Forget it: the call was understood."""
    connection.execute(query("drop_misunderstood"), {"account_id": account_id, "call": call})


def forget_other_circumstances(connection: Session, account_id: int, circumstances: Circumstances) -> None:
    """Forget what was not understood by another program, configuration or description than today's.

    A description that could not be read, then or now, is no other one.
    """
    params = {
        "account_id": account_id,
        "circumstances": circumstances.digest,
        "description": circumstances.description,
    }
    connection.execute(query("drop_misunderstood_elsewhere"), params)
    connection.execute(query("describe_misunderstood"), params)


def ask_again(connection: Session, account: str | None = None) -> tuple[AskedAgain, ...]:
    """Have everything asked again that was not understood: of one account (PROFILE/NAME), or of all.

    Returns what that was. Raise `InputError` for an account that the queue does not know.
    """
    names = _names(connection)
    params = {"account_id": _chosen(names, account)}
    dropped = connection.execute(query("drop_all_misunderstood"), params).fetchall()
    return tuple(AskedAgain(*names[row["account_id"]], entry_of(row)) for row in dropped)


def end_waits(connection: Session, account: str | None = None) -> tuple[str, ...]:
    """End the waits that the service asked for and that are kept over restarts, of one account or of all.

    A single wrong Retry-After may hold an account for days. Returns the accounts (PROFILE/NAME) that had one. A process
    that was told itself keeps to it until it ends. Raise `InputError` as `ask_again` does.
    """
    names = _names(connection)
    ended = connection.execute(query("end_waits"), {"account_id": _chosen(names, account)}).fetchall()
    return tuple("/".join(names[row["id"]]) for row in ended)


def _names(connection: Session) -> dict[int, tuple[str, str]]:
    rows = connection.execute(query("account_names")).fetchall()
    return {row["id"]: (row["profile"], row["name"]) for row in rows}


def _chosen(names: Mapping[int, tuple[str, str]], account: str | None) -> int | None:
    """Return the id of the account that is meant; None for all. Raise `InputError` where it is not known."""
    known = {"/".join(name): account_id for account_id, name in names.items()}
    if account is not None and account not in known:
        told = ", ".join(known) or "none"
        raise InputError(f"the queue knows no account {account!r}; it knows {told}. Nothing was changed")
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
