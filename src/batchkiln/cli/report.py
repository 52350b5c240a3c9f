"""`batchkiln report`: write a job as HTML files, also while the queue runs."""

import asyncio
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Final

import click

from batchkiln.api import OutputSummary, Reader, ReportRow
from batchkiln.api.item_selection import ItemSelection
from batchkiln.api.reading import QueueReader, open_reader
from batchkiln.cli.command import JOB, Common, command, run_async
from batchkiln.cli.item_filters import item_filters
from batchkiln.cli.output import is_terminal, print_json, print_result
from batchkiln.cli.redaction import known_keys, mask_keys, redact_text, strip_folders
from batchkiln.core.errors import ExitStatus
from batchkiln.core.responses import ErrorInfo
from batchkiln.core.urls import is_url
from batchkiln.presentation.formatting import plural
from batchkiln.presentation.item_documents import iso
from batchkiln.presentation.overview import JobView

if TYPE_CHECKING:
    from batchkiln.reports.contents import ReportFile, ReportItem, ReportJob
    from batchkiln.reports.report_writer import ReportWriter, WrittenReport

_CHUNK: Final = 50
"""Items read and drawn at a time. A small chunk keeps Ctrl-C responsive and memory use constant."""


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
    from batchkiln.reports.report_writer import PAGE_SIZE, ReportWriter  # noqa: PLC0415  slow to import

    config = common.load_config()
    async with open_reader(common.queue) as queue:
        view = await queue.job(config, job)
        ids = await queue.read_in_pages(_chosen, job, selection) if selection else None
        total = view.summary.total if ids is None else len(ids)
        with ReportWriter(target, job=job, items=total, page_size=page_size or PAGE_SIZE) as writer:
            keys = known_keys(config, view.summary.profile)
            shows_progress = not common.is_quiet and is_terminal(sys.stderr)
            await _add_all(queue, writer, view, ids=ids, keys=keys, shows_progress=shows_progress)
            view = await queue.job(config, job)
            written = await asyncio.to_thread(writer.finish, _head(view))
    if common.is_json:
        print_json(_document(job, written))
    else:
        _print_result(job, written)
    return ExitStatus.OK


def _chosen(reader: Reader, job: str, selection: ItemSelection) -> list[int]:
    return reader.exports.chosen_ids(job, selection.states, selection.wanted)


def _rows(reader: Reader, ids: Sequence[int]) -> list[ReportRow]:
    return reader.exports.report_rows(ids)


def _page(reader: Reader, job: str, after_id: int, limit: int) -> list[ReportRow]:
    return reader.exports.report_page(job, after_id=after_id, limit=limit)


async def _add_all(
    queue: QueueReader,
    writer: "ReportWriter",
    view: JobView,
    *,
    ids: Sequence[int] | None,
    keys: Sequence[str],
    shows_progress: bool,
) -> None:
    """Add all items, or those with the `ids`, in chunks, each from a separate snapshot.

    Items enqueued later are left out.
    """
    job, total = view.summary.name, view.summary.total if ids is None else len(ids)
    last_id = taken = 0
    while taken < total:
        if ids is None:
            rows = await queue.read(_page, job, last_id, min(_CHUNK, total - taken))
        else:
            rows = await queue.read(_rows, ids[taken : taken + _CHUNK])
        await asyncio.to_thread(writer.add, [_item(row, view.summary.output_dir, keys) for row in rows])
        assert rows, "items are never deleted"
        last_id, taken = rows[-1].item.id, taken + len(rows)
        if shows_progress:
            sys.stderr.write(f"\r{job}: {taken:,} of {plural(total, 'item')}" + ("\n" if taken == total else ""))
            sys.stderr.flush()


def _head(view: JobView) -> "ReportJob":
    from batchkiln.reports.contents import ReportJob  # noqa: PLC0415  as above

    summary = view.summary
    return ReportJob(
        name=summary.name,
        description=summary.description,
        profile=summary.profile,
        manifest="standard input" if summary.manifest_path == "<stdin>" else PurePath(summary.manifest_path).name,
        is_paused=summary.is_paused,
        is_finished=summary.is_finished,
        created_at=summary.created_at,
        now=view.now,
        estimated_end_at=view.estimated_end_at,
        budget_credits=summary.budget_credits,
        budget_credits_per_day=summary.budget_credits_per_day,
        version=version("batchkiln"),
    )


def _item(row: ReportRow, output_dir: str, keys: Sequence[str]) -> "ReportItem":
    """Return an item for the report, without folders of this machine, API keys, and signatures of links."""
    from batchkiln.reports.contents import ReportItem  # noqa: PLC0415  as above

    item, recipe = row.item, row.recipe
    return ReportItem(
        name=item.name,
        index=item.index,
        state=item.state,
        prompt=mask_keys(item.prompt, keys),
        model=item.model,
        mode=recipe.mode,
        parameters=recipe.parameters,
        inputs=tuple(PurePath(path).name for path in row.inputs),
        metadata={name: _metadata_value(value, keys) for name, value in item.metadata.items()},
        error=None if item.error is None else _error(item.error, row.inputs, keys),
        generation_id=item.generation_id,
        files=tuple(_file(output, output_dir) for output in item.outputs),
        charges=row.charges,
    )


def _file(output: OutputSummary, output_dir: str) -> "ReportFile":
    from batchkiln.reports.contents import ReportFile  # noqa: PLC0415  as above

    path, url = Path(output.path), output.path if is_url(output.path) else None
    if url is not None:
        name = url.removeprefix(f"{output_dir}/")
        return ReportFile(
            path, name, output.size_bytes, output.media_type, output.saved_at, url=url, sha256=output.sha256
        )
    name = path.relative_to(output_dir).as_posix() if path.is_relative_to(output_dir) else path.name
    return ReportFile(path, name, output.size_bytes, output.media_type, output.saved_at)


def _error(error: ErrorInfo, inputs: Sequence[str], keys: Sequence[str]) -> ErrorInfo:
    message = error.message
    for path in inputs:  # exact paths first: a path with spaces is not recognized inside a sentence
        message = message.replace(path, PurePath(path).name)
    return ErrorInfo(redact_text(error.code, keys), redact_text(message, keys))


def _metadata_value(value: Any, keys: Sequence[str]) -> Any:  # noqa: ANN401  any JSON value
    """Return a redacted metadata value. URLs in metadata come from the manifest, and stay complete."""
    return strip_folders(mask_keys(value, keys)) if isinstance(value, str) else value


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
        "unreadable": totals.unreadable_count,
        "first_sent_at": iso(totals.first_sent_at),
        "last_saved_at": iso(totals.last_saved_at),
    }


def _print_result(job: str, written: "WrittenReport") -> None:
    from batchkiln.reports.html_pages import size_text  # noqa: PLC0415  as above

    first, *more = written.files
    print_result(f"{job}: {first.path} ({size_text(first.size_bytes)}, {plural(written.totals.items, 'item')})")
    if more:
        size = size_text(sum(file.size_bytes for file in more))
        print_result(f"  continued in {plural(len(more), 'file')} beside it, up to {more[-1].path.name} ({size})")
    if written.totals.missing_count:
        print_result(
            f"  {plural(written.totals.missing_count, 'file')} missing from the output folder; the report names them"
        )
