"""Credits: what may still be spent, on which day, by which job (Law 6; contract, section 7)."""

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class JobCredits:
    """A job's credits. `reserved`: sent, outcome unknown. `charged`: accepted. `refunded`: verified failures.

    `today` is what the job has taken of the day, failures included.
    """

    reserved: int = 0
    charged: int = 0
    refunded: int = 0
    today: int = 0
    budget: int | None = None
    budget_per_day: int | None = None

    @property
    def is_limited(self) -> bool:
        """Whether the job has a budget."""
        return self.budget is not None or self.budget_per_day is not None

    @property
    def committed(self) -> int:
        """What the job would have cost if nothing more happened."""
        return self.reserved + self.charged - self.refunded


class Affordable(StrEnum):
    """Whether an item's quote can be paid."""

    NOW = "now"
    AFTER_RESET = "after_reset"
    WHEN_SETTLED = "when_settled"  # the job's budget may get credits back from what is under way
    NEVER = "never"


class BudgetLimit(StrEnum):
    """What an item would overstep: also the error code of an item that never fits."""

    OVER_CAP = "over_cap"
    OVER_JOB_BUDGET = "over_job_budget"
    OVER_JOB_DAY = "over_job_day_budget"
    OVER_DAY = "over_day_budget"


@dataclass(frozen=True, slots=True)
class BudgetDecision:
    """A fit, and what stands in the way where it is not `NOW`."""

    fit: Affordable
    obstacle: BudgetLimit | None = None


def check_budget(
    cost: int, *, cap: int | None, money: JobCredits, credits_today: int, credits_per_day: int, job_is_working: bool
) -> BudgetDecision:
    """Return whether `cost` credits can be paid (Law 6).

    `job_is_working`: an attempt of the job is unresolved, and its failure would give credits back.
    """
    exceeded = exceeded_limit(
        cost, cap=cap, per_day=credits_per_day, job_per_day=money.budget_per_day, job_budget=money.budget
    )
    if exceeded is not None:
        return BudgetDecision(Affordable.NEVER, exceeded[0])
    if money.budget is not None and money.committed + cost > money.budget:
        return BudgetDecision(
            Affordable.WHEN_SETTLED if job_is_working else Affordable.NEVER, BudgetLimit.OVER_JOB_BUDGET
        )
    if money.budget_per_day is not None and money.today + cost > money.budget_per_day:
        return BudgetDecision(Affordable.AFTER_RESET, BudgetLimit.OVER_JOB_DAY)
    if credits_today + cost > credits_per_day:
        return BudgetDecision(Affordable.AFTER_RESET, BudgetLimit.OVER_DAY)
    return BudgetDecision(Affordable.NOW)


def exceeded_limit(
    cost: int, *, cap: int | None, per_day: int, job_per_day: int | None, job_budget: int | None = None
) -> tuple[BudgetLimit, int] | None:
    """Return the limit that `cost` exceeds even where nothing of it is used yet, with its credits; else None."""
    limits = (
        (BudgetLimit.OVER_CAP, cap),
        (BudgetLimit.OVER_DAY, per_day),
        (BudgetLimit.OVER_JOB_DAY, job_per_day),
        (BudgetLimit.OVER_JOB_BUDGET, job_budget),
    )
    return next(((name, limit) for name, limit in limits if limit is not None and cost > limit), None)
