"""What happens to an attempt, each fact in one transaction with its item, its money and its history.

Every function takes a connection inside a transaction. `now` is milliseconds of service time.
"""

import sqlite3
from typing import Final

from batchkiln.core.duration_model import Observation
from batchkiln.core.errors import InvariantBroken
from batchkiln.core.job import Attempt, AttemptState
from batchkiln.core.outcomes import OUTCOMES, Answer, Stale
from batchkiln.core.queue_types import NewAttempt
from batchkiln.core.rate_limits import RequestNote
from batchkiln.core.request import idempotency_key, request_body
from batchkiln.core.responses import ErrorInfo, GenerationRecord, GenerationStatus
from batchkiln.core.states import Event, ItemState
from batchkiln.core.timestamps import to_milliseconds
from batchkiln.store.charges import cost_of, day_of_charge, made_at_of, note_overcharge, recharge
from batchkiln.store.integrity import attempt_checksum, checksum_matches
from batchkiln.store.preparations import asset_urls
from batchkiln.store.row_types import attempt_of, is_for, recipe_of
from batchkiln.store.sql import query
from batchkiln.store.transitions import log_event, transition, transition_through
from batchkiln.store.usage import DayOf, give_back_credits, job_credits, take_credits, write_request

REFUSALS_IN_A_ROW: Final = 5
"""So often a refusal that a fresh quote, asset or key should mend is tried again for one item."""


def quote_body(connection: sqlite3.Connection, item_id: int, account_id: int) -> bytes | None:
    """Return the body of a quote for an item, or None where it is no longer queued or its images not ready."""
    row = connection.execute(query("item_request"), {"item_id": item_id}).fetchone()
    urls = asset_urls(connection, row["inputs"], account_id)
    if row["state"] != ItemState.QUEUED or urls is None:
        return None
    return request_body(recipe_of(row), prompt=row["prompt"], input_urls=urls, max_cost_credits=None)


def record_attempt(connection: sqlite3.Connection, new: NewAttempt, *, keep_seconds: float) -> Attempt | None:
    """Write down key, bytes, credits and the request's place in the windows, before anything is sent (Law 1).

    Returns None where the plan is no longer true: the item left the queue, its quote changed, its images are no
    longer there, its job was paused or given to others, another account has taken what was left of the job's budget
    (Law 6), or a person had the account take up a generation meanwhile (Law 4, by the schema's index).
    """
    account_id = new.viewpoint.account_id
    row = connection.execute(query("item_request"), {"item_id": new.item_id}).fetchone()
    urls = asset_urls(connection, row["inputs"], account_id)
    if row["state"] != ItemState.QUEUED or row["cost_credits"] != new.cost_credits or urls is None:
        return None
    if row["is_paused"] or not is_for(new.viewpoint, row) or not _is_within_budget(connection, row, new):
        return None
    attempt = _insert_attempt(connection, row, new, urls)
    if attempt is None:
        return None
    take_credits(
        connection,
        account_id=account_id,
        job_id=row["job_id"],
        day=to_milliseconds(new.request.days[-1]),
        credit_count=new.cost_credits,
    )
    _change_money(connection, row["job_id"], reserved=new.cost_credits)
    write_request(connection, new.request, keep_seconds=keep_seconds)
    transition(
        connection,
        item_id=new.item_id,
        expected=ItemState.QUEUED,
        event=Event.ATTEMPT_RECORDED,
        now=to_milliseconds(new.request.at),
        attempt_id=attempt.id,
        detail={"number": attempt.number, "quote_credits": new.cost_credits},
    )
    return attempt


def _insert_attempt(
    connection: sqlite3.Connection, row: sqlite3.Row, new: NewAttempt, urls: list[str]
) -> Attempt | None:
    """Store the attempt itself; None where the account has one that is unresolved (Law 4)."""
    recipe, number = recipe_of(row), row["next_number"]
    queue_uid = connection.execute(query("get_meta"), {"key": "queue_uid"}).fetchone()[0]
    identity = {
        "is_video": recipe.mode.makes_video,
        "idempotency_key": idempotency_key(queue_uid, item_id=new.item_id, number=number),
        "key_fingerprint": new.key_fingerprint,
        "body": request_body(recipe, prompt=row["prompt"], input_urls=urls, max_cost_credits=new.cost_credits),
    }
    made = connection.execute(
        query("insert_attempt"),
        identity
        | {
            "item_id": new.item_id,
            "job_id": row["job_id"],
            "account_id": new.viewpoint.account_id,
            "number": number,
            "checksum": attempt_checksum(identity),
            "quote_credits": new.cost_credits,
            "day": to_milliseconds(new.request.days[-1]),
            "now": to_milliseconds(new.request.at),
        },
    ).fetchone()
    return None if made is None else attempt_of(made)


