"""One coroutine per action on the slot: write down, send once, record what came back."""

from functools import partial
from typing import assert_never

import structlog

from batchkiln.core.calls import Call
from batchkiln.core.instants import Now
from batchkiln.core.job import Attempt
from batchkiln.core.planner import Poll, Reason, Replay, Submit, Withdraw
from batchkiln.core.replies import (
    Accepted,
    AccountBlocked,
    Busy,
    EdgeBlocked,
    GenerationRecord,
    KeyConflict,
    NoReply,
    NotFound,
    NotUnderstood,
    RecordRead,
    Refused,
    ServiceError,
    Throttled,
    Trouble,
    Unavailable,
)
from batchkiln.core.states import ItemState
from batchkiln.core.troubles import describe_trouble
from batchkiln.core.views import NewAttempt, Progress, RequestKind, RequestNote
from batchkiln.scheduler.lane import Lane

log = structlog.get_logger()

_EDGE = ServiceError("edge_firewall", "refused by the firewall before the API; the whole machine waits")
_OF_GENERATIONS = ("active", "concurren", "in progress", "running", "another generation")
_OF_CREDITS = ("credit", "budget")
_OF_DAYS = ("daily", "per day", "day limit")
_OF_MINUTES = ("per_minute", "per minute", "rate", "quota", "too many")


async def submit(lane: Lane, action: Submit, now: Now) -> None:
    """Record a new attempt, and only then send it (Law 1)."""
    candidate, service = action.candidate, lane.ports.service
    assert candidate.cost is not None, "only a quoted item is submitted (Law 6)"
    request = lane.note(RequestKind.CREATE, now)
    lane.control.spend(candidate.cost)  # before anything is awaited, or two accounts would spend the same credits
    async with lane.sending(request):
        attempt = await lane.ports.queue.record_attempt(
            NewAttempt(
                item_id=candidate.item_id,
                viewpoint=lane.viewpoint,
                key_fingerprint=service.newest_key,
                cost_credits=candidate.cost,
                request=request,
            )
        )
        if attempt is None:
            lane.control.spend(-candidate.cost)
            lane.count_stale_plan()
            lane.ports.queue.announce()
            return
        lane.stale_plans = 0
        lane.begun = attempt.id
        await _send(lane, attempt, request)


async def replay(lane: Lane, action: Replay, now: Now) -> None:
    """Send an attempt of unknown outcome again: same key, same bytes, same API key (Service rule 4.2)."""
    attempt = action.attempt
    if not lane.ports.service.has_key(attempt.key_fingerprint):
        await lane.ports.queue.record_key_missing(attempt, ItemState.SUBMITTING, now)
        return
    request = lane.note(RequestKind.CREATE, now)
    if not attempt.is_in_doubt and lane.begun != attempt.id:  # of an earlier run, and charged in none
        lane.begun = attempt.id
        lane.control.spend(attempt.quote_credits)
    async with lane.sending(request):
        counted = await lane.ports.queue.record_replay(attempt.id, request)
        if counted is None:
            lane.ports.queue.announce()
            return
        await _send(lane, counted, request)


async def withdraw(lane: Lane, action: Withdraw, now: Now) -> None:
    """Give an attempt back that created nothing; its item is free to be begun anew, or not."""
    _give_back(lane, action.attempt)
    await lane.ports.queue.record_withdrawn(action.attempt, now)


async def _send(lane: Lane, attempt: Attempt, request: RequestNote) -> None:
    log.info("attempt_sent", account=lane.viewpoint.account, attempt=attempt.id, attempts=attempt.sends)
    reply = await lane.ports.service.create(
        is_video=attempt.is_video,
        body=attempt.body,
        idempotency_key=attempt.idempotency_key,
        key_fingerprint=attempt.key_fingerprint,
    )
    now = lane.ports.clock.now()
    lane.touched[attempt.id] = now.steady
    if isinstance(reply, Accepted | Refused | KeyConflict):
        lane.recovered(Call.CREATE, key=attempt.key_fingerprint)
        await _record_answer(lane, attempt, reply, now, request)
    else:
        await _record_trouble(lane, attempt, reply, now)


async def _record_answer(
    lane: Lane, attempt: Attempt, reply: Accepted | Refused | KeyConflict, now: Now, request: RequestNote
) -> None:
    """Record what the service decided about a create."""
    queue = lane.ports.queue
    match reply:
        case Accepted(record=record):
            async with lane.looking:
                accept = partial(queue.record_accepted, attempt, record, now)
                _follow(lane, attempt, record, await lane.record(accept, now, request=request))
        case Refused(kind=kind, error=error):
            if await queue.record_refused(attempt, kind, error, now) is not ItemState.HELD:
                _give_back(lane, attempt)
        case KeyConflict(error=error):
            await queue.record_conflict(attempt, error, now)
        case _:
            assert_never(reply)


