"""Credits: what fits now, later, never."""

from typing import Any

import pytest

from batchkiln.core.budget import Affordable, BudgetDecision, BudgetLimit, JobCredits, check_budget

NOW = BudgetDecision(Affordable.NOW)


@pytest.mark.parametrize(
    ("cost", "given", "verdict"),
    [
        (10, {}, NOW),
        (0, {"credits_today": 100, "credits_per_day": 100}, NOW),
        (10, {"cap": 10}, NOW),
        (11, {"cap": 10}, BudgetDecision(Affordable.NEVER, BudgetLimit.OVER_CAP)),
        (100, {"credits_per_day": 100}, NOW),
        (101, {"credits_per_day": 100}, BudgetDecision(Affordable.NEVER, BudgetLimit.OVER_DAY)),
        (10, {"credits_per_day": 100, "credits_today": 90}, NOW),
        (
            11,
            {"credits_per_day": 100, "credits_today": 90},
            BudgetDecision(Affordable.AFTER_RESET, BudgetLimit.OVER_DAY),
        ),
        (10, {"money": JobCredits(budget=10)}, NOW),
        (11, {"money": JobCredits(budget=10)}, BudgetDecision(Affordable.NEVER, BudgetLimit.OVER_JOB_BUDGET)),
        (6, {"money": JobCredits(budget=10, charged=5)}, BudgetDecision(Affordable.NEVER, BudgetLimit.OVER_JOB_BUDGET)),
        (6, {"money": JobCredits(budget=10, charged=5, refunded=1)}, NOW),
        (
            6,
            {"money": JobCredits(budget=10, reserved=5)},
            BudgetDecision(Affordable.NEVER, BudgetLimit.OVER_JOB_BUDGET),
        ),
        (
            6,
            {"money": JobCredits(budget=10, reserved=5), "job_is_working": True},
            BudgetDecision(Affordable.WHEN_SETTLED, BudgetLimit.OVER_JOB_BUDGET),
        ),
        (
            11,
            {"money": JobCredits(budget=10), "job_is_working": True},
            BudgetDecision(Affordable.NEVER, BudgetLimit.OVER_JOB_BUDGET),
        ),
        (11, {"money": JobCredits(budget_per_day=10)}, BudgetDecision(Affordable.NEVER, BudgetLimit.OVER_JOB_DAY)),
        (
            6,
            {"money": JobCredits(budget_per_day=10, today=5)},
            BudgetDecision(Affordable.AFTER_RESET, BudgetLimit.OVER_JOB_DAY),
        ),
        (5, {"money": JobCredits(budget_per_day=10, today=5)}, NOW),
        (
            6,
            {"money": JobCredits(budget_per_day=10, today=5, unconfirmed=4)},
            BudgetDecision(Affordable.AFTER_RESET, BudgetLimit.OVER_JOB_DAY),
        ),
        (
            6,
            {"money": JobCredits(budget_per_day=10, today=5, unconfirmed=5)},
            BudgetDecision(Affordable.WHEN_SETTLED, BudgetLimit.OVER_JOB_DAY),
        ),
    ],
)
def test_verdict(cost: int, given: dict[str, Any], verdict: BudgetDecision) -> None:
    """Law 6: a cost is held against the cap, the job, its day and the account's day."""
    defaults: dict[str, Any] = {
        "cap": None,
        "money": JobCredits(),
        "credits_today": 0,
        "credits_per_day": 2000,
        "job_is_working": False,
    }

    assert check_budget(cost, **defaults | given) == verdict


def test_committed_is_what_a_job_has_cost_if_nothing_more_happens() -> None:
    """Reserved and charged, without what came back."""
    assert JobCredits(reserved=3, charged=20, refunded=5).committed == 18
