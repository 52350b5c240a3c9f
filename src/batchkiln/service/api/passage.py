"""What happens to every request before and after its handler."""

import logging
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from aiohttp import hdrs, web

from batchkiln.service.api.answering import noted
from batchkiln.service.api.bodies import http_date, refusal
from batchkiln.service.api.context import CONTEXT, PREFIX, Context
from batchkiln.service.api.misbehaviour import blocked, misbehaved_after, misbehaved_before, sent_status
from batchkiln.service.books.admission import Credentials, Kind, Ticket
from batchkiln.service.books.keys import digest_of
from batchkiln.service.errors import ApiError
from batchkiln.service.faults import BEFORE, REPLY

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
ApiHandler = Callable[[web.Request, Ticket], Awaitable[web.StreamResponse]]
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Route:
    """One endpoint: its kind in the request log, and the names that fault rules know it by."""

    method: str
    path: str
    handler: ApiHandler
    kind: Kind
    names: frozenset[str]
    is_public: bool = False


async def set_date(request: web.Request, response: web.StreamResponse) -> None:
    """Every reply tells the service's time: clients learn its day and hour from it."""
    response.headers[hdrs.DATE] = http_date(request.app[CONTEXT].clock.now_ms())


@web.middleware
async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Apply the edge firewall, and answer for paths and methods that do not exist."""
    context = request.app[CONTEXT]
    is_api = request.path.startswith(PREFIX + "/")
    ticket = _new_ticket(request, "other")
    if is_api and not context.edge.admits(ticket.ip, ticket.arrived_at_ms):
        await noted(context, ticket, status=403, code="edge_blocked")
        return blocked()
    try:
        return await handler(request)
    except web.HTTPException as error:
        code = error.reason.lower().replace(" ", "_")
        if is_api:
            await noted(context, ticket, status=error.status, code=code)
        response = refusal(ApiError(error.status, code, error.reason))
        if allowed := error.headers.get(hdrs.ALLOW):
            response.headers[hdrs.ALLOW] = allowed
        return response


def _new_ticket(request: web.Request, kind: Kind) -> Ticket:
    return Ticket(
        kind=kind,
        path=request.path,
        ip=request.remote or "",
        arrived_at_ms=request.app[CONTEXT].clock.now_ms(),
    )


def endpoint(route: Route) -> Handler:
    """Wrap an API handler: faults, then the key, then the Origin, then the work, then faults again."""

    async def handle(request: web.Request) -> web.StreamResponse:
        context, ticket = request.app[CONTEXT], _new_ticket(request, route.kind)
        if (fault := context.faults.draw(BEFORE, route.names)) is not None:
            ticket.fault = fault.kind
            response = misbehaved_before(request, fault)
            await noted(context, ticket, status=sent_status(fault, response), code=fault.kind)
            return response
        late = context.faults.draw(REPLY, route.names)
        ticket.fault = late.kind if late else None

        if not route.is_public:
            ticket.credentials = _credentials(request)
        response = await _refusals_answered(partial(route.handler, request, ticket), context, ticket)
        return response if late is None else await misbehaved_after(request, response, late)

    return handle


def stored(handler: Handler, names: frozenset[str]) -> Handler:
    """Wrap a storage handler: faults only, and nothing is logged."""

    async def handle(request: web.Request) -> web.StreamResponse:
        context = request.app[CONTEXT]
        if (fault := context.faults.draw(BEFORE, names)) is not None:
            return misbehaved_before(request, fault)
        late = context.faults.draw(REPLY, names)
        response = await _refusals_answered(partial(handler, request), context, None)
        return response if late is None else await misbehaved_after(request, response, late)

    return handle


async def _refusals_answered(
    work: Callable[[], Awaitable[web.StreamResponse]], context: Context, ticket: Ticket | None
) -> web.StreamResponse:
    """Turn refusals and accidents into replies; log those that the books have not seen."""
    try:
        return await work()
    except ApiError as error:
        refused = error
    except Exception:  # noqa: BLE001 - a request boundary: one accident must not become another client's
        _log.exception("request_failed")
        refused = ApiError(500, "internal_error", "the service failed unexpectedly")
    if ticket is not None and not ticket.is_recorded:
        with suppress(sqlite3.Error):  # when the books cannot be written, the client still gets its JSON
            await noted(context, ticket, status=refused.status, code=refused.code)
    return refusal(refused)


def _credentials(request: web.Request) -> Credentials:
    """Take from the headers what tells who is asking. Service rules 5.1 and 5.5."""
    scheme, _, key = request.headers.get(hdrs.AUTHORIZATION, "").partition(" ")
    key = key.strip()
    return Credentials(
        key_sha256=digest_of(key) if scheme.lower() == "bearer" and key else None,
        has_origin=hdrs.ORIGIN in request.headers,
    )
