"""The actions of the slot. Each acquires a place, sends once, decides by the tables of outcomes, and commits."""

from typing import assert_never

import structlog

from batchkiln.core import outcome_errors
from batchkiln.core.backoff import REFUSED_ALIKE, alike_pause_seconds, replay_wait_seconds
from batchkiln.core.calls import Call
from batchkiln.core.error_text import describe_error
from batchkiln.core.job import Attempt
from batchkiln.core.outcomes import (
    FACTS,
    SENDS_BEFORE_HOLD,
    UNCHANGED,
    Credits,
    Fact,
    Outcome,
    outcome_if_undecided,
    outcome_of_create,
    outcome_of_read,
)
from batchkiln.core.planner import HandOver, Poll, Replay, Submit, Withdraw
from batchkiln.core.provider import NamedLimit, named_limit
from batchkiln.core.queue_changes import Committed, Facts
from batchkiln.core.queue_types import LostAttempt, NewAttempt
from batchkiln.core.rate_limits import RequestKind
from batchkiln.core.responses import (
    Accepted,
    AccountBlocked,
    AccountProblem,
    Busy,
    CreateReply,
    Described,
    EdgeBlocked,
    ErrorInfo,
    GenerationRecord,
    IdempotencyConflict,
    NoResponse,
    NotFound,
    NotUnderstood,
    RecordRead,
    Refused,
    Throttled,
    TransientError,
    Unavailable,
)
from batchkiln.core.states import ItemState
from batchkiln.core.timestamps import ClockReading
from batchkiln.core.waits import WaitReason
from batchkiln.core.wakes import Change
from batchkiln.worker.account_worker import AccountWorker
from batchkiln.worker.upload_denials import asset_denial, count_gone

log = structlog.get_logger()

NotAccepted = Refused | IdempotencyConflict | Busy | TransientError


# --- creates ------------------------------------------------------------------------------------------


async def submit(worker: AccountWorker, action: Submit, now: ClockReading) -> None:
    """Record a new attempt, then send it (Law 1)."""
    candidate = action.candidate
    assert candidate.cost is not None, "only a quoted item is submitted"  # Law 6
    item_id = candidate.next_item_id(worker.control.beginning)
    request = worker.new_request(RequestKind.CREATE, now)
    worker.control.spend(candidate.cost)  # before any await, or two accounts would spend the same credits
    async with worker.rate_limited(request):
        new = NewAttempt(
            item_id=item_id,
            viewpoint=worker.viewpoint,
            key_fingerprint=worker.ports.service.newest_key,
            cost_credits=candidate.cost,
            request=request,
        )
        worker.control.beginning.add(item_id)
        try:
            attempt = await worker.ports.queue.begin_attempt(new)
        finally:
            worker.control.beginning.discard(item_id)
        if attempt is None:
            worker.control.spend(-candidate.cost)
            worker.plan_overtaken()
            return
        worker.plan_carried_out()
        worker.credits.began(attempt)
        if candidate.has_images or candidate.queued == 1:
            worker.announce(Change.HEADS_MOVED)
        await worker.record_standstill(request)
        await _send(worker, attempt)


async def replay(worker: AccountWorker, action: Replay, now: ClockReading) -> None:
    """Resend an attempt of unknown outcome with the same key, bytes and API key (Service rule 4.2)."""
    attempt = action.attempt
    if not worker.ports.service.has_key(attempt.key_fingerprint):
        if attempt.is_in_doubt:
            await _commit_key_missing(worker, attempt, now)
        else:  # nothing was created, and the item may be begun with another key
            await withdraw(worker, Withdraw(attempt, action.due), now)
        return
    request = worker.new_request(RequestKind.CREATE, now)
    worker.credits.resume(attempt)
    async with worker.rate_limited(request):
        counted = await worker.ports.queue.resend(attempt.id, request)
        if counted is not None:
            await worker.record_standstill(request)
            await _send(worker, counted)


async def recover(worker: AccountWorker, now: ClockReading) -> None:
    """Record again an attempt that a restored copy of the queue has lost. The next plan replays it (Law 2)."""
    request = worker.new_request(RequestKind.CREATE, now)
    attempt = await worker.ports.queue.begin_attempt(LostAttempt(worker.viewpoint, request))
    if attempt is None:
        worker.plan_overtaken()
        return
    worker.plan_carried_out()
    log.info("attempt_recovered", account=worker.viewpoint.account, attempt=attempt.id)


