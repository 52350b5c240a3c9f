"""Generation records in a dialect. Fixed: id, model, status, created_at, credits.cost, outputs, error (section 2.1)."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from batchkiln_service.dialects.extra_fields import extras
from batchkiln_service.dialects.naming import Ids, generation_ids, spelled
from batchkiln_service.dialects.sample_files import media_type_of
from batchkiln_service.dialects.shapes import (
    INSTANT,
    LINK,
    TEXT,
    Shape,
    at,
    constant,
    described_as,
    field_of,
    list_of,
    nullable,
    object_of,
)
from batchkiln_service.dialects.traits import Dialect

_ACTIVE: Final = frozenset({"pending", "processing"})
_FAILURES: Final[Mapping[str, tuple[str, str]]] = {
    "first": ("generation_failed", "The generation failed; its credits were refunded."),
    "second": ("provider_error", "Something went wrong on our side."),
    "third": ("content_rejected", "The output did not pass moderation. You were not charged."),
    "fourth": ("internal", "render worker exited with status 137"),
}


def record_shape(dialect: Dialect) -> Shape:
    """Return the shape of a generation record."""
    ids = generation_ids(dialect)
    fields: dict[str, Shape] = {
        "id": Shape(lambda given: _echoed(ids, given), described_as(TEXT, "Poll the generation by it.")),
        "model": field_of("model", TEXT),
        "status": field_of(
            "status", {"type": "string", "enum": ["pending", "processing", "success", "failed", "canceled", "expired"]}
        ),
        "created_at": field_of("created_at", INSTANT),
        "credits": _credits(dialect),
        "outputs": at(lambda given: given["outputs"], list_of(_output(dialect))),
        "error": at(lambda given: given["error"], nullable(_error(dialect))),
    }
    more = extras(dialect, "record", frozenset(fields))
    return object_of(_mixed(dialect, fields, more), name="Generation")


def _echoed(ids: Ids, given: Mapping[str, Any]) -> str:
    """Return the generation's identifier, with the other letter case if the dialect's form ignores case."""
    shown = str(ids.shown(given["id"]))
    if ids.form not in {"prefix_hex", "uuid", "upper"}:
        return shown
    return {"upper": shown.upper(), "lower": shown.lower()}.get(given.get("shown_as", "same"), shown)


def _mixed(dialect: Dialect, fields: dict[str, Shape], more: dict[str, Shape]) -> dict[str, Shape]:
    """Return fields and additional fields, the latter first or last."""
    return {**more, **fields} if dialect.number("extras first", 2) else {**fields, **more}


def _credits(dialect: Dialect) -> Shape:
    is_late, is_returned = dialect["cost"] != "final", dialect["cost_after_failure"] == "zero"

    def cost(given: Mapping[str, Any]) -> object:
        is_zero = (is_late and given["status"] in _ACTIVE) or (is_returned and given["status"] == "failed")
        return 0 if is_zero else given["credits"]["cost"]

    described = described_as({"type": "integer", "minimum": 0}, "The amount charged, in credits.")
    fields: dict[str, Shape] = {"cost": Shape(cost, described)}
    return object_of({**extras(dialect, "credits", frozenset(fields)), **fields})


def _output(dialect: Dialect) -> Shape:
    fields: dict[str, Shape] = {
        "type": Shape(lambda given: _type_of(dialect, given), TEXT),
        "url": field_of("url", described_as(LINK, "Signed; good for 15 minutes at most.")),
        "expires_at": Shape(lambda given: instant(dialect, given["expires_at"]), INSTANT),
    }
    more = extras(dialect, "output", frozenset(fields))
    return object_of(_mixed(dialect, fields, more), name="Output")


def _type_of(dialect: Dialect, output: Mapping[str, Any]) -> str:
    """Return the output's type. The type of a video is documented, that of an image is the dialect's."""
    if output["type"] == "video":
        return "video"
    extension = str(output["url"]).partition("?")[0].rpartition(".")[2]
    match dialect["image_type"]:
        case "media_type":
            return media_type_of(extension)
        case "extension":
            return extension
        case word:
            return word


def instant(dialect: Dialect, given: str) -> str:
    """Return an instant, given with milliseconds and Z, in the dialect's form of ISO 8601."""
    if dialect["expires_at"] == "offset":
        return given.replace("Z", "+00:00")
    if dialect["expires_at"] not in {"seconds", "microseconds"}:
        return given
    return datetime.fromisoformat(given).isoformat(timespec=dialect["expires_at"]).replace("+00:00", "Z")


def _error(dialect: Dialect) -> Shape:
    words = dict(zip(("code", "message"), _FAILURES[dialect["words"]], strict=True))
    code, message = constant(words["code"]), constant(words["message"])
    is_retryable = spelled("is_retryable", dialect["spelling"])
    shapes = {
        "text": message,
        "type_detail": object_of({"type": code, "detail": message}),
        "reason": object_of({"reason": code, is_retryable: constant(value=False)}),
        "list": object_of({"errors": constant([words])}),
        "nested": object_of({"cause": object_of({"code": code, "message": message}), "status": constant(500)}),
    }
    return shapes.get(dialect["failure"], object_of({"code": code, "message": message}))
