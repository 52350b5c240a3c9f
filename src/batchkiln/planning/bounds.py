"""Upper bounds for the price of items without a quote.

The bound is the tightest of cap, budget and the account's daily credits. The price of another model, mode or size is
not used, because it implies nothing about an item.
"""

import json
from collections.abc import Iterator, Mapping

from msgspec import Struct

from batchkiln.core.job import Mode
from batchkiln.core.rate_limits import Limits
from batchkiln.core.states import ItemState
from batchkiln.planning.quotes import Quotes
from batchkiln.store import ManifestPlan


class UnpricedGroup(Struct, frozen=True):
    """Items with the same recipe and without a price, and the reason why the price is missing.

    Each item costs at most `bound` credits; `bound_by` names the limit. `is_set_by_user` is false if that limit is only
    the account's daily credits (Law 6, Service section 8).
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
    is_set_by_user: bool

    @property
    def title(self) -> str:
        """The group's name, as shown to people."""
        return recipe_title(self.model, self.mode, self.parameters, self.images)


def recipe_title(model: str, mode: Mode, parameters: Mapping[str, str | int | bool], images: int) -> str:
    """Return a title that names everything a price depends on."""
    words = {name: json.dumps(value).strip('"') for name, value in parameters.items()}
    parts = [f"{model} {mode}", *(f"{name} {word}" for name, word in words.items())]
    if images:
        parts.append("1 image" if images == 1 else f"{images} images")
    return ", ".join(parts)


def unpriced_groups(
    manifest: ManifestPlan, quotes: Quotes, limits: Limits, accounts: tuple[str, ...]
) -> Iterator[UnpricedGroup]:
    """Yield the groups of one manifest's items that have no price.

    `manifest` has all known prices, and excludes items that the service refuses.
    """
    for entry in manifest.counts:
        recipe = manifest.recipes.get(entry.recipe_id)
        if entry.state is not ItemState.QUEUED or entry.cost_credits is not None or recipe is None or not entry.count:
            continue
        bound, bound_by, is_set_by_user = _bound(manifest, entry.max_cost_credits, limits)
        yield UnpricedGroup(
            job=manifest.spec.name,
            model=entry.model,
            mode=recipe.mode,
            parameters=dict(recipe.parameters),
            images=recipe.inputs_count,
            items=entry.count,
            reason=_reason(manifest.profile, entry.price_key, quotes, accounts),
            needs_uploads=(manifest.profile, entry.price_key) in quotes.lacking_uploads,
            bound=bound,
            bound_by=bound_by,
            is_set_by_user=is_set_by_user,
        )


def budget_left(manifest: ManifestPlan) -> int | None:
    """Return the credits left in the job's budget; None without a budget."""
    budget = manifest.spec.budget_credits
    return None if budget is None else max(0, budget - manifest.committed)


def _bound(manifest: ManifestPlan, cap: int | None, limits: Limits) -> tuple[int, str, bool]:
    """Return the lowest bound of one item's price; among equal bounds, one that the user set."""
    candidates = (
        (cap, "max_cost_credits", True),
        (budget_left(manifest), "the rest of budget.credits", True),
        (manifest.spec.budget_credits_per_day, "budget.credits_per_day", True),
        (limits.credits_per_day, "the account's daily credits", False),
    )
    known = [(bound, what, is_set_by_user) for bound, what, is_set_by_user in candidates if bound is not None]
    return min(known, key=lambda entry: entry[0])


def _reason(profile: str, price_key: str, quotes: Quotes, accounts: tuple[str, ...]) -> str:
    if (profile, price_key) in quotes.lacking_uploads:
        return "its quote needs images, which are uploaded only during a run"
    reasons = [each.reason for each in quotes.failures if each.profile == profile and each.account in accounts]
    return reasons[0] if reasons else "no quote was requested"
