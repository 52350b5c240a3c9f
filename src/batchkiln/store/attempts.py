"""New attempts, resends and requests. Each is on the disk before anything is sent (Laws 1 and 5).

`store.commit` records the outcome of a reply. Every function takes a connection inside a transaction.
"""

from collections.abc import Mapping
from typing import Any

from batchkiln.core.errors import InvariantBroken, LeaseLost
from batchkiln.core.job import Attempt, AttemptState
from batchkiln.core.outcome_errors import DAMAGED
from batchkiln.core.outcomes import FACTS, Fact
from batchkiln.core.queue_changes import Facts
from batchkiln.core.queue_types import NewAttempt
from batchkiln.core.rate_limits import RequestNote
from batchkiln.core.request import request_body
from batchkiln.core.states import Event, ItemState
from batchkiln.core.timestamps import from_milliseconds, to_milliseconds
from batchkiln.store.charges import move_credits, reserve
from batchkiln.store.commit import attempt_row, commit
from batchkiln.store.integrity import attempt_checksum, checksum_matches
from batchkiln.store.meta import new_key
from batchkiln.store.preparations import asset_urls, item_request
from batchkiln.store.row_types import attempt_of, is_for, recipe_of
from batchkiln.store.session import Row, Session
from batchkiln.store.sql import query
from batchkiln.store.transitions import transition
from batchkiln.store.usage import count_in_days, has_budget, job_credits, money_of, write_request


def quote_body(connection: Session, item_id: int, account_id: int) -> bytes | None:
    """Return the body of a quote for an item; None if the item is no longer queued or an image is not ready."""
    row = item_request(connection, item_id)
    urls = asset_urls(connection, row["inputs"], account_id)
    if row["state"] != ItemState.QUEUED or urls is None:
        return None
    return request_body(recipe_of(row), prompt=row["prompt"], input_urls=urls, max_cost_credits=None)


def begin_attempt(connection: Session, new: NewAttempt, *, keep_seconds: float) -> Attempt | None:
    """Record an attempt as `begin_item` does, and return it without its item's data."""
    begun = begin_item(connection, new, keep_seconds=keep_seconds)
    return begun[0] if begun else None


def begin_item(connection: Session, new: NewAttempt, *, keep_seconds: float) -> tuple[Attempt, Row] | None:
    """Record key, bytes, credits and the request's place in the windows, before anything is sent (Law 1).

    Return the attempt, and the data of its item as they were before (`item_request`).

    Return None if the plan is out of date: the item left the queue, its quote changed, its images are gone, its job was
    paused or given to other accounts, another account has used the rest of the job's budget (Law 6), or a person has
    assigned a generation to the account (Law 4, by the schema's index). An item whose last attempt was lost is left to
    `lost_attempts.recover_attempt`.
    """
    account_id = new.viewpoint.account_id
    row = item_request(connection, new.item_id)
    urls = asset_urls(connection, row["inputs"], account_id)
    if row["state"] != ItemState.QUEUED or row["cost_credits"] != new.cost_credits or urls is None:
        return None
    if row["is_lost"] or row["is_paused"] or not is_for(new.viewpoint, row):
        return None
    if not _is_within_budget(connection, row, new):
        return None
    attempt = _insert_attempt(connection, row, new, urls)
    if attempt is None:
        return None
    reserve(
        connection,
        job_id=row["job_id"],
        day=to_milliseconds(new.request.days[-1]),
        credit_count=new.cost_credits,
    )
    write_request(connection, new.request, keep_seconds=keep_seconds, credit_count=new.cost_credits)
    transition(
        connection,
        item_id=new.item_id,
        expected=ItemState.QUEUED,
        event=Event.ATTEMPT_RECORDED,
        now=to_milliseconds(new.request.at),
        attempt_id=attempt.id,
        job_id=row["job_id"],
        detail={"number": attempt.number, "quote_credits": new.cost_credits},
    )
    return attempt, row


