"""`batchkiln redo`, `use-version` and `fetch`: the versions of an item, and files that are gone."""

from collections.abc import Sequence
from functools import partial

import click

from batchkiln.api.changes import Action, Changes, open_changes, question_before
from batchkiln.api.documents import fetched_document, redone_document
from batchkiln.api.item_selection import ItemSelection, names_of
from batchkiln.cli.command import ITEM, JOB, Common, command, run_async
from batchkiln.cli.item_filters import item_filters
from batchkiln.cli.job_commands import ITEMS, YES, is_confirmed, print_skipped, print_unchanged
from batchkiln.cli.output import print_json, print_result, print_status
from batchkiln.core.errors import ExitStatus, InputError, command_arguments
from batchkiln.core.states import ItemState
from batchkiln.presentation.formatting import plural, sanitize
from batchkiln.presentation.takers import who_takes

_FILES_SHOWN = 20


@command("redo", example="batchkiln redo field-guide red-fox owl-clip\nbatchkiln redo field-guide --stale --yes")
@click.argument("job", type=JOB)
@ITEMS
@click.option("--stale", "is_stale", is_flag=True, help="Only items that were made from what is no longer current.")
@item_filters()
@YES
def redo(
    common: Common, job: str, items: tuple[str, ...], *, is_stale: bool, selection: ItemSelection, assume_yes: bool
) -> ExitStatus:
    """Make done items of JOB again: the named items, or those that options choose. Each gets a new, charged attempt.

    The files that an item has are kept, and stay current until the new ones are saved beside them (red-fox.v2.png).
    `batchkiln use-version` makes earlier files current again. `batchkiln cancel` ends a redo that was not sent.
    """
    if items and is_stale:
        raise InputError("name items, or choose them by --stale, not both; nothing was changed")
    if not items and not selection and not is_stale:
        choosing = f"`batchkiln redo --dropped {command_arguments(job)}`"
        raise InputError(f"name the items to make again, or choose them, as in {choosing}")
    return run_async(_redo(common, job, items, selection, is_stale=is_stale, assume_yes=assume_yes))


async def _redo(
    common: Common, job: str, named: Sequence[str], selection: ItemSelection, *, is_stale: bool, assume_yes: bool
) -> ExitStatus:
    async with open_changes(common.queue) as changes:
        chosen = selection.within([ItemState.DONE]) if selection else selection
        items = await changes.reader.read(names_of, job, named, chosen)
        if is_stale:
            stale = await changes.stale_items(job)
            items = [name for name in stale if name in set(items)] if items is not None else stale
        if not items:
            return print_unchanged(await _none_stale(changes, job) if is_stale else f"{job} has no such items.")
        question = await question_before(changes, Action.REDO, job, items)
        print_status(question.cost)
        if not is_confirmed(common, question, items, assume_yes=assume_yes):
            return print_unchanged()
        report = await changes.redo(job, items)
        takers = await changes.reader.read(partial(who_takes, jobs=[job], number=report.redone))
    if common.is_json:
        print_json(redone_document(job, report))
    else:
        print_result(f"{job}: {plural(report.redone, 'item')} queued again.")
        print_skipped(report.skipped)
        if report.redone:
            print_result(takers)
    return ExitStatus.OK


async def _none_stale(changes: Changes, job: str) -> str:
    """Return that nothing is stale, and what may become so."""
    summary = await changes.reader.read(lambda reader: reader.jobs.summary(job))
    if not summary.to_choose and not summary.to_review:
        return f"No item of {job} is stale."
    review = f"`batchkiln review {command_arguments(job)}`"
    return f"No item of {job} is stale. What waits for a review may make some so: {review}."


@command("use-version", example="batchkiln use-version field-guide red-fox 1")
@click.argument("job", type=JOB)
@click.argument("item", type=ITEM)
@click.argument("version", type=click.IntRange(min=1))
def use_version(common: Common, job: str, item: str, version: int) -> ExitStatus:
    """Make the files of a VERSION of ITEM current: exports, reports and items made from it use them. Costs nothing.

    `batchkiln show` lists the versions. Items that were already made from another version stay as they are.
    """
    return run_async(_use_version(common, job, item, version))


async def _use_version(common: Common, job: str, item: str, version: int) -> ExitStatus:
    async with open_changes(common.queue) as changes:
        state = await changes.use_version(job, item, version)
    if common.is_json:
        print_json({"job": job, "item": item, "state": state, "version": version})
    else:
        print_result(f"{job}/{item} is {state}, with the files of version {version}.")
    return ExitStatus.OK


@command("fetch", example="batchkiln fetch field-guide\nbatchkiln fetch field-guide red-fox")
@click.argument("job", type=JOB)
@ITEMS
def fetch(common: Common, job: str, items: tuple[str, ...]) -> ExitStatus:
    """Find files of done items of JOB that are gone from the disk, and let the next run download them. Costs nothing.

    Of a job, files with another size than the recorded one are found as well; of named ITEMS, whose files are read,
    also damaged ones. The service keeps a result for 14 days. Files that it no longer keeps are listed: only
    `batchkiln redo` makes them again, at the price of a new attempt.
    """
    return run_async(_fetch(common, job, items))


async def _fetch(common: Common, job: str, items: Sequence[str]) -> ExitStatus:
    async with open_changes(common.queue) as changes:
        report = await changes.fetch(job, items or None)
    if common.is_json:
        print_json(fetched_document(job, report))
        return ExitStatus.OK
    print_result(
        f"{job}: {plural(report.present, 'file')} on disk; {plural(report.fetched, 'item')} to download again."
    )
    for file in report.kept_in_place[:_FILES_SHOWN]:
        print_result(f"  stays as it is: {sanitize(file.path)} is not the file that was saved")
    if len(report.kept_in_place) > _FILES_SHOWN:
        print_result(f"  and {len(report.kept_in_place) - _FILES_SHOWN:,} more")
    if report.kept_in_place:
        print_result(
            "  What lies in the place of a file is not overwritten: the new one gets `~2` before its extension. To "
            "have it under its own name, move the other one away before the next run."
        )
    for file in report.lost[:_FILES_SHOWN]:
        again = f"`batchkiln redo {command_arguments(job, file.item)}` makes it again, which costs again"
        print_result(f"  lost: {sanitize(file.path)}: the service no longer keeps it; {again}")
    if len(report.lost) > _FILES_SHOWN:
        print_result(f"  and {len(report.lost) - _FILES_SHOWN:,} more")
    print_skipped(report.skipped)
    if report.fetched:
        print_result(f"`batchkiln work {command_arguments(job)}` downloads them, and takes what of the job is queued.")
    return ExitStatus.OK
