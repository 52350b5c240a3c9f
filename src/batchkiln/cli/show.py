"""`batchkiln show`: the state of one item, the reason, the next step, and the whole history."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from batchkiln.api import AttemptDetail, EventRecord, ItemSummary, VersionDetail
from batchkiln.api.reading import ItemReport, open_reader
from batchkiln.cli.command import JOB, Common, command, run_async
from batchkiln.cli.items import item_document, output_document
from batchkiln.cli.output import iso, print_json, print_result
from batchkiln.core.errors import ExitStatus
from batchkiln.core.states import ItemState
from batchkiln.presentation.chained_inputs import source_name
from batchkiln.presentation.formatting import format_second, plural, sanitize, zone_name
from batchkiln.presentation.item_context import Wait


@command("show", example="batchkiln show field-guide red-fox\nbatchkiln show field-guide red-fox --bundle support.zip")
@click.argument("job", type=JOB)
@click.argument("item")
@click.option(
    "--bundle",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Write a zip file for the service's support: ids, times, requests, history; no API key and no signed link.",
)
def show(common: Common, job: str, item: str, *, bundle: Path | None) -> ExitStatus:
    """Show one ITEM of JOB: its state and the reason, its cost, the next step, and its whole history."""
    return run_async(_show(common, job, item, bundle))


async def _show(common: Common, job: str, item: str, bundle: Path | None) -> ExitStatus:
    config = common.load_config()
    async with open_reader(common.queue) as queue:
        report = await queue.item(config, job, item)
    document = item_report_document(report)
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


def item_lines(report: ItemReport) -> Iterator[str]:
    """Yield the text of `show`, line by line."""
    detail, explanation = report.detail, report.explanation
    item, recipe = detail.item, detail.recipe
    yield f"{detail.job}/{item.name}: {item.state}"
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
        state = "still to be made" if source.is_open else "stale" if source.is_stale else f"sha256 {source.sha256}"
        yield f"  input {source.place} is made by {source_name(source, detail.job)}: {state}"
    quote = "not quoted yet" if detail.quote_credits is None else f"quote {plural(detail.quote_credits, 'credit')}"
    cap = "" if recipe.max_cost_credits is None else f", cap {recipe.max_cost_credits:,}"
    yield f"  credits: {item.credits:,} spent; {quote}{cap}"
    if item.metadata:
        yield f"  metadata: {sanitize(', '.join(f'{key}={value}' for key, value in item.metadata.items()))}"
    yield from (
        f"  file: {sanitize(output.path)} ({output.media_type}, {output.size_bytes:,} bytes, sha256 {output.sha256})"
        for output in item.outputs
    )
    if len(detail.versions) > 1:
        for version in detail.versions:
            yield f"  version {version.number}{_version_text(version)}"
    for attempt in detail.attempts:
        yield f"  attempt {attempt.number}: {_attempt_line(attempt)}"
    if detail.events:
        yield f"  history, times in {zone_name(detail.events[0].at)}:"
    if detail.arrival is not None:
        # The event's counts are left out, because they describe the whole manifest.
        manifest = sanitize(str(detail.arrival.detail.get("manifest", "")))
        yield f"  {format_second(detail.arrival.at)}  {detail.arrival.kind}  {manifest}".rstrip()
    for event in detail.events:
        state = f" -> {event.state}" if event.state is not None else ""
        yield f"  {format_second(event.at)}  {event.kind}{state}  {_event_text(event)}".rstrip()


def _version_text(version: VersionDetail) -> str:
    files = ", ".join(sanitize(output.path) for output in version.outputs) or "its files are gone"
    return f"{' (current)' if version.is_current else ''}: attempt {version.attempt}, {files}"


def _attempt_line(attempt: AttemptDetail) -> str:
    cost = f"cost {attempt.cost_credits:,}" if attempt.cost_credits is not None else f"quote {attempt.quote_credits:,}"
    parts = [str(attempt.state), cost + (" (refunded)" if attempt.is_refunded else "")]
    parts.append(f"sent {plural(attempt.sends, 'time')} on {attempt.account} with key {attempt.key_fingerprint}")
    if attempt.generation_id is not None:
        status = f" ({sanitize(attempt.generation_status)})" if attempt.generation_status else ""
        parts.append(f"generation {attempt.generation_id}{status}")
    return ", ".join(parts)


def _event_text(event: EventRecord) -> str:
    return sanitize(", ".join(f"{key}={value}" for key, value in event.detail.items()))


def item_report_document(report: ItemReport) -> dict[str, Any]:
    """Return an item as `show --json` prints it."""
    detail, explanation = report.detail, report.explanation
    recipe = detail.recipe
    return item_document(detail.item) | {
        "job": detail.job,
        "story": explanation.situation,
        "charged": explanation.charged,
        "next": explanation.next,
        "commands": explanation.commands,
        "waits_for": _source_wait(detail.item) or _wait_document(report.context.wait),
        "made_from": [
            {
                "job": source.job,
                "item": source.item,
                "output": source.output,
                "input": source.place,
                "sha256": source.sha256,
                "stale": source.is_stale,
            }
            for source in detail.item.sources
        ],
        "request": {
            "model": recipe.model,
            "mode": recipe.mode.value,
            "parameters": dict(recipe.parameters),
            "inputs": [
                {"path": file.path, "sha256": file.sha256, "bytes": file.size_bytes, "type": file.media_type}
                for file in detail.inputs
            ],
        },
        "priority": detail.priority,
        "failures": detail.failures,
        "quote_credits": detail.quote_credits,
        "max_cost_credits": recipe.max_cost_credits,
        "versions": [_version_document(version) for version in detail.versions],
        "attempts_made": [_attempt_document(attempt) for attempt in detail.attempts],
        "arrival": None if detail.arrival is None else _event_document(detail.arrival),
        "events": [_event_document(event) for event in detail.events],
    }


def _source_wait(item: ItemSummary) -> dict[str, Any] | None:
    """Return the first item that a queued item waits for, in the shape of other waits."""
    first = next((source for source in item.sources if source.is_open), None)
    if item.state is not ItemState.QUEUED or first is None:
        return None
    return {"reason": "source", "until": None, "account": None, "holder": {"job": first.job, "item": first.item}}


def _wait_document(wait: Wait | None) -> dict[str, Any] | None:
    if wait is None:
        return None
    holder = None if wait.holder is None else {"job": wait.holder.job, "item": wait.holder.item}
    return {"reason": wait.reason.value, "until": iso(wait.until), "account": wait.account, "holder": holder}


def _version_document(version: VersionDetail) -> dict[str, Any]:
    return {
        "version": version.number,
        "current": version.is_current,
        "attempt": version.attempt,
        "outputs": [output_document(output) for output in version.outputs],
    }


def _attempt_document(attempt: AttemptDetail) -> dict[str, Any]:
    return {
        "number": attempt.number,
        "state": attempt.state.value,
        "account": attempt.account,
        "idempotency_key": attempt.idempotency_key,
        "key_fingerprint": attempt.key_fingerprint,
        "quote_credits": attempt.quote_credits,
        "cost_credits": attempt.cost_credits,
        "refunded": attempt.is_refunded,
        "sends": attempt.sends,
        "answers": attempt.answers,
        "generation_id": attempt.generation_id,
        "generation_status": attempt.generation_status,
        "recorded_at": iso(attempt.recorded_at),
        "ended_at": iso(attempt.ended_at),
        "last_read_at": iso(attempt.last_read_at),
        "lost_since": iso(attempt.lost_since),
    }


def _event_document(event: EventRecord) -> dict[str, Any]:
    return {
        "event": event.kind,
        "at": iso(event.at),
        "state": None if event.state is None else event.state.value,
        "detail": dict(event.detail),
    }
