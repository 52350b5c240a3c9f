"""What happens to every request before and after its handler."""

import logging
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from aiohttp import hdrs, web

from batchkiln.service.api.answering import noted
from batchkiln.service.api.misbehaviour import blocked, misbehaved_after, misbehaved_before, sent_status
from batchkiln.service.api.striking import faults_of, note_struck
from batchkiln.service.books.admission import Credentials, Kind, Ticket
from batchkiln.service.books.keys import digest_of
from batchkiln.service.context import CONTEXT, PREFIX, Context
from batchkiln.service.errors import ApiError
from batchkiln.service.transport.access_log import ROUTE, TICKET
from batchkiln.service.transport.bodies import http_date, refusal

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
    if is_api:
        request[TICKET] = ticket
    if (resource := request.match_info.route.resource) is not None:
        request[ROUTE] = resource.canonical
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
        origin=request.app[CONTEXT].origin(request),
    )


def endpoint(route: Route) -> Handler:
    """Wrap an API handler: faults, then the key, then the Origin, then the work, then faults again."""

    async def handle(request: web.Request) -> web.StreamResponse:
        request[TICKET] = ticket = _new_ticket(request, route.kind)
        if not route.is_public:
            ticket.credentials = _credentials(request)
        return await _among_faults(request, route.names, partial(route.handler, request, ticket), ticket)

    return handle


def stored(handler: Handler, names: frozenset[str]) -> Handler:
    """Wrap a storage handler: faults only, and nothing is logged."""

    async def handle(request: web.Request) -> web.StreamResponse:
        return await _among_faults(request, names, partial(handler, request), None)

    return handle


async def _among_faults(
    request: web.Request,
    names: frozenset[str],
    work: Callable[[], Awaitable[web.StreamResponse]],
    ticket: Ticket | None,
) -> web.StreamResponse:
    """Do the work of a request and spoil its reply, or misbehave in place of it, as the faults want it."""
    context = request.app[CONTEXT]
    try:
        faults = await faults_of(request, names, ticket.credentials if ticket else None)
    except ApiError as error:
        await _noted(context, ticket, status=error.status, code=error.code)
        return refusal(error)
    if ticket is not None:
        ticket.strikes, ticket.fault = faults, ", ".join(rule.kind for rule in faults.struck) or None
    if faults.before is None:
        response = await _refusals_answered(work, context, ticket)
    else:
        response = misbehaved_before(request, faults.before)
        await _noted(context, ticket, status=sent_status(faults.before, response), code=faults.before.kind)
    await note_struck(context, faults, names)
    return await misbehaved_after(request, response, faults.late)


async def _noted(context: Context, ticket: Ticket | None, *, status: int, code: str) -> None:
    """Log a request that the books have not seen; when they cannot be written, the client still gets its reply."""
    if ticket is not None and not ticket.is_recorded:
        with suppress(sqlite3.Error):
            await noted(context, ticket, status=status, code=code)


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
    await _noted(context, ticket, status=refused.status, code=refused.code)
    return refusal(refused)


def _credentials(request: web.Request) -> Credentials:
    """Take from the headers what tells who is asking. Service rules 5.1 and 5.5."""
    scheme, _, key = request.headers.get(hdrs.AUTHORIZATION, "").partition(" ")
    key = key.strip()
    return Credentials(
        key_sha256=digest_of(key) if scheme.lower() == "bearer" and key else None,
        has_origin=hdrs.ORIGIN in request.headers,
    )
