"""The credits of an attempt: first its quote, then the cost of its generation, each on the right service day.

A record's cost and creation time are accepted as far as they can be true. Until the generation has ended, the largest
of its quote and all reported costs counts: one reply must not open budgets, caps and the day again
(docs/assumptions.md, entry 54).
"""

from typing import Final

from batchkiln.core.errors import InvariantBroken
from batchkiln.core.job import AttemptState
from batchkiln.core.responses import GenerationRecord, GenerationStatus
from batchkiln.core.timestamps import from_milliseconds, to_milliseconds
from batchkiln.store.session import Row, Session
from batchkiln.store.sql import query
from batchkiln.store.transitions import log_event, set_paused
from batchkiln.store.usage import DayOf, give_back_credits, take_credits, take_job_credits

CLOCKS_APART_MS: Final = 2 * 60 * 1000
"""So far the clock that wrote `created_at` may be from the one that writes `Date`, both of the service."""


def reserve(connection: Session, *, job_id: int, day: int, credit_count: int) -> None:
    """Reserve the quote of a new attempt in its job, and count it on the day that may charge it.

    The account's day counts it with the request (`usage.count_in_days`).
    """
    take_job_credits(connection, job_id=job_id, day=day, credit_count=credit_count)
    change_job_credits(connection, job_id, reserved=credit_count)


def accept(connection: Session, row: Row, record: GenerationRecord, now: int, day_of: DayOf) -> Row:
    """Record an attempt's generation, and count its cost on the service day of its creation.

    Return the updated attempt.
    """
    made_at, cost = made_at_of(row, record, now), cost_of(row, record)
    day = day_of_charge(row, made_at, now, day_of)
    parameters = {
        "attempt_id": row["id"],
        "state": AttemptState.ACTIVE,
        "generation_id": record.id,
        "status": record.status_word,
        "cost": cost,
        "created_at": now if made_at is None else made_at,
        "day": day,
        "now": now,
    }
    accepted: Row | None = connection.execute(query("accept_attempt"), parameters).fetchone()
    if accepted is None:
        raise InvariantBroken(f"attempt {row['id']} is not waiting for a reply, yet was accepted")
    move_credits(connection, row, day=day, cost=max(cost, row["quote_credits"]))
    change_job_credits(connection, row["job_id"], reserved=-row["quote_credits"], charged=cost)
    note_overcharge(connection, row, cost, now)
    return accepted


def confirm(connection: Session, row: Row, record: GenerationRecord, now: int, day_of: DayOf) -> Row:
    """Record creation time and cost of a generation that a person named, in place of the estimates.

    The creation time decides the retention and the day of the credits (Service section 8). For a record without a date,
    the latest possible time is assumed, so that no result is given up too early (Law 3). Return the updated attempt.
    """
    made_at, cost = made_at_of(row, record, now), cost_of(row, record)
    day = day_of_charge(row, made_at, now, day_of)
    created_at = now if made_at is None else made_at
    parameters = {"attempt_id": row["id"], "created_at": created_at, "cost": cost, "day": day}
    confirmed: Row = connection.execute(query("confirm_attempt"), parameters).fetchone()
    move_credits(connection, row, day=day, cost=max(cost, row["quote_credits"]))
    change_job_credits(connection, row["job_id"], charged=cost - row["cost_credits"])
    note_overcharge(connection, row, cost, now)
    return confirmed


def free(connection: Session, row: Row) -> None:
    """Release the credits reserved for an attempt if the service states that nothing was created."""
    give_back_credits(
        connection,
        account_id=row["account_id"],
        job_id=row["job_id"],
        day=row["day_start_at"],
        credit_count=row["quote_credits"],
    )
    change_job_credits(connection, row["job_id"], reserved=-row["quote_credits"])


def refund(connection: Session, row: Row) -> None:
    """Record the refund of a verified failure (Service rule 3.1).

    Its credits still count in the day (Service section 8).
    """
    change_job_credits(connection, row["job_id"], refunded=row["cost_credits"])
    connection.execute(query("count_failure"), {"item_id": row["item_id"]})