async def _send(worker: AccountWorker, attempt: Attempt) -> None:
    """Send a recorded attempt once, decide on the outcome of the reply, and commit it."""
    log.info("attempt_sent", account=worker.viewpoint.account, attempt=attempt.id, sends=attempt.sends)
    call = worker.ports.service.create(
        is_video=attempt.is_video,
        body=attempt.body,
        idempotency_key=attempt.idempotency_key,
        key_fingerprint=attempt.key_fingerprint,
    )
    reply = await worker.spans.timed("create", attempt, call)
    now = worker.ports.clock.now()
    worker.polls.touch(attempt.id, now.monotonic)
    outcome = outcome_of_create(attempt, reply)
    await _delay_creates(worker, attempt, reply, outcome, now)  # before the commit, which wakes the other tracks
    committed = await worker.commit(attempt, outcome, _facts_of_create(reply), now)
    await _adopt_create(worker, attempt, reply, committed, now)


async def withdraw(worker: AccountWorker, action: Withdraw, now: ClockReading) -> None:
    """Abandon an attempt that created nothing, and queue its item again."""
    worker.credits.free(action.attempt)
    await worker.commit(action.attempt, FACTS[Fact.WITHDRAWN], Facts(), now)


async def hand_over(worker: AccountWorker, action: HandOver, now: ClockReading) -> None:
    """Hold an attempt for a person's decision: the service may have forgotten its key, and charge a resend again."""
    attempt, error = action.attempt, outcome_errors.KEY_FORGOTTEN
    await worker.commit(attempt, FACTS[Fact.KEY_FORGOTTEN], Facts(error=error), now)
    log.warning("attempt_set_aside", account=worker.viewpoint.account, attempt=attempt.id, reason=error.message)


# --- polls --------------------------------------------------------------------------------------------


async def poll(worker: AccountWorker, action: Poll, now: ClockReading) -> None:
    """Read the active generation, and commit the changes (Law 3)."""
    attempt = action.attempt
    if not worker.ports.service.has_key(attempt.key_fingerprint):
        await _commit_key_missing(worker, attempt, now)
        return
    assert attempt.generation_id is not None, "an active attempt has its generation's id"
    request = worker.new_request(RequestKind.READ, now)
    async with worker.rate_limited(request):
        await worker.record_request(request, attempt_id=attempt.id)
        sent_at = worker.ports.clock.now().monotonic
        call = worker.ports.service.read_generation(attempt.generation_id, key_fingerprint=attempt.key_fingerprint)
        reply = await worker.spans.timed("poll", attempt, call)
    after = worker.ports.clock.now()
    worker.polls.touch(attempt.id, after.monotonic)
    match reply:
        case RecordRead(record=record):
            worker.on_success(Call.READ, key=attempt.key_fingerprint)
            worker.failure_counts.id_known()
            observation = worker.polls.observe(attempt, record.status, sent_at=sent_at, seen_at=after.monotonic)
            record = worker.polls.unnamed.read(attempt.id, record, after.monotonic)
            if worker.polls.is_news(attempt.id, record):
                worker.downloads.keep_links(attempt.id, record)  # before the commit lets the downloads look for them
                facts = Facts(error=outcome_errors.error_of_record(record), record=record, observation=observation)
                outcome = outcome_of_read(RecordRead(record))
                _adopt_record(worker, attempt, record, await worker.commit(attempt, outcome, facts, after))
        case NotFound(error=error):
            worker.on_success(Call.READ)
            worker.polls.denied(attempt.id)
            committed = await worker.commit(attempt, outcome_of_read(reply), Facts(error=error), after)
            if committed.state is ItemState.HELD:
                _count_denied_id(worker, error)
        case AccountBlocked() if worker.is_of_older_key(attempt, reply):
            if not await worker.retry_old_key(attempt, reply, Call.READ):
                await _commit_key_missing(worker, attempt, after, is_refused=True)
        case Throttled() | Unavailable() | NoResponse() | NotUnderstood() | EdgeBlocked() | AccountBlocked():
            await worker.on_failure(reply, Call.READ, about_paid=True)
        case _:
            assert_never(reply)


# --- what stays in memory -----------------------------------------------------------------------------


def _facts_of_create(reply: CreateReply) -> Facts:
    """Return the facts to record about a reply.

    An outage or a proxy's reply does not show that the key is still known.
    """
    if isinstance(reply, Accepted):
        return Facts(record=reply.record)
    error = outcome_errors.error_of_create(reply)
    return Facts(
        error=error,
        reason=reply.reason if isinstance(reply, NoResponse) else error.summary,
        is_contact=not isinstance(reply, NoResponse | Unavailable | EdgeBlocked),
    )


