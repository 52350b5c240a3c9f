"""`batchkiln status`: the progress of the jobs."""

import click

from batchkiln.api.reading import open_reader
from batchkiln.cli.command import JOB, Common, command, run_async
from batchkiln.cli.output import print_json
from batchkiln.core.errors import ExitStatus
from batchkiln.presentation.job_documents import job_document, overview_document
from batchkiln.presentation.overview import Overview


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
