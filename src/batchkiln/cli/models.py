"""`batchkiln models` and `batchkiln balance`: the service's catalogue with prices, and the remaining credits."""

import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from math import gcd
from typing import TYPE_CHECKING, Any, Final

import click

from batchkiln.api import ApplyOptions
from batchkiln.cli.command import JOB, MODEL, Common, command, run_async
from batchkiln.cli.manifest_progress import app_context
from batchkiln.cli.output import print_json, print_result, print_status
from batchkiln.core.catalog_checks import Catalogue, in_order
from batchkiln.core.errors import ExitStatus, InputError
from batchkiln.core.responses import ModelEntry
from batchkiln.core.suggestions import closest, did_you_mean
from batchkiln.planning.catalogues import Catalogues
from batchkiln.planning.queue_access import QueueAccess, open_access
from batchkiln.presentation.formatting import plural, sanitize

_FACT_COLUMN: Final = 17

if TYPE_CHECKING:
    from batchkiln.config import Profile
    from batchkiln.planning.balances import Balance
    from batchkiln.planning.offers import Price


@command(
    "models",
    example="batchkiln models\nbatchkiln models epsilon-2 --json\nbatchkiln models --manifest birds.yaml",
    logs=True,
)
@click.argument("model", type=MODEL, required=False)
@click.option(
    "--manifest",
    type=click.Path(),
    metavar="FILE",
    help="Ask for the prices of a manifest; `-` reads standard input.",
)
@click.option("--job", type=JOB, metavar="JOB", help="Ask for the prices of a job in the queue.")
def models(common: Common, *, model: str | None, manifest: str | None, job: str | None) -> ExitStatus:
    """List the service's current catalogue, or only MODEL: modes, resolutions, aspect ratios, durations, and limits.

    With a manifest or a job, it also asks for the prices of the models in use, by quotes. Costs no credits; the
    requests count toward the account's limit of reads.
    """
    if manifest is not None and job is not None:
        raise InputError("--manifest and --job cannot be combined; run the command once for each")
    return run_async(_models(common, model, manifest, job))


@command("balance", example="batchkiln balance\nbatchkiln balance --profile studio --json", logs=True)
def balance(common: Common) -> ExitStatus:
    """Show the remaining credits of each account of a profile, and today's usage according to this queue.

    Takes one read per account, which costs no credits.
    """
    return run_async(_balance(common))


# --- models ---------------------------------------------------------------------------------------


async def _models(common: Common, model: str | None, manifest: str | None, job: str | None) -> ExitStatus:
    async with open_access(app_context(common)) as access:
        catalogues = Catalogues(access)
        prices, profile = await _prices(access, catalogues, manifest, job)
        catalogue = await catalogues.of(profile, profile.account_names[0])
    entries = _requested_models(catalogue, model)
    ranges = _price_ranges(entries) if profile.is_embedded else {}
    if common.is_json:
        print_json(
            {
                "profile": profile.name,
                "models": [_entry_document(entry) | {"price_range": ranges.get(entry.id)} for entry in entries],
                "prices": [_price_document(price) for price in prices],
                "problem": next((f"the catalogue {reason}" for reason in catalogues.reasons()), None),
            }
        )
    else:
        for entry in entries:
            for line in _entry_lines(entry, ranges.get(entry.id)):
                print_result(line, hanging=_FACT_COLUMN)
        for line in _price_lines(prices):
            print_result(line)
        if entries and not prices:
            print_status("The price depends on the request: `batchkiln models --manifest FILE` asks for it.")
    for reason in catalogues.reasons():
        print_status(f"batchkiln: the catalogue of the profile {profile.name} {sanitize(reason)}")
    return catalogues.exit_status


async def _prices(
    access: QueueAccess, catalogues: Catalogues, manifest: str | None, job: str | None
) -> "tuple[list[Price], Profile]":
    """Ask for the prices of a manifest or a job. Return them with the profile that they apply to."""
    from batchkiln.planning.offers import planned_prices, queued_job  # noqa: PLC0415  the client is slow to import
    from batchkiln.planning.plan import make_plan  # noqa: PLC0415  as above
    from batchkiln.planning.quotes import ask_quotes, read_account_states  # noqa: PLC0415  as above

    config = access.app.config
    if manifest is not None:
        plan = await make_plan(
            access,
            [manifest],
            options=ApplyOptions(on_change="keep"),
            stdin=sys.stdin.buffer,
            catalogues=catalogues,
        )
        return list(planned_prices(plan)), config.profile(plan.jobs[0].manifest.profile)
    if job is None:
        return [], config.profile(access.app.profile)
    queued = await access.store.read(queued_job, job, config.profiles)
    known = await read_account_states(access)
    quotes = await ask_quotes(queued.questions(), profiles=config.profiles, known=known, access=access)
    return list(queued.prices(quotes)), config.profile(queued.profile)