async def _delay_creates(
    worker: AccountWorker, attempt: Attempt, reply: CreateReply, outcome: Outcome, now: ClockReading
) -> None:
    """Delay creates as the reply requires. If the attempt created nothing, put back the credits that it took."""
    if isinstance(reply, Accepted):
        worker.on_success(Call.CREATE, key=attempt.key_fingerprint)
        worker.failure_counts.create_accepted(attempt.id, attempt.item_id)
        worker.downloads.keep_links(attempt.id, reply.record)
        return
    if outcome.credits is Credits.FREED:
        worker.credits.free(attempt)
    if not isinstance(reply, AccountBlocked):  # an account is blocked after the commit, because that may end the run
        await _wait_after(worker, attempt, reply, now)
    gone = None if attempt.was_in_doubt else asset_denial(reply)
    if gone is not None:
        await count_gone(worker, attempt.item_id, gone)


async def _adopt_create(
    worker: AccountWorker, attempt: Attempt, reply: CreateReply, committed: Committed, now: ClockReading
) -> None:
    """Keep the result of a committed reply: the generation, a blocked account, or an undecided attempt."""
    if isinstance(reply, Accepted):
        _adopt_record(worker, attempt, reply.record, committed)
        if committed.state is ItemState.HELD:  # the id may be misread, and each further create would be paid
            known = AccountBlocked(AccountProblem.IDS_UNKNOWN, outcome_errors.id_taken(reply.record.id))
            worker.control.block(worker.account_id, known, is_cut_off=False)
    elif isinstance(reply, AccountBlocked):
        await _block(worker, attempt, reply, now)
    elif committed.state is ItemState.SUBMITTING:
        await _hold_if_undecided(worker, attempt, reply, committed.outcome, now)


def _adopt_record(worker: AccountWorker, attempt: Attempt, record: GenerationRecord, committed: Committed) -> None:
    """Keep in memory the record of an active generation, or the links of a finished one, for the next step."""
    account, status = worker.viewpoint.account, record.status_word
    log.info("generation_seen", account=account, generation_id=record.id, status=status, state=committed.state)
    if committed.overcharged_credits > 0:
        _block_overcharge(worker, attempt, committed.overcharged_credits)
    if committed.state is ItemState.ACTIVE:
        worker.polls.recorded(attempt.id, record)
    elif committed.state is ItemState.DOWNLOADING:
        worker.polls.ended(attempt.id)
    else:
        worker.polls.forget(attempt.id)
    if committed.state is not ItemState.DOWNLOADING:
        worker.downloads.take_links(attempt.id)


async def _wait_after(worker: AccountWorker, attempt: Attempt, reply: NotAccepted, now: ClockReading) -> None:
    """Delay creates for as long as the reply asks or its kind requires."""
    seconds = replay_wait_seconds(reply, attempt)
    match reply:
        case Refused(error=error) if seconds is None:
            worker.on_success(Call.CREATE, key=attempt.key_fingerprint)
            _count_equal_refusal(worker, attempt, error, now)
        case Refused() | IdempotencyConflict():
            worker.postpone_creates(now, seconds or 0.0, WaitReason.UNDECIDED, reply.error.summary)
        case NotUnderstood():
            await worker.on_failure(reply, Call.CREATE)
            worker.postpone_creates(now, seconds or 0.0, WaitReason.UNDECIDED, describe_error(reply))
        case Busy(retry_after=retry_after, error=error):
            reason = WaitReason.THROTTLED if attempt.was_in_doubt else WaitReason.OTHER_GENERATION
            await worker.on_failure(Throttled(retry_after, error), Call.CREATE, reason=reason)
        case Throttled(error=error):
            await worker.on_failure(reply, Call.CREATE, reason=_wait_reason_of(error, attempt))
        case Unavailable() | NoResponse() | EdgeBlocked() | AccountBlocked():
            await worker.on_failure(reply, Call.CREATE)
        case _:
            assert_never(reply)


async def _block(worker: AccountWorker, attempt: Attempt, reply: AccountBlocked, now: ClockReading) -> None:
    """Begin no new work on a refused account. If only an older key is refused, only its own attempts are affected."""
    if not worker.is_of_older_key(attempt, reply):
        await worker.on_failure(reply, Call.CREATE)
    elif attempt.was_in_doubt and not await worker.retry_old_key(attempt, reply, Call.CREATE):
        await _commit_key_missing(worker, attempt, now, is_refused=True)


async def _commit_key_missing(
    worker: AccountWorker, attempt: Attempt, now: ClockReading, *, is_refused: bool = False
) -> None:
    """Hold an item whose API key is gone: no other key may read its generation (Service rules 4.2 and 4.4)."""
    error = outcome_errors.error_of_missing_key(attempt, is_refused=is_refused)
    await worker.commit(attempt, FACTS[Fact.KEY_MISSING], Facts(error=error), now)


