"""What the service sends, read tolerantly: names in any spelling, unknown fields anywhere (contract, section 8).

A field that is not understood becomes None; no model here ever fails for a field's content.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Annotated, Any, Final, TypeVar

from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from batchkiln.client.lenient import read_cost, read_instant, read_text, read_url

# The wrappings that services put around what was asked for, and how deep they are looked into.
ENVELOPES: Final = (
    *("data", "generation", "result", "item", "record", "response", "task", "job", "payload", "body"),
    *("video", "image", "results", "items", "generations"),
)
_DEPTH_MAX: Final = 4
_HEADERS_MAX: Final = 50
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def snake_case(name: object) -> str:
    """Bring a field's name to one spelling: `assetId`, `asset-id` and `Asset_ID` are the same."""
    return _CAMEL.sub("_", str(name)[:100]).replace("-", "_").replace(" ", "_").lower()


def normalized(document: Mapping[Any, object]) -> dict[str, object]:
    """Give the object with its names in snake case and without its nulls; the first of equal names wins."""
    fields: dict[str, object] = {}
    for name, value in document.items():
        if value is not None:
            fields.setdefault(snake_case(name), value)
    return fields


def unwrapped(document: object, depth: int = 0) -> Iterator[dict[str, object]]:
    """Give the object itself, then what its envelopes hold, outermost first."""
    if depth > _DEPTH_MAX:
        return
    if isinstance(document, list) and len(document) == 1:
        yield from unwrapped(document[0], depth + 1)
    if isinstance(document, Mapping):
        fields = normalized(document)
        attributes = fields.get("attributes")  # of JSON:API, which keeps the id beside them
        yield (normalized(attributes) | fields) if isinstance(attributes, Mapping) else fields
        for name in ENVELOPES:
            if name in fields:
                yield from unwrapped(fields[name], depth + 1)


def _cost(value: object) -> int | None:
    if isinstance(value, Mapping):
        fields = normalized(value)
        names = ("cost", "cost_credits", "charged", "amount", "total", "credits")
        return next((cost for name in names if (cost := read_cost(fields.get(name))) is not None), None)
    return read_cost(value)


def _entries(value: object) -> list[object]:
    """One or many: a list as it is, anything else as the only entry."""
    if isinstance(value, list):
        return value
    return [value]