def record_replay(
    connection: sqlite3.Connection, attempt_id: int, request: RequestNote, *, keep_seconds: float
) -> Attempt | None:
    """Count one more send of the same bytes, before it happens; return the attempt as it now stands.

    Its credits go to the last day that may charge it: of all since it was recorded, no other can still be overstepped.
    Returns None where the disk no longer gives what was recorded (Law 2): held then, as by a 409 (Service rule 4.3).
    """
    row = _row(connection, attempt_id)
    if not checksum_matches(row):
        record_hold(connection, attempt_id, Event.KEY_CONFLICT, _DAMAGED, to_milliseconds(request.at))
        return None
    day = to_milliseconds(request.days[-1])
    if connection.execute(query("count_send"), {"attempt_id": attempt_id, "day": day}).rowcount != 1:
        raise InvariantBroken(f"attempt {attempt_id} is not waiting for a reply, and must not be sent again")
    _move_credits(connection, row, day=day, cost=row["quote_credits"])
    write_request(connection, request, keep_seconds=keep_seconds)
    return attempt_of(_row(connection, attempt_id))


def record_read(connection: sqlite3.Connection, attempt_id: int, request: RequestNote, *, keep_seconds: float) -> None:
    """Note a read of a generation before it leaves, so that a restart keeps the gap (Service rule 4.4)."""
    connection.execute(query("touch_attempt"), {"attempt_id": attempt_id, "now": to_milliseconds(request.at)})
    write_request(connection, request, keep_seconds=keep_seconds)


def record_answer(
    connection: sqlite3.Connection,
    attempt_id: int,
    answer: Answer,
    error: ErrorInfo,
    now: int,
    *,
    is_contact: bool = True,
) -> ItemState:
    """Record what a reply that names no generation means, by the table of outcomes (Law 2).

    A stale quote or asset is forgotten and the item goes back to the queue, a bounded number of times. `is_contact`
    tells that the service did answer.
    """
    row = _row(connection, attempt_id)
    outcome = OUTCOMES[answer, row["sends"] > row["answers"] + 1]
    is_of_request = outcome.attempt is AttemptState.REFUSED and answer is not Answer.BLOCKED
    connection.execute(
        query("count_answer"),
        {
            "attempt_id": attempt_id,
            "answered": outcome.created_nothing and not is_of_request,
            "contact_at": now if is_contact else None,
        },
    )
    if outcome.event is None:
        kind = _POSTPONED.get(answer, "create_refused")
        log_event(connection, kind, item_id=row["item_id"], now=now, attempt_id=attempt_id, error=error)
        return ItemState.SUBMITTING
    if outcome.event is Event.OUTCOME_UNKNOWN:
        return _move(connection, row, ItemState.SUBMITTING, outcome.event, now, detail={"reason": error.said})
    _end_uncreated(connection, row, now)
    if is_of_request and outcome.event is Event.NOT_CREATED and _is_refused_too_often(connection, row):
        return _move(connection, row, ItemState.SUBMITTING, Event.REFUSED, now, error=error)
    _forget(connection, row, outcome.stale)
    return _move(connection, row, ItemState.SUBMITTING, outcome.event, now, error=error)


_POSTPONED: Final = {Answer.LIMITED: "create_postponed", Answer.BLOCKED: "account_blocked"}


def _is_refused_too_often(connection: sqlite3.Connection, row: sqlite3.Row) -> bool:
    refused = connection.execute(query("refused_in_a_row"), {"item_id": row["item_id"]}).fetchone()[0]
    return bool(refused >= REFUSALS_IN_A_ROW)


def _forget(connection: sqlite3.Connection, row: sqlite3.Row, stale: Stale) -> None:
    match stale:
        case Stale.QUOTE:
            connection.execute(query("drop_quote"), {"item_id": row["item_id"]})
        case Stale.ASSETS:
            place = {"item_id": row["item_id"], "account_id": row["account_id"]}
            connection.execute(query("drop_assets"), place)
        case Stale.NOTHING:
            pass


