"""One coroutine per action on the slot: write down, send once, record what came back."""

from typing import assert_never

from batchkiln.core.instants import Now
from batchkiln.core.job import Attempt
from batchkiln.core.planner import Poll, Reason, Replay, Submit
from batchkiln.core.replies import (
    Accepted,
    AccountBlocked,
    EdgeBlocked,
    GenerationRecord,
    KeyConflict,
    NoReply,
    NotFound,
    RecordRead,
    Refused,
    ServiceError,
    Throttled,
    Unavailable,
)
from batchkiln.core.states import ItemState
from batchkiln.core.views import NewAttempt, RequestKind
from batchkiln.core.windows import day_starts
from batchkiln.scheduler.lane import Lane

_EDGE = ServiceError("edge_firewall", "refused by the firewall before the API; the whole machine waits")
_OF_LIMITS = ("per_minute", "per minute", "rate", "quota", "daily", "per day", "budget", "too many")
_OF_GENERATIONS = ("active", "concurren", "in progress", "running", "another generation")


async def submit(lane: Lane, action: Submit, now: Now) -> None:
    """Record a new attempt, and only then send it (Law 1)."""
    candidate, service = action.candidate, lane.ports.service
    assert candidate.cost is not None, "only a quoted item is submitted (Law 6)"
    request = lane.note(RequestKind.CREATE, now)
    async with lane.sending(request):
        attempt = await lane.ports.queue.record_attempt(
            NewAttempt(
                item_id=candidate.item_id,
                account_id=lane.account_id,
                key_fingerprint=service.newest_key,
                cost_credits=candidate.cost,
                day=day_starts(lane.day, now)[-1],
                request=request,
            )
        )
        if attempt is None:
            lane.count_stale_plan()
            return
        lane.stale_plans = 0
        lane.control.spend(attempt.quote_credits)
        await _send(lane, attempt)


async def replay(lane: Lane, action: Replay, now: Now) -> None:
    """Send an attempt of unknown outcome again: same key, same bytes, same API key (Service rule 4.2)."""
    attempt = action.attempt
    if not lane.ports.service.has_key(attempt.key_fingerprint):
        await lane.ports.queue.record_key_missing(attempt, ItemState.SUBMITTING, now)
        return
    request = lane.note(RequestKind.CREATE, now)
    async with lane.sending(request):
        counted = await lane.ports.queue.record_replay(attempt.id, request)
        await _send(lane, counted)


async def _send(lane: Lane, attempt: Attempt) -> None:
    reply = await lane.ports.service.create(
        is_video=attempt.is_video,
        body=attempt.body,
        idempotency_key=attempt.idempotency_key,
        key_fingerprint=attempt.key_fingerprint,
    )
    now = lane.ports.clock.now()
    lane.touched[attempt.id] = now.steady
    queue = lane.ports.queue
    match reply:
        case Accepted(record=record):
            lane.recovered(creates=True)
            state = await queue.record_accepted(attempt, record, now)
            _follow(lane, attempt, record, state)
        case Refused(kind=kind, error=error):
            lane.recovered(creates=True)
            lane.control.spend(-attempt.quote_credits)
            await queue.record_refused(attempt, kind, error, now)
        case KeyConflict(error=error):
            lane.recovered(creates=True)
            await queue.record_conflict(attempt, error, now)
        case Throttled(error=error):
            await queue.record_answered(attempt, error, now)
            await lane.meet(reply, creates=True, reason=_reason_of(error, attempt))
        case Unavailable(error=error):
            await queue.record_unknown(attempt, f"{error.code}: {error.message}", now)
            await lane.meet(reply, creates=True)
        case NoReply(reason=reason):
            await queue.record_unknown(attempt, reason, now)
            await lane.meet(reply, creates=True)
        case EdgeBlocked():
            await queue.record_answered(attempt, _EDGE, now)
            await lane.meet(reply, creates=True)
        case AccountBlocked(error=error):
            await queue.record_blocked(attempt, error, now)
            await lane.meet(reply, creates=True)
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
        reply = await lane.ports.service.read_generation(attempt.generation_id, key_fingerprint=attempt.key_fingerprint)
    after = lane.ports.clock.now()
    lane.touched[attempt.id] = after.steady
    match reply:
        case RecordRead(record=record):
            lane.recovered(creates=False)
            if record.status_word != lane.statuses.get(attempt.id):
                state = await lane.ports.queue.record_generation(attempt, record, after)
                _follow(lane, attempt, record, state)
        case NotFound(error=error):
            await lane.ports.queue.record_lost(attempt, error, after)
        case Throttled() | Unavailable() | NoReply() | EdgeBlocked() | AccountBlocked():
            await lane.meet(reply, creates=False)
        case _:
            assert_never(reply)


def _follow(lane: Lane, attempt: Attempt, record: GenerationRecord, state: ItemState) -> None:
    """Keep in memory what the next step needs: the status seen, or the links that must not be stored (Law 8)."""
    if state is ItemState.ACTIVE:
        lane.statuses[attempt.id] = record.status_word
        return
    lane.statuses.pop(attempt.id, None)
    if state is ItemState.DOWNLOADING:
        lane.records[attempt.id] = record
    else:
        lane.touched.pop(attempt.id, None)


def _reason_of(error: ServiceError, attempt: Attempt) -> Reason:
    """Tell somebody else's generation from another limit; nothing of ours is active when a create is sent."""
    text = f"{error.code} {error.message}".lower()
    is_limit = any(word in text for word in _OF_LIMITS)
    is_generation = any(word in text for word in _OF_GENERATIONS)
    if attempt.is_in_doubt or (is_limit and not is_generation):
        return Reason.THROTTLED
    return Reason.OTHER_GENERATION