def header_pairs(value: object) -> tuple[tuple[str, str], ...] | None:
    """Read headers given as an object, as pairs, or as objects of name and value; None where one cannot be sent."""
    if isinstance(value, Mapping):
        raw: list[tuple[object, object]] = list(value.items())
    elif isinstance(value, list):
        raw = [_header_pair(entry) for entry in value]
    else:
        return None
    pairs = [(str(name), ", ".join(map(str, each)) if isinstance(each, list) else str(each)) for name, each in raw]
    is_sendable = all(re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", n) and v.isprintable() for n, v in pairs)
    return tuple(pairs) if is_sendable and len(pairs) <= _HEADERS_MAX else None


def _header_pair(entry: object) -> tuple[object, object]:
    match entry:
        case [name, value]:
            return name, value
        case Mapping():
            fields = normalized(entry)
            if "value" in fields:
                return fields.get("name", fields.get("key", fields.get("header"))), fields["value"]
            if len(entry) == 1:
                return next(iter(entry.items()))
        case _:
            pass
    return "", ""


WireText = Annotated[str | None, BeforeValidator(read_text)]
WireUrl = Annotated[str | None, BeforeValidator(read_url)]
WireInstant = Annotated[datetime | None, BeforeValidator(read_instant)]
WireCost = Annotated[int | None, BeforeValidator(_cost)]


class Tolerant(BaseModel):
    """An object whose names may be spelled in any case, and may hold more than is known."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _normalize(cls, document: object) -> object:
        return normalized(document) if isinstance(document, Mapping) else document


TolerantT = TypeVar("TolerantT", bound=Tolerant)


class OutputWire(Tolerant):
    """One output: a link, or only its address as a text."""

    type: WireText = Field(None, validation_alias=AliasChoices("type", "kind", "media_type", "mime_type"))
    url: WireUrl = Field(
        None,
        validation_alias=AliasChoices("url", "download_url", "signed_url", "href", "uri", "link", "src"),
    )
    expires_at: WireInstant = Field(
        None, validation_alias=AliasChoices("expires_at", "url_expires_at", "expires", "expiry", "expiration")
    )

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, document: object) -> object:
        return {"url": document} if isinstance(document, str) else document


class GenerationWire(Tolerant):
    """A generation record (Service section 2.1)."""

    id: WireText = Field(
        None,
        validation_alias=AliasChoices("id", "generation_id", "task_id", "job_id", "uid", "uuid", "_id"),
    )
    status: WireText = Field(None, validation_alias=AliasChoices("status", "state", "generation_status"))
    model: WireText = None
    created_at: WireInstant = Field(
        None,
        validation_alias=AliasChoices("created_at", "created", "create_time", "submitted_at", "timestamp"),
    )
    cost_credits: WireCost = Field(
        None,
        validation_alias=AliasChoices("credits", "cost_credits", "credits_cost", "cost", "credits_charged", "price"),
    )
    outputs: Annotated[list[object], BeforeValidator(_entries)] = Field(
        default_factory=list,
        validation_alias=AliasChoices("outputs", "output", "files", "assets", "media", "urls"),
    )
    error: object = Field(None, validation_alias=AliasChoices("error", "failure", "failure_reason", "error_message"))

    @property
    def fields_understood(self) -> int:
        """How much of a generation record this is; decides between an envelope and its content."""
        return len(self.model_fields_set)


class TicketWire(Tolerant):
    """One file of an upload preparation (Service section 2.3)."""

    name: WireText = Field(None, validation_alias=AliasChoices("name", "file_name", "filename"))
    asset_id: WireText = Field(
        None,
        validation_alias=AliasChoices("asset_id", "id", "asset", "file_id", "upload_id", "asset_uuid", "uuid", "key"),
    )
    upload_url: WireUrl = Field(
        None,
        validation_alias=AliasChoices("upload_url", "put_url", "signed_url", "presigned_url", "upload", "url", "href"),
    )
    upload_headers: Annotated[tuple[tuple[str, str], ...] | None, BeforeValidator(header_pairs)] = Field(
        (), validation_alias=AliasChoices("upload_headers", "headers", "required_headers", "put_headers")
    )

    @model_validator(mode="before")
    @classmethod
    def _flatten(cls, document: object) -> object:
        """Bring the fields of nested `asset` and `upload` objects up, behind those that stand here already."""
        if not isinstance(document, Mapping):
            return document
        fields = normalized(document)
        for name in ("upload", "asset", "file", "request"):
            inner = fields.get(name)
            if isinstance(inner, Mapping):
                del fields[name]
                fields |= {key: value for key, value in normalized(inner).items() if key not in fields}
        return fields


class AssetWire(Tolerant):
    """One asset of an upload completion (Service section 2.3)."""

    asset_id: WireText = Field(
        None, validation_alias=AliasChoices("asset_id", "id", "file_id", "upload_id", "asset_uuid", "uuid", "key")
    )
    url: WireUrl = Field(
        None, validation_alias=AliasChoices("url", "asset_url", "input_url", "public_url", "file_url", "href", "uri")
    )
    error: object = None

    @model_validator(mode="before")
    @classmethod
    def _flatten(cls, document: object) -> object:
        if isinstance(document, str):
            return {"url": document}
        if isinstance(document, Mapping):
            fields = normalized(document)
            inner = fields.get("asset")
            return fields | normalized(inner) if isinstance(inner, Mapping) else fields
        return document


def read_wire(kind: type[TolerantT], document: object) -> TolerantT | None:
    """Read an object as `kind`; None where it is not even an object."""
    try:
        return kind.model_validate(document)
    except ValidationError:
        return None