def record_withdrawn(connection: sqlite3.Connection, attempt_id: int, now: int) -> None:
    """Give up an attempt of which every send was answered, and put its item back: nothing was created (Law 6)."""
    row = _row(connection, attempt_id)
    if attempt_of(row).is_in_doubt:
        raise InvariantBroken(f"attempt {attempt_id} may have created something, and must not be given up")
    _end_uncreated(connection, row, now)
    _move(connection, row, ItemState.SUBMITTING, Event.NOT_CREATED, now, detail={"withdrawn": True})


def record_hold(connection: sqlite3.Connection, attempt_id: int, event: Event, error: ErrorInfo, now: int) -> ItemState:
    """Hand an attempt over to a person: the slot is free, and the credits stay reserved, since nobody knows.

    An attempt that the firewall alone has answered created nothing, and is refused instead. Where another one of the
    account was set aside since the service last accepted anything, the service is at fault and not the request: this
    one stays, so that an outage never hands over one item after the other.
    """
    row = _row(connection, attempt_id)
    if event is Event.SET_ASIDE:
        if connection.execute(query("has_set_aside"), {"account_id": row["account_id"]}).fetchone()[0]:
            return ItemState.SUBMITTING
        if not attempt_of(row).is_in_doubt:
            _end_uncreated(connection, row, now)
            return _move(connection, row, ItemState.SUBMITTING, Event.REFUSED, now, error=error)
    _end(connection, row, AttemptState.DISPUTED, now)
    return _move(connection, row, ItemState.SUBMITTING, event, now, error=error)


def record_accepted(
    connection: sqlite3.Connection, attempt_id: int, record: GenerationRecord, now: int, day_of: DayOf
) -> ItemState:
    """Note the generation's id and price; its credits go to the service day in which it was created.

    Of both, a record says what is believed only as far as it can be true (`queue.charges`).

    An id that another attempt of the account has already is no answer to this one: a person has to look.
    """
    claim = {"attempt_id": attempt_id, "generation_id": record.id}
    row = connection.execute(query("attempt_and_claim"), claim).fetchone()
    if row["is_known"]:
        message = f"the service answered with the generation {record.id}, which another item has"
        record_hold(connection, attempt_id, Event.KEY_CONFLICT, ErrorInfo("generation_known", message), now)
        return ItemState.HELD
    made_at, cost = made_at_of(row, record, now), cost_of(row, record)
    day = day_of_charge(row, made_at, now, day_of)
    has_succeeded = record.status is GenerationStatus.SUCCESS
    changed = connection.execute(
        query("accept_attempt"),
        {
            "attempt_id": attempt_id,
            "state": AttemptState.SUCCEEDED if has_succeeded else AttemptState.ACTIVE,
            "ended_at": now if has_succeeded else None,
            "generation_id": record.id,
            "status": record.status_word,
            "cost": cost,
            "created_at": now if made_at is None else made_at,
            "day": day,
            "now": now,
        },
    ).rowcount
    if changed != 1:
        raise InvariantBroken(f"attempt {attempt_id} is not waiting for a reply, yet was accepted")
    _move_credits(connection, row, day=day, cost=max(cost, row["quote_credits"]))
    _change_money(connection, row["job_id"], reserved=-row["quote_credits"], charged=cost)
    note_overcharge(connection, row, cost, now)
    detail = {"generation_id": record.id, "cost_credits": cost, "is_replay": row["sends"] > 1}
    steps = [(Event.ACCEPTED, detail), (Event.OUTPUTS_READY, None)][: 1 + has_succeeded]
    state = transition_through(
        connection,
        item_id=row["item_id"],
        expected=ItemState.SUBMITTING,
        steps=steps,
        now=now,
        attempt_id=attempt_id,
    )
    return state if has_succeeded else record_generation(connection, attempt_id, record, now, day_of)


