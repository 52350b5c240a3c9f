"""The remedies of rejected items. A retry alone cannot help: the same request is rejected again."""

import shlex
from collections.abc import Mapping
from typing import Final

from batchkiln.core.budget import BudgetLimit

_REMEDIES: Final[Mapping[str, str]] = {
    BudgetLimit.OVER_CAP: "raise max_cost_credits in the manifest, or request less",
    BudgetLimit.OVER_DAY: "request less in the manifest: each item exceeds the credits of a whole day",
    BudgetLimit.OVER_JOB_DAY: "raise budget.credits_per_day in the manifest, or request less",
    BudgetLimit.OVER_JOB_BUDGET: "raise budget.credits in the manifest",
}


def remedy_of_rejected(code: str, manifest_path: str, sufficient_budget: int | None = None) -> str:
    """Return the next step for the items of a job that were rejected with an error code, with a command.

    `sufficient_budget` is the `budget.credits` that would pay for all, if it is known.
    """
    remedy = _REMEDIES.get(code, "change what the error names in the manifest")
    if code == BudgetLimit.OVER_JOB_BUDGET and sufficient_budget is not None:
        remedy = f"raise budget.credits to {sufficient_budget:,} in the manifest"
    return f"{remedy}, then `batchkiln run {manifest_argument(manifest_path)}`"


def manifest_argument(manifest_path: str) -> str:
    """Return the path of a job's manifest as an argument of a command; `-` for one from standard input."""
    return "-" if manifest_path == "<stdin>" else shlex.quote(manifest_path)
