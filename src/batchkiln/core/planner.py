"""The order of all work: what an account does next about its one generation, and the earliest moment to do it.

Pure. A track of the loop waits until its action's `due.at`, or until the queue has news, and then asks again: nobody
acts on a plan that was made before a wait. Quotes and uploads of what comes next are `core/preparation.py`'s.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from batchkiln.core.account_view import AccountView
from batchkiln.core.budget import Affordable
from batchkiln.core.calls import Call
from batchkiln.core.job import Attempt, AttemptState, Order
from batchkiln.core.outcomes import KEY_REMEMBERED
from batchkiln.core.packing import best_next_candidate
from batchkiln.core.polling import next_poll_at
from batchkiln.core.queue_types import Candidate, QueueView
from batchkiln.core.timestamps import ClockReading
from batchkiln.core.waits import NotBefore, WaitReason


@dataclass(frozen=True, slots=True)
class _OfAttempt:
    attempt: Attempt
    due: NotBefore


class Replay(_OfAttempt):
    """Send the attempt's stored bytes again under its stored key (Service rule 4.2)."""


class Withdraw(_OfAttempt):
    """Take back an attempt of which the service said that nothing was created, and that may not be sent again."""


class HandOver(_OfAttempt):
    """Hand an attempt in doubt over to a person: the service may have forgotten its key (Service rule 4.2)."""


@dataclass(frozen=True, slots=True)
class Recover:
    """Record an attempt again that a restored copy of the queue has lost; it is in doubt then, and is replayed."""

    due: NotBefore


class Poll(_OfAttempt):
    """Read the active generation (Service rule 4.4)."""


@dataclass(frozen=True, slots=True)
class Submit:
    """Record and send a new attempt."""

    candidate: Candidate
    due: NotBefore


@dataclass(frozen=True, slots=True)
class WaitUntil:
    """Send nothing before `due.at`, which is infinite where only news can change that."""

    due: NotBefore


Action = Replay | Withdraw | HandOver | Recover | Poll | Submit | WaitUntil


def choose_action(queue: QueueView, account: AccountView, now: ClockReading) -> Action:
    """Choose the one next request about a generation, and the earliest moment to send it.

    The order is the rule: an attempt of unknown outcome first (Service rule 4.2), then the one active generation
    (Law 3), then what was lost and may be paid, then new work within windows and credits (Service section 8). Never
    raises.
    """
    if attempt := queue.unresolved:
        is_sent = attempt.state is AttemptState.SENT
        return _choose_resend(attempt, queue, account, now) if is_sent else _poll(attempt, account, now)
    if queue.is_slot_held:
        return WaitUntil(NotBefore(inf, WaitReason.HELD))  # an item held for its API key keeps the slot (Law 4)
    if queue.has_lost:
        return Recover(NotBefore(now.monotonic))
    if account.start_obstacle:
        return WaitUntil(NotBefore(inf, account.start_obstacle))
    if any(entry.call is Call.CREATE for entry in account.misunderstood):  # another create may be paid, and lost too
        return WaitUntil(NotBefore(inf, WaitReason.NOT_UNDERSTOOD))
    return _choose_new(queue.candidates, account, now)


def _choose_resend(
    attempt: Attempt, queue: QueueView, account: AccountView, now: ClockReading
) -> Replay | Withdraw | HandOver | WaitUntil:
    """Return the same request again, at the earliest moment.

    Where every send of it was answered, nothing was created: what its job no longer wants, or no budget or cap allows,
    then goes back to the queue like anything that was never begun (Law 6). What is in doubt may be
    paid already (Law 2).
    """
    today = max(account.rates.usage.credits, attempt.quote_credits)  # the day before may carry it until it is sent
    is_over_day = today > account.rates.limits.credits_per_day
    is_over_run = account.is_over_run(attempt.quote_credits)
    is_over = queue.is_unwanted or is_over_day or is_over_run or account.start_obstacle is not None
    if is_over and not attempt.is_in_doubt:
        return Withdraw(attempt, NotBefore(now.monotonic))
    if attempt.is_in_doubt and attempt.contact_at and now.instant - attempt.contact_at >= KEY_REMEMBERED:
        return HandOver(attempt, NotBefore(now.monotonic))
    if account.permission.is_blocked:
        return WaitUntil(NotBefore(inf, WaitReason.ACCOUNT_BLOCKED))
    return Replay(attempt, account.call_due(Call.CREATE, now))


def _poll(attempt: Attempt, account: AccountView, now: ClockReading) -> Poll:
    """Return the next read of the active generation, at the moment that is worth most."""
    poll_at = next_poll_at(
        last_settled_at=account.last_touched_at,
        interval_seconds=account.rates.limits.poll_interval_seconds,
        now=now.monotonic,
    )
    worth = NotBefore(max(poll_at, account.read_worth_at), WaitReason.POLL_INTERVAL)
    return Poll(attempt, account.call_due(Call.READ, now).after(worth))


def _choose_new(candidates: Sequence[Candidate], account: AccountView, now: ClockReading) -> Submit | WaitUntil:
    """Return the first candidate that is ready and can be paid, or what the first of them waits for.

    One that does not fit what is left of the day lets smaller ones behind it go first: it would have to wait for the
    reset in any case (contract, section 7).
    """
    first = NotBefore(inf, WaitReason.NOTHING)
    ordered = in_order(candidates)
    for candidate in ordered:
        if candidate.cost is None or not candidate.is_ready:
            wait = NotBefore(inf, _lacking(candidate, account))
        elif account.is_over_run(candidate.cost):
            wait = NotBefore(inf, WaitReason.ENOUGH)
        else:
            decision = account.check(candidate, candidate.cost)
            if decision.fit is Affordable.NOW:
                is_packed = candidate.order is Order.PACK
                chosen = (
                    best_next_candidate(candidate, ordered, account.room_for(candidate)) if is_packed else candidate
                )
                return Submit(chosen, account.call_due(Call.CREATE, now))
            wait = account.payable_at(decision)
        if first.reason is WaitReason.NOTHING or wait.at < first.at:
            first = wait
    return WaitUntil(first)


def _lacking(candidate: Candidate, account: AccountView) -> WaitReason:
    """Return why a candidate without a price or an upload waits: what it lacks is on the way, or is not understood."""
    calls = (Call.QUOTE,) if candidate.is_ready else (Call.UPLOAD, Call.COMPLETION)
    return WaitReason.NOT_UNDERSTOOD if account.is_suspended(*calls) else WaitReason.PREPARING


def in_order(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return candidates as they are to be tried: priority, then job, then its own order (contract, section 7).

    `pack` looks at the dearest first: what fits a day worst is placed while the day is still empty.
    """

    def preference(candidate: Candidate) -> tuple[int, int, int, int]:
        dearest = -(candidate.cost or 0) if candidate.order is Order.PACK else 0
        return (-candidate.priority, candidate.job_id, dearest, candidate.index)

    return sorted(candidates, key=preference)
