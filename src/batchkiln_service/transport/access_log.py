"""The access log: one event per request, including those of the storage, without secrets.

Data from a client is not logged unchanged. The event contains the route instead of the path, an id only if it has the
form of an id, and no header, query or body. No field contains an API key, wherever the request had it.
"""

import logging
from typing import Final

from aiohttp import hdrs, web
from aiohttp.abc import AbstractAccessLogger

from batchkiln_service.db.request_log import Entry

LOGGER: Final = "batchkiln_service.access"
EVENT: Final = "request"
# The key under which an API request stores its log entry.
ENTRY: Final = web.RequestKey("entry", Entry)
# The key under which a request stores its route, with the names of the variable parts.
ROUTE: Final = web.RequestKey("route", str)
# The key under which a response stores its error code.
CODE: Final = web.ResponseKey("code", str)
NO_ROUTE: Final = "(no route)"


class AccessLog(AbstractAccessLogger):
    """Writes to Python's logging; the fields are in `extra`."""

    @property
    def enabled(self) -> bool:
        """Whether the log is enabled; aiohttp then measures no time."""
        return self.logger.isEnabledFor(logging.INFO)

    def log(self, request: web.BaseRequest, response: web.StreamResponse, time: float) -> None:
        """Log a request; `time` is in real seconds."""
        self.logger.info(EVENT, extra=fields_of(request, response, seconds=time))


def fields_of(request: web.BaseRequest, response: web.StreamResponse, *, seconds: float) -> dict[str, object]:
    """Return the fields of a request's event, without empty ones."""
    entry = request.get(ENTRY)
    fields: dict[str, object | None] = {
        "method": request.method if request.method in hdrs.METH_ALL else "(other)",
        "path": request.get(ROUTE, NO_ROUTE),  # a path without a route may contain anything
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
