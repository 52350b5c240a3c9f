"""The endpoints whose replies a dialect varies: the shape of each reply, and the envelope around it."""

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final, Literal

from batchkiln_service.dialects import record_shape, upload_shapes, value_shapes
from batchkiln_service.dialects.extra_fields import extras
from batchkiln_service.dialects.naming import spelled
from batchkiln_service.dialects.shapes import Shape, at, constant, list_of, object_of
from batchkiln_service.dialects.traits import Dialect

Kind = Literal["record", "list", "value", "error"]
_STATUSES: Final = {"ok": 200, "created": 201, "accepted": 202}


class Endpoint(Enum):
    """An endpoint of the API. Both creates are one endpoint, because their replies are alike."""

    MODELS = "models"
    BALANCE = "balance"
    QUOTE = "quote"
    CREATE = "create"
    READ = "read"
    PREPARE = "prepare"
    COMPLETE = "complete"
    DESCRIPTION = "description"

    @classmethod
    def of(cls, method: str, path: str) -> "Endpoint | None":
        """Return the endpoint of a route; None if it is not in the API."""
        return _ROUTES.get((method, path))

    def shape(self, dialect: Dialect) -> Shape:
        """Return the shape of its reply, with the envelope."""
        kind, make = _SHAPES[self]
        return enveloped(dialect, kind, make(dialect))


def success_status(dialect: Dialect, endpoint: Endpoint) -> int:
    """Return the status of a successful reply. That of creates is fixed (section 4)."""
    match endpoint:
        case Endpoint.CREATE:
            return 202
        case Endpoint.PREPARE | Endpoint.COMPLETE | Endpoint.QUOTE:
            return _STATUSES[dialect[f"{endpoint.value}_status"]]
        case _:
            return 200


_ROUTES: Final = {
    ("GET", "/models"): Endpoint.MODELS,
    ("GET", "/credits/balance"): Endpoint.BALANCE,
    ("POST", "/quotes"): Endpoint.QUOTE,
    ("POST", "/videos"): Endpoint.CREATE,
    ("POST", "/images"): Endpoint.CREATE,
    ("GET", "/generations/{id}"): Endpoint.READ,
    ("POST", "/uploads"): Endpoint.PREPARE,
    ("POST", "/uploads/complete"): Endpoint.COMPLETE,
    ("GET", "/openapi.json"): Endpoint.DESCRIPTION,
}
_SHAPES: Final[Mapping[Endpoint, tuple[Kind, Callable[[Dialect], Shape]]]] = {
    Endpoint.MODELS: ("list", value_shapes.models_shape),
    Endpoint.BALANCE: ("value", value_shapes.balance_shape),
    Endpoint.QUOTE: ("value", value_shapes.quote_shape),
    Endpoint.CREATE: ("record", record_shape.record_shape),
    Endpoint.READ: ("record", record_shape.record_shape),
    Endpoint.PREPARE: ("list", upload_shapes.tickets_shape),
    Endpoint.COMPLETE: ("list", upload_shapes.completed_shape),
}


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
