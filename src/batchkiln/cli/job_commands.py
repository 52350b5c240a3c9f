"""`batchkiln retry`, `cancel`, `pause` and `unpause`: each says beforehand what it may cost."""

import sys
from collections.abc import Sequence
from typing import Any, Final

import click

from batchkiln.api.changes import Action, open_changes
from batchkiln.cli.command import JOB, command, run_async
from batchkiln.cli.options import Common
from batchkiln.cli.output import is_terminal, print_json, print_result, print_status
from batchkiln.core.errors import ExitStatus
from batchkiln.presentation.formatting import plural
from batchkiln.store import RetryReport, Skipped

MANY: Final = 20
"""Named items from which on a person is asked; without names it is from two on."""

SKIPPED_SHOWN: Final = 20

_ITEMS = click.argument("items", metavar="[ITEM]...", nargs=-1)
_YES = click.option("--yes", "is_agreed", is_flag=True, help="Do not ask.")


@command("retry", example="batchkiln retry field-guide\nbatchkiln retry field-guide red-fox owl-clip --yes")
@click.argument("job", type=JOB)
@_ITEMS
@_YES
def retry(common: Common, job: str, items: tuple[str, ...], *, is_agreed: bool) -> ExitStatus:
    """Queue ended items of JOB again: those named, or all that failed, were rejected or expired.

    Each is a new attempt, and is paid like one. It says what that may cost before it does anything.
    """
    return run_async(_retry(common, job, items, is_agreed=is_agreed))


async def _retry(common: Common, job: str, items: Sequence[str], *, is_agreed: bool) -> ExitStatus:
    async with open_changes(common.queue) as changes:
        question = await changes.question(Action.RETRY, job, items)
        print_status(question.cost)
        if not _is_wanted(question.number, items, is_agreed=is_agreed):
            return _unchanged()
        report = await changes.retry(job, items)
        number = sum(report.requeued.values())
    if common.is_json:
        print_json(_retry_document(job, report))
    else:
        print_result(f"{job}: {plural(number, 'item')} queued again.")
        _say_skipped(report.skipped)
        if number:
            print_result("`batchkiln work` runs what is queued.")
    return ExitStatus.OK


def _retry_document(job: str, report: RetryReport) -> dict[str, Any]:
    return {
        "job": job,
        "requeued": {state.value: number for state, number in report.requeued.items()},
        "may_cost": report.may_cost,
        "unquoted": report.unquoted,
        "paying_again": report.paying_again,
        "skipped": _skipped_document(report.skipped),
    }


@command("cancel", example="batchkiln cancel field-guide red-fox\nbatchkiln cancel field-guide --yes")
@click.argument("job", type=JOB)
@_ITEMS
@_YES
def cancel(common: Common, job: str, items: tuple[str, ...], *, is_agreed: bool) -> ExitStatus:
    """Take items of JOB that were never sent out of the queue: those named, or all.

    Costs nothing. What was sent is paid already: it is fetched all the same, since the service cannot cancel.
    """
    return run_async(_cancel(common, job, items, is_agreed=is_agreed))


async def _cancel(common: Common, job: str, items: Sequence[str], *, is_agreed: bool) -> ExitStatus:
    async with open_changes(common.queue) as changes:
        question = await changes.question(Action.CANCEL, job, items)
        print_status(question.cost)
        if not _is_wanted(question.number, items, is_agreed=is_agreed):
            return _unchanged()
        report = await changes.cancel(job, items)
    if common.is_json:
        print_json({"job": job, "canceled": report.canceled, "skipped": _skipped_document(report.skipped)})
    else:
        print_result(f"{job}: {plural(report.canceled, 'item')} canceled.")
        _say_skipped(report.skipped)
    return ExitStatus.OK


@command("pause", example="batchkiln pause field-guide")
@click.argument("job", type=JOB)
def pause(common: Common, job: str) -> ExitStatus:
    """Begin nothing new of JOB; what was sent is paid already, and is finished and fetched."""
    return run_async(_pause(common, job))


async def _pause(common: Common, job: str) -> ExitStatus:
    async with open_changes(common.queue) as changes:
        print_status((await changes.question(Action.PAUSE, job)).cost)
        is_news = await changes.pause(job)
    return _said(common, job, is_paused=True, is_news=is_news)


@command("unpause", example="batchkiln unpause field-guide")
@click.argument("job", type=JOB)
def unpause(common: Common, job: str) -> ExitStatus:
    """Let a paused JOB go on. It says first what the queued items may cost."""
    return run_async(_unpause(common, job))


async def _unpause(common: Common, job: str) -> ExitStatus:
    async with open_changes(common.queue) as changes:
        print_status((await changes.question(Action.UNPAUSE, job)).cost)
        is_news = await changes.unpause(job)
    return _said(common, job, is_paused=False, is_news=is_news)


def _said(common: Common, job: str, *, is_paused: bool, is_news: bool) -> ExitStatus:
    if common.is_json:
        print_json({"job": job, "paused": is_paused, "changed": is_news})
    else:
        word = "paused" if is_paused else "not paused"
        print_result(f"{job} is {word}." if is_news else f"{job} was {word} already.")
    return ExitStatus.OK


def _is_wanted(number: int, items: Sequence[str], *, is_agreed: bool) -> bool:
    """Ask a person before many items change; without a terminal nobody can be asked."""
    is_many = number >= MANY if items else number > 1
    if is_agreed or not is_many or not (is_terminal(sys.stdin) and is_terminal(sys.stderr)):
        return True
    return click.confirm("Go on?", err=True)


def _unchanged() -> ExitStatus:
    print_status("Nothing was changed.")
    return ExitStatus.OK


def _say_skipped(skipped: Sequence[Skipped]) -> None:
    for entry in skipped[:SKIPPED_SHOWN]:
        print_result(f"  left as it is: {entry.name}: {entry.reason}")
    if len(skipped) > SKIPPED_SHOWN:
        print_result(f"  and {len(skipped) - SKIPPED_SHOWN:,} more")


def _skipped_document(skipped: Sequence[Skipped]) -> list[dict[str, str]]:
    return [{"item": entry.name, "reason": entry.reason} for entry in skipped]
