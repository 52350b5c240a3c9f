"""The interface description at GET /openapi.json (OpenAPI 3.1), of what this implementation really does."""

from collections.abc import Mapping

from batchkiln.service.rules.catalog import Model

Schema = dict[str, object]

_TEXT: Schema = {"type": "string"}
_INTEGER: Schema = {"type": "integer"}
_INSTANT: Schema = {"type": "string", "format": "date-time"}
_REFUSALS: dict[str, str] = {
    "400": "Malformed JSON or Idempotency-Key",
    "401": "API key missing or unknown",
    "402": "Credits or subscription missing",
    "403": "Not allowed, or blocked by the edge firewall (text/html)",
    "404": "Not found",
    "409": "Idempotency-Key used with another body",
    "413": "Body too large",
    "415": "Not JSON",
    "422": "A field or option is not supported",
    "429": "A limit is reached; see Retry-After",
    "503": "Temporarily unavailable",
}


def describe(catalog: Mapping[str, Model], origin: str) -> Schema:
    """Return the document; the models' identifiers come from the catalogue."""
    return {
        "openapi": "3.1.0",
        "info": {"title": "Video and image generation, local implementation", "version": "1"},
        "servers": [{"url": f"{origin}/api/v1"}],
        "security": [{"bearer": []}],
        "paths": _paths(),
        "components": {
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
            "schemas": _schemas(catalog),
        },
    }


def _paths() -> Schema:
    key: Schema = {
        "name": "Idempotency-Key",
        "in": "header",
        "required": True,
        "schema": {"type": "string", "pattern": "^[A-Za-z0-9_-]{16,128}$"},
    }
    identifier: Schema = {"name": "id", "in": "path", "required": True, "schema": _TEXT}
    return {
        "/models": {"get": _operation("listModels", "ModelList")},
        "/credits/balance": {"get": _operation("readBalance", "Balance")},
        "/quotes": {"post": _operation("quote", "Quote", body="GenerationRequest")},
        "/videos": {
            "post": _operation("createVideo", "Generation", body="GenerationRequest", status="202", extra=[key])
        },
        "/images": {
            "post": _operation("createImage", "Generation", body="GenerationRequest", status="202", extra=[key])
        },
        "/generations/{id}": {"get": _operation("readGeneration", "Generation", extra=[identifier])},
        "/uploads": {"post": _operation("prepareUploads", "UploadList", body="UploadRequest")},
        "/uploads/complete": {"post": _operation("completeUploads", "AssetList", body="CompletionRequest")},
        "/openapi.json": {
            "get": {
                "operationId": "readDescription",
                "security": [],
                "responses": {"200": {"description": "This document"}},
            }
        },
    }


def _operation(
    name: str, answer: str, *, body: str | None = None, status: str = "200", extra: list[Schema] | None = None
) -> Schema:
    refusals: Schema = {code: {"description": text, "content": _json("Error")} for code, text in _REFUSALS.items()}
    operation: Schema = {
        "operationId": name,
        "responses": {status: {"description": "Done", "content": _json(answer)}, **refusals},
    }
    if extra:
        operation["parameters"] = extra
    if body:
        operation["requestBody"] = {"required": True, "content": _json(body)}
    return operation


def _json(schema: str) -> Schema:
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}}}


def _record(*, optional: tuple[str, ...] = (), **fields: Schema) -> Schema:
    """Return the schema of an object without other fields."""
    required = [name for name in fields if name not in optional]
    return {"type": "object", "required": required, "additionalProperties": False, "properties": fields}


def _list(item: Schema, **bounds: int) -> Schema:
    return {"type": "array", "items": item, **bounds}


def _choice(*words: str) -> Schema:
    return {"type": "string", "enum": list(words)}


def _schemas(catalog: Mapping[str, Model]) -> Schema:
    error = _record(code=_TEXT, message=_TEXT)
    return {
        "Error": _record(error=error),
        "ModelList": _record(models=_list({"type": "object", "required": ["id", "kind", "modes"]})),
        "Balance": _record(balance=_INTEGER),
        "Quote": _record(cost_credits=_INTEGER),
        "GenerationRequest": _request(catalog),
        "Generation": _record(
            id=_TEXT,
            model=_TEXT,
            status=_choice("pending", "processing", "success", "failed", "canceled", "expired"),
            created_at=_INSTANT,
            credits=_record(cost=_INTEGER),
            outputs=_list(_record(type=_choice("image", "video"), url=_TEXT, expires_at=_INSTANT)),
            error={"oneOf": [error, {"type": "null"}]},
        ),
        **_upload_schemas(),
    }


def _request(catalog: Mapping[str, Model]) -> Schema:
    parameters = _record(
        optional=(
            "resolution", "aspect_ratio", "duration_seconds", "generate_audio",
            "image_mode", "output_format", "google_search",
        ),
        resolution=_TEXT,
        aspect_ratio=_TEXT,
        duration_seconds=_INTEGER,
        generate_audio={"type": "boolean"},
        image_mode=_choice("first-frame", "first-last-frame", "reference-image"),
        output_format=_choice("png", "jpg"),
        google_search={"type": "boolean"},
    )  # fmt: skip
    return _record(
        optional=("inputs", "parameters", "max_cost_credits"),
        model=_choice(*catalog),
        mode=_choice("text-to-video", "image-to-video", "text-to-image", "image-to-image"),
        prompt={"type": "string", "minLength": 1},
        inputs=_list(_record(type=_choice("image"), url=_TEXT)),
        parameters=parameters,
        max_cost_credits={"type": "number", "minimum": 0},
    )


def _upload_schemas() -> Schema:
    file = _record(name=_TEXT, type=_choice("image/jpeg", "image/png", "image/webp"), size=_INTEGER)
    upload = _record(
        asset_id=_TEXT,
        name=_TEXT,
        upload_url=_TEXT,
        upload_headers={"type": "object", "additionalProperties": _TEXT},
        expires_at=_INSTANT,
    )
    asset = _record(
        asset_id=_TEXT,
        status=_choice("ready"),
        url=_TEXT,
        type=_TEXT,
        size=_INTEGER,
        width=_INTEGER,
        height=_INTEGER,
        expires_at=_INSTANT,
    )
    return {
        "UploadRequest": _record(files=_list(file, minItems=1, maxItems=5)),
        "UploadList": _record(uploads=_list(upload)),
        "CompletionRequest": _record(asset_ids=_list(_TEXT, minItems=1, maxItems=5)),
        "AssetList": _record(assets=_list(asset)),
    }
