"""The interface description of a dialect: the service's own, with the dialect's replies."""

from collections import defaultdict
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any, Final

import orjson

from batchkiln_service.api.openapi import Operation, document, operations
from batchkiln_service.dialects import error_replies
from batchkiln_service.dialects.endpoints import Endpoint, success_status
from batchkiln_service.dialects.error_replies import Refusal
from batchkiln_service.dialects.shapes import Components, Schema
from batchkiln_service.dialects.traits import Dialect
from batchkiln_service.dialects.upload_shapes import asset_name, id_schema

_ABOUT: Final = "Videos and images are generated from credits, asynchronously."
_KEPT: Final = ("operationId", "tags", "summary", "security", "requestBody")
_RETRY_AFTER: Final[Schema] = {"description": "When to try again.", "schema": {"type": "string"}}


def dialect_description(dialect: Dialect) -> bytes:
    """Return the document as it is sent."""
    return orjson.dumps(describe(dialect))


def describe(dialect: Dialect) -> Schema:
    """Return the document. The schemas of replies come from the shapes that make the replies."""
    own, components = document(), Components()
    paths: dict[str, dict[str, object]] = {}
    for operation in operations():
        paths.setdefault(operation.path, {})[operation.method] = _operation(dialect, operation, components)
    requests = {name: schema for name, schema in own["components"]["schemas"].items() if name not in _REPLIES}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Video and image generation", "version": own["info"]["version"], "description": _ABOUT},
        "servers": own["servers"],
        "security": own["security"],
        "paths": paths,
        "components": {
            "securitySchemes": own["components"]["securitySchemes"],
            "schemas": {**requests, **components.schemas, "CompletionRequest": _completion(dialect)},
        },
    }


# Schemas of the service's replies, which a dialect replaces.
_REPLIES: Final = frozenset(
    {
        *("AssetList", "Balance", "CatalogEntry", "Combination", "Cost", "Error", "ErrorDetail", "GenerationError"),
        *("GenerationRecord", "ImageModeLimits", "ModelList", "OutputLink", "Pricing", "Quote", "ReadyAsset"),
        *("UploadList", "UploadTicket"),
    }
)


def _operation(dialect: Dialect, operation: Operation, components: Components) -> Schema:
    described = operation.described
    kept: Schema = {name: described[name] for name in _KEPT if name in described}
    if "requestBody" in described:
        schema = described["requestBody"]["content"]["application/json"]["schema"]
        kept["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    for parameter in described.get("parameters", ()):
        if parameter.get("in") == "path":
            kept["parameters"] = [{"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}]
        elif parameter.get("name") == "Idempotency-Key":
            kept["parameters"] = [parameter]
    return kept | {"responses": dict(_responses(dialect, operation, components))}


def _responses(dialect: Dialect, operation: Operation, components: Components) -> Iterator[tuple[str, Schema]]:
    endpoint = Endpoint.of(operation.method.upper(), operation.path)
    assert endpoint is not None
    if endpoint is Endpoint.DESCRIPTION:
        content: Schema = {"application/json": {"schema": {"type": "object"}}}
        yield "200", {"description": "This document.", "content": content}
    else:
        schema = _schema(dialect, endpoint.shape(dialect).schema, components)
        media_type = _media_type(dialect)
        yield (
            str(success_status(dialect, endpoint)),
            {"description": operation.success[1]["description"], "content": {media_type: {"schema": schema}}},
        )
    error = _schema(dialect, error_replies.body_shape(dialect).schema, components)
    for status, met in _refusals(dialect, operation, endpoint).items():
        yield str(status), _refusal(dialect, status, met, error)


def _media_type(dialect: Dialect) -> str:
    return {"vendor": "application/vnd.api+json", "hal": "application/hal+json"}.get(
        dialect["json_type"], "application/json"
    )


def _refusals(dialect: Dialect, operation: Operation, endpoint: Endpoint) -> dict[int, list[Refusal]]:
    """Return all errors of an endpoint by the dialect's statuses."""
    found: defaultdict[int, list[Refusal]] = defaultdict(list)
    for status, codes in operation.errors.items():
        for code in codes:
            refusal = error_replies.refused(dialect, status, code, "")
            found[refusal.status].append(refusal)
    if endpoint is Endpoint.CREATE and dialect["replay"] == "in_progress":
        refusal = error_replies.meant(dialect, "in_progress", 409)
        found[refusal.status].append(refusal)
    return dict(sorted(found.items()))


def _refusal(dialect: Dialect, status: int, met: list[Refusal], error: Schema) -> Schema:
    content: Schema = {}
    for refusal in met:
        media_type = error_replies.media_type(dialect, refusal)
        content[media_type] = {"schema": {"type": "string"} if media_type == error_replies.PLAIN else error}
    if status in {HTTPStatus.FORBIDDEN, HTTPStatus.SERVICE_UNAVAILABLE}:
        content["text/html"] = {"schema": {"type": "string"}}
    codes = ", ".join(sorted({refusal.code for refusal in met}))
    texts = {"full": f"Refused: {codes}.", "some": HTTPStatus(status).phrase}
    described: Schema = {"description": texts.get(dialect["description_texts"], "Error."), "content": content}
    if status in {HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE}:
        described["headers"] = {"Retry-After": _RETRY_AFTER}
    return described


def _schema(dialect: Dialect, schema: Schema, components: Components) -> Schema:
    """Return a schema with or without descriptions, inline or with references, as the dialect's traits require."""
    if dialect["description_texts"] == "none":
        schema = _silent(schema)
    return components.referring(schema) if dialect["description_form"] == "references" else schema


def _silent(part: Any) -> Any:  # noqa: ANN401 - a part of a schema
    """Return a schema without descriptions; a property named `description` stays."""
    if isinstance(part, list):
        return [_silent(one) for one in part]
    if not isinstance(part, dict):
        return part
    return {
        name: {field: _silent(one) for field, one in value.items()} if name == "properties" else _silent(value)
        for name, value in part.items()
        if not (name == "description" and isinstance(value, str))
    }


def _completion(dialect: Dialect) -> Schema:
    items = {name: value for name, value in id_schema(dialect).items() if name != "description"}
    described: Schema = {"type": "array", "items": items, "minItems": 1}
    if dialect["description_texts"] == "full":
        described["description"] = f"Identifiers of the assets: `{asset_name(dialect)}` in the reply of POST /uploads."
    return {"type": "object", "required": ["asset_ids"], "properties": {"asset_ids": described}}
