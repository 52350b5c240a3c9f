"""Middleware for every request: access checks, security headers, and error pages."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler

from batchkiln.config import AccessScope
from batchkiln.core.errors import BatchkilnError, InputError, QueueBusy, QueueUnusable
from batchkiln.dashboard.auth import Access, Principal, is_own_form, token_file
from batchkiln.dashboard.context import Context, context_of, identify, identify_nobody
from batchkiln.dashboard.http_api.operation import PREFIX
from batchkiln.dashboard.http_api.problems import Kind, ProblemError, problem_of, status_of

log = structlog.get_logger()

COOKIE_SECONDS: Final = 90 * 86_400

HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; media-src 'self'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "same-origin",  # `no-referrer` would remove the `Origin` of the dashboard's own forms
    "Server": "batchkiln",  # in place of the versions of Python and aiohttp
    "X-Content-Type-Options": "nosniff",
}

_JOB_SLASHES: Final = 2  # in `/jobs/NAME`
_CLIENT_CLOSED: Final = 499

_PUBLIC: Final = ("/static/", "/favicon.ico")

SIGN_IN: Final = "/sign-in"
FORM: Final = "application/x-www-form-urlencoded"
FORM_SECONDS: Final = 10.0
CSRF_HEADER: Final = "X-CSRF-Token"

_FOREIGN_HOST: Final = "The dashboard does not answer to this host name, which another site could point to it."


async def add_headers(request: web.Request, response: web.StreamResponse) -> None:
    """Add the security headers, and forbid caching of everything but pictures and static files."""
    response.headers.update(HEADERS)
    if "Cache-Control" not in response.headers:
        response.headers["Cache-Control"] = "no-cache" if request.path.startswith(_PUBLIC) else "no-store"


@web.middleware
async def authorize(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse requests without access, with a foreign `Host`, without a scope, or with a form of another site."""
    identify_nobody()  # a proxy may send requests of several people over one connection, which is one task
    context = context_of(request)
    access, origin = context.access, context.origins.of(request)
    if origin is None:
        raise ProblemError(Kind.HOST, _FOREIGN_HOST, "Use the server's address, or set http.public_url to this name.")
    if request.path.startswith(_PUBLIC):
        return await handler(request)
    if request.path == "/" and request.method == "GET" and access.accepts_link(request.query):
        return _sign_in(request, access.owner, origin)
    if request.path == SIGN_IN and request.method == "POST":
        return await _sign_in_by_form(request, origin)
    cookie = request.cookies.get(access.cookie_name, "")
    principal = access.authenticated(cookie=cookie, authorization=request.headers.get("Authorization", ""))
    if is_interface(request):
        _check_interface(request, access, principal, origin)
    elif principal is None:
        return _access_denied(context, is_wrong="token" in request.query)
    else:
        await _check_page(request, principal, origin)
    assert principal is not None, "a request without a sender was refused"
    identify(request, principal)
    return await handler(request)


def is_interface(request: web.Request) -> bool:
    """Return whether a request is one of the HTTP interface, whose errors are problem details."""
    return request.path.startswith(f"{PREFIX}/") or request.path == PREFIX


def _check_interface(request: web.Request, access: Access, principal: Principal | None, origin: str) -> None:
    """Refuse a request to the HTTP interface: it is off, the token is unknown, or another site sent the request."""
    if not access.has_tokens and (principal is None or not principal.is_session):
        told = "The configuration has no token for the HTTP interface, so it is off."
        raise ProblemError(Kind.OFF, told, "Set http.tokens in the configuration; `batchkiln token NAME` makes one.")
    if principal is None:
        headers = {"WWW-Authenticate": 'Bearer realm="batchkiln"'}
        told = "The request has no token, or an unknown one."
        raise ProblemError(Kind.NO_TOKEN, told, "Send `Authorization: Bearer TOKEN`.", headers=headers)
    if principal.is_session and request.method != "GET":
        sent, token = request.headers.get("Origin", ""), request.headers.get(CSRF_HEADER, "")
        if not is_own_form(principal, origin=sent, own_origin=origin, csrf_token=token):
            told = f"A change by a browser's session needs the dashboard's Origin and its token in {CSRF_HEADER}."
            raise ProblemError(Kind.FOREIGN_FORM, told, "Use the dashboard, or a token as `Authorization: Bearer`.")


