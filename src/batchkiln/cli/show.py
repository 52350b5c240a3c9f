"""`batchkiln show`: one item's whole history, what it waits for, and what to do next."""

from collections.abc import Iterator, Mapping
from sqlite3 import Connection
from typing import Any, Final

import click

from batchkiln.cli.command import JOB, command, run_async
from batchkiln.cli.items import item_document
from batchkiln.cli.options import Common
from batchkiln.cli.output import iso, print_json, say
from batchkiln.core.errors import ExitStatus
from batchkiln.core.job import AttemptState
from batchkiln.core.states import Event, ItemState
from batchkiln.queue.connection import Database
from batchkiln.queue.stories import AttemptStory, EventStory, ItemStory, item_story
from batchkiln.queue.summaries import JobSummary, job_summary
from batchkiln.views.words import count, one_line, second

_DAMAGED: Final = "attempt_damaged"  # an error's code; the event is that of a conflict
_DAMAGED_NEXT: Final = (
    "the disk no longer gives what was sent: key or request have changed, so that sending it again could pay twice. "
    "Look for it in the account, then say what you found with `batchkiln resolve`; and look after the disk"
)
_HELD: Final[Mapping[str, str]] = {
    Event.KEY_MISSING: (
        "the API key that made the request is not configured, or was revoked, and no other may ask for it (Service "
        "rules 4.2 and 4.4). Put that key back beside the new one and run `batchkiln work`; or, where it is gone for "
        "good, end the item with `batchkiln resolve`, which also lets the account go on"
    ),
    Event.KEY_CONFLICT: (
        "the service knows its idempotency key with another body (Service rule 4.3), so that something may have been "
        "created. Look for it in the account, then say what you found with `batchkiln resolve`"
    ),
    Event.REFUSED_IN_DOUBT: (
        "an earlier send of it got no reply, and sent again it was refused over a price or an image, which may have "
        "changed in between: something may have been created. Look for it in the account, then say what you found "
        "with `batchkiln resolve`"
    ),
    Event.INPUT_LOST: (
        "a local image is gone or has changed. Put it back and run the manifest again, which takes it up; or give the "
        "item up with `batchkiln resolve`"
    ),
    Event.GENERATION_LOST: (
        "the service no longer knows the generation, which was paid. Ask its support about the id, then say what you "
        "learned with `batchkiln resolve`"
    ),
}

_NEXT: Final[Mapping[ItemState, str]] = {
    ItemState.QUEUED: "it waits for its turn and for credits; `batchkiln status` tells what its account waits for",
    ItemState.SUBMITTING: "it was sent; the same request is sent on until a definite reply comes, never charged twice",
    ItemState.ACTIVE: "it is being generated, and is polled until it ends",
    ItemState.DOWNLOADING: "it is paid and ready, and its files are being fetched",
    ItemState.DONE: "nothing: it is done",
    ItemState.FAILED: "`batchkiln retry {job} {item}` tries again; the attempts below tell what was refunded",
    ItemState.REJECTED: (
        "nothing was charged; mend the request, or raise the cap or budget that the error names, in the manifest and "
        "run it again; where the reason has gone by itself, `batchkiln retry {job} {item}`"
    ),
    ItemState.EXPIRED: "it was paid, and the service no longer has it; `batchkiln retry {job} {item}` pays again",
    ItemState.CANCELED: "it was canceled before it was sent; `batchkiln retry {job} {item}` queues it again",
}

_CANCELED_BY_SERVICE: Final = (
    "the service canceled it, and nothing says that it was refunded: look at the account first; `batchkiln retry {job} "
    "{item}` may pay for it again"
)


@command("show", example="batchkiln show field-guide red-fox\nbatchkiln show field-guide red-fox --json")
@click.argument("job", type=JOB)
@click.argument("item")
def show(common: Common, job: str, item: str) -> ExitStatus:
    """Tell all of one ITEM of JOB: its request, attempts, files and history, and what to do next."""
    return run_async(_show(common, job, item))


async def _show(common: Common, job: str, item: str) -> ExitStatus:
    database = await Database.open_for_reading(common.queue)
    try:
        story, summary = await database.read(_read, job, item)
    finally:
        await database.close()
    if common.is_json:
        print_json(story_document(story, summary))
    else:
        for line in story_lines(story, summary):
            say(line)
    return ExitStatus.OK


def _read(connection: Connection, job: str, item: str) -> tuple[ItemStory, JobSummary]:
    story = item_story(connection, job, item)
    summary = job_summary(connection, job)
    assert summary is not None, "the item was found in it"
    return story, summary


