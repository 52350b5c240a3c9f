"""A service's models and prices, for `batchkiln models`."""

from collections.abc import Iterator, Mapping
from typing import Final

from msgspec import Struct

from batchkiln.api.local_service import price_by_local_service
from batchkiln.config import Profile
from batchkiln.core.errors import InputError
from batchkiln.core.job import Mode, Recipe
from batchkiln.core.responses import ModelEntry
from batchkiln.planning.bounds import recipe_title
from batchkiln.planning.plan import Plan
from batchkiln.planning.quotes import Quotes
from batchkiln.store import JobRecipe, PriceQuestion, Reader

_FROM_TEXT: Final = frozenset({Mode.TEXT_TO_IMAGE.value, Mode.TEXT_TO_VIDEO.value})


class Price(Struct, frozen=True):
    """The price of one recipe.

    If `cost_credits` is None, `reason` says why there is no price. `items` counts the items with this recipe.
    """

    job: str
    recipe: Recipe
    items: int
    cost_credits: int | None
    reason: str | None

    @property
    def title(self) -> str:
        """The recipe's name, as shown to people."""
        return recipe_title(self.recipe.model, self.recipe.mode, dict(self.recipe.parameters), self.recipe.inputs_count)


def planned_prices(plan: Plan) -> Iterator[Price]:
    """Yield the prices of the items that manifests would send."""
    for job in plan.jobs:
        reasons = {group.title: group.reason for group in job.unpriced}
        for entry in job.manifest.counts:
            recipe = job.manifest.recipes.get(entry.recipe_id)
            if recipe is None or not entry.count:
                continue
            refused = plan.quotes.refused.get((job.manifest.profile, entry.price_key))
            title = recipe_title(recipe.model, recipe.mode, dict(recipe.parameters), recipe.inputs_count)
            reason = reasons.get(title) if refused is None else f"refused: {refused.code}: {refused.message}"
            yield Price(job.manifest.spec.name, recipe, entry.count, entry.cost_credits, reason)


def local_price_range(entry: ModelEntry) -> tuple[int, int] | None:
    """Return the lowest and the highest price, in credits, of a model's output from a text on the local service.

    None if the service makes none from a text. Each size and duration is priced with an aspect ratio that fits.
    """
    prices = [
        price
        for mode in entry.modes & _FROM_TEXT
        for resolution in entry.resolutions
        for duration in entry.durations_seconds or {None}
        if (price := _local_price(entry, Mode(mode), resolution, duration)) is not None
    ]
    return (min(prices), max(prices)) if prices else None


def _local_price(entry: ModelEntry, mode: Mode, resolution: str, duration: int | None) -> int | None:
    for ratio in entry.aspect_ratios:
        parameters: list[tuple[str, str | int | bool]] = [("aspect_ratio", ratio), ("resolution", resolution)]
        parameters += [] if duration is None else [("duration_seconds", duration)]
        recipe = Recipe(entry.id, mode, tuple(sorted(parameters)), inputs_count=0, max_cost_credits=None, attempts=1)
        price = price_by_local_service(recipe, "a picture")
        if isinstance(price, int):
            return price
    return None


class QueuedJob(Struct, frozen=True):
    """The profile of a queued job, the account to ask for prices, and the job's recipes with their known prices."""

    name: str
    profile: str
    account: str
    recipes: tuple[JobRecipe, ...]

    def questions(self) -> list[PriceQuestion]:
        """Return one question for each price that the queue does not know."""
        found: dict[str, PriceQuestion] = {}
        for each in self.recipes:
            if each.question is not None:
                found.setdefault(each.question.price_key, each.question)
        return list(found.values())

    def prices(self, quotes: Quotes) -> Iterator[Price]:
        """Yield the prices of all recipes, including those in `quotes`."""
        failed = next((each.reason for each in quotes.failures), "no quote was requested")
        for each in self.recipes:
            key = (self.profile, each.price_key)
            cost = quotes.prices.get(key) if each.cost_credits is None else each.cost_credits
            reason = None if cost is not None else failed
            if cost is None and key in quotes.lacking_uploads:
                reason = "its quote needs images, which are uploaded only during a run"
            if cost is None and key in quotes.refused:
                reason = f"refused: {quotes.refused[key].code}: {quotes.refused[key].message}"
            yield Price(self.name, each.recipe, each.items, cost, reason)


def queued_job(reader: Reader, name: str, profiles: Mapping[str, Profile]) -> QueuedJob:
    """Read a job of the queue. Raise `InputError` for an unknown job."""
    firsts = {profile.name: profile.account_names[0] for profile in profiles.values()}
    profile, account, recipes = reader.plans.job_recipes(name, firsts)
    if profile not in profiles:
        raise InputError(f"the job {name} uses the profile {profile}, which is not configured")
    return QueuedJob(name, profile, account, recipes)
