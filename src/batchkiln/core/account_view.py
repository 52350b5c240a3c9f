"""The planner's view of one account at one moment: its limits, its waits and its permissions."""

from collections.abc import Mapping
from math import inf
from typing import Final, Protocol

from msgspec import Struct, field

from batchkiln.core.budget import Affordable, BudgetDecision, BudgetLimit, check_budget
from batchkiln.core.calls import Call, Misunderstood
from batchkiln.core.queue_types import Candidate
from batchkiln.core.rate_limits import RateLimits, StoredAccount
from batchkiln.core.timestamps import ClockReading
from batchkiln.core.waits import NotBefore, WaitReason

KEPT_FOR_REPLAYS: Final = 2
"""Places of the creates' minute that uploads leave free: one for a replay, one for the next create."""

KEPT_FOR_POLLS: Final = 8
"""Places of the reads' minute that quotes leave free: a poll every ten seconds, and reads for links."""


class CallWaits(Struct, frozen=True):
    """The back-offs of single calls after failures, in addition to the waits that the service imposed.

    `quotes` is keyed by recipe id, `inputs` by the id of an image to upload.
    """

    calls: Mapping[Call, NotBefore] = field(default_factory=dict)
    quotes: Mapping[int, NotBefore] = field(default_factory=dict)
    inputs: Mapping[int, NotBefore] = field(default_factory=dict)


class Permission(Struct, frozen=True):
    """The permissions of an account in this run. `credits_left` is the rest of --max-credits; None without it."""

    may_start: bool = True
    is_blocked: bool = False  # the service refuses new requests; paid results are still downloaded
    has_key: bool = True
    credits_left: int | None = None  # this account's unresolved attempt included


class AccountView(Struct, frozen=True):
    """One account's limits and waits. All moments are monotonic.

    `last_touched_at` is when the last request about the active generation ended; None if there was none.
    `read_worth_at` is the best moment for the next poll of it, as `poll_timing` computes it.
    """

    rates: RateLimits
    waits: CallWaits = field(default_factory=CallWaits)
    permission: Permission = field(default_factory=Permission)
    misunderstood: tuple[Misunderstood, ...] = ()
    last_touched_at: float | None = None
    read_worth_at: float = -inf

    @property
    def start_obstacle(self) -> WaitReason | None:
        """The reason why this account may not start new work; None if it may."""
        if self.permission.is_blocked:
            return WaitReason.ACCOUNT_BLOCKED
        if not self.permission.has_key:
            return WaitReason.NO_KEY
        return None if self.permission.may_start else WaitReason.ENOUGH

    def is_suspended(self, *calls: Call) -> bool:
        """Return whether one of these calls is suspended because its replies are not understood (Law 10)."""
        return any(entry.call in calls and entry.call.may_be_suspended for entry in self.misunderstood)

    # --- the earliest moment of a request ---

    def call_due(self, call: Call, now: ClockReading, *, places: int = 1) -> NotBefore:
        """Return when a call may be sent, with `places` of its minute free; never while the call is suspended."""
        if self.is_suspended(call):
            return NotBefore(inf, WaitReason.NOT_UNDERSTOOD)
        due = self.rates.due(now, is_create=call.is_create, places=places)
        return due.after(self.waits.calls.get(call, due))

    def quote_due(self, candidate: Candidate, now: ClockReading) -> NotBefore:
        """Return when the quote of a candidate's recipe may be requested."""
        due = self.call_due(Call.QUOTE, now, places=1 + KEPT_FOR_POLLS)
        return due.after(self.waits.quotes.get(candidate.recipe_id, due))

    def upload_due(self, candidate: Candidate, now: ClockReading) -> NotBefore:
        """Return when an upload's two requests may be sent; both count in the window of creates (Service section 8)."""
        due = self.call_due(Call.UPLOAD, now, places=2 + KEPT_FOR_REPLAYS).after(self.call_due(Call.COMPLETION, now))
        held = (self.waits.inputs.get(input_id, due) for input_id in candidate.missing_inputs)
        due = due.after(min(held, key=lambda each: each.at, default=due))
        return due.after(self.rates.upload_day_due)

    def completion_due(self, now: ClockReading) -> NotBefore:
        """Return when an upload may be completed. The back-off of uploads does not apply, because it ended before."""
        return self.rates.due(now, is_create=True)

    # --- credits ---

    def check(self, candidate: Candidate, cost: int) -> BudgetDecision:
        """Return whether a candidate's quote is within its cap, its job's budgets and the account's daily credits."""
        return check_budget(
            cost,
            cap=candidate.cap,
            money=candidate.money,
            credits_today=self.rates.usage.credits,
            credits_per_day=self.rates.limits.credits_per_day,
            job_is_working=candidate.job_is_working,
        )

    def is_over_run(self, cost: int) -> bool:
        """Return whether a quote exceeds the rest of --max-credits."""
        return self.permission.credits_left is not None and cost > self.permission.credits_left

    def payable_at(self, decision: BudgetDecision) -> NotBefore:
        """Return when a quote that cannot be paid now may be payable.

        That is the daily reset. It is infinite if only the end of an unresolved attempt can make room.
        """
        if decision.fit is not Affordable.AFTER_RESET:
            return NotBefore(inf, WaitReason.SETTLING)
        is_job = decision.obstacle is BudgetLimit.OVER_JOB_DAY
        return NotBefore(self.rates.resets_at, WaitReason.JOB_DAY_CREDITS if is_job else WaitReason.DAY_CREDITS)

    def room_for(self, candidate: Candidate) -> int:
        """Return how many credits a candidate's job may still reserve today."""
        money = candidate.money
        limits = [
            self.rates.limits.credits_per_day - self.rates.usage.credits,
            None if money.budget is None else money.budget - money.committed,
            None if money.budget_per_day is None else money.budget_per_day - money.today,
            self.permission.credits_left,
        ]
        return min(limit for limit in limits if limit is not None)


class StoredView(StoredAccount, Protocol):
    """The account's limits and misunderstood calls as the queue stores them."""

    @property
    def misunderstood(self) -> tuple[Misunderstood, ...]:
        """The calls whose replies are not understood."""


def account_view(
    stored: StoredView,
    rates: RateLimits,
    now: ClockReading,
    *,
    released: tuple[int, int] | None = None,
    waits: CallWaits | None = None,
    permission: Permission | None = None,
    last_touched_at: float | None = None,
    read_worth_at: float = -inf,
) -> AccountView:
    """Update `rates` from the queue, and return the planner's view of the account.

    `released` is the value of `rates.released()` from before the queue was read. The worker, plans and pages all use
    this function.
    """
    rates.update(stored, now, released)
    return AccountView(
        rates=rates,
        waits=waits or CallWaits(),
        permission=permission or Permission(),
        misunderstood=stored.misunderstood,
        last_touched_at=last_touched_at,
        read_worth_at=read_worth_at,
    )
