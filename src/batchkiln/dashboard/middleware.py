"""Middleware for every request: access checks, security headers, and error pages."""

from collections.abc import Mapping
from typing import Final

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler

from batchkiln.core.errors import BatchkilnError, InputError, QueueBusy, QueueUnusable
from batchkiln.dashboard.auth import is_loopback, token_file
from batchkiln.dashboard.context import context_of

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
    "X-Content-Type-Options": "nosniff",
}

_CLIENT_CLOSED: Final = 499

_PUBLIC: Final = ("/static/", "/favicon.ico")


async def add_headers(request: web.Request, response: web.StreamResponse) -> None:
    """Add the security headers, and forbid caching of everything but pictures and static files."""
    response.headers.update(HEADERS)
    if "Cache-Control" not in response.headers:
        response.headers["Cache-Control"] = "no-cache" if request.path.startswith(_PUBLIC) else "no-store"


@web.middleware
async def authorize(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse requests without access, without a loopback `Host`, or with a form of another site."""
    if not is_loopback(request.headers.get("Host", "")):
        raise web.HTTPMisdirectedRequest(text="The dashboard accepts requests to 127.0.0.1 and localhost only.\n")
    context = context_of(request)
    access = context.access
    if request.path.startswith(_PUBLIC):
        return await handler(request)
    if request.path == "/" and request.method == "GET" and access.accepts_link(request.query):
        return _sign_in(request)
    cookie = request.cookies.get(access.cookie_name, "")
    if not access.is_authenticated(cookie=cookie, authorization=request.headers.get("Authorization", "")):
        return context.page("unauthorized.html", status=401, token_file=token_file(context.queue))
    if request.method == "POST":
        form = await request.post()
        token = form.get("csrf_token", "")
        origin, host = request.headers.get("Origin", ""), request.headers.get("Host", "")
        if not access.is_own_form(origin=origin, host=host, csrf_token=token if isinstance(token, str) else ""):
            raise web.HTTPForbidden(text="This form was not sent from the dashboard; nothing was changed.\n")
    return await handler(request)


def _sign_in(request: web.Request) -> web.Response:
    """Set the cookie on a page that reloads itself, because a browser omits it after a redirect from another site."""
    access = context_of(request).access
    response = context_of(request).page("welcome.html")
    response.set_cookie(
        access.cookie_name, access.cookie, max_age=COOKIE_SECONDS, httponly=True, samesite="Strict", path="/"
    )
    return response


@web.middleware
async def error_pages(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Return an error as a page. No error of the dashboard reaches a run in the same process."""
    try:
        return await handler(request)
    except web.HTTPNotFound:
        return _page(request, 404, "Not found", "there is no such page")
    except web.HTTPException:
        raise
    except ConnectionResetError:  # the page was closed
        return web.Response(status=_CLIENT_CLOSED)
    except BatchkilnError as error:
        return _error_response(request, error)
    except Exception as error:  # noqa: BLE001  the outermost handler of a request
        log.error("dashboard_page_failed", error=type(error).__name__, call=request.method, path=request.path)  # noqa: TRY400  an exception's text may contain secrets
        return _page(request, 500, "The page failed", "This is a bug in the dashboard; the queue is unchanged.")


def _error_response(request: web.Request, error: BatchkilnError) -> web.Response:
    match error:
        case QueueUnusable() | QueueBusy():
            return _page(request, 503, "The queue is not available", str(error))
        case InputError():
            return _page(request, 404 if request.method == "GET" else 409, "This is not possible", str(error))
        case _:
            return _page(request, 500, "This is not possible", str(error))


def _page(request: web.Request, status: int, title: str, text: str) -> web.Response:
    return context_of(request).page("error.html", status=status, title=title, text=text)