async def _record_trouble(lane: Lane, attempt: Attempt, reply: Busy | Trouble, now: Now) -> None:
    """Record that a create was not decided; the wait is known to all tracks before the record wakes them."""
    queue = lane.ports.queue
    match reply:
        case Throttled(error=error):
            await lane.meet(reply, Call.CREATE, reason=_reason_of(error, attempt))
            await queue.record_answered(attempt, error, now)
        case Busy(retry_after=retry_after, error=error):
            await lane.meet(Throttled(retry_after, error), Call.CREATE, reason=_reason_of(error, attempt))
            await queue.record_answered(attempt, error, now)
        case Unavailable() | NotUnderstood() | NoReply():
            await lane.meet(reply, Call.CREATE)
            await queue.record_unknown(attempt, _unknown_since(reply), now)
        case EdgeBlocked():
            await lane.meet(reply, Call.CREATE)
            await queue.record_answered(attempt, _EDGE, now)
        case AccountBlocked(error=error):
            is_in_doubt = _was_in_doubt(attempt)
            if not is_in_doubt:
                _give_back(lane, attempt)
            await queue.record_blocked(attempt, error, now)
            if not lane.is_of_older_key(attempt, reply):
                await lane.meet(reply, Call.CREATE)
            elif is_in_doubt and not await lane.outlasts_refusal(attempt, reply, Call.CREATE):
                await queue.record_key_missing(attempt, ItemState.SUBMITTING, now, is_refused=True)
        case _:
            assert_never(reply)


def _unknown_since(reply: Unavailable | NotUnderstood | NoReply) -> str:
    match reply:
        case Unavailable(error=error):
            return f"{error.code}: {error.message}"
        case NoReply(reason=reason):
            return reason
        case NotUnderstood():
            return describe_trouble(reply)
        case _:
            assert_never(reply)


async def poll(lane: Lane, action: Poll, now: Now) -> None:
    """Read the active generation, and take over what is new (Law 3)."""
    attempt = action.attempt
    if not lane.ports.service.has_key(attempt.key_fingerprint):
        await lane.ports.queue.record_key_missing(attempt, ItemState.ACTIVE, now)
        return
    assert attempt.generation_id is not None, "an active attempt has its generation's id"
    request = lane.note(RequestKind.READ, now)
    async with lane.sending(request):
        await lane.ports.queue.note_read(attempt.id, request)
        sent_at = lane.ports.clock.now().steady
        reply = await lane.ports.service.read_generation(attempt.generation_id, key_fingerprint=attempt.key_fingerprint)
    after = lane.ports.clock.now()
    lane.touched[attempt.id] = after.steady
    match reply:
        case RecordRead(record=record):
            lane.recovered(Call.READ, key=attempt.key_fingerprint)
            sighting = lane.watch(attempt, record.status, sent_at=sent_at, seen_at=after.steady)
            if record.status_word != lane.statuses.get(attempt.id):
                async with lane.looking:
                    take_over = partial(lane.ports.queue.record_generation, attempt, record, after, sighting=sighting)
                    _follow(lane, attempt, record, await lane.record(take_over, after))
        case NotFound(error=error):
            lane.recovered(Call.READ)
            lane.statuses.pop(attempt.id, None)  # so that the next good read ends the denial, whatever word it has
            await lane.ports.queue.record_lost(attempt, error, after)
        case AccountBlocked() if lane.is_of_older_key(attempt, reply):
            if not await lane.outlasts_refusal(attempt, reply, Call.READ):
                await lane.ports.queue.record_key_missing(attempt, ItemState.ACTIVE, after, is_refused=True)
        case Throttled() | Unavailable() | NoReply() | NotUnderstood() | EdgeBlocked() | AccountBlocked():
            await lane.meet(reply, Call.READ, about_paid=True)
        case _:
            assert_never(reply)


def _follow(lane: Lane, attempt: Attempt, record: GenerationRecord, progress: Progress) -> None:
    """Keep in memory what the next step needs: the status seen, or the links that must not be stored (Law 8).

    Nobody looks at the queue between the record and this: a download that did not find them here would read them.
    """
    account, status = lane.viewpoint.account, record.status_word
    log.info("generation_seen", account=account, generation_id=record.id, status=status, state=progress.state)
    if progress.state is ItemState.ACTIVE:
        lane.statuses[attempt.id] = record.status_word
        return
    lane.statuses.pop(attempt.id, None)
    if progress.task is not None:
        lane.ready[attempt.id] = (progress.task, record)
    else:
        lane.touched.pop(attempt.id, None)


def _give_back(lane: Lane, attempt: Attempt) -> None:
    """Undo what an attempt took of --max-credits; one of an earlier run has taken nothing."""
    if lane.begun == attempt.id:
        lane.begun = None
        lane.control.spend(-attempt.quote_credits)


def _was_in_doubt(attempt: Attempt) -> bool:
    """Whether a send before the one just answered may have created something (Service rule 4.2)."""
    return attempt.sends > attempt.answers + 1


def _reason_of(error: ServiceError, attempt: Attempt) -> Reason:
    """Tell which limit a refused create met, by what little the service says of it.

    Nothing of ours is active when a create is sent, so where no other limit is named it is somebody else's
    generation (contract, section 7); with a send in doubt it may be our own.
    """
    text = f"{error.code} {error.message}".lower()
    if any(word in text for word in _OF_GENERATIONS):
        return Reason.THROTTLED if _was_in_doubt(attempt) else Reason.OTHER_GENERATION
    if any(word in text for word in _OF_CREDITS):
        return Reason.DAY_CREDITS
    if any(word in text for word in _OF_DAYS):
        return Reason.DAY_REQUESTS
    if _was_in_doubt(attempt) or any(word in text for word in _OF_MINUTES):
        return Reason.THROTTLED
    return Reason.OTHER_GENERATION
