"""The web application: routes, and what happens to every request before and after its handler."""

import asyncio
import logging
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import Final

from aiohttp import hdrs, web

from batchkiln.service import downloads, edge, generations, reads, uploads
from batchkiln.service.admission import Kind, Ticket
from batchkiln.service.answering import noted
from batchkiln.service.bodies import MAX_BODY_BYTES, http_date, refusal
from batchkiln.service.context import CONTEXT, Context
from batchkiln.service.errors import ApiError
from batchkiln.service.faults import BEFORE, REPLY, FaultRule

PREFIX: Final = "/api/v1"
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


# fmt: off
ROUTES: Final = (
    Route("GET",  "/models",           reads.models,             "read",   frozenset({"models", "read"})),
    Route("GET",  "/credits/balance",  reads.balance,            "read",   frozenset({"balance", "read"})),
    Route("POST", "/quotes",           generations.quote,        "quote",  frozenset({"quote"})),
    Route("POST", "/videos",           generations.create_video, "create", frozenset({"create"})),
    Route("POST", "/images",           generations.create_image, "create", frozenset({"create"})),
    Route("GET",  "/generations/{id}", generations.poll,         "read",   frozenset({"poll", "read"})),
    Route("POST", "/uploads",          uploads.prepare,          "upload", frozenset({"upload"})),
    Route("POST", "/uploads/complete", uploads.complete,         "upload", frozenset({"complete", "upload"})),
    Route("GET",  "/openapi.json",     reads.openapi,            "other",  frozenset({"openapi"}), is_public=True),
)
# fmt: on


def build_app(context: Context) -> web.Application:
    """Return the application: the API below its prefix, and the storage beside it."""
    app = web.Application(middlewares=[_guard], client_max_size=MAX_BODY_BYTES)
    app[CONTEXT] = context
    for route in ROUTES:
        app.router.add_route(route.method, PREFIX + route.path, _endpoint(route))
    app.router.add_put(uploads.PATH, _stored(uploads.receive, frozenset({"put"})))
    app.router.add_get(downloads.PATH, _stored(downloads.download, frozenset({"download"})))
    app.on_response_prepare.append(_set_date)
    return app


async def _set_date(request: web.Request, response: web.StreamResponse) -> None:
    """Every reply tells the service's time: clients learn its day and hour from it."""
    response.headers[hdrs.DATE] = http_date(request.app[CONTEXT].clock.now_ms())


@web.middleware
async def _guard(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Apply the edge firewall, and answer for paths and methods that do not exist."""
    context = request.app[CONTEXT]
    is_api = request.path.startswith(PREFIX + "/")
    ticket = _new_ticket(request, "other")
    if is_api and not context.edge.admits(ticket.ip, ticket.arrived_at_ms):
        await noted(context, ticket, status=403, code="edge_blocked")
        return _blocked()
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


def _endpoint(route: Route) -> Handler:
    """Wrap an API handler: faults, then the key, then the Origin, then the work, then faults again."""

    async def handle(request: web.Request) -> web.StreamResponse:
        context, ticket = request.app[CONTEXT], _new_ticket(request, route.kind)
        if (fault := context.faults.draw(BEFORE, route.names)) is not None:
            ticket.fault = fault.kind
            response = _misbehaved_before(request, fault)
            await noted(context, ticket, status=_sent_status(fault, response), code=fault.kind)
            return response
        late = context.faults.draw(REPLY, route.names)
        ticket.fault = late.kind if late else None

        async def work() -> web.StreamResponse:
            if not route.is_public:
                _identify(context, request, ticket)
            return await route.handler(request, ticket)

        response = await _refusals_answered(work, context, ticket)
        return response if late is None else await _misbehaved_after(request, response, late)

    return handle


def _stored(handler: Handler, names: frozenset[str]) -> Handler:
    """Wrap a storage handler: faults only, and nothing is logged."""

    async def handle(request: web.Request) -> web.StreamResponse:
        context = request.app[CONTEXT]
        if (fault := context.faults.draw(BEFORE, names)) is not None:
            return _misbehaved_before(request, fault)
        late = context.faults.draw(REPLY, names)
        response = await _refusals_answered(partial(handler, request), context, None)
        return response if late is None else await _misbehaved_after(request, response, late)

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


def _identify(context: Context, request: web.Request, ticket: Ticket) -> None:
    """Find out whose key it is. Service rules 5.1, 5.4 and 5.5."""
    scheme, _, key = request.headers.get(hdrs.AUTHORIZATION, "").partition(" ")
    holder = context.keys.get(sha256(key.strip().encode(errors="surrogateescape")).hexdigest())
    if scheme.lower() != "bearer" or holder is None:
        raise ApiError(401, "invalid_api_key", "the header Authorization has to hold a valid API key, as Bearer")
    ticket.account, ticket.key_sha256 = holder.account, holder.key_sha256
    if holder.is_legacy:
        raise ApiError(403, "api_key_upgrade_required", "this key is older than the API; make a new one")
    if hdrs.ORIGIN in request.headers:
        raise ApiError(403, "origin_not_allowed", "calls must come from a server, without an Origin header")


def _blocked() -> web.Response:
    return web.Response(status=403, text=edge.PAGE, content_type="text/html")


def _misbehaved_before(request: web.Request, fault: FaultRule) -> web.StreamResponse:
    """Answer in place of the handler."""
    match fault.kind:
        case "throttle":
            return refusal(
                ApiError(429, "rate_limited", "too many requests", retry_after_seconds=round(fault.seconds or 1))
            )
        case "unavailable":
            wait = None if fault.seconds is None else round(fault.seconds)
            return refusal(ApiError(503, "unavailable", "try again later", retry_after_seconds=wait))
        case "edge_block":
            return _blocked()
        case "html":
            return web.Response(text="<!doctype html><p>Please sign in</p>", content_type="text/html")
        case _:
            _drop(request, is_abrupt=True)
            return web.Response()


def _sent_status(fault: FaultRule, response: web.StreamResponse) -> int:
    return 0 if fault.kind == "reset_before" else response.status


async def _misbehaved_after(request: web.Request, response: web.StreamResponse, fault: FaultRule) -> web.StreamResponse:
    """Spoil the reply; the work is done."""
    match fault.kind:
        case "slow":
            await request.app[CONTEXT].clock.sleep(fault.seconds or 0)
        case "cut_body":
            return await _cut(request, response)
        case _:
            _drop(request, is_abrupt=False)
    return response


async def _cut(request: web.Request, response: web.StreamResponse) -> web.StreamResponse:
    """Promise the whole body, send half, close."""
    if isinstance(response, web.FileResponse):
        body = await asyncio.to_thread(response._path.read_bytes)  # noqa: SLF001 - aiohttp offers no accessor
    else:
        assert isinstance(response, web.Response)
        assert isinstance(response.body, bytes)
        body = response.body
    cut = web.StreamResponse(status=response.status, headers=response.headers)
    cut.content_length = len(body)
    await cut.prepare(request)
    await cut.write(body[: len(body) // 2])
    _drop(request, is_abrupt=False)
    return cut


def _drop(request: web.Request, *, is_abrupt: bool) -> None:
    """Close the connection, with a reset when it is to be abrupt."""
    if request.transport is None:
        return
    if is_abrupt:
        request.transport.abort()
    else:
        request.transport.close()
