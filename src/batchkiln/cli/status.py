"""`batchkiln status`: the progress of the jobs, and the JSON documents of jobs and accounts.

The field names of the documents are stable (docs/reference/contract.md, section 4).
"""

from typing import Any

import click

from batchkiln.api import UnderWay
from batchkiln.api.reading import open_reader
from batchkiln.cli.command import JOB, Common, command, run_async
from batchkiln.cli.output import iso, print_json
from batchkiln.core.errors import ExitStatus
from batchkiln.core.rate_limits import HeldUntil
from batchkiln.core.states import ItemState
from batchkiln.presentation.overview import AccountView, JobView, Overview, alerts_of
from batchkiln.presentation.worker_views import SharedBy


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
        "awaited": awaited_document(shared_by),
    }


def awaited_document(shared_by: SharedBy | None) -> list[dict[str, Any]]:
    """Return the machines whose journals a restored database waits for."""
    machines = shared_by.awaited if shared_by is not None else ()
    return [{"host": each.host, "since": iso(each.since), "seen_at": iso(each.seen_at)} for each in machines]


@command("status", example="batchkiln status\nbatchkiln status field-guide --json")
@click.argument("job", required=False, type=JOB)
def status(common: Common, job: str | None) -> ExitStatus:
    """Show the progress of JOB, its problems, and its estimated end.

    Without JOB: all jobs, today's usage of the accounts, and the process that runs the queue. Only reads the queue.
    Works while another process runs it.
    """
    return run_async(_status(common, job))


async def _status(common: Common, job: str | None) -> ExitStatus:
    config = common.load_config()
    async with open_reader(common.queue) as queue:
        overview = await queue.overview(config, None if job is None else [job])
    if common.is_json:
        print_json(overview_document(overview) if job is None else job_document(overview.jobs[0]))
    else:
        _show(overview, is_one=job is not None)
    return ExitStatus.OK


def _show(overview: Overview, *, is_one: bool) -> None:
    from batchkiln.cli.status_text import show_job, show_overview  # noqa: PLC0415  Rich is slow to import

    if is_one:
        show_job(overview)
    else:
        show_overview(overview)
