"""Resolution of a held item by a person's decision. Each decision may cost credits, so it names a single item.

An item under way that makes no progress can be resolved as well, while no process runs the queue.
"""

from enum import StrEnum
from typing import Final

from msgspec import Struct

from batchkiln.core.errors import Diagnostic, InputError
from batchkiln.core.job import RESERVING, AttemptState
from batchkiln.core.responses import ErrorInfo
from batchkiln.core.states import WITH_SERVICE, Event, ItemState
from batchkiln.core.timestamps import from_milliseconds
from batchkiln.store.downloads import count_outputs
from batchkiln.store.jobs import Jobs
from batchkiln.store.session import Row, Session
from batchkiln.store.sql import query
from batchkiln.store.transitions import Detail, transition
from batchkiln.store.usage import job_credits

_OF_A_WRONG_ID: Final = (
    "a person entered it, and the service has never confirmed it. Run `batchkiln work`: once the service has denied "
    "it for an hour, the item is held again, and you can enter the right id"
)
_GIVEN_UP: Final = ErrorInfo("given_up", "a person gave the item up while it was held")


_DAY_MS: Final = 24 * 3600 * 1000  # of the days that began within one, only today's has not ended

_SET_ASIDE: Final = ErrorInfo("set_aside", "a person stopped it before it had ended")
"""Other states that can be resolved, but only while no process runs the queue: a request may be in progress."""


class Decision(StrEnum):
    """A person's decision about a held item."""

    NOT_CREATED = "not-created"  # nothing was created, or it may be paid again: queue it again
    FAILED = "failed"  # it failed, and is not tried again
    GENERATION = "generation"  # the service knows it under an id: download it
    ASK_AGAIN = "ask-again"  # send the same request once more with the same idempotency key
    SAVED = "saved"  # the files on disk are sufficient


class Resolved(Struct, frozen=True):
    """The result of a decision. `may_pay_again` is true if an attempt of the item had an id, or no definite reply."""

    state: ItemState
    attempt_id: int | None
    may_pay_again: bool


class _Held(Struct, frozen=True):
    """A held item and its attempt. An item without an attempt is held for a missing image."""

    item_id: int
    job_id: int
    label: str
    attempt: Row | None

    @property
    def reserves(self) -> bool:
        """Whether the attempt's quote is still reserved in its job.

        It is reserved if the attempt was sent, or is disputed without an id.
        """
        return self.attempt is not None and self.attempt["generation_id"] is None and self.attempt["state"] in RESERVING


def resolve(
    connection: Session,
    job_name: str,
    item_name: str,
    decision: Decision,
    *,
    generation_id: str | None = None,
    is_undriven: bool = False,
    now: int,
    decided_by: str = "person",
) -> Resolved:
    """End a hold inside the caller's transaction. Raise `InputError` if the decision does not apply.

    With `is_undriven`, the caller has locked the queue, so an item under way may be ended as well. `decided_by` is
    recorded in the history: "journal" if the journal of attempts shows that the attempt had ended.

    The credits that the account used today stay counted, because the service may count them (Service section 8).
    """
    job_id = Jobs(connection).id_of(job_name)
    item_id, state = Jobs(connection).items_named(job_id, job=job_name, names=[item_name])[item_name]
    check_resolvable(item_name, state, is_undriven=is_undriven)
    if state in WITH_SERVICE:
        _set_aside(connection, item_id, state, now, decided_by=decided_by)
    attempt = connection.execute(query("held_attempt"), {"item_id": item_id}).fetchone()
    held = _Held(item_id, job_id, f"{job_name}/{item_name}", attempt)
    match decision:
        case Decision.NOT_CREATED:
            return _leave(connection, held, Event.REQUEUED, now, decided_by=decided_by)
        case Decision.FAILED:
            return _leave(connection, held, Event.GIVEN_UP, now, decided_by=decided_by)
        case Decision.GENERATION:
            return _fetch(connection, held, generation_id, now)
        case Decision.ASK_AGAIN:
            return _ask_again(connection, held, now)
        case Decision.SAVED:
            return _accept_saved(connection, held, now)


