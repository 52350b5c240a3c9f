"""`batchkiln status`."""

import click

from batchkiln.cli.command import JOB, command, run_async
from batchkiln.cli.json_output import job_document, overview_document
from batchkiln.cli.options import Common
from batchkiln.cli.output import print_json
from batchkiln.clock import machine_now
from batchkiln.core.errors import ExitStatus
from batchkiln.presentation.overview import Overview, read_overview
from batchkiln.store import Store


@command("status", example="batchkiln status\nbatchkiln status field-guide --json")
@click.argument("job", required=False, type=JOB)
def status(common: Common, job: str | None) -> ExitStatus:
    """Tell how far JOB has come, what it waits for, and when it will end.

    Without JOB: all jobs, what the accounts have used today, and who drives the queue. Only reads; works while
    another process drives the queue.
    """
    return run_async(_status(common, job))


async def _status(common: Common, job: str | None) -> ExitStatus:
    config = common.load_config()
    store = await Store.open_for_reading(common.queue)
    try:
        overview = await store.read(read_overview, config, None if job is None else [job], machine_now())
    finally:
        await store.close()
    if common.is_json:
        print_json(overview_document(overview) if job is None else job_document(overview.jobs[0]))
    else:
        _show(overview, is_one=job is not None)
    return ExitStatus.OK


def _show(overview: Overview, *, is_one: bool) -> None:
    from batchkiln.cli.text_tables import show_job, show_overview  # noqa: PLC0415  Rich takes longer than the rest

    if is_one:
        show_job(overview)
    else:
        show_overview(overview)
