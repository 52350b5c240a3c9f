"""`batchkiln export`: make a dataset from the outputs of a job."""

import asyncio
import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import click

from batchkiln.api import Filter, Reader
from batchkiln.api.exporting import ExportCallbacks, ExportStopped, checked_splits, export_job
from batchkiln.api.item_selection import ItemSelection
from batchkiln.api.reading import open_reader
from batchkiln.cli.change_progress import ChangeProgress
from batchkiln.cli.command import JOB, Common, command, handle_signals, run_async
from batchkiln.cli.item_filters import item_filters
from batchkiln.cli.output import can_redraw, print_json, print_result, print_status
from batchkiln.clock import boottime_seconds
from batchkiln.core.errors import ExitStatus, command_arguments
from batchkiln.core.sample_names import DatasetRow, Splits
from batchkiln.core.states import ItemState
from batchkiln.exports import ExportOptions, ExportResult, Format, LeftOut, Link
from batchkiln.presentation.formatting import plural, sanitize


class SplitsType(click.ParamType):  # type: ignore[type-arg]  # not generic before click 8.2
    """Named splits with their shares, such as `train=0.9,test=0.1`."""

    name = "splits"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Splits:
        """Return the parsed splits, or fail with an example of the syntax."""
        if isinstance(value, Splits):
            return value
        shares: dict[str, float] = {}
        for part in str(value).split(","):
            name, _, text = part.strip().partition("=")
            try:
                share = float(text)
            except ValueError:
                share = math.nan
            if not name or not 0 < share <= 1:
                self.fail(f"{part!r} is not a split: write NAME=SHARE, for example train=0.9,test=0.1", param, ctx)
            if name in shares:
                self.fail(f"the split {name} appears twice", param, ctx)
            shares[name] = share
        try:
            return checked_splits(shares)
        except ValueError as error:
            self.fail(str(error), param, ctx)


@command(
    "export",
    example="batchkiln export field-guide --format imagefolder\n"
    "batchkiln export field-guide --format webdataset --to shards --split train=0.9,test=0.1\n"
    "batchkiln export field-guide --format parquet --to s3://bucket/field-guide",
)
@click.argument("job", type=JOB)
@click.option(
    "--format",
    "format_name",
    type=click.Choice([one.value for one in Format]),
    default=Format.JSONL.value,
    show_default=True,
    help="The format of the dataset.",
)
@click.option(
    "--to", type=click.Path(), metavar="DIR|URL", help="A folder, or an fsspec URL; default exports/JOB/FORMAT."
)
@click.option(
    "--link",
    type=click.Choice([one.value for one in Link]),
    help="How to place media in a folder; default: hard links, or copies if links are not possible.",
)
@click.option(
    "--split",
    "splits",
    type=SplitsType(),
    metavar="NAME=SHARE,...",
    help="The share of items in each split; default: all in train.",
)
@click.option(
    "--shard-size",
    type=click.IntRange(min=1),
    default=1000,
    show_default=True,
    metavar="N",
    help="Items per shard of webdataset.",
)
@click.option(
    "--check",
    type=click.Choice(["sha256", "size"]),
    default="sha256",
    show_default=True,
    help="The property of each file to verify.",
)
@item_filters(of_files=True)
def export(
    common: Common,
    job: str,
    *,
    format_name: str,
    to: str | None,
    link: str | None,
    splits: Splits | None,
    shard_size: int,
    check: str,
    selection: ItemSelection,
) -> ExitStatus:
    """Make a dataset from the outputs of JOB: media, prompts, metadata, and a dataset card.

    The same command adds new outputs later. Media are linked or copied, never moved. Nothing is deleted. Works while
    another process runs the queue.
    """
    options = ExportOptions(
        format=Format(format_name),
        to=to or f"exports/{job}/{format_name}",
        link=None if link is None else Link(link),
        splits=splits or Splits(),
        items_per_shard=shard_size,
        is_thorough=check == "sha256",
    )
    return run_async(_export(common, job, options, selection))