def record_generation(
    connection: sqlite3.Connection,
    attempt_id: int,
    record: GenerationRecord,
    now: int,
    day_of: DayOf,
    *,
    sighting: Observation | None = None,
) -> ItemState:
    """Take over what the service says of the active generation; a word that is not known means not ended.

    `sighting` is what was seen of a success's duration: later runs learn from it as well.
    """
    row = _row(connection, attempt_id)
    if row["generation_status"] is None:
        row = _confirm(connection, row, record, now, day_of)
    else:
        row = recharge(connection, row, record, now)
    if sighting is not None:
        _note_duration(connection, attempt_id, sighting)
    if record.status_word != row["generation_status"] or row["lost_since"] is not None:
        connection.execute(query("note_status"), {"attempt_id": attempt_id, "status": record.status_word})
        log_event(
            connection,
            "status_seen",
            item_id=row["item_id"],
            now=now,
            attempt_id=attempt_id,
            detail={"status": record.status_word},
        )
    match record.status:
        case GenerationStatus.SUCCESS:
            _note_unknown_word(connection, row, record, now)
            _end(connection, row, AttemptState.SUCCEEDED, now)
            return _move(connection, row, ItemState.ACTIVE, Event.OUTPUTS_READY, now)
        case GenerationStatus.FAILED:
            return _record_failed(connection, row, record, now)
        case GenerationStatus.CANCELED:
            _end(connection, row, AttemptState.CANCELED, now)
            error = record.error or ErrorInfo("canceled_by_service", "the service canceled the generation")
            return _move(connection, row, ItemState.ACTIVE, Event.GENERATION_CANCELED, now, error=error)
        case GenerationStatus.EXPIRED:
            _end(connection, row, AttemptState.EXPIRED, now)
            return _move(connection, row, ItemState.ACTIVE, Event.RETENTION_ENDED, now, error=_EXPIRED)
        case GenerationStatus.PENDING | GenerationStatus.PROCESSING | GenerationStatus.UNKNOWN:
            return ItemState.ACTIVE


def _note_duration(connection: sqlite3.Connection, attempt_id: int, sighting: Observation) -> None:
    going, ended = (round(seconds * 1000) for seconds in (sighting.going_seconds, sighting.ended_seconds))
    parameters = {"attempt_id": attempt_id, "going": going, "ended": max(1, ended)}
    connection.execute(query("note_duration"), parameters)


def _note_unknown_word(connection: sqlite3.Connection, row: sqlite3.Row, record: GenerationRecord, now: int) -> None:
    """Say in the history under which word a result was taken for a success."""
    if GenerationStatus.of(record.status_word) is GenerationStatus.UNKNOWN:
        kind, detail = "unknown_status_taken_for_success", {"status": record.status_word}
        log_event(connection, kind, item_id=row["item_id"], now=now, attempt_id=row["id"], detail=detail)


def _confirm(
    connection: sqlite3.Connection, row: sqlite3.Row, record: GenerationRecord, now: int, day_of: DayOf
) -> sqlite3.Row:
    """Take over when a generation that a person named was made, and what it cost: until now both were guesses.

    Retention and the day of the credits follow from the one (Service section 8). Where the record tells no date, it
    may have been made just now: a result is given up only when it is surely gone (Law 3). Return the attempt as it
    is then.
    """
    made_at, cost = made_at_of(row, record, now), cost_of(row, record)
    day = day_of_charge(row, made_at, now, day_of)
    created_at = now if made_at is None else made_at
    parameters = {"attempt_id": row["id"], "created_at": created_at, "cost": cost, "day": day}
    connection.execute(query("confirm_attempt"), parameters)
    _move_credits(connection, row, day=day, cost=max(cost, row["quote_credits"]))
    _change_money(connection, row["job_id"], charged=cost - row["cost_credits"])
    note_overcharge(connection, row, cost, now)
    return _row(connection, row["id"])


_DAMAGED: Final = ErrorInfo(
    "attempt_damaged", "key or request changed on the disk since they were sent; they were not sent again"
)
_EXPIRED: Final = ErrorInfo("expired", "paid, but the service no longer holds the outputs")


def _record_failed(connection: sqlite3.Connection, row: sqlite3.Row, record: GenerationRecord, now: int) -> ItemState:
    """Note a verified failure: refunded once (Service rule 3.1), yet still part of the day (Service section 8)."""
    _end(connection, row, AttemptState.FAILED, now, is_refunded=True)
    _change_money(connection, row["job_id"], refunded=row["cost_credits"])
    failures, allowed = connection.execute(query("count_failure"), {"item_id": row["item_id"]}).fetchone()
    event = Event.GENERATION_FAILED if failures < allowed else Event.TRIES_EXHAUSTED
    error = record.error or ErrorInfo("generation_failed", "the service verified that the generation failed")
    return _move(connection, row, ItemState.ACTIVE, event, now, error=error, detail={"failures": failures})


def record_lost(connection: sqlite3.Connection, attempt_id: int, error: ErrorInfo, now: int, after: int) -> ItemState:
    """Note that the service denies the id; hold the item once it has done so for `after` milliseconds."""
    parameters = {"attempt_id": attempt_id, "now": now}
    lost_since = connection.execute(query("note_lost"), parameters).fetchone()[0]
    if now - lost_since < after:
        return ItemState.ACTIVE
    row = _row(connection, attempt_id)
    _end(connection, row, AttemptState.DISPUTED, now)
    return _move(connection, row, ItemState.ACTIVE, Event.GENERATION_LOST, now, error=error)


