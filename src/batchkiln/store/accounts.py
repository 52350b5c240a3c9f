"""How an account stands, seen from one item: what a person is told of the reason that it waits. Only reading."""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from batchkiln.core.budget import JobCredits
from batchkiln.core.calls import Misunderstood
from batchkiln.core.rate_limits import DayUsage, HeldUntil
from batchkiln.core.states import ItemState
from batchkiln.store.misunderstood import misunderstood
from batchkiln.store.row_types import held_of, input_ids_of
from batchkiln.store.sql import query
from batchkiln.store.usage import job_credits, usages


@dataclass(frozen=True, slots=True)
class SlotHolder:
    """The item that has the account's one place (Law 4)."""

    item_id: int
    job: str
    item: str
    state: ItemState


@dataclass(frozen=True, slots=True)
class AccountStanding:
    """One account. `is_ready`: it has all images of the item."""

    account: str
    holder: SlotHolder | None
    usages: tuple[DayUsage, ...]
    creates_held: HeldUntil | None
    reads_held: HeldUntil | None
    is_ready: bool
    misunderstood: tuple[Misunderstood, ...] = ()


def job_accounts(connection: sqlite3.Connection, job_name: str) -> str:
    """Return the accounts that a job names, as stored: a JSON array, empty for the profile's first."""
    return str(connection.execute(query("job_by_name"), {"name": job_name}).fetchone()["accounts"])


def account_standing(
    connection: sqlite3.Connection, *, profile: str, name: str, item_id: int, day: datetime
) -> AccountStanding:
    """Tell how an account stands on a service day; one that has not worked yet has used nothing."""
    row = connection.execute(query("account_named"), {"profile": profile, "name": name}).fetchone()
    inputs = input_ids_of(connection.execute(query("item_request"), {"item_id": item_id}).fetchone()["inputs"])
    if row is None:
        return AccountStanding(name, None, (DayUsage(),), None, None, is_ready=not inputs)
    holder = connection.execute(query("slot_holder"), {"account_id": row["id"]}).fetchone()
    return AccountStanding(
        account=name,
        holder=None
        if holder is None
        else SlotHolder(holder["item_id"], holder["job"], holder["item"], ItemState(holder["state"])),
        usages=usages(connection, row["id"], [day]),
        creates_held=held_of(row["creates_held_until"], row["creates_held_reason"]),
        reads_held=held_of(row["reads_held_until"], row["reads_held_reason"]),
        is_ready=_are_uploaded(connection, row["id"], inputs),
        misunderstood=misunderstood(connection, row["id"]),
    )


def job_money(connection: sqlite3.Connection, job_name: str, day: datetime) -> JobCredits:
    """Return a job's credits as the planner sees them on a service day."""
    row = connection.execute(query("job_by_name"), {"name": job_name}).fetchone()
    return JobCredits(
        reserved=row["reserved"],
        charged=row["charged"],
        refunded=row["refunded"],
        today=job_credits(connection, row["id"], [day]),
        budget=row["budget_credits"],
        budget_per_day=row["budget_credits_per_day"],
    )


def _are_uploaded(connection: sqlite3.Connection, account_id: int, inputs: Sequence[int]) -> bool:
    place = {"account_id": account_id, "input_ids": "[" + ",".join(map(str, inputs)) + "]"}
    return {row[0] for row in connection.execute(query("ready_inputs"), place)} >= set(inputs)
