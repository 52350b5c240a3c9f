"""What `run` says before it spends: a short plan on a terminal, and a question where it is much."""

import asyncio
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from batchkiln.api.apply_manifests import Applied, describe_taken_files
from batchkiln.api.queue import Queue
from batchkiln.api.run_options import RunOptions
from batchkiln.cli.options import Common
from batchkiln.cli.output import is_terminal, print_status
from batchkiln.core.errors import InputError
from batchkiln.core.timestamps import to_milliseconds
from batchkiln.presentation.formatting import plural
from batchkiln.store import ApplyOptions, Writer

if TYPE_CHECKING:
    from batchkiln.planning.catalogues import Catalogues
    from batchkiln.planning.plan import Plan


def may_ask(manifests: Sequence[str], *, is_agreed: bool) -> bool:
    """Tell whether a person is there, and has not agreed already; standard input is read once only."""
    is_wanted = not (is_agreed or "-" in manifests)
    return is_wanted and is_terminal(sys.stdin) and is_terminal(sys.stderr)


async def ask_before_spending(
    common: Common,
    queue: Queue,
    manifests: Sequence[str],
    *,
    options: ApplyOptions,
    wishes: RunOptions,
    catalogues: "Catalogues",
) -> Mapping[str, str]:
    """Show what the run would come to, and ask where that is more than `confirm_above_credits`, or may be anything.

    Where an item has no price yet and neither cap nor budget bounds it, the person is asked in any case. Returns the
    digests of what was shown, by path: nothing else may be enqueued then.

    The queue's lock is held: prices are kept in the queue, and reads noted there, so that nothing is asked twice and
    no window is overstepped (Law 5). Raises `InputError` for a no; nothing was enqueued then.
    """
    from batchkiln.planning.plan import SameJobTwice, make_plan  # noqa: PLC0415  as above
    from batchkiln.planning.quotes import QuoteOptions  # noqa: PLC0415  as above
    from batchkiln.planning.request_log import RequestLog  # noqa: PLC0415  only where it is asked

    store, setting = queue.writer, queue.setting
    manner = QuoteOptions(setting.surroundings, note=RequestLog(store, setting).note, is_alone=True)
    try:
        plan = await make_plan(
            store,
            setting,
            manifests,
            options=options,
            stdin=sys.stdin.buffer,
            manner=manner,
            catalogues=catalogues,
        )
    except SameJobTwice as error:  # which a run may well have, one after the other
        await _confirm(
            "an unknown number of credits"
            if wishes.max_credits is None
            else f"at most {plural(wishes.max_credits, 'credit')}"
        )
        return error.digests
    for profile in {job.manifest.profile for job in plan.jobs}:
        if prices := plan.book.of(profile):
            now = plan.book.times.get(profile, setting.surroundings.wall())
            await store.write(Writer.keep_quotes, profile=profile, prices=prices, now=to_milliseconds(now))
    if not common.is_quiet:
        _show(plan)
    if any(job.manifest.report.changed_count and not job.manifest.report.kept for job in plan.jobs):
        return plan.digests  # applying refuses it in a moment
    most = _most(plan, wishes)
    is_open = bool(plan.unpriced) and not plan.is_bounded and wishes.max_credits is None
    if is_open or most > setting.config.confirm_above_credits:
        await _confirm(_amount(plan, most))
    return plan.digests


def _amount(plan: "Plan", most: int) -> str:
    """Say what may be spent; what has no price yet is told apart, and never guessed from what has one."""
    if not plan.unpriced:
        return f"about {plural(most, 'credit')}"
    return (
        f"at most {plural(most, 'credit')} ({plan.credits:,} by quotes, and {plural(plan.unpriced, 'item')} without a "
        "price yet)"
    )


async def ask_before_paying_again(applied: Sequence[Applied]) -> None:
    """Ask where files stand already by the names of new items: another queue may have paid for these.

    Raises `InputError` for a no; the items are queued then, and nothing was sent.
    """
    for entry in applied:
        if entry.taken and not await _is_confirmed(
            f"{describe_taken_files(entry.job, entry.taken)}. They may be paid twice. Go on?"
        ):
            raise InputError(
                "not confirmed: nothing was sent or spent. The new items are queued here: "
                f"`batchkiln cancel {entry.job.name}` takes them out again; --queue names another queue"
            )


def _show(plan: "Plan") -> None:
    from batchkiln.cli.plan_text import short_lines  # noqa: PLC0415  Rich, and only where it is shown

    for line in short_lines(plan):
        print_status(line)


async def _confirm(amount: str) -> None:
    if not await _is_confirmed(f"This may spend {amount}. Go on?"):
        raise InputError("not confirmed: nothing was enqueued, sent or spent")


async def _is_confirmed(question: str) -> bool:
    """Ask, in a thread: a signal has to be heard while the person thinks."""
    try:
        return await asyncio.to_thread(click.confirm, question, err=True)
    except click.Abort:  # the end of input (Ctrl-D); Ctrl-C is a signal, and ends before
        print_status("")
        return False


def _most(plan: "Plan", wishes: RunOptions) -> int:
    """Return how many credits this run may spend, as far as it is bounded by wish."""
    cost = plan.most
    if wishes.until.is_budget and plan.unpriced:
        days = [
            plan.profiles[outlook.profile].limits.credits_per_day * len(outlook.accounts) for outlook in plan.outlooks
        ]
        cost = min(cost, sum(days))
    elif wishes.until.is_budget:
        firsts = [outlook.forecast.days[0] for outlook in plan.outlooks if outlook.forecast.days]
        cost = sum(day.credits for day in firsts)
    return cost if wishes.max_credits is None else min(cost, wishes.max_credits)