def record_key_missing(
    connection: sqlite3.Connection, attempt_id: int, state: ItemState, now: int, *, is_refused: bool = False
) -> None:
    """Hold an item whose API key is no longer configured, or refused: no other may ask for it (Service rule 4.4)."""
    row = _row(connection, attempt_id)
    fate = "refused by the service" if is_refused else "not configured"
    message = f"the API key {row['key_fingerprint']} that made the request is {fate}"
    _move(connection, row, state, Event.KEY_MISSING, now, error=ErrorInfo("key_missing", message))


def resume_held_for_key(connection: sqlite3.Connection, account_id: int, fingerprints: frozenset[str], now: int) -> int:
    """Take up items again whose API key came back; return how many."""
    resumed = 0
    for row in connection.execute(query("held_for_key"), {"account_id": account_id}).fetchall():
        if row["key_fingerprint"] in fingerprints:
            event = _RESUMED[AttemptState(row["state"])]
            transition(
                connection,
                item_id=row["id"],
                expected=ItemState.HELD,
                event=event,
                now=now,
                attempt_id=row["attempt_id"],
            )
            resumed += 1
    return resumed


_RESUMED: Final = {
    AttemptState.SENT: Event.REPLAY_RESUMED,
    AttemptState.ACTIVE: Event.POLL_RESUMED,
    AttemptState.SUCCEEDED: Event.DOWNLOAD_RESUMED,
}


def _is_within_budget(connection: sqlite3.Connection, row: sqlite3.Row, new: NewAttempt) -> bool:
    """Hold the cost against cap and budgets once more, inside the transaction that reserves it (Law 6)."""
    if row["max_cost_credits"] is not None and new.cost_credits > row["max_cost_credits"]:
        return False
    if row["budget_credits"] is not None and row["committed"] + new.cost_credits > row["budget_credits"]:
        return False
    if row["budget_credits_per_day"] is None:
        return True
    taken = job_credits(connection, row["job_id"], new.request.days)
    return bool(taken + new.cost_credits <= row["budget_credits_per_day"])


def _row(connection: sqlite3.Connection, attempt_id: int) -> sqlite3.Row:
    row: sqlite3.Row = connection.execute(query("select_attempt"), {"attempt_id": attempt_id}).fetchone()
    return row


def _move(  # the attempt's item, with the attempt named in its history
    connection: sqlite3.Connection,
    row: sqlite3.Row,
    expected: ItemState,
    event: Event,
    now: int,
    *,
    error: ErrorInfo | None = None,
    detail: dict[str, str | int | bool | None] | None = None,
) -> ItemState:
    return transition(
        connection,
        item_id=row["item_id"],
        expected=expected,
        event=event,
        now=now,
        attempt_id=row["id"],
        error=error,
        detail=detail,
    )


def _end(
    connection: sqlite3.Connection, row: sqlite3.Row, state: AttemptState, now: int, *, is_refunded: bool = False
) -> None:
    parameters = {
        "attempt_id": row["id"],
        "state": state,
        "now": now,
        "is_refunded": is_refunded,
        "status": None,
    }
    if connection.execute(query("end_attempt"), parameters).rowcount != 1:
        raise InvariantBroken(f"attempt {row['id']} had ended before it became {state}")


def _end_uncreated(connection: sqlite3.Connection, row: sqlite3.Row, now: int) -> None:
    """End an attempt of which the service said that nothing was created: its credits are free again."""
    _end(connection, row, AttemptState.REFUSED, now)
    give_back_credits(
        connection,
        account_id=row["account_id"],
        job_id=row["job_id"],
        day=row["day_start_at"],
        credit_count=row["quote_credits"],
    )
    _change_money(connection, row["job_id"], reserved=-row["quote_credits"])


def _move_credits(connection: sqlite3.Connection, row: sqlite3.Row, *, day: int, cost: int) -> None:
    """Replace the reserved quote by the cost, in the day that the service counts it in, or may."""
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


def _change_money(
    connection: sqlite3.Connection, job_id: int, *, reserved: int = 0, charged: int = 0, refunded: int = 0
) -> None:
    connection.execute(
        query("change_job_money"),
        {"job_id": job_id, "reserved": reserved, "charged": charged, "refunded": refunded},
    )