def _count_equal_refusal(worker: AccountWorker, attempt: Attempt, error: ErrorInfo, now: ClockReading) -> None:
    """Delay creates after several refusals in a row with the same words, and block the account after too many.

    Such refusals are unlikely to concern the single request.
    """
    times = worker.failure_counts.create_refused(error.summary)
    pause = alike_pause_seconds(times)
    if times >= REFUSED_ALIKE:
        worker.control.block(worker.account_id, AccountBlocked(AccountProblem.REFUSED_ALIKE, error), is_cut_off=False)
    elif pause is not None:
        said = f"{times} items in a row were refused alike, and not charged: {error.summary}"
        worker.postpone_creates(now, pause, WaitReason.REFUSED_ALIKE, said)
    log.info("create_refused", account=worker.viewpoint.account, attempt=attempt.id, reason=error.summary)


async def _hold_if_undecided(
    worker: AccountWorker, attempt: Attempt, reply: NotAccepted, outcome: Outcome, now: ClockReading
) -> None:
    """Hold an attempt whose outcome the service's replies leave open, so that the account can continue."""
    if outcome.if_it_lasts is None or not await _is_service_working(worker, attempt, reply):
        worker.failure_counts.decided(attempt.id)
        return
    seconds = worker.failure_counts.undecided_seconds(attempt.id, now.monotonic)
    held = outcome_if_undecided(outcome, attempt, seconds)
    if held is UNCHANGED:
        return
    error = outcome_errors.error_of_create(reply)
    committed = await worker.commit(attempt, held, Facts(error=error), worker.ports.clock.now())
    if committed.state is ItemState.SUBMITTING:
        return
    worker.failure_counts.decided(attempt.id)
    if committed.outcome.credits is Credits.FREED:  # the firewall refused each send, so nothing was charged
        worker.credits.free(attempt)
    log.warning("attempt_set_aside", account=worker.viewpoint.account, attempt=attempt.id, reason=error.summary)
    if isinstance(reply, IdempotencyConflict):  # the next key would fail as well, and add an attempt in doubt
        worker.control.block(worker.account_id, AccountBlocked(AccountProblem.KEY_CONFLICT, error), is_cut_off=False)
    worker.announce(Change.PROGRESSED)


async def _is_service_working(worker: AccountWorker, attempt: Attempt, reply: NotAccepted) -> bool:
    """Return whether the service works, so that only this request is undecided. An outage must not hold items.

    A reply of the API proves that the service works. Otherwise the public description is read; it counts in no
    account's window.
    """
    match reply:
        case Refused() | IdempotencyConflict() | NotUnderstood():
            return True
        case NoResponse(status=None):
            return False
        case _ if attempt.sends < SENDS_BEFORE_HOLD:
            return False
        case _:
            request = worker.new_request(RequestKind.OTHER, worker.ports.clock.now())
            async with worker.rate_limited(request):
                await worker.record_request(request)
                return isinstance(await worker.ports.service.describe(), Described)


def _count_denied_id(worker: AccountWorker, error: ErrorInfo) -> None:
    """Begin no new work on the account if the service denies every id: further creates would be paid in vain."""
    if worker.failure_counts.id_denied():
        blocked = AccountBlocked(AccountProblem.IDS_UNKNOWN, error)
        worker.control.block(worker.account_id, blocked, is_cut_off=False)


def _block_overcharge(worker: AccountWorker, attempt: Attempt, credit_count: int) -> None:
    """Count the charge above the maximum that was sent, and begin nothing new on the account in this run.

    The next attempt might also cost more than its quote. The queue pauses the job (Law 6).
    """
    worker.credits.overcharged(attempt, credit_count)
    said = f"{credit_count} credits were charged above the maximum of {attempt.quote_credits} that was sent"
    log.warning("overcharged", account=worker.viewpoint.account, attempt=attempt.id, reason=said)
    blocked = AccountBlocked(AccountProblem.OVERCHARGED, ErrorInfo("overcharged", said))
    worker.control.block(worker.account_id, blocked, is_cut_off=False)


def _wait_reason_of(error: ErrorInfo, attempt: Attempt) -> WaitReason:
    """Return the limit that a refused create exceeded, according to the words of the refusal.

    This program has nothing active when it sends a create. If the refusal names no other limit, the active generation
    belongs to another program (contract, section 7), or to this one if a send is in doubt.
    """
    match named_limit(error.code, error.message):
        case NamedLimit.CREDITS_PER_DAY:
            return WaitReason.DAY_CREDITS
        case NamedLimit.REQUESTS_PER_DAY:
            return WaitReason.DAY_REQUESTS
        case NamedLimit.REQUESTS_PER_MINUTE:
            return WaitReason.THROTTLED
        case NamedLimit.ACTIVE_GENERATIONS | None:
            return WaitReason.THROTTLED if attempt.was_in_doubt else WaitReason.OTHER_GENERATION
