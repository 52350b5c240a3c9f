"""Confirmation before `run` spends: a short plan on a terminal, and a question if the cost is high."""

import asyncio
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from batchkiln.api import ApplyOptions
from batchkiln.api.apply_manifests import Applied, describe_taken_files
from batchkiln.api.run import RunOptions
from batchkiln.cli.command import Common, can_ask_person
from batchkiln.cli.output import print_status, question_text
from batchkiln.core.errors import InputError, command_arguments
from batchkiln.presentation.confirmations import money_text, spending_question
from batchkiln.presentation.formatting import plural

if TYPE_CHECKING:
    from batchkiln.planning.catalogues import Catalogues
    from batchkiln.planning.plan import Plan
    from batchkiln.planning.queue_access import QueueAccess


def can_ask(manifests: Sequence[str], *, assume_yes: bool) -> bool:
    """Return whether a question is possible and wanted; a manifest on standard input leaves no input for an answer."""
    is_wanted = not (assume_yes or "-" in manifests)
    return is_wanted and can_ask_person()


async def ask_before_spending(
    common: Common,
    access: "QueueAccess",
    manifests: Sequence[str],
    *,
    options: ApplyOptions,
    run_options: RunOptions,
    catalogues: "Catalogues",
) -> tuple[Mapping[str, str], ApplyOptions]:
    """Show the plan, and ask for confirmation if its cost exceeds `confirm_above_credits` or has no bound.

    The cost has no bound if an item has no price yet and neither a cap nor a budget applies. Items whose requests were
    paid for before have a question of their own. Return the digests of the planned manifests by path, because the
    caller must enqueue only these contents, and the options with what was confirmed.

    The caller owns the queue's lock. Quotes and requests are recorded in the queue, so that no quote is requested
    twice and no limit is exceeded (Law 5). Raise `InputError` if the answer is no; nothing was enqueued then.
    """
    from batchkiln.planning.plan import make_plan  # noqa: PLC0415  as above

    plan = await make_plan(
        access,
        manifests,
        options=options,
        stdin=sys.stdin.buffer,
        catalogues=catalogues,
        selection=run_options.selection,
    )
    await access.keep_prices(plan.quotes)
    if not common.is_quiet:
        _show(plan)
    reports = [job.manifest.report for job in plan.jobs]
    if any((report.changed_count and not report.kept) or report.redo_refusal is not None for report in reports):
        return plan.digests, options  # applying the manifests raises the error
    if (again := sum(job.manifest.report.paid_before for job in plan.jobs)) and not options.allow_duplicates:
        question = f"{plural(again, 'new item')} would pay again for what the job has under other ids. Pay again?"
        if not await _is_confirmed(question):
            raise InputError("not confirmed: nothing was enqueued, sent or spent; the plan names the old ids")
        options = replace(options, allow_duplicates=True)
    most = _credits_at_most(plan, run_options)
    is_open = bool(plan.unpriced) and not plan.is_bounded and run_options.max_credits is None
    if is_open or most > access.app.config.confirm_above_credits:
        await _confirm(_amount_text(plan, most))
    return plan.digests, options


def _amount_text(plan: "Plan", most: int) -> str:
    """Return the possible cost as text. Items without a price are counted separately, and never estimated."""
    prices = {plan.profiles[cost.profile].credit_price for cost in plan.costs}
    money = money_text(most, prices.pop()) if len(prices) == 1 else ""
    days = max((sum(1 for day in outlook.forecast.days if day.credits) for outlook in plan.outlooks), default=0)
    if not plan.unpriced:
        over = f", over {days:,} service days" if days > 1 and most == plan.credits else ""
        return f"about {plural(most, 'credit')}{money}{over}"
    unpriced = f"{plural(plan.unpriced, 'item')} without a price yet"
    return f"at most {plural(most, 'credit')}{money} ({plan.credits:,} by quotes, and {unpriced})"


async def ask_before_paying_again(applied: Sequence[Applied]) -> None:
    """Ask for confirmation if files with the names of new items exist, because another queue may have paid for them.

    Raise `InputError` if the answer is no; the items are queued then, and nothing was sent.
    """
    for entry in applied:
        if entry.taken and not await _is_confirmed(
            f"{entry.job.name}: {describe_taken_files(entry.job, entry.taken)}. If another queue created them, answer "
            "no, and name that queue with --queue. Here they may be charged a second time. Continue?"
        ):
            raise InputError(
                "not confirmed: nothing was sent or spent. The new items are in this queue; "
                f"`batchkiln cancel {command_arguments(entry.job.name)}` cancels them, and --queue names another queue"
            )


def _show(plan: "Plan") -> None:
    from batchkiln.cli.plan_text import short_lines  # noqa: PLC0415  Rich is slow to import

    for line in short_lines(plan):
        print_status(line)


async def _confirm(amount: str) -> None:
    if not await _is_confirmed(spending_question(amount)):
        raise InputError("not confirmed: nothing was enqueued, sent or spent")


async def _is_confirmed(question: str) -> bool:
    """Return whether the person agrees. A thread asks, so that signals are handled while the question is open."""
    try:
        return await asyncio.to_thread(click.confirm, question_text(question), err=True)
    except click.Abort:  # the end of input (Ctrl-D); Ctrl-C arrives as a signal
        print_status("")
        return False


def _credits_at_most(plan: "Plan", run_options: RunOptions) -> int:
    """Return the most credits that this run may spend under `--max-credits` and `--until budget`."""
    cost = plan.most
    if run_options.until.is_budget and plan.unpriced:
        days = [
            plan.profiles[outlook.profile].limits.credits_per_day * len(outlook.accounts) for outlook in plan.outlooks
        ]
        cost = min(cost, sum(days))
    elif run_options.until.is_budget:
        firsts = [outlook.forecast.days[0] for outlook in plan.outlooks if outlook.forecast.days]
        cost = sum(day.credits for day in firsts)
    return cost if run_options.max_credits is None else min(cost, run_options.max_credits)
