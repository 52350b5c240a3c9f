"""What an account makes ready while its slot is busy: quotes and uploads for what comes next.

Pure, and the second question to the queue beside `choose_action`: `worker/prefetch.py` asks it whenever it may send.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf

from batchkiln.core.account_view import AccountView
from batchkiln.core.budget import Affordable, BudgetLimit
from batchkiln.core.planner import WaitUntil, in_order
from batchkiln.core.queue_types import Candidate, QueueView
from batchkiln.core.timestamps import ClockReading
from batchkiln.core.waits import NotBefore, WaitReason


@dataclass(frozen=True, slots=True)
class _Request:
    candidate: Candidate
    due: NotBefore


class AskQuote(_Request):
    """Ask the price of a candidate's recipe, by a request that counts as a read (Service rule 4.6)."""


class Upload(_Request):
    """Upload images that are needed soon: up to five in one request (Service section 4, upload flow)."""


@dataclass(frozen=True, slots=True)
class Reject:
    """End the items of a recipe that can never be paid; nothing was sent (contract, section 7)."""

    candidate: Candidate
    obstacle: BudgetLimit


Preparation = AskQuote | Upload | Reject | WaitUntil


def choose_preparation(queue: QueueView, account: AccountView, now: ClockReading) -> Preparation:
    """Choose what to make ready while the slot is busy, in the order in which it will be needed.

    What has to wait, as uploads do once the day's are used up, lets what may leave now go first.
    """
    if account.starts_nothing:
        return WaitUntil(NotBefore(inf, account.starts_nothing))
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
    """Yield the requests that candidates lack, the most urgent first; a quote needs the uploads (Service rule 4.6).

    Where the service fails to price a recipe, the others go first.
    """
    for candidate in sorted(ordered, key=lambda each: each.recipe_id in account.waits.quotes):
        if not candidate.is_ready:
            yield Upload(candidate, account.upload_due(candidate, now))
        elif candidate.cost is None:
            yield AskQuote(candidate, account.quote_due(candidate, now))
    for candidate in ordered:
        if candidate.is_ready and candidate.missing_inputs:
            yield Upload(candidate, account.upload_due(candidate, now))
