"""Envelopes: the structure around a reply."""

from typing import Final, Literal

from batchkiln_service.dialects.extra_fields import extras
from batchkiln_service.dialects.naming import spelled
from batchkiln_service.dialects.shapes import INTEGER, TEXT, TRUTH, Shape, at, constant, list_of, object_of
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
    spelling = dialect["spelling"]
    is_error = kind == "error"
    fields: dict[str, Shape]
    match dialect["envelope"]:
        case "result" | "response" | "payload" as name:
            fields = {name: shape}
        case "status_data":
            fields = {
                "id": constant("req_77", TEXT),
                "status": constant("error" if is_error else "ok", TEXT),
                "created": constant(_CREATED, INTEGER),
                "data": shape,
            }
        case "success_data":
            fields = {
                "success": constant(not is_error, TRUTH),
                "data": shape,
                "error": constant(None, {"type": "null"}),
            }
        case "code_data":
            fields = {"code": constant(1 if is_error else 0, INTEGER), "message": constant("ok", TEXT), "data": shape}
            if is_error:
                fields["message"] = constant("the request failed", TEXT)
        case "nested":
            fields = {"response": object_of({"status": constant(200, INTEGER), "data": shape})}
        case _:
            fields = {"data": shape}
    taken = frozenset(fields)
    more = extras(dialect, "envelope", taken)
    meta = spelled("response_meta", spelling)
    if more and dialect.number("meta", 2):
        return {meta: object_of(more), **fields}
    return {**more, **fields}


def _json_api(kind: Kind, shape: Shape) -> Shape:
    """Return a record in the form of JSON:API: `type` and `id` beside `attributes`."""
    if kind != "record" or not shape.fields:
        return object_of({"data": shape, "jsonapi": object_of({"version": constant("1.1", TEXT)})})
    attributes = {name: each for name, each in shape.fields.items() if name != "id"}
    return object_of(
        {
            "data": object_of(
                {"type": constant("generations", TEXT), "id": shape.fields["id"], "attributes": object_of(attributes)}
            ),
            "jsonapi": object_of({"version": constant("1.1", TEXT)}),
        }
    )
