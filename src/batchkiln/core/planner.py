"""Chooses what an account does next about its one generation, and the earliest moment to do it. Pure.

A track of the loop waits until its action's `due.at`, or until the queue changes, and then asks again: no track acts on
a plan that was made before a wait. `core/preparation.py` chooses the quotes and uploads of the next items.
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
    """Abandon an attempt that the service says created nothing, and that may not be sent again."""


class HandOver(_OfAttempt):
    """Hold an attempt in doubt for a person: the service may have forgotten its key (Service rule 4.2)."""


@dataclass(frozen=True, slots=True)
class Recover:
    """Record again an attempt that a restored copy of the queue has lost. It is then in doubt, and is replayed."""

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
    """Send nothing before `due.at`, which is infinite if only a change of the queue can end the wait."""

    due: NotBefore


Action = Replay | Withdraw | HandOver | Recover | Poll | Submit | WaitUntil


def choose_action(queue: QueueView, account: AccountView, now: ClockReading) -> Action:
    """Return the one next request about a generation, and the earliest moment to send it. Never raises.

    The order is the rule: first an attempt of unknown outcome (Service rule 4.2), then the one active generation (Law
    3), then lost attempts that may be paid, then new work within windows and credits (Service section 8).
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
    """Return the resend of an unresolved attempt at its earliest moment, or what replaces it.

    If every send was answered, nothing was created. An attempt that its job no longer wants, or that no budget or cap
    allows, then returns to the queue like one that was never begun (Law 6). An attempt in doubt may be paid already, so
    it is always resent (Law 2).
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
    """Return the next read of the active generation, at the best moment."""
    poll_at = next_poll_at(
        last_settled_at=account.last_touched_at,
        interval_seconds=account.rates.limits.poll_interval_seconds,
        now=now.monotonic,
    )
    worth = NotBefore(max(poll_at, account.read_worth_at), WaitReason.POLL_INTERVAL)
    return Poll(attempt, account.call_due(Call.READ, now).after(worth))


def _choose_new(candidates: Sequence[Candidate], account: AccountView, now: ClockReading) -> Submit | WaitUntil:
    """Return the first candidate that is ready and affordable, or what the first of them waits for.

    A candidate that exceeds the rest of the day lets smaller ones go first, because it would have to wait for the reset
    in any case (contract, section 7).
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
    """Return why a candidate without a price or an upload waits: it is being requested, or is not understood."""
    calls = (Call.QUOTE,) if candidate.is_ready else (Call.UPLOAD, Call.COMPLETION)
    return WaitReason.NOT_UNDERSTOOD if account.is_suspended(*calls) else WaitReason.PREPARING


def in_order(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return candidates in the order in which to try them: priority, job, then the job's order (contract, section 7).

    `pack` begins with the most expensive, which fits best while the day is still empty. Items that others are made from
    go before the rest of their job.
    """

    def preference(candidate: Candidate) -> tuple[int, int, bool, int, int]:
        dearest = -(candidate.cost or 0) if candidate.order is Order.PACK else 0
        return (-candidate.priority, candidate.job_id, not candidate.is_source, dearest, candidate.index)

    return sorted(candidates, key=preference)
