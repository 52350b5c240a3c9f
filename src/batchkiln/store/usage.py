"""Requests and credits counted toward the limits, stored before anything is sent (Law 5)."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import NamedTuple

from batchkiln.core.budget import JobCredits
from batchkiln.core.rate_limits import LONGEST_HOLD, DayUsage, LoggedRequest, RequestKind, RequestNote
from batchkiln.core.timestamps import from_milliseconds, to_milliseconds
from batchkiln.store.session import Cursor, Row, Session
from batchkiln.store.sql import query

_PRUNE_EVERY = 256

DayOf = Callable[[datetime | None], datetime]
"""Return the service day of an instant; for None, an unknown instant up to now, the last possible day."""


def write_request(connection: Session, request: RequestNote, *, keep_seconds: float, credit_count: int = 0) -> None:
    """Log a request and count it in its days. After each 256th, delete entries older than `keep_seconds`.

    A create reserves `credit_count` on the last of the days.
    """
    at = to_milliseconds(request.at)
    row = {"account_id": request.account_id, "kind": request.kind, "sent_at": at, "egress": request.egress}
    row_id: int = connection.execute(query("insert_request"), row).fetchone()[0]
    count_in_days(connection, request, credit_count=credit_count)
    if row_id % _PRUNE_EVERY == 0:
        connection.execute(query("prune_requests"), {"before": at - int(keep_seconds * 1000)})


def count_in_days(connection: Session, request: RequestNote, *, credit_count: int = 0) -> None:
    """Count a request in each day that may contain it, and its credits in the last one."""
    for day in request.days:
        connection.execute(
            query("count_request"),
            {
                "account_id": request.account_id,
                "day": to_milliseconds(day),
                "creates": int(request.kind.is_create),
                "reads": int(request.kind.is_read),
                "credits": credit_count if day == request.days[-1] else 0,
                "upload_files": request.upload_files,
                "upload_bytes": request.upload_bytes,
            },
        )


def logged_requests(connection: Session, profile: str, last_seconds: float) -> list[LoggedRequest]:
    """Return a profile's requests from its last period of activity, oldest first.

    The period ends with the log's last entry, because the service's time is not known yet at a start.
    """
    params = {"profile": profile, "milliseconds": int(last_seconds * 1000)}
    rows = connection.execute(query("logged_requests"), params)
    return [
        LoggedRequest(account, RequestKind(kind), from_milliseconds(at), egress) for account, kind, at, egress in rows
    ]


def usages(connection: Session, account_id: int, days: Sequence[datetime]) -> tuple[DayUsage, ...]:
    """Return the account's usage on each of the days."""
    found = []
    for day in days:
        params = {"account_id": account_id, "day": to_milliseconds(day)}
        row = connection.execute(query("day_usage"), params).fetchone()
        found.append(DayUsage(*row) if row else DayUsage())
    return tuple(found)


def cap_holds(connection: Session, account_id: int, now: datetime, logged_at: datetime | None) -> None:
    """Shorten an account's stored waits to the longest that the service may have asked for.

    If the log's last request is later than `now`, the clock was wrong at that time, and the waits are wrong too.
    """
    ahead = 0 if logged_at is None else max(0, to_milliseconds(logged_at) - to_milliseconds(now))
    params = {"account_id": account_id, "ahead": ahead, "longest": to_milliseconds(now + LONGEST_HOLD)}
    connection.execute(query("cap_holds"), params)


def take_credits(connection: Session, *, account_id: int, job_id: int, day: int, credit_count: int) -> None:
    """Count credits toward a day of the account and of the job. `day` is its start as stored."""
    connection.execute(query("add_account_credits"), {"account_id": account_id, "day": day, "credits": credit_count})
    take_job_credits(connection, job_id=job_id, day=day, credit_count=credit_count)


def take_job_credits(connection: Session, *, job_id: int, day: int, credit_count: int) -> None:
    """Count credits toward a day of the job alone."""
    connection.execute(query("add_job_day_credits"), {"job_id": job_id, "day": day, "credits": credit_count})


class JobDay(NamedTuple):
    """A job's usage of a daily budget, and the `unconfirmed` part of it, which counts in every day.

    Attempts that the service's records do not confirm may be charged or replayed after a reset (Law 6). So may those
    that a restored copy has lost: their quotes are `lost`, and not in the two others.
    """

    credits: int = 0
    unconfirmed: int = 0
    lost: int = 0


def job_credits(connection: Session, job_id: int, days: Sequence[datetime], *, apart_from: int | None = None) -> JobDay:
    """Return a job's usage of a daily budget; if several days may be the current one, the highest.

    `apart_from` is an item whose own lost attempts do not count.
    """
    return most_credits(ask_job_credits(connection, job_id, days, apart_from=apart_from))


def has_budget(row: Row) -> bool:
    """Return whether the job of a row has a budget, in all or of a day."""
    return row["budget_credits"] is not None or row["budget_credits_per_day"] is not None


def money_of(row: Row, taken: JobDay) -> JobCredits:
    """Return a job's credits from its row and its usage of the day. Lost attempts count as sent ones (Law 6)."""
    return JobCredits(
        reserved=row["reserved"] + taken.lost,
        charged=row["charged"],
        refunded=row["refunded"],
        today=taken.credits + taken.lost,
        unconfirmed=taken.unconfirmed + taken.lost,
        budget=row["budget_credits"],
        budget_per_day=row["budget_credits_per_day"],
    )


def ask_job_credits(
    connection: Session, job_id: int, days: Sequence[datetime], *, apart_from: int | None = None
) -> tuple[Cursor, ...]:
    """Start the queries of `job_credits` without waiting for the results."""
    params_of_days = ({"job_id": job_id, "day": to_milliseconds(day), "apart_from": apart_from} for day in days)
    return tuple(connection.execute(query("job_credits"), params) for params in params_of_days)


def most_credits(cursors: Sequence[Cursor]) -> JobDay:
    """Return the highest usage among the results of `ask_job_credits`."""
    return max((JobDay(*cursor.fetchone()) for cursor in cursors), default=JobDay())


def give_back_credits(connection: Session, *, account_id: int, job_id: int, day: int, credit_count: int) -> None:
    """Undo `take_credits`, if nothing was created or another day counts the credits. Not used for failures."""
    connection.execute(query("take_account_credits"), {"account_id": account_id, "day": day, "credits": credit_count})
    connection.execute(query("take_job_day_credits"), {"job_id": job_id, "day": day, "credits": credit_count})
