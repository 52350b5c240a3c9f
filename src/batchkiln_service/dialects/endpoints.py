"""The endpoints whose replies a dialect varies, and the shape of each reply."""

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final

from batchkiln_service.dialects import record_shape, upload_shapes, value_shapes
from batchkiln_service.dialects.envelopes import Kind, enveloped
from batchkiln_service.dialects.shapes import Shape
from batchkiln_service.dialects.traits import Dialect

_STATUSES: Final = {"ok": 200, "created": 201, "accepted": 202}


class Endpoint(Enum):
    """An endpoint; both creates are one endpoint."""

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
