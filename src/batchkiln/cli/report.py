"""`batchkiln report`: write a job as HTML files, also while the queue runs."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from batchkiln.api.item_selection import ItemSelection
from batchkiln.api.reading import open_reader
from batchkiln.cli.change_progress import ChangeProgress
from batchkiln.cli.command import JOB, Common, command, run_async
from batchkiln.cli.item_filters import item_filters
from batchkiln.cli.output import can_redraw, print_json, print_result
from batchkiln.clock import boottime_seconds
from batchkiln.core.byte_sizes import format_size
from batchkiln.core.errors import ExitStatus
from batchkiln.presentation.formatting import plural
from batchkiln.presentation.item_documents import iso

if TYPE_CHECKING:
    from batchkiln.reports.report_writer import WrittenReport


@command(
    "report", example="batchkiln report field-guide\nbatchkiln report field-guide --to review.html --page-size 200"
)
@click.argument("job", type=JOB)
@click.option("--to", "target", metavar="FILE", type=click.Path(path_type=Path), help="Default: JOB-report.html.")
@click.option(
    "--page-size",
    metavar="N",
    type=click.IntRange(min=1),
    help="Items per page; default 1000. Further pages are files beside the first.",
)
@item_filters()
def report(
    common: Common, job: str, target: Path | None, page_size: int | None, *, selection: ItemSelection
) -> ExitStatus:
    """Write JOB as one HTML file with its pictures, failures and costs.

    The file needs no network and no other file. The command only reads the queue. It works on an unfinished job, and
    while another process runs the queue.
    """
    return run_async(_report(common, job, target or Path(f"{job}-report.html"), page_size, selection))


async def _report(
    common: Common, job: str, target: Path, page_size: int | None, selection: ItemSelection
) -> ExitStatus:
    from batchkiln.api.reporting import ReportOptions, write_report  # noqa: PLC0415  slow to import

    config = common.load_config()
    options = ReportOptions(target, page_size, selection)
    async with open_reader(common.queue) as queue:
        with _progress(is_shown=not common.is_quiet) as on_added:
            written = await write_report(queue, config, job, options, on_added)
    if common.is_json:
        print_json(_document(job, written))
    else:
        _print_result(job, written)
    return ExitStatus.OK


@contextmanager
def _progress(*, is_shown: bool) -> Iterator[Callable[[int, int], None]]:
    """Yield what draws a bar on a terminal, or prints lines elsewhere. It takes the items added, and all of them."""
    if not is_shown:
        yield lambda _, __: None
    elif not can_redraw():
        lines = cache(lambda total: ChangeProgress(total, boottime_seconds))  # from the first items on
        yield lambda added, total: lines(total)(added)
    else:
        from batchkiln.cli.progress_bars import progress_bars  # noqa: PLC0415  slow to import

        with progress_bars() as bars:
            task = bars.add_task("items", total=None)
            yield lambda added, total: bars.update(task, advance=added, total=total)


def _document(job: str, written: "WrittenReport") -> dict[str, Any]:
    totals = written.totals
    return {
        "job": job,
        "files": [{"path": str(file.path), "bytes": file.size_bytes} for file in written.files],
        "bytes": sum(file.size_bytes for file in written.files),
        "items": {state.value: number for state, number in totals.states.items()} | {"total": totals.items},
        "credits": {
            "charged": totals.credits.charged,
            "refunded": totals.credits.refunded,
            "reserved": totals.credits.reserved,
        },
        "pictures": totals.images,
        "clips": totals.videos,
        "gone": totals.missing_count,
        "changed": totals.changed_count,
        "unreadable": totals.unreadable_count,
        "first_sent_at": iso(totals.first_sent_at),
        "last_saved_at": iso(totals.last_saved_at),
    }


def _print_result(job: str, written: "WrittenReport") -> None:
    first, *more = written.files
    print_result(f"{job}: {first.path} ({format_size(first.size_bytes)}, {plural(written.totals.items, 'item')})")
    if more:
        size = format_size(sum(file.size_bytes for file in more))
        print_result(f"  continued in {plural(len(more), 'file')} beside it, up to {more[-1].path.name} ({size})")
    if written.totals.missing_count:
        print_result(
            f"  {plural(written.totals.missing_count, 'file')} missing from the output folder; the report names them"
        )