def check_resolvable(item_name: str, state: ItemState, *, is_undriven: bool) -> None:
    """Raise `InputError` if no decision about the item is needed."""
    if state is ItemState.HELD or (is_undriven and state in WITH_SERVICE):
        return
    reason = f"the item {item_name!r} is {state}: only held items can be resolved"
    if state in WITH_SERVICE:
        reason += ", or items under way while no process runs the queue"
    raise InputError(reason)


def _set_aside(connection: Session, item_id: int, state: ItemState, now: int, *, decided_by: str = "person") -> None:
    """Hold an item that is under way. The caller must hold the queue's lock."""
    attempt = connection.execute(query("held_attempt"), {"item_id": item_id}).fetchone()
    connection.execute(query("dispute_attempt"), {"attempt_id": attempt["id"], "now": now})
    transition(
        connection,
        item_id=item_id,
        expected=state,
        event=Event.SET_ASIDE,
        now=now,
        attempt_id=attempt["id"],
        error=_SET_ASIDE,
        detail={"decided_by": decided_by},
    )


def _leave(connection: Session, held: _Held, event: Event, now: int, *, decided_by: str = "person") -> Resolved:
    """Abandon the attempt, release its reserved credits, and apply the event to the item."""
    attempt_id: int | None = held.attempt["id"] if held.attempt else None
    if held.attempt is not None:
        if held.reserves:
            _settle(connection, held, charged=0)
        connection.execute(query("abandon_attempt"), {"attempt_id": attempt_id, "now": now})
    error = _GIVEN_UP if event is Event.GIVEN_UP else None
    state = _move(connection, held, event, now, error=error, detail={"decided_by": decided_by})
    return Resolved(state, attempt_id, may_pay_again=held.attempt is not None and state is ItemState.QUEUED)


def _fetch(connection: Session, held: _Held, generation_id: str | None, now: int) -> Resolved:
    """Continue the attempt with the generation id that a person found at the service."""
    attempt = held.attempt
    if not generation_id:
        raise InputError("the decision 'generation' requires the generation's id from the service")
    if attempt is None:
        raise InputError(f"{held.label} was never sent, so it has no generation; use 'not-created' or 'failed'")
    if attempt["state"] == AttemptState.SUCCEEDED and attempt["generation_id"] == generation_id:
        # The attempt is known to have succeeded: only its files are missing.
        state = _move(connection, held, Event.DOWNLOAD_RESUMED, now, detail={"decided_by": "person"})
        return Resolved(state, attempt["id"], may_pay_again=False)
    _check_free(connection, held, attempt, generation_id)
    if held.reserves:
        _settle(connection, held, charged=attempt["quote_credits"])
    params = {"attempt_id": attempt["id"], "generation_id": generation_id}
    connection.execute(query("revive_attempt"), params)
    known = attempt["generation_id"]
    corrected = {"instead_of": known} if known not in {None, generation_id} else {}
    detail = {"generation_id": generation_id, "decided_by": "person", **corrected}
    state = _move(connection, held, Event.POLL_RESUMED, now, detail=detail)
    return Resolved(state, attempt["id"], may_pay_again=False)


def _ask_again(connection: Session, held: _Held, now: int) -> Resolved:
    """Send the attempt again with the same bytes and idempotency key."""
    attempt = held.attempt
    if attempt is None:
        raise InputError(f"{held.label} was never sent, so nothing can be sent again; use 'not-created' or 'failed'")
    if attempt["generation_id"] is not None:
        raise InputError(
            f"{held.label} has the id {attempt['generation_id']!r}: use 'generation' with that id to read it again"
        )
    if attempt["state"] not in {AttemptState.SENT, AttemptState.DISPUTED}:
        raise InputError(f"the attempt of {held.label} is {attempt['state']}: it is never sent again")
    _check_slot_free(connection, attempt)
    if attempt["state"] == AttemptState.DISPUTED:  # a sent one counts in each day as it is
        _check_daily_budget(connection, held, attempt, now)
    connection.execute(query("send_attempt_again"), {"attempt_id": attempt["id"], "now": now})
    state = _move(connection, held, Event.REPLAY_RESUMED, now, detail={"decided_by": "person"})
    return Resolved(state, attempt["id"], may_pay_again=True)


