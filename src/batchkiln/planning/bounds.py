"""What items may cost at most whose price is not known yet: never more than the tightest of what bounds them.

Another model's, mode's or size's price says nothing about them, so that none is assumed.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from batchkiln.core.job import Mode
from batchkiln.core.rate_limits import Limits
from batchkiln.core.states import ItemState
from batchkiln.planning.quotes import Quotes
from batchkiln.store import ManifestPlan


@dataclass(frozen=True, slots=True)
class UnpricedGroup:
    """Items alike without a price, and why there is none.

    Each costs at most `bound` credits, by what `bound_by` names. `is_wished`: a person set that bound; else it is
    only what the account may spend in a day (Law 6, Service section 8).
    """

    job: str
    model: str
    mode: Mode
    parameters: Mapping[str, str | int | bool]
    images: int
    items: int
    reason: str
    needs_uploads: bool
    bound: int
    bound_by: str
    is_wished: bool

    @property
    def title(self) -> str:
        """The group as a person tells it from others."""
        return title_of(self.model, self.mode, self.parameters, self.images)


def title_of(model: str, mode: Mode, parameters: Mapping[str, str | int | bool], images: int) -> str:
    """Name what a price depends on."""
    words = {name: json.dumps(value).strip('"') for name, value in parameters.items()}
    parts = [f"{model} {mode}", *(f"{name} {word}" for name, word in words.items())]
    if images:
        parts.append("1 image" if images == 1 else f"{images} images")
    return ", ".join(parts)


def unpriced_groups(
    manifest: ManifestPlan, book: Quotes, limits: Limits, accounts: tuple[str, ...]
) -> Iterator[UnpricedGroup]:
    """Give the groups of one manifest; `manifest` has its prices, and is without what the service refuses."""
    for entry in manifest.counts:
        recipe = manifest.recipes.get(entry.recipe_id)
        if entry.state is not ItemState.QUEUED or entry.cost_credits is not None or recipe is None or not entry.count:
            continue
        bound, bound_by, is_wished = _bound(manifest, entry.max_cost_credits, limits)
        yield UnpricedGroup(
            job=manifest.spec.name,
            model=entry.model,
            mode=entry.mode,
            parameters=dict(recipe.parameters),
            images=recipe.inputs_count,
            items=entry.count,
            reason=_reason(manifest.profile, entry.price_key, book, accounts),
            needs_uploads=(manifest.profile, entry.price_key) in book.lacking_uploads,
            bound=bound,
            bound_by=bound_by,
            is_wished=is_wished,
        )


def budget_left(manifest: ManifestPlan) -> int | None:
    """Return what is left of the job's budget; None without one."""
    budget = manifest.spec.budget_credits
    return None if budget is None else max(0, budget - manifest.committed)


def _bound(manifest: ManifestPlan, cap: int | None, limits: Limits) -> tuple[int, str, bool]:
    """Return the least of all that bounds the price of one item; of equal ones, that which a person set."""
    candidates = (
        (cap, "max_cost_credits", True),
        (budget_left(manifest), "what is left of budget.credits", True),
        (manifest.spec.budget_credits_per_day, "budget.credits_per_day", True),
        (limits.credits_per_day, "what the account may spend in a day", False),
    )
    known = [(bound, what, is_wished) for bound, what, is_wished in candidates if bound is not None]
    return min(known, key=lambda entry: entry[0])


def _reason(profile: str, price_key: str, book: Quotes, accounts: tuple[str, ...]) -> str:
    if (profile, price_key) in book.lacking_uploads:
        return "a quote needs its images, and they are uploaded only when it runs"
    told = [each.reason for each in book.hindrances if each.profile == profile and each.account in accounts]
    return told[0] if told else "it was not asked"
