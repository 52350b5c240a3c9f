"""One event per request, storage included, without anything that is secret.

What a client sends is never written as it came: of a path only the route that it took, of a generation's id only what
this service could have made, and no header, query or body at all. A key that was pasted into the wrong place of a
request is in no field.
"""

import logging
import re
from typing import Final

from aiohttp import hdrs, web
from aiohttp.abc import AbstractAccessLogger

from batchkiln.service.books.admission import Ticket

LOGGER: Final = "batchkiln.service.access"
EVENT: Final = "request"
# Where a request to the API holds its ticket.
TICKET: Final = web.RequestKey("ticket", Ticket)
# Where a request holds the path of its route, with the names of the variable parts.
ROUTE: Final = web.RequestKey("route", str)
# Where a response holds the word of its refusal.
CODE: Final = web.ResponseKey("code", str)
NO_ROUTE: Final = "(no route)"
_GENERATION_ID: Final = re.compile(r"gen_[0-9a-f]{24}")


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
    ticket = request.get(TICKET)
    fields: dict[str, object | None] = {
        "method": request.method if request.method in hdrs.METH_ALL else "(other)",
        "path": request.get(ROUTE, NO_ROUTE),  # a path that leads nowhere may hold anything
        "status": response.status,
        "code": response.get(CODE),
        "bytes": response.body_length,
        "duration_ms": round(seconds * 1000, 1),
        "ip": request.remote,
    }
    if ticket is not None:
        fields |= {
            "kind": ticket.kind,
            "account": ticket.account,
            "generation_id": _known(ticket.generation_id),
            "fault": ticket.fault,
        }
    return {name: value for name, value in fields.items() if value is not None}


def _known(generation_id: str | None) -> str | None:
    return generation_id if generation_id is not None and _GENERATION_ID.fullmatch(generation_id) else None
