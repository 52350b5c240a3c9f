"""Chooses the next action for an account's one generation, and its earliest moment. Pure.

The slot waits until the action's `due.at`, or until the queue changes, and then asks again: it never acts on a plan
from before a wait. `core/preparation.py` chooses the quotes and uploads of the next items meanwhile.
"""

from collections.abc import Sequence
from math import inf

from msgspec import Struct

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


class _OfAttempt(Struct, frozen=True):
    attempt: Attempt
    due: NotBefore


class Replay(_OfAttempt, frozen=True):
    """Send the attempt's stored bytes again under its stored key (Service rule 4.2)."""


class Withdraw(_OfAttempt, frozen=True):
    """End an attempt as refused: each send was answered, nothing was created, and it may not be sent again."""


class HandOver(_OfAttempt, frozen=True):
    """Hold an attempt in doubt for a person: the service may have forgotten its key (Service rule 4.2)."""


class Recover(Struct, frozen=True):
    """Record again an attempt that a restored copy of the queue has lost. It is in doubt, so a replay follows."""

    due: NotBefore


class Poll(_OfAttempt, frozen=True):
    """Read the active generation (Service rule 4.4)."""


class Submit(Struct, frozen=True):
    """Record and send a new attempt."""

    candidate: Candidate
    due: NotBefore


class WaitUntil(Struct, frozen=True):
    """Send nothing before `due.at`, which is infinite if only a change of the queue can end the wait."""

    due: NotBefore


Action = Replay | Withdraw | HandOver | Recover | Poll | Submit | WaitUntil


def choose_action(queue: QueueView, account: AccountView, now: ClockReading) -> Action:
    """Return the next action for the account's generation, and its earliest moment. Never raises.

    The order matters: first the unresolved attempt, which is replayed (Service rule 4.2) or polled (Law 3), then lost
    attempts that may be paid, then new work within windows and credits (Service section 8).
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
    """Return the resend of an attempt without a generation id, or the action that replaces it.

    If every send was answered, nothing was created. The item then returns to the queue if its job no longer wants it or
    a cap, a budget or the account forbids it (Law 6). An attempt in doubt may be paid already, so no budget ends it: it
    is resent (Law 2) until its key may be forgotten. `contact_at` is the API's last reply, or else the recording.
    """
    today = max(account.rates.usage.credits, attempt.quote_credits)  # its quote may still be counted on an earlier day
    is_over_day = today > account.rates.limits.credits_per_day
    is_over_run = account.is_over_run(attempt.quote_credits)
    is_over = queue.is_unwanted or is_over_day or is_over_run or account.start_obstacle is not None
    if is_over and not attempt.is_in_doubt:
        return Withdraw(attempt, NotBefore(now.monotonic))
    if attempt.is_in_doubt and attempt.contact_at and now.instant - attempt.contact_at >= KEY_REMEMBERED:
        return HandOver(attempt, NotBefore(now.monotonic))
    if account.permission.is_blocked:
        return WaitUntil(NotBefore(inf, WaitReason.ACCOUNT_BLOCKED))
    return Replay(attempt, account.call_due(Call.CREATE, now))  # creates are never suspended, unlike quotes


def _poll(attempt: Attempt, account: AccountView, now: ClockReading) -> Poll:
    """Return the next read of the active generation, at the best moment for its usual duration."""
    poll_at = next_poll_at(
        last_settled_at=account.last_touched_at,
        interval_seconds=account.rates.limits.poll_interval_seconds,
        now=now.monotonic,
    )
    worth = NotBefore(max(poll_at, account.read_worth_at), WaitReason.POLL_INTERVAL)
    return Poll(attempt, account.call_due(Call.READ, now).after(worth))


def _choose_new(candidates: Sequence[Candidate], account: AccountView, now: ClockReading) -> Submit | WaitUntil:
    """Return the first candidate that is ready and affordable, or the wait that ends first.

    A candidate that has no price yet, or exceeds the rest of the day, lets later ones go first (contract, section 7).
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
                chosen = candidate
                if candidate.order is Order.PACK:
                    chosen = best_next_candidate(candidate, ordered, account.room_for(candidate))
                return Submit(chosen, account.call_due(Call.CREATE, now))
            wait = account.payable_at(decision)
        if first.reason is WaitReason.NOTHING or wait.at < first.at:
            first = wait
    return WaitUntil(first)


def _lacking(candidate: Candidate, account: AccountView) -> WaitReason:
    """Return why a candidate lacks its price or upload: it is being requested, or its replies are not understood."""
    calls = (Call.QUOTE,) if candidate.is_ready else (Call.UPLOAD, Call.COMPLETION)
    return WaitReason.NOT_UNDERSTOOD if account.is_suspended(*calls) else WaitReason.PREPARING


def in_order(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return candidates in the order in which to try them: priority, job, then the job's order (contract, section 7).

    `pack` begins with the most expensive, because smaller items fill the rest of the day better. Items that others are
    made from go before the rest of their job.
    """

    def preference(candidate: Candidate) -> tuple[int, int, bool, int, int]:
        cost = (candidate.cost or 0) if candidate.order is Order.PACK else 0
        return (-candidate.priority, candidate.job_id, not candidate.is_source, -cost, candidate.index)

    return sorted(candidates, key=preference)
