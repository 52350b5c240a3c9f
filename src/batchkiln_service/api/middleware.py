"""The middleware of all requests: firewall, authentication data, faults, error replies and the Date header."""

import logging
from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import hdrs, web
from msgspec import Struct
from msgspec.structs import replace

from batchkiln_service.api.fault_injection import (
    WRONG_BY_MS,
    blocked,
    faults_of,
    reply_instead,
    sent_status,
    spoil_reply,
)
from batchkiln_service.api.handling import ApiCall, log_response
from batchkiln_service.context import CONTEXT, PREFIX
from batchkiln_service.db.database import is_temporary
from batchkiln_service.db.keys import digest_of
from batchkiln_service.db.request_log import UNKNOWN_PATH, Arrival, Credentials, Entry, Kind, LoggedResponse
from batchkiln_service.errors import ApiError
from batchkiln_service.faults.fault_rules import own_name
from batchkiln_service.faults.registry import RequestFaults
from batchkiln_service.transport.access_log import CODE, ENTRY, ROUTE
from batchkiln_service.transport.bodies import http_date, refusal
from batchkiln_service.transport.connections import SERVER

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
ApiHandler = Callable[[web.Request, ApiCall], Awaitable[web.StreamResponse]]
_NO_PATH: Final = (
    f"there is no such path: the API is below {PREFIX}; GET / lists its endpoints, and /docs describes them"
)
DATABASE_RETRY_SECONDS: Final = 5  # the Retry-After for a busy database or a full disk
_log = logging.getLogger(__name__)


class Route(Struct, frozen=True):
    """An endpoint: its route, its kind in the request log, and its names in fault rules."""

    method: str
    path: str
    handler: ApiHandler
    kind: Kind
    names: frozenset[str]
    is_public: bool = False


async def set_date(request: web.Request, response: web.StreamResponse) -> None:
    """Set Date to service time, from which clients learn the service's clock, and Server."""
    response.headers[hdrs.SERVER] = SERVER
    response.headers[hdrs.DATE] = http_date(request.app[CONTEXT].clock.now_ms() + response.get(WRONG_BY_MS, 0))


@web.middleware
async def firewall_and_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Apply the firewall, and turn unknown paths and methods into error replies."""
    context = request.app[CONTEXT]
    if (resource := request.match_info.route.resource) is not None:
        request[ROUTE] = resource.canonical
    if not request.path.startswith(PREFIX + "/"):
        return await _routed(request, handler)
    arrival = Arrival("other", request.get(ROUTE, UNKNOWN_PATH), request.remote or "", context.clock.now_ms())
    request[ENTRY] = entry = Entry(arrival)
    is_admitted = context.firewall.admits(arrival.ip, arrival.arrived_at_ms)
    response = await _routed(request, handler) if is_admitted else blocked()
    if request[ENTRY] is entry:  # not handled by an endpoint
        await log_response(context, entry, LoggedResponse(response.status, response.get(CODE)))
    return response


async def _routed(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except web.HTTPException as error:
        code = error.reason.lower().replace(" ", "_")
        match error:
            case web.HTTPNotFound():
                told = _NO_PATH
            case web.HTTPMethodNotAllowed():
                told = f"The path has {', '.join(sorted(error.allowed_methods))}, and not {error.method}."
            case _:
                told = error.reason
        response = refusal(ApiError(error.status, code, told))
        if allowed := error.headers.get(hdrs.ALLOW):
            response.headers[hdrs.ALLOW] = allowed
        return response


def endpoint(route: Route) -> Handler:
    """Return the handler of a route, with faults before and after it."""

    async def handle(request: web.Request) -> web.StreamResponse:
        credentials = None if route.is_public else _credentials(request)
        entry = Entry(replace(request[ENTRY].arrival, kind=route.kind, credentials=credentials))
        request[ENTRY] = entry

        def work(faults: RequestFaults) -> Awaitable[web.StreamResponse]:
            return route.handler(request, ApiCall(request.app[CONTEXT], entry, faults))

        return await _with_faults(request, route.names, work, entry)

    return handle


def storage_endpoint(handler: Handler, names: frozenset[str]) -> Handler:
    """Return a storage handler with faults. Storage requests are not logged."""

    async def handle(request: web.Request) -> web.StreamResponse:
        return await _with_faults(request, names, lambda _: handler(request), None)

    return handle


async def _with_faults(
    request: web.Request,
    names: frozenset[str],
    work: Callable[[RequestFaults], Awaitable[web.StreamResponse]],
    entry: Entry | None,
) -> web.StreamResponse:
    """Run the work of a request and spoil its reply, or reply in its place, as its faults require."""
    context = request.app[CONTEXT]
    try:
        faults = await faults_of(request, names, entry.arrival.credentials if entry else None)
    except ApiError as error:
        await log_response(context, entry, LoggedResponse(error.status, error.code))
        return refusal(error)
    _log_applied(entry, faults)
    if faults.before is None:
        response = await _with_error_replies(lambda: work(faults))
        status, code = response.status, response.get(CODE)
    else:
        response = reply_instead(request, faults.before)
        status, code = sent_status(faults.before, response), faults.before.kind
    fault = _log_applied(entry, faults)  # includes faults of the created generation or link
    struck = (own_name(names), [rule.kind for rule in faults.struck]) if faults.struck else None
    await log_response(context, entry, LoggedResponse(status, code, fault), struck=struck)
    return await spoil_reply(request, response, faults.late)


def _log_applied(entry: Entry | None, faults: RequestFaults) -> str | None:
    """Store the kinds of the applied faults in the log entry, and return them, joined."""
    fault = ", ".join(rule.kind for rule in faults.struck) or None
    if entry is not None:
        entry.fault = fault
    return fault


async def _with_error_replies(work: Callable[[], Awaitable[web.StreamResponse]]) -> web.StreamResponse:
    """Turn exceptions into error replies."""
    try:
        return await work()
    except ApiError as error:
        return refusal(error)
    except Exception as error:  # noqa: BLE001 - a request boundary: one request's error must not affect other clients
        return refusal(_unexpected(error))


def _unexpected(error: Exception) -> ApiError:
    """Log an unexpected error; return 503 if a later try may succeed, else 500. Service section 7."""
    if not is_temporary(error):
        _log.error("request_failed", exc_info=error)
        return ApiError(500, "internal_error", "the service failed unexpectedly")
    _log.warning("database_unavailable", exc_info=error)
    return ApiError(
        503,
        "unavailable",
        "the disk cannot be written, and nothing was done; send the same request again",
        retry_after_seconds=DATABASE_RETRY_SECONDS,
    )


def _credentials(request: web.Request) -> Credentials:
    """Return the credentials in the headers; two Authorization headers count as none. Service rules 5.1 and 5.5."""
    given = request.headers.getall(hdrs.AUTHORIZATION, [])
    scheme, _, key = given[0].partition(" ") if len(given) == 1 else ("", "", "")
    key = key.strip()
    return Credentials(
        key_sha256=digest_of(key) if scheme.lower() == "bearer" and key else None,
        has_origin=hdrs.ORIGIN in request.headers,
    )
