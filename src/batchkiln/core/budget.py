"""Checks whether a quote fits the cap, the job's budgets and the day's credits (Law 6; contract, section 7)."""

from enum import StrEnum

from msgspec import Struct


class JobCredits(Struct, frozen=True):
    """A job's credits. `reserved`: sent, outcome unknown. `charged`: accepted. `refunded`: verified failures.

    `today` is the number of credits that the job reserved on the current service day, verified failures included.
    `unconfirmed` is the part of `today` that counts on each coming day as well, until the attempt is settled (Law 6).
    """

    reserved: int = 0
    charged: int = 0
    refunded: int = 0
    today: int = 0
    unconfirmed: int = 0
    budget: int | None = None
    budget_per_day: int | None = None

    @property
    def is_limited(self) -> bool:
        """Whether the job has a budget."""
        return self.budget is not None or self.budget_per_day is not None

    @property
    def committed(self) -> int:
        """The credits that the job would cost if all reserved credits were charged and nothing more was sent."""
        return self.reserved + self.charged - self.refunded


class Affordable(StrEnum):
    """Whether an item's quote can be paid."""

    NOW = "now"
    AFTER_RESET = "after_reset"
    WHEN_SETTLED = "when_settled"  # an unresolved attempt may return credits to the job's budget, or of its day
    NEVER = "never"


class BudgetLimit(StrEnum):
    """A limit that a quote exceeds; also the error code of an item that can never be paid."""

    OVER_CAP = "over_cap"
    OVER_JOB_BUDGET = "over_job_budget"
    OVER_JOB_DAY = "over_job_day_budget"
    OVER_DAY = "over_day_budget"


class BudgetDecision(Struct, frozen=True):
    """Whether a quote can be paid, and the limit that prevents it; `obstacle` is None for `NOW`."""

    fit: Affordable
    obstacle: BudgetLimit | None = None


def check_budget(
    cost: int, *, cap: int | None, money: JobCredits, credits_today: int, credits_per_day: int, job_is_working: bool
) -> BudgetDecision:
    """Return whether `cost` credits can be paid now, later or never (Law 6).

    `job_is_working` is true if an attempt of the job is unresolved: if it fails, the job gets its credits back. So it
    does for an attempt that a restored copy has lost, which is among the `unconfirmed`.
    """
    exceeded = exceeded_limit(
        cost, cap=cap, per_day=credits_per_day, job_per_day=money.budget_per_day, job_budget=money.budget
    )
    if exceeded is not None:
        return BudgetDecision(Affordable.NEVER, exceeded[0])
    if money.budget is not None and money.committed + cost > money.budget:
        return BudgetDecision(
            Affordable.WHEN_SETTLED if job_is_working or money.unconfirmed else Affordable.NEVER,
            BudgetLimit.OVER_JOB_BUDGET,
        )
    if money.budget_per_day is not None and money.today + cost > money.budget_per_day:
        is_room_made = money.unconfirmed + cost <= money.budget_per_day
        fit = Affordable.AFTER_RESET if is_room_made else Affordable.WHEN_SETTLED
        return BudgetDecision(fit, BudgetLimit.OVER_JOB_DAY)
    if credits_today + cost > credits_per_day:
        return BudgetDecision(Affordable.AFTER_RESET, BudgetLimit.OVER_DAY)
    return BudgetDecision(Affordable.NOW)


def exceeded_limit(
    cost: int, *, cap: int | None, per_day: int, job_per_day: int | None, job_budget: int | None = None
) -> tuple[BudgetLimit, int] | None:
    """Return the first limit that is below `cost` even if nothing is used, with its credits; None if there is none."""
    limits = (
        (BudgetLimit.OVER_CAP, cap),
        (BudgetLimit.OVER_DAY, per_day),
        (BudgetLimit.OVER_JOB_DAY, job_per_day),
        (BudgetLimit.OVER_JOB_BUDGET, job_budget),
    )
    return next(((name, limit) for name, limit in limits if limit is not None and cost > limit), None)
