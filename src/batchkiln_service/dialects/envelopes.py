"""Envelopes: the structure around a reply."""

from typing import Final, Literal

from batchkiln_service.dialects.extra_fields import extras
from batchkiln_service.dialects.naming import spelled
from batchkiln_service.dialects.shapes import Shape, at, constant, list_of, object_of
from batchkiln_service.dialects.traits import Dialect

Kind = Literal["record", "list", "value", "error"]
_CREATED: Final = 1_772_355_600  # a made-up instant
_SCOPES: Final = {
    "all": frozenset({"record", "list", "value"}),
    "but_records": frozenset({"list", "value"}),
    "only_lists": frozenset({"list"}),
    "only_records": frozenset({"record"}),
}


def enveloped(dialect: Dialect, kind: Kind, shape: Shape) -> Shape:
    """Return the shape of a reply in the dialect's envelope, if it has one for this kind."""
    envelope = dialect["envelope"]
    is_within = dialect["error_enveloped"] == "yes" if kind == "error" else kind in _SCOPES[dialect["enveloped"]]
    if envelope == "none" or not is_within:
        return shape
    match envelope:
        case "list_of_one":
            return shape if kind in {"list", "error"} else at(lambda given: [given], list_of(shape))
        case "json_api":
            return _json_api(kind, shape)
        case _:
            return object_of(_fields(dialect, kind, shape))


def _fields(dialect: Dialect, kind: Kind, shape: Shape) -> dict[str, Shape]:
    is_error = kind == "error"
    forms: dict[str, dict[str, Shape]] = {
        **{name: {name: shape} for name in ("result", "response", "payload")},
        "status_data": {
            "id": constant("req_77"),
            "status": constant("error" if is_error else "ok"),
            "created": constant(_CREATED),
            "data": shape,
        },
        "success_data": {"success": constant(not is_error), "data": shape, "error": constant(None)},
        "code_data": {
            "code": constant(1 if is_error else 0),
            "message": constant("the request failed" if is_error else "ok"),
            "data": shape,
        },
        "nested": {"response": object_of({"status": constant(200), "data": shape})},
    }
    fields = forms.get(dialect["envelope"], {"data": shape})
    more = extras(dialect, "envelope", frozenset(fields))
    if more and dialect.number("meta", 2):
        return {spelled("response_meta", dialect["spelling"]): object_of(more), **fields}
    return {**more, **fields}


def _json_api(kind: Kind, shape: Shape) -> Shape:
    """Return a record in the form of JSON:API: `type` and `id` beside `attributes`."""
    if kind != "record" or not shape.fields:
        return object_of({"data": shape, "jsonapi": object_of({"version": constant("1.1")})})
    attributes = object_of({name: each for name, each in shape.fields.items() if name != "id"})
    data = object_of({"type": constant("generations"), "id": shape.fields["id"], "attributes": attributes})
    return object_of({"data": data, "jsonapi": object_of({"version": constant("1.1")})})