def _price_ranges(entries: Sequence[ModelEntry]) -> "dict[str, tuple[int, int]]":
    """Return the lowest and the highest price of each model that makes something from a text on the local service."""
    from batchkiln.planning.offers import local_price_range  # noqa: PLC0415  the client is slow to import

    return {entry.id: found for entry in entries if (found := local_price_range(entry)) is not None}


def _requested_models(catalogue: Catalogue | None, model: str | None) -> list[ModelEntry]:
    """Return the requested entries of the catalogue. Raise `InputError` for a model that is not listed."""
    listed = {} if catalogue is None else catalogue.models
    if model is None or not listed:
        return list(listed.values())
    if model not in listed:
        remedy = did_you_mean(closest(model, listed)) or f"the models are: {', '.join(listed)}"
        raise InputError(f"the service lists no model {model}; {remedy}")
    return [listed[model]]


def _entry_lines(entry: ModelEntry, prices: tuple[int, int] | None) -> Iterator[str]:
    yield entry.id
    limit = entry.prompt_max_characters
    facts = (
        ("modes", ", ".join(sorted(entry.modes))),
        ("resolutions", ", ".join(_with_ratio(each, entry.aspect_ratios) for each in in_order(entry.resolutions))),
        ("aspect ratios", ", ".join(in_order(entry.aspect_ratios))),
        ("seconds", ", ".join(map(str, sorted(entry.durations_seconds)))),
        ("prompt", "" if limit is None else f"at most {limit:,} characters"),
        ("images", "" if entry.images_max is None else f"at most {entry.images_max}"),
        ("price", "" if prices is None else _range_text(*prices)),
    )
    for name, fact in facts:
        if fact or name not in {"seconds", "price"}:
            known = sanitize(fact) or "unknown: missing or not understood; the service decides"
            yield f"  {name:<{_FACT_COLUMN - 3}} {known}"


def _range_text(lowest: int, highest: int) -> str:
    amount = plural(highest, "credit")
    return f"{amount if lowest == highest else f'{lowest:,} to {amount}'} from a text, made up by the local service"


def _with_ratio(resolution: str, ratios: Collection[str]) -> str:
    """Return a resolution in pixels with the offered aspect ratio that it has, as in `1024x768 (4:3)`."""
    width, _, height = resolution.partition("x")
    if not (width.isdecimal() and height.isdecimal() and int(width) and int(height)):
        return resolution
    divisor = gcd(int(width), int(height))
    ratio = f"{int(width) // divisor}:{int(height) // divisor}"
    return f"{resolution} ({ratio})" if ratio in ratios else resolution


def _entry_document(entry: ModelEntry) -> dict[str, Any]:
    return {
        "model": entry.id,
        "modes": sorted(entry.modes),
        "resolutions": in_order(entry.resolutions),
        "aspect_ratios": in_order(entry.aspect_ratios),
        "durations_seconds": sorted(entry.durations_seconds),
        "prompt_limit": entry.prompt_max_characters,
        "images_limit": entry.images_max,
    }


def _price_lines(prices: "Sequence[Price]") -> Iterator[str]:
    if prices:
        yield f"Prices of {prices[0].job}:"
    for price in prices:
        cost = "unknown" if price.cost_credits is None else plural(price.cost_credits, "credit")
        reason = f" ({sanitize(price.reason)})" if price.reason else ""
        yield f"  {cost} each: {sanitize(price.title)}, {plural(price.items, 'item')}{reason}"


def _price_document(price: "Price") -> dict[str, Any]:
    recipe = price.recipe
    return {
        "job": price.job,
        "model": recipe.model,
        "mode": recipe.mode.value,
        "parameters": dict(recipe.parameters),
        "images": recipe.inputs_count,
        "items": price.items,
        "cost_credits": price.cost_credits,
        "reason": price.reason,
    }


# --- balance --------------------------------------------------------------------------------------


async def _balance(common: Common) -> ExitStatus:
    from batchkiln.planning.balances import read_balances  # noqa: PLC0415  the client is slow to import

    app = app_context(common)
    async with open_access(app) as access:
        found = await read_balances(app.config.profile(app.profile), access)
    if common.is_json:
        print_json({"accounts": [_balance_document(each) for each in found]})
    else:
        for each in found:
            print_result(_balance_line(each))
    return _worst_status(each.exit_status for each in found)


def _balance_line(found: "Balance") -> str:
    name = f"{found.profile}/{found.account}"
    if found.credits is None:
        return f"{name}: unknown: {sanitize(found.reason or '')}"
    today = f"{found.usage.credits:,} of {found.credits_per_day:,} used today"
    return f"{name}: {plural(found.credits, 'credit')} left ({today}, according to this queue)"


def _balance_document(found: "Balance") -> dict[str, Any]:
    return {
        "profile": found.profile,
        "account": found.account,
        "balance": found.credits,
        "reason": found.reason,
        "today": {"credits": found.usage.credits, "credits_limit": found.credits_per_day},
    }


def _worst_status(statuses: Iterable[ExitStatus]) -> ExitStatus:
    return max(statuses, default=ExitStatus.OK)