def next_step(story: ItemStory, summary: JobSummary) -> str:
    """Say what an item waits for, or why it ended so, and what a person may do."""
    if story.item.state is ItemState.QUEUED and summary.is_paused:
        return f"its job is paused: `batchkiln unpause {story.job}` lets it go on"
    if story.item.state is ItemState.HELD:
        held = next((event.kind for event in reversed(story.events) if event.state is ItemState.HELD), "")
        if story.item.error is not None and story.item.error.code == _DAMAGED:
            return f"it needs you: {_DAMAGED_NEXT}"
        return "it needs you: " + _HELD.get(held, "say what you know of it with `batchkiln resolve`")
    if story.item.state is ItemState.FAILED and story.attempts and story.attempts[-1].state is AttemptState.CANCELED:
        return _CANCELED_BY_SERVICE.format(job=story.job, item=story.item.name)
    return _NEXT[story.item.state].format(job=story.job, item=story.item.name)


def story_lines(story: ItemStory, summary: JobSummary) -> Iterator[str]:
    """Tell an item's story to a person."""
    item, recipe = story.item, story.recipe
    yield f"{story.job}/{item.name}: {item.state}"
    yield f"  next: {next_step(story, summary)}"
    if item.error is not None:
        yield f"  error: {one_line(item.error.code)}: {one_line(item.error.message)}"
    yield f"  prompt: {one_line(item.prompt)}"
    parameters = ", ".join(f"{name}={value}" for name, value in recipe.parameters)
    yield f"  request: {recipe.model}, {recipe.mode}{', ' + parameters if parameters else ''}"
    yield from (
        f"  input: {one_line(file.path)} ({file.media_type}, {file.size_bytes:,} bytes)" for file in story.inputs
    )
    quote = "not quoted yet" if story.quote_credits is None else f"quote {count(story.quote_credits, 'credit')}"
    cap = "" if recipe.max_cost_credits is None else f", cap {recipe.max_cost_credits:,}"
    yield f"  credits: {item.credits:,} spent; {quote}{cap}"
    if item.metadata:
        yield f"  metadata: {one_line(', '.join(f'{key}={value}' for key, value in item.metadata.items()))}"
    yield from (
        f"  file: {one_line(output.path)} ({output.media_type}, {output.size_bytes:,} bytes, sha256 {output.sha256})"
        for output in item.outputs
    )
    for attempt in story.attempts:
        yield f"  attempt {attempt.number}: {_attempt_line(attempt)}"
    if story.arrival is not None:
        yield f"  {second(story.arrival.at)}  {story.arrival.kind}  {_detail(story.arrival)}".rstrip()
    for event in story.events:
        state = f" -> {event.state}" if event.state is not None else ""
        yield f"  {second(event.at)}  {event.kind}{state}  {_detail(event)}".rstrip()


def _attempt_line(attempt: AttemptStory) -> str:
    cost = f"cost {attempt.cost_credits:,}" if attempt.cost_credits is not None else f"quote {attempt.quote_credits:,}"
    parts = [str(attempt.state), cost + (" (refunded)" if attempt.is_refunded else "")]
    parts.append(f"sent {count(attempt.sends, 'time')} on {attempt.account} with key {attempt.key_fingerprint}")
    if attempt.generation_id is not None:
        status = f" ({one_line(attempt.generation_status)})" if attempt.generation_status else ""
        parts.append(f"generation {attempt.generation_id}{status}")
    return ", ".join(parts)


def _detail(event: EventStory) -> str:
    return one_line(", ".join(f"{key}={value}" for key, value in event.detail.items()))


def story_document(story: ItemStory, summary: JobSummary) -> dict[str, Any]:
    """Give an item's story as `show --json` prints it."""
    recipe = story.recipe
    return item_document(story.item) | {
        "job": story.job,
        "next": next_step(story, summary),
        "request": {
            "model": recipe.model,
            "mode": recipe.mode.value,
            "parameters": dict(recipe.parameters),
            "inputs": [
                {"path": file.path, "sha256": file.sha256, "bytes": file.size_bytes, "type": file.media_type}
                for file in story.inputs
            ],
        },
        "priority": story.priority,
        "failures": story.failures,
        "quote_credits": story.quote_credits,
        "max_cost_credits": recipe.max_cost_credits,
        "attempts_made": [_attempt_document(attempt) for attempt in story.attempts],
        "arrival": None if story.arrival is None else _event_document(story.arrival),
        "events": [_event_document(event) for event in story.events],
    }


def _attempt_document(attempt: AttemptStory) -> dict[str, Any]:
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
    }


def _event_document(event: EventStory) -> dict[str, Any]:
    return {
        "event": event.kind,
        "at": iso(event.at),
        "state": None if event.state is None else event.state.value,
        "detail": dict(event.detail),
    }
