"""The description of the HTTP interface as OpenAPI 3.1, made of the operations and their models."""

import re
from collections.abc import Mapping, Sequence
from enum import EnumMeta
from types import NoneType, UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

from pydantic import BaseModel

import batchkiln
from batchkiln.dashboard.http_api.bodies import JSON, YAML
from batchkiln.dashboard.http_api.operation import EVENT_STREAM, FILE, PREFIX, Operation
from batchkiln.dashboard.http_api.problems import CONTENT_TYPE, Kind, ProblemDocument, status_of
from batchkiln.dashboard.http_api.requests import Query

_REF: Final = "#/components/schemas/{model}"
_PATTERN: Final = re.compile(r"\{(\w+):[^{}]*(?:\{[^{}]*\}[^{}]*)*\}")
_ALWAYS: Final = (Kind.MALFORMED, Kind.NO_TOKEN, Kind.NO_SCOPE, Kind.OFF, Kind.HOST, Kind.BUSY)
_PATH_PARAMETERS: Final[Mapping[str, tuple[str, Mapping[str, Any]]]] = {
    "job": ("The name of a job.", {"type": "string", "pattern": r"^[A-Za-z0-9._-]{1,64}$"}),
    "item": (
        "The id of an item, percent-encoded; it may contain slashes.",
        {"type": "string", "minLength": 1, "maxLength": 1000},
    ),
    "number": ("The number of a file, from 1.", {"type": "integer", "minimum": 1, "maximum": 999_999}),
}


def description(operations: Sequence[Operation]) -> dict[str, Any]:
    """Return the interface as an OpenAPI 3.1 document."""
    schemas: dict[str, Any] = {}
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        path = PREFIX + _PATTERN.sub(r"{\1}", operation.path)
        paths.setdefault(path, {})[operation.method.lower()] = _operation(operation, path, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "batchkiln",
            "version": batchkiln.__version__,
            "description": "The queue over HTTP. Errors are problem details (RFC 9457) that tell what was charged.",
        },
        "paths": paths,
        "components": {
            "schemas": dict(sorted(schemas.items())),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(operation: Operation, path: str, schemas: dict[str, Any]) -> dict[str, Any]:
    document: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "security": [{"token": [] if operation.scope is None else [operation.scope.value]}],
        "parameters": [*_path_parameters(path), *_query_parameters(operation.query, schemas)],
        "responses": _responses(operation, path, schemas),
    }
    if operation.reply == EVENT_STREAM:
        document["parameters"].append(_header("Last-Event-ID", "The `id` of the last event that was received."))
    if operation.takes_manifest:
        content: dict[str, Any] = {name: {"schema": {"type": "string"}} for name in YAML}
        document["requestBody"] = {"required": True, "content": content | {JSON: {"schema": {"type": "object"}}}}
    elif operation.body is not None:
        schema = _model(operation.body, schemas)
        is_required = bool(schemas[operation.body.__name__].get("required"))
        document["requestBody"] = {"required": is_required, "content": {JSON: {"schema": schema}}}
    return document


def _responses(operation: Operation, path: str, schemas: dict[str, Any]) -> dict[str, Any]:
    media_type, schema = JSON, {}
    match operation.reply:
        case str() as media_type:
            schema = {"type": "string"}
        case reply:
            schema = _schema(reply, schemas)
    responses: dict[str, Any] = {"200": {"description": "Done.", "content": {media_type: {"schema": schema}}}}
    if media_type == FILE:
        any_type: dict[str, Any] = {"*/*": {"schema": {}}}
        responses["200"]["content"] = any_type
        responses["206"] = {"description": "The range.", "content": any_type}
        responses["304"] = {"description": "Unchanged."}
        responses["416"] = {"description": "The file has no such range."}
    kinds = [*_ALWAYS, *operation.kinds, *([Kind.NOT_FOUND] if "{" in path or operation.query is not Query else [])]
    problem = {CONTENT_TYPE: {"schema": _schema(ProblemDocument, schemas)}}
    for status in sorted({status_of(kind) for kind in kinds}):
        names = ", ".join(sorted(kind.value for kind in Kind if kind in kinds and status_of(kind) == status))
        responses[str(status)] = {"description": f"A problem: {names}.", "content": problem}
    return responses


def _path_parameters(path: str) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "description": _PATH_PARAMETERS[name][0],
            "schema": _PATH_PARAMETERS[name][1],
        }
        for name in re.findall(r"\{(\w+)\}", path)
    ]


def _query_parameters(query: type[Query], schemas: dict[str, Any]) -> list[dict[str, Any]]:
    whole = query.model_json_schema(ref_template=_REF)
    schemas |= whole.get("$defs", {})
    found = []
    for name, schema in whole.get("properties", {}).items():
        told = schema.pop("description", "")
        parameter = {"name": name, "in": "query", "required": False, "schema": _without_null(schema)}
        found.append(parameter | ({"description": told} if told else {}))
    return found


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a parameter that may be left out; in a URL, there is no null."""
    choices = [each for each in schema.get("anyOf", []) if each != {"type": "null"}]
    rest = {name: value for name, value in schema.items() if name not in {"anyOf", "title"} and value is not None}
    return rest | choices[0] if len(choices) == 1 else rest | ({"anyOf": choices} if choices else {})


def _header(name: str, told: str) -> dict[str, Any]:
    schema = {"type": "string", "pattern": r"^[0-9]{1,18}$"}
    return {"name": name, "in": "header", "required": False, "description": told, "schema": schema}


def _model(model: type[BaseModel], schemas: dict[str, Any]) -> dict[str, Any]:
    schema = model.model_json_schema(ref_template=_REF)
    schemas |= schema.pop("$defs", {})
    schemas[model.__name__] = schema
    return {"$ref": _REF.format(model=model.__name__)}


_PLAIN: Final[Mapping[object, Mapping[str, Any]]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    NoneType: {"type": "null"},
    Any: {},
}


def _schema(kind: Any, schemas: dict[str, Any]) -> dict[str, Any]:  # noqa: ANN401, PLR0911  any type of a document
    """Return the JSON Schema of a document's type. Typed dictionaries become components."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind in _PLAIN:
        return dict(_PLAIN[kind])
    if is_typeddict(kind):
        return _component(kind, schemas)
    if isinstance(kind, EnumMeta):
        return {"type": "string", "enum": [member.value for member in list[Any](kind)]}
    if origin in {Union, UnionType}:
        return {"anyOf": [_schema(each, schemas) for each in arguments]}
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin in {list, tuple, Sequence}:
        return {"type": "array", "items": _schema(arguments[0], schemas)}
    assert origin is dict, f"a document has no {kind}"
    return {"type": "object", "additionalProperties": _schema(arguments[1], schemas)}


def _component(kind: Any, schemas: dict[str, Any]) -> dict[str, Any]:  # noqa: ANN401  a typed dictionary
    name, hints = kind.__name__, get_type_hints(kind)
    if name not in schemas:
        schemas[name] = {}  # so that a document may contain itself
        schemas[name] = {
            "type": "object",
            "description": (kind.__doc__ or "").partition("\n\n")[0].strip(),
            "properties": {field: _schema(hint, schemas) for field, hint in hints.items()},
            "required": sorted(kind.__required_keys__),
        }
    is_same = schemas[name].get("properties", hints).keys() == hints.keys()
    assert is_same, f"two documents are called {name}"
    return {"$ref": _REF.format(model=name)}