def _accept_saved(connection: Session, held: _Held, now: int) -> Resolved:
    """Mark an item done with the files on disk."""
    attempt_id = None if held.attempt is None else held.attempt["id"]
    if not count_outputs(connection, attempt_id):
        raise InputError(f"no file of {held.label} is on disk: it can only be downloaded again or given up")
    state = _move(connection, held, Event.FILES_SAVED, now, detail={"decided_by": "person"})
    return Resolved(state, attempt_id, may_pay_again=False)


def _check_free(connection: Session, held: _Held, attempt: Row, generation_id: str) -> None:
    known = attempt["generation_id"]
    is_denied = attempt["state"] == AttemptState.DISPUTED
    if known is not None and known != generation_id and not is_denied:
        reason = f"the attempt of {held.label} has the id {known!r}, which the service has not denied"
        raise InputError([Diagnostic(reason, remedy=_OF_A_WRONG_ID if attempt["generation_status"] is None else None)])
    if attempt["state"] not in {AttemptState.SENT, AttemptState.ACTIVE, AttemptState.DISPUTED}:
        raise InputError(f"the attempt of {held.label} is {attempt['state']}: it cannot have a generation")
    params = {"account_id": attempt["account_id"], "attempt_id": attempt["id"], "generation_id": generation_id}
    if owner := connection.execute(query("generation_owner"), params).fetchone():
        raise InputError(f"the generation {generation_id!r} belongs to {owner['job']}/{owner['item']}")
    _check_slot_free(connection, attempt)


def _check_slot_free(connection: Session, attempt: Row) -> None:
    """Raise `InputError` if another item occupies the account's only slot (Law 4)."""
    params = {"account_id": attempt["account_id"], "attempt_id": attempt["id"]}
    if other := connection.execute(query("other_unresolved"), params).fetchone():
        reason = f"the account is busy with {other['job']}/{other['item']}, and only one generation may be active"
        raise InputError(
            [Diagnostic(reason, remedy="resolve this one after the other has ended; `pause` stops new items")]
        )


def _check_daily_budget(connection: Session, held: _Held, attempt: Row, now: int) -> None:
    """Raise `InputError` if the job's daily budget has no room for the quote (Law 6).

    The service may have forgotten the attempt's key, and charge the request today. From now on, it counts in each day.
    """
    rows = connection.execute(query("daily_budget"), {"job_id": held.job_id, "since": now - _DAY_MS}).fetchall()
    budget, quote = rows[0]["budget_credits_per_day"], attempt["quote_credits"]
    days = [now if row["day_start_at"] is None else row["day_start_at"] for row in rows]
    if budget is None or attempt["day_start_at"] in days:  # its quote is counted today
        return
    used = job_credits(connection, held.job_id, [from_milliseconds(day) for day in days])
    taken = used.credits + used.lost
    if taken + quote > budget:
        raise InputError(
            [
                Diagnostic(
                    f"{held.label} may be charged {quote:,} credits if it is sent again, but its job has used "
                    f"{taken:,} of its {budget:,} credits of today; nothing was changed",
                    remedy="send it again after the daily reset, or raise budget.credits_per_day in the manifest, "
                    "enqueue it, and send the item again",
                )
            ]
        )


def _settle(connection: Session, held: _Held, *, charged: int) -> None:
    """Replace the attempt's reserved credits with its actual cost."""
    assert held.attempt is not None
    params = {"job_id": held.job_id, "released": held.attempt["quote_credits"], "charged": charged}
    connection.execute(query("settle_job_money"), params)


def _move(
    connection: Session,
    held: _Held,
    event: Event,
    now: int,
    *,
    error: ErrorInfo | None = None,
    detail: Detail | None = None,
) -> ItemState:
    return transition(
        connection,
        item_id=held.item_id,
        expected=ItemState.HELD,
        event=event,
        now=now,
        attempt_id=held.attempt["id"] if held.attempt else None,
        error=error,
        detail=detail,
    )
