"""What is booked for an attempt: its quote while it may cost that, then what its generation cost, on the right day.

A record is believed as far as it can be true: what the generation cost, and when it was made. Until it has ended, the
larger of its quote and of every cost named counts: budgets, caps and the day must not open again because of one reply
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
from batchkiln.store.usage import DayOf, give_back_credits, take_credits

CLOCKS_APART_MS: Final = 2 * 60 * 1000
"""So far the clock that wrote `created_at` may be from the one that writes `Date`, both of the service."""


def reserve(connection: Session, *, account_id: int, job_id: int, day: int, credit_count: int) -> None:
    """Book the quote of a new attempt on the day that may carry it."""
    take_credits(connection, account_id=account_id, job_id=job_id, day=day, credit_count=credit_count)
    change_job_credits(connection, job_id, reserved=credit_count)


def accept(connection: Session, row: Row, record: GenerationRecord, now: int, day_of: DayOf) -> Row:
    """Record an attempt's generation, and charge it on the service day in which that was made.

    Return the attempt as it is then.
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
    """Book when a generation that a person named was made, and what it cost: until now both were guesses.

    Retention and the day of the credits follow from the one (Service section 8). Where the record has no date, it may
    have been made just now: a result is given up only when it is surely gone (Law 3). Return the attempt as it is
    then.
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
    """Undo what was reserved for an attempt of which the service said that nothing was created."""
    give_back_credits(
        connection,
        account_id=row["account_id"],
        job_id=row["job_id"],
        day=row["day_start_at"],
        credit_count=row["quote_credits"],
    )
    change_job_credits(connection, row["job_id"], reserved=-row["quote_credits"])


def refund(connection: Session, row: Row) -> None:
    """Book a verified failure: refunded once (Service rule 3.1), yet still part of the day (Service section 8)."""
    change_job_credits(connection, row["job_id"], refunded=row["cost_credits"])
    connection.execute(query("count_failure"), {"item_id": row["item_id"]})


def move_credits(connection: Session, row: Row, *, day: int, cost: int) -> None:
    """Replace the reserved quote by the cost, on the day that the service counts it in, or may."""
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
    """Change what a job has reserved, was charged and got back."""
    parameters = {"job_id": job_id, "reserved": reserved, "charged": charged, "refunded": refunded}
    connection.execute(query("change_job_money"), parameters)


def cost_of(row: Row, record: GenerationRecord) -> int:
    """Return what counts as charged for an attempt once this record is known.

    `credits.cost` is the amount charged (Service section 2.1): of a success, its word is the last. Before, and of
    any other end, where a refund may show as a cost of zero, the larger of quote and costs stays; and
    under a word that nobody knows.
    """
    if GenerationStatus.of(record.status_word) is GenerationStatus.SUCCESS and record.cost_credits is not None:
        return record.cost_credits
    return max(_booked(row), record.cost_credits or 0)


def made_at_of(row: Row, record: GenerationRecord, now: int) -> int | None:
    """Return when the generation was made; None where the record does not say, or cannot be right.

    It was made after its attempt was recorded (Law 1), also one that a person named, and before this reply.
    """
    if record.created_at is None:
        return None
    made_at = to_milliseconds(record.created_at)
    earliest = min(row["recorded_at"], now) - CLOCKS_APART_MS
    return made_at if earliest <= made_at <= now + CLOCKS_APART_MS else None


def day_of_charge(row: Row, made_at: int | None, now: int, day_of: DayOf) -> int:
    """Return the day that carries an attempt's credits: that in which its generation was made.

    Where that is not known, it may be any day until now: of these, only the last can still be overstepped.
    """
    if made_at is None:
        return int(max(to_milliseconds(day_of(None)), row["day_start_at"]))
    day = to_milliseconds(day_of(from_milliseconds(max(made_at, row["recorded_at"]))))
    return day if made_at <= now else min(day, to_milliseconds(day_of(None)))


def recharge(connection: Session, row: Row, record: GenerationRecord, now: int) -> Row:
    """Book what a further record of an active generation says of its cost; return the attempt as it is then.

    The day never gets anything back: the service may count there what it had reserved (Service rule 3.1).
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
    """Log a charge above `max_cost_credits` (Service section 7), and pause the job until a person unpauses it.

    The next item's price is not to be trusted either. `row` is the attempt as it was before this cost was known.
    """
    if cost <= _booked(row):
        return
    detail = {"cost_credits": cost, "max_cost_credits": row["quote_credits"]}
    log_event(connection, "overcharged", item_id=row["item_id"], now=now, attempt_id=row["id"], detail=detail)
    set_paused(connection, row["job_id"], now, is_paused=True, detail={"reason": "overcharged"})


def charge_beyond(row: Row, cost: int | None) -> int:
    """Return by how much a cost is above all that an attempt had booked, its quote included."""
    return max(0, (cost or 0) - _booked(row))


def _booked(row: Row) -> int:
    return int(max(row["quote_credits"], row["cost_credits"] or 0))
