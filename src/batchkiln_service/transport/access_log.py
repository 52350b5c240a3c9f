"""One event per request, storage included, without anything that is secret.

What a client sends is never written as it came: of a path only the route that it took, of a generation's id only what
this service could have made, and no header, query or body at all. A key that was pasted into the wrong place of a
request is in no field.
"""

import logging
from typing import Final

from aiohttp import hdrs, web
from aiohttp.abc import AbstractAccessLogger

from batchkiln_service.db.request_log import Entry

LOGGER: Final = "batchkiln_service.access"
EVENT: Final = "request"
# Where a request to the API holds its row in the books.
ENTRY: Final = web.RequestKey("entry", Entry)
# Where a request holds the path of its route, with the names of the variable parts.
ROUTE: Final = web.RequestKey("route", str)
# Where a response holds the word of its refusal.
CODE: Final = web.ResponseKey("code", str)
NO_ROUTE: Final = "(no route)"


class AccessLog(AbstractAccessLogger):
    """Writes through Python's logging; the fields are in `extra`, for whoever formats the line."""

    @property
    def enabled(self) -> bool:
        """Say whether anybody reads it; aiohttp then spares itself the clock."""
        return self.logger.isEnabledFor(logging.INFO)

    def log(self, request: web.BaseRequest, response: web.StreamResponse, time: float) -> None:
        """Write one request. `time` is how many real seconds it took."""
        self.logger.info(EVENT, extra=fields_of(request, response, seconds=time))


def fields_of(request: web.BaseRequest, response: web.StreamResponse, *, seconds: float) -> dict[str, object]:
    """Return what is told of a request; fields that say nothing are left out."""
    entry = request.get(ENTRY)
    fields: dict[str, object | None] = {
        "method": request.method if request.method in hdrs.METH_ALL else "(other)",
        "path": request.get(ROUTE, NO_ROUTE),  # a path that leads nowhere may hold anything
        "status": response.status,
        "code": response.get(CODE),
        "bytes": response.body_length,
        "duration_ms": round(seconds * 1000, 1),
        "ip": request.remote,
    }
    if entry is not None:
        fields |= {
            "kind": entry.arrival.kind,
            "account": entry.account,
            "generation_id": entry.generation_id,
            "fault": entry.fault,
        }
    return {name: value for name, value in fields.items() if value is not None}
