"""`batchkiln show`: the state of one item, the reason, the next step, and the whole history."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click

from batchkiln.api import AttemptDetail, ItemDetail, ReviewStep, VersionDetail
from batchkiln.api.reading import ItemReport, open_reader
from batchkiln.cli.command import ITEM, JOB, Common, command, run_async
from batchkiln.cli.output import columns_of_output, print_json, print_result
from batchkiln.core.errors import ExitStatus, InputError, command_arguments
from batchkiln.core.states import ItemState
from batchkiln.core.urls import is_url
from batchkiln.presentation.chained_inputs import source_name, stale_reason
from batchkiln.presentation.formatting import clock_note, format_second, plural, sanitize, zone_name
from batchkiln.presentation.history import sentence_of
from batchkiln.presentation.show_documents import review_step_document, shown_item_document

_INDENT: Final = 6  # of a continued line, and the comma or the parenthesis behind the hash
_SHORT_HASH: Final = 16


@command("show", example="batchkiln show field-guide red-fox\nbatchkiln show field-guide red-fox --bundle support.zip")
@click.argument("job", type=JOB)
@click.argument("item", type=ITEM)
@click.option(
    "--bundle",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Write a zip file for the service's support: ids, times, requests, history; no API key and no signed link.",
)
def show(common: Common, job: str, item: str, *, bundle: Path | None) -> ExitStatus:
    """Show one ITEM of JOB: its state and the reason, its cost, the next step, and its whole history.

    The name of a group of variants shows its items and which of them are kept.
    """
    return run_async(_show(common, job, item, bundle))


async def _show(common: Common, job: str, item: str, bundle: Path | None) -> ExitStatus:
    config = common.load_config()
    async with open_reader(common.queue) as queue:
        try:
            report = await queue.item(config, job, item)
        except InputError:
            group = await queue.read(lambda reader: reader.reviews.group(job, item))
            if group is None or bundle is not None:
                raise
            return _show_group(common, group)
    document: dict[str, Any] = {**shown_item_document(report.detail, report.explanation, report.context.wait)}
    if bundle is not None:
        from batchkiln.cli.support_bundle import write_bundle  # noqa: PLC0415  the client is slow to import

        document["bundle"] = await asyncio.to_thread(write_bundle, bundle, report, document, config)
    if common.is_json:
        print_json(document)
    elif bundle is not None:
        print_result(
            f"{job}/{item}: wrote {bundle} for the service's support. "
            "It contains prompts and metadata: check it before you send it."
        )
    else:
        for line in item_lines(report):
            print_result(line)
    return ExitStatus.OK


def _show_group(common: Common, group: ReviewStep) -> ExitStatus:
    """Print a group of variants, with the commands for the choice and for one of its items."""
    from batchkiln.cli.review import step_lines  # noqa: PLC0415  few items are variants

    if common.is_json:
        print_json(review_step_document(group))
        return ExitStatus.OK
    for line in step_lines(group):
        print_result(line)
    if not group.is_decided and any(item.state is ItemState.DONE for item in group.items):
        print_result(f"  next: `batchkiln review {command_arguments(group.job)}` chooses among them")
    print_result(f"  `batchkiln show {command_arguments(group.job, group.items[0].name)}` shows one of them")
    return ExitStatus.OK


def _file_lines(detail: ItemDetail) -> Iterator[str]:
    """Yield the files, each with what to do if it is gone from this machine."""
    for output in detail.item.outputs:
        content = f"{output.media_type}, {output.size_bytes:,} bytes, {_hash(output.sha256)}"
        yield f"  file: {sanitize(output.path)} ({content})"
        if not is_url(output.path) and not Path(output.path).exists():
            fetch = f"batchkiln fetch {command_arguments(detail.job, detail.item.name)}"
            yield f"  gone: this file is not there; `{fetch}` downloads it again at no cost while the service has it"


def _hash(sha256: str) -> str:
    """Return a hash; on a terminal on whose lines it has no room, its beginning, and `--json` has all of it."""
    if columns_of_output() <= _INDENT + len(sha256):
        return f"sha256 {sha256[:_SHORT_HASH]}…"
    return f"sha256 {sha256}"


def item_lines(report: ItemReport) -> Iterator[str]:
    """Yield the text of `show`, line by line."""
    detail, explanation = report.detail, report.explanation
    item, recipe = detail.item, detail.recipe
    yield f"{detail.job}/{item.name}: {item.state}{f', {item.verdict}' if item.verdict else ''}"
    yield f"  situation: {explanation.situation}"
    yield f"  charged: {explanation.charged}"
    yield f"  next: {explanation.next}"
    if item.error is not None:
        yield f"  error: {sanitize(item.error.code)}: {sanitize(item.error.message)}"
    yield f"  prompt: {sanitize(item.prompt)}"
    parameters = ", ".join(f"{name}={value}" for name, value in recipe.parameters)
    yield f"  request: {recipe.model}, {recipe.mode}{', ' + parameters if parameters else ''}"
    yield from (
        f"  input: {sanitize(file.path)} ({file.media_type}, {file.size_bytes:,} bytes)" for file in detail.inputs
    )
    for source in item.sources:
        state = "still to be made" if source.is_open else _hash(source.sha256 or "")
        state = stale_reason(source, detail.job) if source.is_stale or source.is_withdrawn else state
        made_by = source_name(source, detail.job)
        made_by += "" if source.version in {None, 1} else f", version {source.version}"
        yield f"  input {source.place} is made by {made_by}: {state}"
    quote = "not quoted yet" if detail.quote_credits is None else f"quote {plural(detail.quote_credits, 'credit')}"
    cap = "" if recipe.max_cost_credits is None else f", cap {recipe.max_cost_credits:,}"
    yield f"  credits: {item.credits:,} spent; {quote}{cap}"
    if item.metadata:
        yield f"  metadata: {sanitize(', '.join(f'{key}={value}' for key, value in item.metadata.items()))}"
    yield from _file_lines(detail)
    if len(detail.versions) > 1:
        for version in detail.versions:
            yield f"  version {version.number}{_version_text(version)}"
    for attempt in detail.attempts:
        yield f"  attempt {attempt.number}: {_attempt_line(attempt)}"
    first = detail.arrival or next(iter(detail.events), None)
    if first is not None:
        yield f"  history, times in {zone_name(first.at)}{clock_note(report.context.time_scale)}:"
    for event in (*((detail.arrival,) if detail.arrival else ()), *detail.events):
        state = f" -> {event.state}" if event.state is not None else ""
        yield f"  {format_second(event.at)}  {sentence_of(event.kind, event.detail)}{state}"


def _version_text(version: VersionDetail) -> str:
    files = ", ".join(sanitize(output.path) for output in version.outputs) or "its files are gone"
    inputs = f", made from {', '.join(sanitize(file.path) for file in version.inputs)}" if version.inputs else ""
    return f"{' (current)' if version.is_current else ''}: attempt {version.attempt}, {files}{inputs}"


def _attempt_line(attempt: AttemptDetail) -> str:
    cost = f"cost {attempt.cost_credits:,}" if attempt.cost_credits is not None else f"quote {attempt.quote_credits:,}"
    parts = [str(attempt.state), cost + (" (refunded)" if attempt.is_refunded else "")]
    parts.append(
        f"sent {plural(attempt.sends, 'time')} on {attempt.account} with the API key {attempt.key_fingerprint}"
    )
    if attempt.generation_id is not None:
        status = f" ({sanitize(attempt.generation_status)})" if attempt.generation_status else ""
        parts.append(f"generation {attempt.generation_id}{status}")
    return ", ".join(parts)
