"""The interface description at GET /openapi.json (OpenAPI 3.1), of what this implementation really does.

Requests and replies are described by the models that check and make them (`rules/variants.py`, `rules/wire.py`,
`rules/replies.py`), refusals by `rules/codes.py`.
"""

from collections.abc import Mapping
from functools import cache
from typing import Final

import orjson
from pydantic.json_schema import GenerateJsonSchema, models_json_schema

from batchkiln_service.api.examples import EXAMPLE_KEY, reply_examples, request_examples
from batchkiln_service.api.operations import OPERATIONS, Operation
from batchkiln_service.context import PREFIX
from batchkiln_service.faults import KINDS, SETTINGS
from batchkiln_service.rules.catalog import Kind, Model, load_catalog
from batchkiln_service.rules.error_codes import CODES, STATUSES
from batchkiln_service.rules.replies import EXAMPLE_GENERATION_ID, Error, Reply
from batchkiln_service.rules.request_models import variants_of
from batchkiln_service.rules.validation import IDEMPOTENCY_KEY_PATTERN
from batchkiln_service.rules.wire import REQUESTS, Wire
from batchkiln_service.transport.firewall import PAGE

Schema = dict[str, object]
VERSION: Final = "1.0.0"
_REFERENCE: Final = "#/components/schemas/{model}"
_RULES: Final = """\
Videos and images are generated from credits, asynchronously: a create answers 202 with a record, which is polled
until its `status` is `success`, `failed`, `canceled` or `expired`.

- Fields that are not described here are refused, and so is what the chosen model does not offer: each request has to
  fit exactly one of the listed shapes. Whole numbers may be written as `5` or as `5.0`; `null` stands for nothing.
- Calls come from servers: a request with an `Origin` header is refused.
- Per account: one active generation; 10 creates and uploads a minute and 1,000 a day; 60 reads and quotes a minute and
  20,000 a day; 2,000 credits a day; 100 files and 500 MiB of uploads a day. Days begin at midnight UTC.
- Per IP address: 120 requests a minute; above that the firewall answers 403 with an HTML page.
- An active generation is polled at most once every 10 seconds.
- These limits, and the durations that the endpoints name, hold unless whoever runs this service has configured others.
- Every refusal by the API has the body `{"error": {"code", "message"}}`. Also a path that does not exist (404,
  `not_found`) and a method that a path does not have (405, `method_not_allowed`, with the header `Allow`).
"""
_TAGS: Final = {
    "Catalog": "What is on offer.",
    "Credits": "What is left, and what things cost.",
    "Generations": "Videos and images.",
    "Uploads": "Images to start from.",
}


@cache
def description() -> bytes:
    """Return the document as it is sent. Making it takes a fifth of a second, and so is left to the first who asks."""
    return orjson.dumps(describe(load_catalog()))


def describe(catalog: Mapping[str, Model]) -> Schema:
    """Return the document. Its server is relative to where it is read, so that it is the same everywhere."""
    paths: dict[str, Schema] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method] = _operation(operation, catalog)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Video and image generation",
            "version": VERSION,
            "summary": "A local implementation of the Video and Image Generation Service API.",
            "description": _RULES,
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": PREFIX, "description": "Where this document was read."}],
        "tags": [{"name": name, "description": text} for name, text in _TAGS.items()],
        "security": [{"bearer": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer", "description": "An API key of the account."}
            },
            "parameters": {"Fault": _fault_parameter()},
            "headers": _headers(),
            "schemas": _schemas(catalog),
        },
    }


def _operation(operation: Operation, catalog: Mapping[str, Model]) -> Schema:
    described: Schema = {
        "operationId": operation.id,
        "tags": [operation.tag],
        "summary": operation.summary,
        "description": operation.description,
    }
    described["parameters"] = _parameters(operation)
    if operation.request is not None:
        content = _json({"$ref": _REFERENCE.format(model=operation.request)})
        content["examples"] = request_examples(operation.request, catalog)
        described["requestBody"] = {"required": True, "content": {"application/json": content}}
    responses = {str(operation.status): _success(operation, catalog)}
    responses |= {str(status): _refusal(status, codes) for status, codes in operation.refusals.items()}
    described["responses"] = responses
    if 401 not in operation.refusals:  # noqa: PLR2004 - nobody is asked for a key
        described["security"] = []
    return described


def _parameters(operation: Operation) -> list[Schema]:
    parameters: list[Schema] = []
    if operation.takes_idempotency_key:
        parameters.append(
            {
                "name": "Idempotency-Key",
                "in": "header",
                "required": True,
                "description": "Your name for this create. The same key with another body is refused (409).",
                "schema": {"type": "string", "pattern": IDEMPOTENCY_KEY_PATTERN},
                "example": EXAMPLE_KEY,
            }
        )
    if operation.takes_generation_id:
        parameters.append(
            {
                "name": "id",
                "in": "path",
                "required": True,
                "description": "The `id` of the record that the create returned.",
                "schema": {"type": "string", "minLength": 1},
                "example": EXAMPLE_GENERATION_ID,
            }
        )
    return [*parameters, {"$ref": "#/components/parameters/Fault"}]