def _insert_attempt(connection: Session, row: Row, new: NewAttempt, urls: list[str]) -> Attempt | None:
    """Store the attempt itself; return None if the account has an unresolved one (Law 4)."""
    recipe, number = recipe_of(row), max(row["last_number"], row["refused_number"]) + 1
    identity = {
        "is_video": recipe.mode.makes_video,
        "idempotency_key": new_key(connection, row, number),
        "key_fingerprint": new.key_fingerprint,
        "body": request_body(recipe, prompt=row["prompt"], input_urls=urls, max_cost_credits=new.cost_credits),
    }
    fields = identity | {
        "item_id": new.item_id,
        "job_id": row["job_id"],
        "account_id": new.viewpoint.account_id,
        "number": number,
        "checksum": attempt_checksum(identity),
        "quote_credits": new.cost_credits,
        "day": to_milliseconds(new.request.days[-1]),
        "sends": 1,
        "now": to_milliseconds(new.request.at),
    }
    return insert_attempt(connection, fields)


def insert_attempt(connection: Session, fields: Mapping[str, Any]) -> Attempt | None:
    """Store an attempt by its columns, as one that may have been sent; return None if Law 4 forbids it."""
    made = connection.execute(query("insert_attempt"), fields).fetchone()
    if made is None:
        return None
    return Attempt(
        id=made["id"],
        item_id=fields["item_id"],
        account_id=fields["account_id"],
        number=fields["number"],
        state=AttemptState.SENT,
        is_video=fields["is_video"],
        idempotency_key=fields["idempotency_key"],
        key_fingerprint=fields["key_fingerprint"],
        body=fields["body"],
        quote_credits=fields["quote_credits"],
        sends=fields["sends"],
        contact_at=from_milliseconds(fields["now"]),
    )


def resend(connection: Session, attempt_id: int, request: RequestNote, *, keep_seconds: float) -> Attempt | None:
    """Count a resend of the same bytes before it is sent; return the updated attempt.

    Its credits move to the last day that may charge it: of all days since it was recorded, only that one can still
    exceed its limit. Return None if the stored bytes are damaged (Law 2); the item is then held, as after a 409
    (Service rule 4.3). Raise `LeaseLost` if the attempt is not the account's.
    """
    row = attempt_row(connection, attempt_id)
    if row["account_id"] != request.account_id:
        raise LeaseLost("the database was restored, and the attempt's id is not this account's; nothing was sent")
    if not checksum_matches(row):
        facts, at = Facts(error=DAMAGED), to_milliseconds(request.at)
        commit(connection, attempt_id, FACTS[Fact.DAMAGED], facts, at, lambda instant: instant or request.at)
        return None
    day = to_milliseconds(request.days[-1])
    if connection.execute(query("count_send"), {"attempt_id": attempt_id, "day": day}).rowcount != 1:
        raise InvariantBroken(f"attempt {attempt_id} is not waiting for a reply, and must not be sent again")
    move_credits(connection, row, day=day, cost=row["quote_credits"])
    write_request(connection, request, keep_seconds=keep_seconds)
    return attempt_of(attempt_row(connection, attempt_id))


def record_request(
    connection: Session,
    request: RequestNote,
    *,
    keep_seconds: float,
    attempt_id: int | None = None,
    is_further: bool = False,
) -> None:
    """Record a request before it is sent (Law 5). A read of a generation names its attempt, for the poll gap.

    `is_further` is true for a recorded request whose reply came after a reset. It then counts on the new days too.
    """
    if is_further:
        count_in_days(connection, request)
        return
    if attempt_id is not None:
        parameters = {"attempt_id": attempt_id, "now": to_milliseconds(request.latest or request.at)}
        connection.execute(query("touch_attempt"), parameters)
    write_request(connection, request, keep_seconds=keep_seconds)


def _is_within_budget(connection: Session, row: Row, new: NewAttempt) -> bool:
    """Return whether the cost fits cap and budgets, inside the transaction that reserves it (Law 6)."""
    if row["max_cost_credits"] is not None and new.cost_credits > row["max_cost_credits"]:
        return False
    if not has_budget(row):
        return True
    money, cost = money_of(row, job_credits(connection, row["job_id"], new.request.days)), new.cost_credits
    is_within = money.budget is None or money.committed + cost <= money.budget
    return is_within and (money.budget_per_day is None or money.today + cost <= money.budget_per_day)