async def _check_page(request: web.Request, principal: Principal, origin: str) -> None:
    """Refuse a page or a form that the sender's token does not permit, and a form of another site."""
    is_form = request.method == "POST"
    needed = AccessScope.DECIDE if is_form else AccessScope.LOOK
    if needed not in principal.scopes:
        told = f"The token {principal.name} has no scope {needed}; nothing was changed.\n"
        raise web.HTTPForbidden(text=told)
    if is_form:
        token = (await _read_form(request)).get("csrf_token", "")
        if not is_own_form(principal, origin=request.headers.get("Origin", ""), own_origin=origin, csrf_token=token):
            raise web.HTTPForbidden(text="This form was not sent from the dashboard; nothing was changed.\n")


async def _read_form(request: web.Request) -> Mapping[str, str]:
    """Return the fields of a form. aiohttp keeps them, so that a later `request.post()` returns the same."""
    if request.content_type != FORM or (request.charset or "utf-8").lower() != "utf-8":
        raise web.HTTPUnsupportedMediaType(text=f"A form is sent as {FORM}, in UTF-8; nothing was changed.\n")
    try:
        async with asyncio.timeout(FORM_SECONDS):  # the sender may be nobody who is known
            fields = await request.post()
    except TimeoutError:
        raise web.HTTPRequestTimeout(text="The form arrives too slowly.\n", headers={"Connection": "close"}) from None
    except UnicodeDecodeError:
        raise web.HTTPBadRequest(text="The form is not UTF-8; nothing was changed.\n") from None
    return {name: value for name, value in fields.items() if isinstance(value, str)}


def _access_denied(context: Context, *, is_wrong: bool = False) -> web.Response:
    """Ask for the token; `is_wrong` after one that is not known.

    Only its file's name is told, because nobody has signed in: for a database it says nothing.
    """
    name = token_file(context.queue).name if isinstance(context.queue, Path) else None
    return context.page("unauthorized.html", status=401, token_file=name, is_wrong=is_wrong)


async def _sign_in_by_form(request: web.Request, origin: str) -> web.Response:
    """Sign in by a token that a person has pasted. A form of another site signs nobody in."""
    context, token = context_of(request), (await _read_form(request)).get("token", "")
    principal = context.access.holder_of(token.strip())
    if principal is None or request.headers.get("Origin", "") != origin:
        return _access_denied(context, is_wrong=principal is None)
    return _sign_in(request, principal, origin)


def _sign_in(request: web.Request, principal: Principal, origin: str) -> web.Response:
    """Set the cookie on a page that reloads itself, because a browser omits it after a redirect from another site."""
    identify(request, principal)
    response = context_of(request).page("welcome.html")
    response.set_cookie(
        context_of(request).access.cookie_name,
        principal.cookie,
        max_age=COOKIE_SECONDS,
        httponly=True,
        samesite="Strict",
        secure=origin.startswith("https://"),
        path="/",
    )
    return response


@web.middleware
async def error_pages(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Return an error as a page, or as problem details. No error reaches a run in the same process."""
    try:
        return await handler(request)
    except ConnectionResetError:  # the page was closed
        return web.Response(status=_CLIENT_CLOSED)
    except Exception as error:  # noqa: BLE001  the outermost handler of a request
        if is_interface(request):
            return problem_of(error, is_read=request.method == "GET").response()
        return _error_page(request, error)


def _error_page(request: web.Request, error: Exception) -> web.StreamResponse:
    match error:
        case web.HTTPNotFound():
            return _page(request, 404, "Not found", "this address leads to no page: it may be mistyped, or out of date")
        case web.HTTPException():
            raise error
        case ProblemError():
            text = f"{error.detail} {error.next}\n"
            return web.Response(status=status_of(error.kind), text=text, headers=error.headers)
        case QueueUnusable() | QueueBusy():
            return _page(request, 503, "The queue is not available", str(error))
        case InputError():
            status, title = (404, "Not found") if request.method == "GET" else (409, "This is not possible")
            return _page(request, status, title, str(error))
        case BatchkilnError():
            return _page(request, 500, "This is not possible", str(error))
        case _:
            log.error("dashboard_page_failed", error=type(error).__name__, call=request.method, path=request.path)
            return _page(request, 500, "The page failed", "This is a bug in the dashboard; the queue is unchanged.")


def _page(request: web.Request, status: int, title: str, text: str) -> web.Response:
    """Return an error page. It leads back to the overview and, below the address of a job, to the job."""
    job = request.match_info.get("job")
    is_below = job is not None and request.path.count("/") > _JOB_SLASHES
    return context_of(request).page("error.html", status=status, title=title, text=text, job=job if is_below else None)