def _fault_parameter() -> Schema:
    return {
        "name": "X-Batchkiln-Fault",
        "in": "header",
        "required": False,
        "description": (
            "For tests of clients, unless whoever runs this service has switched it off: this one request is to meet "
            "a misbehaviour. Kinds that can happen at the endpoint, separated by commas, each with settings behind "
            f"semicolons. Kinds: {', '.join(KINDS)}; settings: {', '.join(SETTINGS)}. What a fault answers may be "
            "none of the responses below. A word that is not understood is refused with 400 `invalid_fault`."
        ),
        "schema": {"type": "string"},
        "example": "slow; seconds=3, reply_lost",
    }


def _success(operation: Operation, catalog: Mapping[str, Model]) -> Schema:
    if operation.reply is None:
        content = _json({"type": "object", "required": ["openapi", "info", "paths", "components"]})
    else:
        content = _json({"$ref": _REFERENCE.format(model=operation.reply.__name__)})
        content["examples"] = reply_examples(operation.reply, catalog)
    described: Schema = {
        "description": operation.reply_text,
        "headers": _header_references("Date"),
        "content": {"application/json": content},
    }
    return described | ({"links": operation.links} if operation.links else {})


def _refusal(status: int, codes: tuple[str, ...]) -> Schema:
    """Describe a refusal with exactly the codes that it may have here; the firewall's page has none."""
    content: Schema = {}
    if codes:
        narrowed = {"properties": {"error": {"properties": {"code": {"enum": list(codes)}}}}}
        content["application/json"] = _json({"allOf": [{"$ref": _REFERENCE.format(model="Error")}, narrowed]}) | {
            "examples": {code: {"value": {"error": {"code": code, "message": CODES[status][code]}}} for code in codes}
        }
    if status == 403:  # noqa: PLR2004 - Forbidden, by the firewall
        content["text/html"] = {"schema": {"type": "string"}, "examples": {"edge firewall": {"value": PAGE}}}
    names = {401: ("WWW-Authenticate",), 429: ("Retry-After",), 503: ("Retry-After-Sometimes",)}.get(status, ())
    return {"description": STATUSES[status], "headers": _header_references("Date", *names), "content": content}


def _json(schema: Schema) -> Schema:
    return {"schema": schema}


def _header_references(*names: str) -> Schema:
    return {name.removesuffix("-Sometimes"): {"$ref": f"#/components/headers/{name}"} for name in names}


def _headers() -> Schema:
    seconds: Schema = {"type": "integer", "minimum": 1}
    return {
        "Date": {
            "description": "The service's time.",
            "required": True,
            "schema": {"type": "string", "pattern": r"^\w{3}, \d{2} \w{3} \d{4} \d{2}:\d{2}:\d{2} GMT$"},
            "example": "Mon, 21 Sep 2026 14:00:00 GMT",
        },
        "Retry-After": {
            "description": "Seconds of the service's time until there is room again.",
            "required": True,
            "schema": seconds,
            "example": 10,
        },
        "Retry-After-Sometimes": {
            "description": "Seconds to wait, where they are known.",
            "required": False,
            "schema": seconds,
            "example": 10,
        },
        "WWW-Authenticate": {
            "description": "How to say who you are.",
            "required": True,
            "schema": {"type": "string", "const": "Bearer"},
        },
    }


class _Untitled(GenerateJsonSchema):
    """Without titles on fields: they would repeat the names."""

    def field_title_should_be_set(self, schema: object) -> bool:  # noqa: ARG002 - the base class gives it
        return False


def _schemas(catalog: Mapping[str, Model]) -> Schema:
    bodies: dict[Kind, list[type[Wire]]] = {"video": [], "image": []}
    for model in catalog.values():
        variants = dict.fromkeys(variant.body for variant in variants_of(model).values())
        bodies[model.kind] += variants
    requests = [*REQUESTS.values(), *bodies["video"], *bodies["image"]]
    replies: list[type[Reply]] = [Error, *{operation.reply for operation in OPERATIONS if operation.reply}]
    _, defined = models_json_schema(
        [*((body, "validation") for body in requests), *((reply, "serialization") for reply in replies)],
        ref_template=_REFERENCE,
        schema_generator=_Untitled,
    )
    schemas: Schema = {
        "GenerationRequest": _one_of("A request for a video or an image.", "VideoRequest", "ImageRequest"),
        "VideoRequest": _one_of("A request for a video.", *(body.__name__ for body in bodies["video"])),
        "ImageRequest": _one_of("A request for an image.", *(body.__name__ for body in bodies["image"])),
    }
    return schemas | dict(sorted(defined["$defs"].items()))


def _one_of(text: str, *names: str) -> Schema:
    return {"description": text, "oneOf": [{"$ref": _REFERENCE.format(model=name)} for name in names]}
