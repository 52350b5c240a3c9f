"""What was used and made over time: an account's past days, and the last hours. Only reading."""

import sqlite3
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from batchkiln.core.timestamps import from_milliseconds, to_milliseconds
from batchkiln.store.sql import query

ATTEMPTS_LOOKED_AT: Final = 5000
"""More than an account's five days of a thousand creates (Service section 8)."""


@dataclass(frozen=True, slots=True)
class PastDay:
    """What an account used in one service day."""

    starts_at: datetime
    creates: int
    reads: int
    credits: int


@dataclass(frozen=True, slots=True)
class Hour:
    """What ended in an hour: generations that succeeded, others, and the credits that stay spent."""

    starts_at: datetime
    succeeded: int
    otherwise: int
    credits: int


def past_days(connection: sqlite3.Connection, account_id: int, since: datetime) -> list[PastDay]:
    """Return an account's days from an instant on, without those in which it did nothing."""
    place = {"account_id": account_id, "since": to_milliseconds(since)}
    return [
        PastDay(from_milliseconds(row["day_start_at"]), row["creates"], row["reads"], row["credits"])
        for row in connection.execute(query("account_days"), place)
    ]


def last_hours(connection: sqlite3.Connection, since: datetime, *, length: timedelta) -> list[Hour]:
    """Return what ended from an instant on, by hours (or whatever `length` is), without the empty ones."""
    milliseconds = length // timedelta(milliseconds=1)
    place = {"length": milliseconds, "since": to_milliseconds(since), "looked_at": ATTEMPTS_LOOKED_AT}
    return [
        Hour(from_milliseconds(row["hour"] * milliseconds), row["succeeded"], row["otherwise"], row["credits"])
        for row in connection.execute(query("ended_by_hour"), place)
    ]
