"""Chooses the quotes and uploads that an account requests ahead, while its slot is busy. Pure.

`worker/prefetch.py` calls this, as the loop calls `choose_action`.
"""

from collections.abc import Iterator, Sequence
from math import inf

from msgspec import Struct

from batchkiln.core.account_view import AccountView
from batchkiln.core.budget import Affordable, BudgetLimit
from batchkiln.core.planner import WaitUntil, in_order
from batchkiln.core.queue_types import Candidate, QueueView
from batchkiln.core.timestamps import ClockReading
from batchkiln.core.waits import NotBefore, WaitReason


class _Request(Struct, frozen=True):
    candidate: Candidate
    due: NotBefore


class AskQuote(_Request, frozen=True):
    """Request the quote of a candidate's recipe; the request counts as a read (Service rule 4.6)."""


class Upload(_Request, frozen=True):
    """Upload the images that are needed soon, at most five per request (Service section 4, upload flow)."""


class Reject(Struct, frozen=True):
    """Reject the items of a recipe that can never be paid. Nothing was sent (contract, section 7)."""

    candidate: Candidate
    obstacle: BudgetLimit

    def limit(self, credits_per_day: int) -> int | None:
        """Return the credits of the limit that the price exceeds. `credits_per_day` is the account's."""
        money = self.candidate.money
        left = None if money.budget is None else max(money.budget - money.committed, 0)
        return {
            BudgetLimit.OVER_CAP: self.candidate.cap,
            BudgetLimit.OVER_JOB_BUDGET: left,
            BudgetLimit.OVER_JOB_DAY: money.budget_per_day,
            BudgetLimit.OVER_DAY: credits_per_day,
        }[self.obstacle]


Preparation = AskQuote | Upload | Reject | WaitUntil


def choose_preparation(queue: QueueView, account: AccountView, now: ClockReading) -> Preparation:
    """Return the next preparation, in the order in which the results will be needed.

    A request that may be sent now precedes one that has to wait, such as an upload when today's are used up.
    """
    if account.start_obstacle:
        return WaitUntil(NotBefore(inf, account.start_obstacle))
    ordered = in_order(queue.candidates)
    for candidate in ordered:
        if candidate.cost is not None:
            decision = account.check(candidate, candidate.cost)
            if decision.fit is Affordable.NEVER and decision.obstacle is not None:
                return Reject(candidate, decision.obstacle)
    soonest: AskQuote | Upload | WaitUntil = WaitUntil(NotBefore(inf, WaitReason.NOTHING))
    for choice in _requests_for(ordered, account, now):
        if choice.due.at <= now.monotonic:
            return choice
        if choice.due.at < soonest.due.at or soonest.due.reason is WaitReason.NOTHING:
            soonest = choice
    return soonest


def _requests_for(ordered: Sequence[Candidate], account: AccountView, now: ClockReading) -> Iterator[AskQuote | Upload]:
    """Yield the missing requests of the candidates, the most urgent first; uploads precede quotes (Service rule 4.6).

    Recipes whose quote has failed come last.
    """
    for candidate in sorted(ordered, key=lambda each: each.recipe_id in account.waits.quotes):
        if not candidate.is_ready:
            yield Upload(candidate, account.upload_due(candidate, now))
        elif candidate.cost is None:
            yield AskQuote(candidate, account.quote_due(candidate, now))
    for candidate in ordered:
        if candidate.is_ready and candidate.missing_inputs:
            yield Upload(candidate, account.upload_due(candidate, now))
