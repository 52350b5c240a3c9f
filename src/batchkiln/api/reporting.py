"""Writes the report of a job, also while the queue runs. It is imported on use: it draws pictures."""

import asyncio
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path, PurePath
from typing import Any, Final

from msgspec import Struct, field

from batchkiln.api.item_selection import ItemSelection
from batchkiln.api.reading import QueueReader
from batchkiln.config import Config
from batchkiln.core.responses import ErrorInfo
from batchkiln.core.secret_texts import mask_keys
from batchkiln.core.urls import is_url
from batchkiln.presentation.chained_inputs import stale_text
from batchkiln.presentation.overview import JobView
from batchkiln.presentation.redaction import known_keys, redact_text, strip_folders
from batchkiln.reports.contents import ReportFile, ReportItem, ReportJob
from batchkiln.reports.report_writer import PAGE_SIZE, ReportWriter, WrittenReport
from batchkiln.store import OutputSummary, Reader, ReportRow

_CHUNK: Final = 50
"""Items read and drawn at a time. A small chunk keeps Ctrl-C responsive and memory use constant."""


class ReportOptions(Struct, frozen=True):
    """The first page's path, the items per page, and the items that a person chose, or all."""

    target: Path
    page_size: int | None = None
    selection: ItemSelection = field(default_factory=ItemSelection)


class _Source(Struct, frozen=True):
    """The ids of the chosen items, or None for all, and the API keys to remove from texts."""

    ids: Sequence[int] | None
    keys: Sequence[str]


async def write_report(
    queue: QueueReader,
    config: Config,
    job: str,
    options: ReportOptions,
    on_added: Callable[[int, int], None] = lambda _, __: None,
) -> WrittenReport:
    """Write a job as HTML files. `on_added` gets the number of items that are added at a time, and of all.

    Raise `InputError` for an unknown job, and for a file that cannot be written or is another program's.
    """
    view, selection = await queue.job(config, job), options.selection
    ids = await queue.read_in_pages(_chosen, job, selection) if selection else None
    total = view.summary.total if ids is None else len(ids)
    with ReportWriter(options.target, job=job, items=total, page_size=options.page_size or PAGE_SIZE) as writer:
        source = _Source(ids, known_keys(config, view.summary.profile))
        await _add_all(queue, writer, view, source, on_added)
        return await asyncio.to_thread(writer.finish, _head(await queue.job(config, job)))


def _chosen(reader: Reader, job: str, selection: ItemSelection) -> list[int]:
    return reader.exports.chosen_ids(job, selection.states, selection.wanted)


def _rows(reader: Reader, ids: Sequence[int]) -> list[ReportRow]:
    return reader.exports.report_rows(ids)


def _page(reader: Reader, job: str, after_id: int, limit: int) -> list[ReportRow]:
    return reader.exports.report_page(job, after_id=after_id, limit=limit)


async def _add_all(
    queue: QueueReader, writer: ReportWriter, view: JobView, source: _Source, on_added: Callable[[int, int], None]
) -> None:
    """Add all items, or only the chosen ones, in chunks, each from a separate snapshot.

    Items enqueued later are left out.
    """
    job, ids = view.summary.name, source.ids
    total = view.summary.total if ids is None else len(ids)
    last_id = taken = 0
    while taken < total:
        if ids is None:
            rows = await queue.read(_page, job, last_id, min(_CHUNK, total - taken))
        else:
            rows = await queue.read(_rows, ids[taken : taken + _CHUNK])
        await asyncio.to_thread(writer.add, [_item(row, job, view.summary.output_dir, source.keys) for row in rows])
        assert rows, "items are never deleted"
        last_id, taken = rows[-1].item.id, taken + len(rows)
        on_added(len(rows), total)


def _head(view: JobView) -> ReportJob:
    summary = view.summary
    return ReportJob(
        name=summary.name,
        description=summary.description,
        profile=summary.profile,
        manifest="standard input" if summary.manifest_path == "<stdin>" else PurePath(summary.manifest_path).name,
        is_finished=summary.is_finished,
        end_text=view.end_line,
        created_at=summary.created_at,
        now=view.now,
        budget_credits=summary.budget_credits,
        budget_credits_per_day=summary.budget_credits_per_day,
        version=version("batchkiln"),
        service_note=view.service_note or "",
    )


def _item(row: ReportRow, job: str, output_dir: str, keys: Sequence[str]) -> ReportItem:
    """Return an item for the report, without folders of this machine, API keys, and signatures of links."""
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
        stale=stale_text(item.sources, job),
        verdict=item.verdict or "",
    )


def _file(output: OutputSummary, output_dir: str) -> ReportFile:
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