async def _export(common: Common, job: str, options: ExportOptions, selection: ItemSelection) -> ExitStatus:
    stop = threading.Event()
    async with open_reader(common.queue) as queue:
        with handle_signals() as signals:
            signals.stop = stop.set
            work = asyncio.ensure_future(
                queue.read_in_pages(_run, job, options, stop, wanted=selection.wanted, is_quiet=common.is_quiet)
            )
            try:
                result = await asyncio.shield(work)
            except ExportStopped:
                print_status("The exported files are kept; the same command continues from there.")
                return ExitStatus(signals.exit_status or ExitStatus.INTERRUPTED)
            finally:
                stop.set()
    if common.is_json:
        print_json(_document(job, options, result))
    else:
        for line in _result_lines(job, result):
            print_result(line)
    return ExitStatus.OK if result.files and not result.left_out_count else ExitStatus.ITEMS_NOT_DONE


def _run(
    reader: Reader,
    job: str,
    options: ExportOptions,
    stop: threading.Event,
    *,
    wanted: Filter,
    is_quiet: bool,
) -> ExportResult:
    """Export in the reader's thread."""
    summary = reader.jobs.summary(job)
    items_done = summary.items[ItemState.DONE]
    with _display(items=summary.total, items_done=items_done, is_shown=not is_quiet) as callbacks:
        return export_job(reader, job, options, stop, wanted=wanted, callbacks=callbacks)


@contextmanager
def _display(*, items: int, items_done: int, is_shown: bool) -> Iterator[ExportCallbacks]:
    """Yield callbacks that print outputs left out, and draw progress bars on a terminal, or print lines elsewhere."""
    latest = -1

    def is_next(row: DatasetRow) -> bool:
        nonlocal latest
        is_other, latest = row.index != latest, row.index
        return is_other

    def print_left_out(left: LeftOut) -> None:
        print_status(_left_out_line(left))

    if not is_shown:
        yield ExportCallbacks(on_left_out=print_left_out)
        return
    if not can_redraw():
        lines = cache(lambda: ChangeProgress(items_done, boottime_seconds))  # from the first row on
        yield ExportCallbacks(on_left_out=print_left_out, on_row=lambda row: lines()(int(is_next(row))))
        return
    from batchkiln.cli.progress_bars import progress_bars  # noqa: PLC0415  slow to import

    with progress_bars() as bars:
        metadata = bars.add_task("metadata", total=items)
        exported = bars.add_task("items", total=items_done)
        yield ExportCallbacks(
            on_left_out=lambda left: bars.console.print(_left_out_line(left)),
            on_metadata_read=lambda: bars.advance(metadata),
            on_row=lambda row: bars.advance(exported, int(is_next(row))),
        )


def _left_out_line(left: LeftOut) -> str:
    return f"left out: {sanitize(left.item)}: {sanitize(left.path)}: {left.reason}"


def _result_lines(job: str, result: ExportResult) -> Iterator[str]:
    if not result.files and not result.left_out_count:
        status = f"`batchkiln status {command_arguments(job)}`"
        yield f"{job} has no files yet; nothing was written. {status} shows its progress."
        return
    kinds = [(result.files - result.videos, "image"), (result.videos, "video")]
    contents = " and ".join(plural(number, noun) for number, noun in kinds if number) or "no file"
    yield f"{job}: {contents} in {sanitize(result.place)} ({result.new:,} new, {result.unchanged:,} unchanged)."
    splits = sorted({split for split, _ in result.splits})
    if len(splits) > 1:
        numbers = [f"{split} {result.splits[split, False] + result.splits[split, True]:,}" for split in splits]
        yield f"Splits: {', '.join(numbers)}."
    for note in result.notes:
        yield f"Note: {sanitize(note)}."
    if result.left_out_count:
        yield (
            f"{plural(result.left_out_count, 'file')} left out, as listed above. Restore these files and run the same "
            "command again. The export charged nothing."
        )


def _document(job: str, options: ExportOptions, result: ExportResult) -> dict[str, Any]:
    return {
        "job": job,
        "format": options.format.value,
        "to": result.place,
        "items": result.items,
        "files": result.files,
        "new": result.new,
        "there": result.unchanged,
        "bytes": result.size_bytes,
        "images": result.files - result.videos,
        "videos": result.videos,
        "splits": {name: result.splits[name, False] + result.splits[name, True] for name, _ in options.splits.shares},
        "left_out": result.left_out_count,
        "problems": [{"item": one.item, "path": one.path, "reason": one.reason} for one in result.left_out],
        "notes": result.notes,
    }
