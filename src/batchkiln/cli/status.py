"""`batchkiln status`: the progress of the jobs, and the JSON documents of jobs and accounts.

The field names of the documents are stable (docs/reference/contract.md, section 4).
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

import click

from batchkiln.api import UnderWay
from batchkiln.api.reading import open_reader
from batchkiln.cli.command import JOB, Common, command, run_async
from batchkiln.cli.output import iso, print_json, print_json_lines
from batchkiln.clock import ServiceClock
from batchkiln.core.errors import ExitStatus
from batchkiln.core.rate_limits import HeldUntil
from batchkiln.core.states import ItemState
from batchkiln.presentation.overview import AccountView, JobView, Overview, alerts_of
from batchkiln.presentation.worker_views import SharedBy

if TYPE_CHECKING:
    from rich.console import RenderableType

_WATCH_SECONDS: Final = 1.0


def job_document(view: JobView) -> dict[str, Any]:
    """Return a job as `status JOB --json` prints it."""
    summary = view.summary
    return {
        "job": summary.name,
        "description": summary.description,
        "profile": summary.profile,
        "manifest": summary.manifest_path,
        "output_dir": summary.output_dir,
        "created_at": iso(summary.created_at),
        "paused": summary.is_paused,
        "finished": summary.is_finished,
        "items": {state.value: summary.items[state] for state in ItemState} | {"total": summary.total},
        "credits": {
            "reserved": summary.credits.reserved,
            "charged": summary.credits.charged,
            "refunded": summary.credits.refunded,
        },
        "budget": {
            "credits": summary.budget_credits,
            "credits_per_day": summary.budget_credits_per_day,
            "queued_cost": summary.queued_cost,
            "queued_unquoted": summary.queued_unquoted,
        },
        "active": [_under_way(entry, view) for entry in summary.under_way],
        "problems": [
            {
                "state": problem.state.value,
                "code": problem.code,
                "count": problem.count,
                "message": problem.example,
                "item": view.examples.get((problem.state, problem.code)),
            }
            for problem in summary.problems
        ],
        "to_review": summary.to_review,
        "to_choose": summary.to_choose,
        "waiting": {
            "items": summary.waiting,
            "stuck": summary.stuck,
            "for": [
                {"job": each.job, "item": each.item, "state": each.state.value, "items": each.count}
                for each in summary.blockers
            ],
        },
        "estimated_end_at": iso(view.estimated_end_at),
        "warnings": alerts_of(view),
    }


def _under_way(entry: UnderWay, view: JobView) -> dict[str, Any]:
    return {
        "item": entry.item,
        "state": entry.state.value,
        "account": entry.account,
        "since": iso(entry.since),
        "age_seconds": max(0.0, (view.now - entry.since).total_seconds()),
        "sends": entry.sends,
        "generation_id": entry.generation_id,
        "status": entry.status,
        "retention_ends_at": iso(entry.retention_ends_at),
    }


def account_document(view: AccountView, shared_by: SharedBy | None = None) -> dict[str, Any]:
    """Return an account as `status --json` prints it; limits are null if its profile is not configured.

    `driven_by` is included only if workers share the queue.
    """
    limits = view.limits
    driver = {}
    if shared_by is not None:
        driver = {"driven_by": shared_by.driver_of(view.summary.profile, view.summary.name)}
    return driver | {
        "profile": view.summary.profile,
        "account": view.summary.name,
        "today": {
            "credits": view.usage.credits,
            "credits_limit": limits.credits_per_day if limits else None,
            "creates": view.usage.creates,
            "creates_limit": limits.creates_per_day if limits else None,
            "reads": view.usage.reads,
            "reads_limit": limits.reads_per_day if limits else None,
            "upload_files": view.usage.upload_files,
            "upload_bytes": view.usage.upload_bytes,
        },
        "creates_held": _wait_document(view.summary.creates_held, view),
        "reads_held": _wait_document(view.summary.reads_held, view),
        "not_understood": [
            {
                "call": entry.call.value,
                "since": iso(entry.since),
                "lacking": entry.lacking,
                "status": entry.status,
                "shape": entry.shape,
                "remedy": entry.remedy or None,
            }
            for entry in view.summary.misunderstood
        ],
    }


def _wait_document(held: HeldUntil | None, view: AccountView) -> dict[str, Any] | None:
    if held is None or held.until <= view.now:
        return None
    return {"until": iso(held.until), "reason": held.reason.value}


def overview_document(overview: Overview) -> dict[str, Any]:
    """Return the whole queue as `status --json` prints it."""
    lease = overview.lease
    return {
        "jobs": [job_document(view) for view in overview.jobs],
        "accounts": [account_document(view, overview.shared_by) for view in overview.accounts],
        "driver": None
        if lease is None
        else {"pid": lease.pid, "host": lease.host, "command": lease.command, "started_at": iso(lease.started_at)},
    } | _shared_document(overview.shared_by)


def _shared_document(shared_by: SharedBy | None) -> dict[str, Any]:
    """Return the fields about workers; none if no worker shares the queue."""
    if shared_by is None:
        return {}
    return {
        "workers": [state.name for state in shared_by.alive],
        "undriven": [
            {"profile": each.profile, "account": each.account, "reason": each.reason} for each in shared_by.undriven
        ],
    }


@command("status", example="batchkiln status\nbatchkiln status field-guide --json\nbatchkiln status --watch")
@click.argument("job", required=False, type=JOB)
@click.option("--watch", "is_watching", is_flag=True, help="Show it again on each change, until the jobs have ended.")
def status(common: Common, job: str | None, *, is_watching: bool) -> ExitStatus:
    """Show the progress of JOB, its problems, and its estimated end.

    Without JOB: all jobs, today's usage of the accounts, and the process that runs the queue. Only reads the queue.
    Works while another process runs it. With --watch and --json: one line for each change.
    """
    return run_async(_watch(common, job) if is_watching else _status(common, job))


async def _status(common: Common, job: str | None) -> ExitStatus:
    config = common.load_config()
    async with open_reader(common.queue) as queue:
        overview = await queue.overview(config, None if job is None else [job])
    if common.is_json:
        print_json(_document(overview, job))
    else:
        from batchkiln.cli.rich_console import console  # noqa: PLC0415  Rich is slow to import

        out = console()
        for block in _blocks(overview, job):
            out.print(block)
    return ExitStatus.OK


async def _watch(common: Common, job: str | None) -> ExitStatus:
    """Show the status again on each change, until nothing is left to do."""
    config, ticker, never = common.load_config(), ServiceClock(), asyncio.Event()
    async with open_reader(common.queue) as queue:
        with ExitStack() as stack:
            show = _watching_display(common, job, stack)
            version = -1
            while True:
                latest = await queue.data_version()
                overview = await queue.overview(config, None if job is None else [job])
                if latest != version or not common.is_json:
                    version = latest
                    show(overview)
                if all(view.summary.is_finished or view.summary.is_paused for view in overview.jobs):
                    return ExitStatus.OK
                await ticker.sleep_until(ticker.monotonic() + _WATCH_SECONDS, never)


def _watching_display(common: Common, job: str | None, stack: ExitStack) -> Callable[[Overview], None]:
    """Return what shows an overview: JSON lines, one block that is redrawn on a terminal, or the text on a change."""
    if common.is_json:
        return lambda overview: print_json_lines([_document(overview, job)])

    from rich.console import Group  # noqa: PLC0415  Rich is slow to import
    from rich.live import Live  # noqa: PLC0415

    from batchkiln.cli.rich_console import console  # noqa: PLC0415

    out = console()
    if out.is_terminal and not out.is_dumb_terminal:
        live = stack.enter_context(Live(console=out, auto_refresh=False))
        return lambda overview: live.update(Group(*_blocks(overview, job)), refresh=True)
    shown: list[str] = []

    def show_change(overview: Overview) -> None:
        with out.capture() as capture:
            for block in _blocks(overview, job):
                out.print(block)
        if [text := capture.get()] != shown:
            shown[:] = [text]
            out.print(text)

    return show_change


def _document(overview: Overview, job: str | None) -> dict[str, Any]:
    return overview_document(overview) if job is None else job_document(overview.jobs[0])


def _blocks(overview: Overview, job: str | None) -> "Iterator[RenderableType]":
    from batchkiln.cli.status_text import job_blocks, overview_blocks  # noqa: PLC0415  Rich is slow to import

    return overview_blocks(overview) if job is None else job_blocks(overview)
