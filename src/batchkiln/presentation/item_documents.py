"""Items and events as JSON values: `--json` prints them, and the HTTP interface replies with them.

The field names are stable (docs/reference/contract.md, section 4). The types also describe the replies of the HTTP
interface.
"""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypedDict, cast

from batchkiln.core.states import ItemState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from batchkiln.store import ItemSource, ItemSummary, LoggedEvent, OutputSummary, Skipped


def iso(instant: datetime | None) -> str | None:
    """Return an instant as ISO 8601 in UTC with milliseconds, such as `2030-01-31T18:30:00.000Z`."""
    if instant is None:
        return None
    return instant.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


# --- items ---


class OutputDocument(TypedDict):
    """A saved file."""

    path: str
    bytes: int
    sha256: str
    type: str


class ErrorDocument(TypedDict):
    """The error that ended an item."""

    code: str
    message: str


class SourceDocument(TypedDict):
    """An input that another item still has to make."""

    job: str
    item: str
    state: str | None


class ItemFields(TypedDict):
    """The fields that all item documents share."""

    item: str
    index: int
    state: ItemState
    model: str
    prompt: str
    attempts: int
    generation_id: str | None
    credits: int
    outputs: list[OutputDocument]
    error: ErrorDocument | None
    metadata: dict[str, Any]
    version: int | None
    group: str | None
    verdict: str | None
    stale: bool


class ItemDocument(ItemFields):
    """An item of a list."""

    waits_for: list[SourceDocument]


class SkippedDocument(TypedDict):
    """A named item that stays unchanged."""

    item: str
    reason: str


def item_fields(item: "ItemSummary") -> ItemFields:
    """Return the fields that all item documents share."""
    return {
        "item": item.name,
        "index": item.index,
        "state": item.state,
        "model": item.model,
        "prompt": item.prompt,
        "attempts": item.attempts,
        "generation_id": item.generation_id,
        "credits": item.credits,
        "outputs": [output_document(output) for output in item.outputs] if item.outputs else [],
        "error": None if item.error is None else {"code": item.error.code, "message": item.error.message},
        "metadata": cast("dict[str, Any]", item.metadata),
        "version": item.version,
        "group": item.group,
        "verdict": item.verdict,
        "stale": item.is_stale,
    }


def item_document(item: "ItemSummary") -> ItemDocument:
    """Return an item as `items --json` prints it."""
    document = cast("ItemDocument", item_fields(item))
    document["waits_for"] = [_source_document(source) for source in item.sources if source.is_open]
    return document


def output_document(output: "OutputSummary") -> OutputDocument:
    """Return a saved file as `items --json` prints it."""
    return {"path": output.path, "bytes": output.size_bytes, "sha256": output.sha256, "type": output.type}


def _source_document(source: "ItemSource") -> SourceDocument:
    return {"job": source.job, "item": source.item, "state": None if source.state is None else source.state.value}


def skipped_document(skipped: "Iterable[Skipped]") -> list[SkippedDocument]:
    """Return the named items that stay unchanged as JSON values."""
    return [{"item": entry.name, "reason": entry.reason} for entry in skipped]


# --- events ---


class EventDocument(TypedDict):
    """An event of the history. The details of its kind are further fields."""

    event: str
    at: str
    job: str
    item: str | None
    state: str | None


def event_document(event: "LoggedEvent") -> EventDocument:
    """Return an event as `run --json` prints it."""
    base: dict[str, Any] = {
        "event": event.kind,
        "at": iso(event.at),
        "job": event.job,
        "item": event.item,
        "state": event.state,
    }
    return cast("EventDocument", base | {key: value for key, value in event.detail.items() if key not in base})
