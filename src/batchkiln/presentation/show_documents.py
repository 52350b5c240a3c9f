"""One item with its whole history, and a step of a review, as JSON values."""

from typing import Any, TypedDict

from batchkiln.core.job import InputFile
from batchkiln.core.states import ItemState
from batchkiln.presentation.explain import Explanation
from batchkiln.presentation.item_context import Wait
from batchkiln.presentation.item_documents import (
    ItemDocument,
    ItemFields,
    OutputDocument,
    iso,
    item_document,
    item_fields,
    output_document,
)
from batchkiln.store import AttemptDetail, EventRecord, ItemDetail, ItemSummary, ReviewStep, VersionDetail


class HolderDocument(TypedDict):
    """The item that another one waits for."""

    job: str
    item: str


class WaitDocument(TypedDict):
    """The reason why an item waits."""

    reason: str
    until: str | None
    account: str | None
    holder: HolderDocument | None


class MadeFromDocument(TypedDict):
    """An input that another item makes. `sha256` and `version`, of that item, are null while it is still to be made."""

    job: str
    item: str
    output: int
    input: int
    version: int | None
    sha256: str | None
    stale: bool


class InputDocument(TypedDict):
    """An input image."""

    path: str
    sha256: str
    bytes: int
    type: str


class RequestDocument(TypedDict):
    """The request of an item."""

    model: str
    mode: str
    parameters: dict[str, Any]
    inputs: list[InputDocument]


class VersionDocument(TypedDict):
    """The saved files of one attempt, and the images that they were made from."""

    version: int
    current: bool
    attempt: int
    outputs: list[OutputDocument]
    inputs: list[InputDocument]


class AttemptDocument(TypedDict):
    """One attempt; its API key is named by a fingerprint."""

    number: int
    state: str
    account: str
    idempotency_key: str
    key_fingerprint: str
    quote_credits: int
    cost_credits: int | None
    refunded: bool
    sends: int
    answers: int
    generation_id: str | None
    generation_status: str | None
    recorded_at: str | None
    ended_at: str | None
    last_read_at: str | None
    lost_since: str | None


class RecordedEventDocument(TypedDict):
    """An event of one item."""

    event: str
    at: str | None
    state: ItemState | None
    detail: dict[str, Any]


class ShownItemDocument(ItemFields):
    """An item with its history. `story`, `charged` and `next` are sentences; `commands` are the commands in `next`."""

    waits_for: WaitDocument | None
    job: str
    story: str
    charged: str
    next: str
    commands: list[str]
    made_from: list[MadeFromDocument]
    request: RequestDocument
    priority: int
    failures: int
    quote_credits: int | None
    max_cost_credits: int | None
    versions: list[VersionDocument]
    attempts_made: list[AttemptDocument]
    arrival: RecordedEventDocument | None
    events: list[RecordedEventDocument]


class ReviewStepDocument(TypedDict):
    """The items that are reviewed together: one item, or the variants of a group."""

    group: str | None
    choose: int | None
    kept: int
    inputs: list[str]
    items: list[ItemDocument]


def shown_item_document(detail: ItemDetail, explanation: Explanation, wait: Wait | None) -> ShownItemDocument:
    """Return an item as `show --json` prints it."""
    recipe = detail.recipe
    return {
        **item_fields(detail.item),
        "waits_for": _source_wait(detail.item) or _wait_document(wait),
        "job": detail.job,
        "story": explanation.situation,
        "charged": explanation.charged,
        "next": explanation.next,
        "commands": list(explanation.commands),
        "made_from": [
            {
                "job": source.job,
                "item": source.item,
                "output": source.output,
                "input": source.place,
                "version": source.version,
                "sha256": source.sha256,
                "stale": source.is_stale,
            }
            for source in detail.item.sources
        ],
        "request": {
            "model": recipe.model,
            "mode": recipe.mode.value,
            "parameters": dict(recipe.parameters),
            "inputs": [_input_document(file) for file in detail.inputs],
        },
        "priority": detail.priority,
        "failures": detail.failures,
        "quote_credits": detail.quote_credits,
        "max_cost_credits": recipe.max_cost_credits,
        "versions": [_version_document(version) for version in detail.versions],
        "attempts_made": [_attempt_document(attempt) for attempt in detail.attempts],
        "arrival": None if detail.arrival is None else _recorded_document(detail.arrival),
        "events": [_recorded_document(event) for event in detail.events],
    }


def _source_wait(item: ItemSummary) -> WaitDocument | None:
    """Return the first item that a queued item waits for, in the shape of other waits."""
    first = next((source for source in item.sources if source.is_open), None)
    if item.state is not ItemState.QUEUED or first is None:
        return None
    return {"reason": "source", "until": None, "account": None, "holder": {"job": first.job, "item": first.item}}


def _wait_document(wait: Wait | None) -> WaitDocument | None:
    if wait is None:
        return None
    return {
        "reason": wait.reason.value,
        "until": iso(wait.until),
        "account": wait.account,
        "holder": None if wait.holder is None else {"job": wait.holder.job, "item": wait.holder.item},
    }


def _version_document(version: VersionDetail) -> VersionDocument:
    return {
        "version": version.number,
        "current": version.is_current,
        "attempt": version.attempt,
        "outputs": [output_document(output) for output in version.outputs],
        "inputs": [_input_document(file) for file in version.inputs],
    }


def _input_document(file: InputFile) -> InputDocument:
    return {"path": file.path, "sha256": file.sha256, "bytes": file.size_bytes, "type": file.media_type}


def _attempt_document(attempt: AttemptDetail) -> AttemptDocument:
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


def _recorded_document(event: EventRecord) -> RecordedEventDocument:
    return {"event": event.kind, "at": iso(event.at), "state": event.state, "detail": dict(event.detail)}


def review_step_document(step: ReviewStep) -> ReviewStepDocument:
    """Return a step of a review as `review --json` prints it."""
    return {
        "group": step.group,
        "choose": step.choose,
        "kept": step.kept,
        "inputs": [file.path for _, file in step.inputs],
        "items": [item_document(item) for item in step.items],
    }