def move_credits(connection: Session, row: Row, *, day: int, cost: int) -> None:
    """Replace the reserved quote by the cost, on the day on which the service counts it or may count it."""
    if (day, cost) == (row["day_start_at"], row["quote_credits"]):
        return
    account_id, job_id = row["account_id"], row["job_id"]
    give_back_credits(
        connection,
        account_id=account_id,
        job_id=job_id,
        day=row["day_start_at"],
        credit_count=row["quote_credits"],
    )
    take_credits(connection, account_id=account_id, job_id=job_id, day=day, credit_count=cost)


def change_job_credits(
    connection: Session, job_id: int, *, reserved: int = 0, charged: int = 0, refunded: int = 0
) -> None:
    """Change a job's reserved, charged and refunded credits."""
    parameters = {"job_id": job_id, "reserved": reserved, "charged": charged, "refunded": refunded}
    connection.execute(query("change_job_money"), parameters)


def cost_of(row: Row, record: GenerationRecord) -> int:
    """Return the credits that count as charged for an attempt once this record is known.

    For a success, `credits.cost` is final (Service section 2.1). Before the end, after any other end, and under an
    unknown status word, the larger of quote and reported costs counts, because a refund may appear as a cost of zero.
    """
    if GenerationStatus.of(record.status_word) is GenerationStatus.SUCCESS and record.cost_credits is not None:
        return record.cost_credits
    return max(_booked(row), record.cost_credits or 0)


def made_at_of(row: Row, record: GenerationRecord, now: int) -> int | None:
    """Return when the generation was created; None if the record has no date or an impossible one.

    A generation is created after its attempt was recorded (Law 1), even one that a person named, and before this reply.
    """
    if record.created_at is None:
        return None
    made_at = to_milliseconds(record.created_at)
    earliest = min(row["recorded_at"], now) - CLOCKS_APART_MS
    return made_at if earliest <= made_at <= now + CLOCKS_APART_MS else None


def day_of_charge(row: Row, made_at: int | None, now: int, day_of: DayOf) -> int:
    """Return the day that counts an attempt's credits: the day of its generation's creation.

    If the creation time is unknown, any day until now is possible. Only the last of them can still exceed its limit.
    """
    if made_at is None:
        return int(max(to_milliseconds(day_of(None)), row["day_start_at"]))
    day = to_milliseconds(day_of(from_milliseconds(max(made_at, row["recorded_at"]))))
    return day if made_at <= now else min(day, to_milliseconds(day_of(None)))


def recharge(connection: Session, row: Row, record: GenerationRecord, now: int) -> Row:
    """Record the cost in a further record of an active generation; return the updated attempt.

    The day's credits never decrease, because the service may still count the reserved credits there (Service rule 3.1).
    """
    before, cost = row["cost_credits"], cost_of(row, record)
    if cost == before:
        return row
    parameters = {"attempt_id": row["id"], "cost": cost}
    changed: Row = connection.execute(query("recharge_attempt"), parameters).fetchone()
    change_job_credits(connection, row["job_id"], charged=cost - before)
    if cost > before:
        take_credits(
            connection,
            account_id=row["account_id"],
            job_id=row["job_id"],
            day=row["day_start_at"],
            credit_count=cost - before,
        )
    note_overcharge(connection, row, cost, now)
    return changed


def note_overcharge(connection: Session, row: Row, cost: int, now: int) -> None:
    """Log a charge above `max_cost_credits` (Service section 7), and pause the job until a person resumes it.

    The prices of the next items are then doubtful too. `row` is the attempt without this cost.
    """
    if cost <= _booked(row):
        return
    detail = {"cost_credits": cost, "max_cost_credits": row["quote_credits"]}
    log_event(connection, "overcharged", item_id=row["item_id"], now=now, attempt_id=row["id"], detail=detail)
    set_paused(connection, row["job_id"], now, is_paused=True, detail={"reason": "overcharged"})


def charge_beyond(row: Row, cost: int | None) -> int:
    """Return by how many credits a cost exceeds all credits recorded for an attempt, its quote included."""
    return max(0, (cost or 0) - _booked(row))


def _booked(row: Row) -> int:
    return int(max(row["quote_credits"], row["cost_credits"] or 0))
