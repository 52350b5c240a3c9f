"""`batchkiln retry`, `cancel`, `pause`, `unpause`, `resolve` and `ask-again`. Each states its possible cost first."""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Final

import click

from batchkiln.api import Decision, Skipped, check_resolvable
from batchkiln.api.changes import Action, Question, end_waits, open_changes, question_before
from batchkiln.api.documents import canceled_document, retried_document
from batchkiln.api.item_selection import ItemSelection, names_of
from batchkiln.cli.change_progress import ChangeProgress
from batchkiln.cli.command import ITEM, JOB, Common, can_ask_person, command, run_async
from batchkiln.cli.item_filters import item_filters
from batchkiln.cli.output import print_json, print_result, print_status, question_text
from batchkiln.core.errors import ExitStatus, InputError
from batchkiln.core.states import NOT_DELIVERED
from batchkiln.presentation.account_errors import CALLS
from batchkiln.presentation.confirmations import cost_of_resolve
from batchkiln.presentation.formatting import plural
from batchkiln.presentation.takers import after_pause, after_unpause, who_takes

MANY: Final = 20
"""The number of named items from which a confirmation is needed; without names it is two."""

SKIPPED_SHOWN: Final = 20

ITEMS = click.argument("items", type=ITEM, metavar="[ITEM]...", nargs=-1)
YES = click.option("--yes", "assume_yes", is_flag=True, help="Do not ask for confirmation.")


@command("retry", example="batchkiln retry field-guide\nbatchkiln retry field-guide red-fox owl-clip --yes")
@click.argument("job", type=JOB)
@ITEMS
@item_filters()
@YES
def retry(
    common: Common, job: str, items: tuple[str, ...], *, selection: ItemSelection, assume_yes: bool
) -> ExitStatus:
    """Queue ended items of JOB again: the named or chosen items, or all that failed, were rejected or expired.

    Each gets a new attempt, which is charged. The command states the possible cost first. Rejected items are rejected
    again, at no cost, as long as their cause stays; `--state failed` leaves them out.
    """
    return run_async(_retry(common, job, items, selection, assume_yes=assume_yes))


async def _retry(
    common: Common, job: str, named: Sequence[str], selection: ItemSelection, *, assume_yes: bool
) -> ExitStatus:
    async with open_changes(common.queue) as changes:
        chosen = selection.within(NOT_DELIVERED) if selection else selection
        items = await changes.reader.read(names_of, job, named, chosen)
        if items == []:  # without names, all would be queued
            return print_unchanged(f"{job} has no such items.")
        items = items or []
        question = await question_before(changes, Action.RETRY, job, items)
        print_status(question.cost)
        if not is_confirmed(common, question, items, assume_yes=assume_yes):
            return print_unchanged()
        report = await changes.retry(
            job, items or None, ChangeProgress(question.number, asyncio.get_running_loop().time)
        )
        number = sum(report.requeued.values())
        takers = await changes.reader.read(partial(who_takes, jobs=[job], number=number))
    if common.is_json:
        print_json(retried_document(job, report))
    else:
        print_result(f"{job}: {plural(number, 'item')} queued again.")
        print_skipped(report.skipped)
        if number:
            print_result(takers)
    return ExitStatus.OK


@command("cancel", example="batchkiln cancel field-guide red-fox\nbatchkiln cancel field-guide --yes")
@click.argument("job", type=JOB)
@ITEMS
@YES
def cancel(common: Common, job: str, items: tuple[str, ...], *, assume_yes: bool) -> ExitStatus:
    """Cancel items of JOB that were never sent: the named items, or all.

    Costs nothing. Items that were sent are charged already. Their results are still downloaded, because the service
    has no cancellation.
    """
    return run_async(_cancel(common, job, items, assume_yes=assume_yes))


