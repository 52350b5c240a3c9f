"""`batchkiln status`: the progress of the jobs."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

import click

from batchkiln.api.reading import open_reader, overview_once
from batchkiln.cli.command import JOB, Common, command, handle_signals, run_async
from batchkiln.cli.output import print_json, print_json_lines, print_status
from batchkiln.core.errors import ExitStatus

if TYPE_CHECKING:
    from rich.console import RenderableType

    from batchkiln.api import JobSummary
    from batchkiln.presentation.overview import Overview

_WATCH_SECONDS: Final = 1.0


@command("status", example="batchkiln status\nbatchkiln status field-guide --json\nbatchkiln status --watch")
@click.argument("job", required=False, type=JOB)
@click.option(
    "--watch", "is_watching", is_flag=True, help="Show the status again after each change, until the jobs have ended."
)
def status(common: Common, job: str | None, *, is_watching: bool) -> ExitStatus:
    """Show the progress of JOB, its problems, and its estimated end.

    Without JOB: all jobs, today's usage of the accounts, and the process that runs the queue. Only reads the queue.
    Works while another process runs it. With --watch and --json: one line for each change.
    """
    return run_async(_watch(common, job)) if is_watching else _status(common, job)


def _status(common: Common, job: str | None) -> ExitStatus:
    overview = overview_once(common.queue, common.load_config(), None if job is None else [job])
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
    import asyncio  # noqa: PLC0415  one look needs no event loop

    from batchkiln.clock import ServiceClock  # noqa: PLC0415  likewise

    config, ticker, stopped = common.load_config(), ServiceClock(), asyncio.Event()
    with handle_signals("") as signals, ExitStack() as stack:
        signals.stop = stopped.set
        show = _watching_display(common, job, stack)
        async with open_reader(common.queue) as queue:
            version = -1
            while not stopped.is_set():
                latest = await queue.data_version()
                overview = await queue.overview(config, None if job is None else [job])
                if latest != version or not common.is_json:
                    version = latest
                    show(overview)
                if all(_is_over(view.summary, is_driven=overview.is_driven) for view in overview.jobs):
                    _print_watch_end(overview)
                    return ExitStatus.OK
                await ticker.sleep_until(ticker.monotonic() + _WATCH_SECONDS, stopped)
    return ExitStatus.OK if signals.exit_status is None else ExitStatus(signals.exit_status)


def _print_watch_end(overview: "Overview") -> None:
    """Say why the watch ends if there is work left."""
    paused = [view.summary.name for view in overview.jobs if view.summary.waits_in_pause]
    if paused:
        from batchkiln.presentation.takers import to_resume  # noqa: PLC0415  only needed here

        resume = to_resume(paused[0])
        print_status(f"The watch ends: what is left is paused, and no process runs the queue. {resume}.")


def _is_over(summary: "JobSummary", *, is_driven: bool) -> bool:
    """Return whether nothing of a job changes without a person: a process may wait for a paused one."""
    return summary.is_finished and not (is_driven and summary.waits_in_pause)


def _watching_display(common: Common, job: str | None, stack: ExitStack) -> "Callable[[Overview], None]":
    """Return a function that shows an overview: as JSON lines, as a block that is redrawn on a terminal, or as text."""
    if common.is_json:
        return lambda overview: print_json_lines([_document(overview, job)])

    from rich.console import Group  # noqa: PLC0415  Rich is slow to import

    from batchkiln.cli.live_display import LiveBlock  # noqa: PLC0415  as above
    from batchkiln.cli.rich_console import SafeConsole, console  # noqa: PLC0415

    out = console()
    if out.is_terminal and not out.is_dumb_terminal:
        live = stack.enter_context(LiveBlock(SafeConsole(), is_removed=False))  # the console wraps between words
        return lambda overview: live.draw(Group(*_blocks(overview, job)))
    shown: list[str] = []

    def show_change(overview: "Overview") -> None:
        with out.capture() as capture:
            for block in _blocks(overview, job):
                out.print(block)
        if [text := capture.get()] != shown:
            shown[:] = [text]
            out.print(text)

    return show_change


def _document(overview: "Overview", job: str | None) -> Mapping[str, Any]:
    from batchkiln.presentation.job_documents import job_document, overview_document  # noqa: PLC0415  text needs none

    return overview_document(overview) if job is None else job_document(overview.jobs[0])


def _blocks(overview: "Overview", job: str | None) -> "Iterator[RenderableType]":
    from batchkiln.cli.status_text import job_blocks, overview_blocks  # noqa: PLC0415  Rich is slow to import

    return overview_blocks(overview) if job is None else job_blocks(overview)
