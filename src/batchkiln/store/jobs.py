"""What the queue can tell of jobs and accounts: for `status`, the dashboard and reports.

Only reading, on a connection with a snapshot (for `Database.read`). Counts come from counters that triggers
keep, so that a job of a million items is told as fast as a job of ten.
"""

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from batchkiln.core.calls import Misunderstood
from batchkiln.core.polling import retention_ends_at
from batchkiln.core.rate_limits import DayUsage, HeldUntil
from batchkiln.core.states import UNDER_WAY, ItemState
from batchkiln.core.timestamps import from_milliseconds
from batchkiln.store.misunderstood import misunderstood
from batchkiln.store.row_types import held_of, instant
from batchkiln.store.sql import query

UNDER_WAY_SHOWN: Final = 100


@dataclass(frozen=True, slots=True)
class Credits:
    """A job's credits: reserved without a definite reply, charged for generations, refunded for failed ones."""

    reserved: int
    charged: int
    refunded: int


@dataclass(frozen=True, slots=True)
class UnderWay:
    """An item that was sent and has not ended. `status` is the service's word for its generation.

    `retention_ends_at` is when the service may delete what was paid for; None while no id is known.
    """

    item: str
    state: ItemState
    account: str
    since: datetime
    sends: int
    generation_id: str | None
    status: str | None
    retention_ends_at: datetime | None


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why items failed, were rejected, expired or are held, and how many. `example` is the latest one's message."""

    state: ItemState
    code: str
    count: int
    example: str | None


@dataclass(frozen=True, slots=True)
class JobSummary:
    """How far a job has come.

    `items` has every state, also those of no item. `queued_cost` is what the queued items will cost by the quotes
    known, and `queued_unquoted` how many have none. `is_finished`: no item can change any more without a person.
    """

    name: str
    description: str
    profile: str
    manifest_path: str
    output_dir: str
    is_paused: bool
    created_at: datetime
    items: Mapping[ItemState, int]
    credits: Credits
    budget_credits: int | None
    budget_credits_per_day: int | None
    queued_cost: int
    queued_unquoted: int
    under_way: tuple[UnderWay, ...]
    troubles: tuple[Trouble, ...]

    @property
    def total(self) -> int:
        """How many items the job has."""
        return sum(self.items.values())

    @property
    def is_finished(self) -> bool:
        """Whether only a person can still change anything: nothing is under way, and nothing queued may start."""
        is_moving = any(self.items[state] for state in UNDER_WAY)
        return not is_moving and (self.is_paused or not self.items[ItemState.QUEUED])


@dataclass(frozen=True, slots=True)
class AccountSummary:
    """What an account has used of the latest day that it worked in, and how long the service makes it wait."""

    id: int
    profile: str
    name: str
    day: datetime | None
    usage: DayUsage
    creates_held: HeldUntil | None
    reads_held: HeldUntil | None
    misunderstood: tuple[Misunderstood, ...] = ()


def job_names(connection: sqlite3.Connection) -> tuple[str, ...]:
    """Give the names of all jobs, the oldest first."""
    return tuple(row["name"] for row in connection.execute(query("job_names")))


def job_summary(connection: sqlite3.Connection, job_name: str) -> JobSummary | None:
    """Tell how far a job has come; None where the queue has no such job."""
    job = connection.execute(query("job_by_name"), {"name": job_name}).fetchone()
    if job is None:
        return None
    place = {"job_id": job["id"], "profile": job["profile"], "limit": UNDER_WAY_SHOWN}
    counts = {ItemState(row["state"]): row["n"] for row in connection.execute(query("job_tally"), place)}
    cost = connection.execute(query("queued_cost"), place).fetchone()
    return JobSummary(
        name=job["name"],
        description=job["description"],
        profile=job["profile"],
        manifest_path=job["manifest_path"],
        output_dir=job["output_dir"],
        is_paused=bool(job["is_paused"]),
        created_at=from_milliseconds(job["created_at"]),
        items={state: counts.get(state, 0) for state in ItemState},
        credits=Credits(reserved=job["reserved"], charged=job["charged"], refunded=job["refunded"]),
        budget_credits=job["budget_credits"],
        budget_credits_per_day=job["budget_credits_per_day"],
        queued_cost=cost["cost_credits"],
        queued_unquoted=cost["unquoted"],
        under_way=tuple(_under_way(row) for row in connection.execute(query("job_under_way"), place)),
        troubles=tuple(_trouble(row) for row in connection.execute(query("job_troubles"), place)),
    )


def account_summaries(connection: sqlite3.Connection) -> tuple[AccountSummary, ...]:
    """Give all accounts that the queue has worked with, by profile."""
    rows = connection.execute(query("account_usage")).fetchall()
    return tuple(_account(row, misunderstood(connection, row["id"])) for row in rows)


def _under_way(row: sqlite3.Row) -> UnderWay:
    created_at = instant(row["generation_created_at"])
    return UnderWay(
        item=row["item"],
        state=ItemState(row["state"]),
        account=row["account"],
        since=from_milliseconds(row["recorded_at"]),
        sends=row["sends"],
        generation_id=row["generation_id"],
        status=row["generation_status"],
        retention_ends_at=retention_ends_at(created_at) if created_at else None,
    )


def _trouble(row: sqlite3.Row) -> Trouble:
    return Trouble(state=ItemState(row["state"]), code=row["error_code"], count=row["n"], example=row["error_message"])


def _account(row: sqlite3.Row, not_understood: tuple[Misunderstood, ...]) -> AccountSummary:
    usage = DayUsage(
        creates=row["creates"] or 0,
        reads=row["reads"] or 0,
        credits=row["credits"] or 0,
        upload_files=row["upload_files"] or 0,
        upload_bytes=row["upload_bytes"] or 0,
    )
    return AccountSummary(
        id=row["id"],
        profile=row["profile"],
        name=row["name"],
        day=instant(row["day_start_at"]),
        usage=usage,
        creates_held=held_of(row["creates_held_until"], row["creates_held_reason"]),
        reads_held=held_of(row["reads_held_until"], row["reads_held_reason"]),
        misunderstood=not_understood,
    )