async def _cancel(common: Common, job: str, items: Sequence[str], *, assume_yes: bool) -> ExitStatus:
    async with open_changes(common.queue) as changes:
        question = await question_before(changes, Action.CANCEL, job, items)
        print_status(question.cost)
        if not is_confirmed(common, question, items, assume_yes=assume_yes):
            return print_unchanged()
        report = await changes.cancel(
            job, items or None, ChangeProgress(question.number, asyncio.get_running_loop().time)
        )
    if common.is_json:
        print_json(canceled_document(job, report))
    else:
        print_result(f"{job}: {plural(report.canceled, 'item')} canceled.")
        print_skipped(report.skipped)
    return ExitStatus.OK


@command("pause", example="batchkiln pause field-guide")
@click.argument("job", type=JOB)
def pause(common: Common, job: str) -> ExitStatus:
    """Start no new items of JOB. Items that were sent are charged already, and are finished and downloaded."""
    return run_async(_set_paused(common, job, is_paused=True))


@command("unpause", example="batchkiln unpause field-guide")
@click.argument("job", type=JOB)
@YES
def unpause(common: Common, job: str, *, assume_yes: bool) -> ExitStatus:
    """Resume a paused JOB. The command first states the possible cost of its queued items."""
    return run_async(_set_paused(common, job, is_paused=False, assume_yes=assume_yes))


async def _set_paused(common: Common, job: str, *, is_paused: bool, assume_yes: bool = False) -> ExitStatus:
    async with open_changes(common.queue) as changes:
        question = await question_before(changes, Action.PAUSE if is_paused else Action.UNPAUSE, job)
        if question.number:
            print_status(question.cost)
        if not is_confirmed(common, question, (), assume_yes=assume_yes):
            return print_unchanged()
        is_changed = await (changes.pause(job) if is_paused else changes.unpause(job))
        after = ""
        if is_paused:
            after = await changes.reader.read(after_pause, job)
        elif question.number:
            after = await changes.reader.read(after_unpause, job)
    if common.is_json:
        print_json({"job": job, "paused": is_paused, "changed": is_changed})
    elif not is_changed:
        print_result(f"{job} {'was already' if is_paused else 'was not'} paused; nothing was changed.")
    else:
        print_result(f"{job} {'is' if is_paused else 'is no longer'} paused.")
        if after:
            print_status(after)
    return ExitStatus.OK


def is_confirmed(common: Common, question: Question, items: Sequence[str], *, assume_yes: bool) -> bool:
    """Ask for confirmation on a terminal if many items change, or if they may spend as much as `run` asks about.

    Return True without a terminal, and with --no-input.
    """
    if assume_yes or not can_ask_person():
        return True
    text = _asked(common, question, items)
    return text is None or click.confirm(question_text(text), err=True)


def _asked(common: Common, question: Question, items: Sequence[str]) -> str | None:
    """Return the question to ask; None if too little changes to ask."""
    is_many = question.number >= MANY if items else question.number > 1
    spending = question.spending
    if spending is None:
        return "Continue?" if is_many else None
    config = common.load_config()
    if not is_many and not spending.unpriced and spending.credits <= config.confirm_above_credits:
        return None
    profile = config.profiles.get(spending.profile)
    return spending.question(profile.credit_price if profile else None)


def print_unchanged(why: str = "") -> ExitStatus:
    """Print that nothing was changed, after a sentence with the reason; return the exit status."""
    print_status(f"{why} Nothing was changed.".lstrip())
    return ExitStatus.OK


def print_skipped(skipped: Sequence[Skipped]) -> None:
    """Print the named items that stay unchanged, with the reasons."""
    for entry in skipped[:SKIPPED_SHOWN]:
        print_result(f"  unchanged: {entry.name}: {entry.reason}")
    if len(skipped) > SKIPPED_SHOWN:
        print_result(f"  and {len(skipped) - SKIPPED_SHOWN:,} more")


@command(
    "resolve",
    example="batchkiln resolve field-guide red-fox --as not-created\n"
    "batchkiln resolve field-guide red-fox --as generation --generation-id gen_123 --confirm red-fox",
)
@click.argument("job", type=JOB)
@click.argument("item", type=ITEM)
@click.option(
    "--as",
    "decision",
    required=True,
    type=click.Choice([decision.value for decision in Decision]),
    help="not-created: nothing was created; queue it again. failed: give the item up. generation: download this "
    "generation. ask-again: send the same request again with the same idempotency key. saved: the files on disk are "
    "sufficient.",
)
@click.option("--generation-id", metavar="ID", help="With --as generation: the id of the generation.")
@click.option("--confirm", metavar="ITEM", help="The item's id again; required without a terminal.")
def resolve(
    common: Common, job: str, item: str, *, decision: str, generation_id: str | None, confirm: str | None
) -> ExitStatus:
    """End the held ITEM of JOB by your decision. `batchkiln show` states why the item is held.

    While no process runs the queue, an active item that makes no progress can be ended too. Because the decision may
    cost credits, the command asks for the item's id again. A wrong id changes nothing.
    """
    chosen = Decision(decision)
    if (generation_id is not None) != (chosen is Decision.GENERATION):
        raise InputError("--as generation needs --generation-id, and no other decision accepts it")
    return run_async(_resolve(common, job, item, decision=chosen, generation_id=generation_id, confirm=confirm))


async def _resolve(
    common: Common, job: str, item: str, *, decision: Decision, generation_id: str | None, confirm: str | None
) -> ExitStatus:
    async with open_changes(common.queue) as changes:
        asked = await changes.show(job, item)
        check_resolvable(item, asked.item.state, is_undriven=True)  # `resolve` takes the lock where it matters
        print_status(cost_of_resolve(decision, asked))
        _check_confirmed(item, confirm)
        resolved = await changes.resolve(asked, decision, generation_id=generation_id)
    if common.is_json:
        print_json({"job": job, "item": item, "state": resolved.state, "may_pay_again": resolved.may_pay_again})
    else:
        print_result(f"{job}/{item} is {resolved.state}.")
    return ExitStatus.OK


def _check_confirmed(item: str, confirm: str | None) -> None:
    """Check that the item's id is typed or given again. Raise `InputError` otherwise; nothing has changed then."""
    if confirm is None:
        if not can_ask_person():
            raise InputError(
                f"not a terminal: add --confirm {item} to accept that this may cost credits; nothing was changed"
            )
        confirm = click.prompt(f"Type the item's id ({item}) to continue", err=True)
    if confirm != item:
        raise InputError(f"the confirmation {confirm!r} is not the item's id {item!r}; nothing was changed")


@command("ask-again", example="batchkiln ask-again\nbatchkiln ask-again studio/main")
@click.argument("account", metavar="[PROFILE/ACCOUNT]", required=False)
def ask_again(common: Common, account: str | None) -> ExitStatus:
    """Repeat requests whose replies were not understood, on PROFILE/ACCOUNT or on all accounts.

    `batchkiln status` lists them. A quote, an upload or a read costs nothing. After a reply to a create that was not
    understood, the next queued item is sent, and may be charged. Works while another process runs the queue, which
    then repeats them immediately. Also ends waits that the service requested, such as a wrong Retry-After of days.
    """
    return run_async(_ask_again(common, account))


async def _ask_again(common: Common, account: str | None) -> ExitStatus:
    async with open_changes(common.queue) as changes:
        asked = await changes.ask_again(account)
        ended = await end_waits(changes, account)
        takers = await changes.reader.read(partial(who_takes, jobs=[]))
    if common.is_json:
        calls = [{"profile": each.profile, "account": each.account, "call": each.entry.call.value} for each in asked]
        print_json({"asked_again": calls, "waits_ended": list(ended)})
    elif not asked and not ended:
        print_result("There is nothing to ask again: every reply was understood, and no account has to wait.")
    else:
        for each in asked:
            print_result(f"{each.profile}/{each.account}: {CALLS[each.entry.call]} is requested again.")
        for name in ended:
            print_result(
                f"{name}: ended the wait that the service requested. Restart a process that is already waiting."
            )
        print_result(takers)
    return ExitStatus.OK
