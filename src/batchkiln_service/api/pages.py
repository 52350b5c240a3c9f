"""The pages for people: a landing page, and an interactive description of the API.

They are outside of the API: no API key, no fault and no limit applies to them. The description is shown by Swagger UI,
whose files come from an installed package. No page makes a request to another host.
"""

import html
from functools import cache
from importlib import resources
from pathlib import Path
from string import Template
from typing import Final

import aiohttp
from aiohttp import hdrs, web
from yarl import URL

from batchkiln_service.api.fault_injection import FAULT_HEADER
from batchkiln_service.api.openapi import operations
from batchkiln_service.api.scripted_outcomes import MARKERS
from batchkiln_service.clock import iso
from batchkiln_service.context import CONTEXT, PREFIX

VIEWER: Final = "/docs"
RELAY: Final = f"{VIEWER}/try"
_HERE: Final = Path(__file__).with_name("static")
_SWAGGER_UI: Final = ("mkdocs_swagger_ui_tag", "swagger-ui")  # the package that has it, and the folder in the package
# The files by their names in URLs: ours, and those of Swagger UI.
_OWN_FILES: Final = ("page.css", "viewer.js")
_VIEWER_FILES: Final = {
    "swagger-ui.css": "stylesheets/swagger-ui.css",
    "swagger-ui-bundle.js": "javascripts/swagger-ui-bundle.js",
    "LICENSE": "LICENSE",
    "NOTICE": "NOTICE",
}
_NOTHING: Final = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; style-src 'self'"
_VIEWER_POLICY: Final = (
    f"{_NOTHING} 'unsafe-inline'; script-src 'self'; connect-src 'self'; img-src 'self' data:; font-src data:"
)
_RELAYED: Final = (hdrs.AUTHORIZATION, hdrs.CONTENT_TYPE, hdrs.HOST, "Idempotency-Key", FAULT_HEADER)
_RELAY_SECONDS: Final = 120.0


def add_pages(app: web.Application) -> None:
    """Add the routes of the pages."""
    app.router.add_get("/", _landing)
    app.router.add_get(VIEWER, _viewer)
    app.router.add_get("/favicon.ico", _no_icon)  # browsers ask for it
    app.router.add_get(VIEWER + "/assets/{name}", _asset)
    for method in (hdrs.METH_GET, hdrs.METH_POST):
        app.router.add_route(method, f"{RELAY}{PREFIX}/{{path:.+}}", _relay)


async def _landing(request: web.Request) -> web.Response:
    context = request.app[CONTEXT]
    scale = context.config.time_scale
    speed = "" if scale == 1 else f" BATCHKILN_TIME_SCALE={scale:g}"
    endpoints = "".join(
        f"<tr><td>{each.method.upper()}</td><td><code>{html.escape(each.path)}</code></td>"
        f"<td>{html.escape(each.described['summary'])}</td></tr>"
        for each in operations()
    )
    markers = "".join(
        f"<tr><td><code>{html.escape(marker)}</code></td><td>{html.escape(effect)}</td></tr>"
        for marker, effect in MARKERS.items()
    )
    return _page(
        _template("landing.html").substitute(
            base_url=html.escape(context.origin(request) + PREFIX),
            limits="none of its limits" if context.config.no_limits else "limits",
            outputs="are ready at once, all of a format the same" if context.config.instant else "show the prompt",
            speed=html.escape(speed),
            now=html.escape(iso(context.clock.now_ms())),
            pace="at the speed of real time" if scale == 1 else f"{scale:g} times as fast as real time",
            faults=_REQUEST_FAULTS if context.config.request_faults else _NO_REQUEST_FAULTS,
            operator=_operator_address(context.operator_url()),
            endpoints=endpoints,
            markers=markers,
        ),
        _NOTHING,
    )


_REQUEST_FAULTS: Final = (
    f"The header <code>{FAULT_HEADER}</code> makes one request fail: <code>throttle</code>, "
    "<code>slow; seconds=3</code>, <code>reply_lost</code> and others; a wrong word is answered with all that the "
    "endpoint has."
)
_NO_REQUEST_FAULTS: Final = (
    f"The setting <code>request_faults: false</code> turns the header <code>{FAULT_HEADER}</code> off."
)


def _operator_address(url: str | None) -> str:
    option = "<code>--operator-port</code>"
    return (
        f"None is open; {option} opens one."
        if url is None
        else f"<code>{html.escape(url)}</code>; {option} chooses another."
    )


async def _viewer(_: web.Request) -> web.Response:
    return _page(_template("viewer.html").substitute(), _VIEWER_POLICY)


async def _no_icon(_: web.Request) -> web.Response:
    return web.Response(status=204, headers={hdrs.CACHE_CONTROL: "max-age=86400"})


async def _asset(request: web.Request) -> web.StreamResponse:
    name = request.match_info["name"]
    headers = {hdrs.CACHE_CONTROL: "no-cache"}
    if name in _OWN_FILES:
        return web.FileResponse(_HERE / name, headers=headers)
    if name not in _VIEWER_FILES:
        raise web.HTTPNotFound
    if "." not in name:
        headers[hdrs.CONTENT_TYPE] = "text/plain; charset=utf-8"
    return web.FileResponse(_viewer_folder() / _VIEWER_FILES[name], headers=headers)


async def _relay(request: web.Request) -> web.Response:
    """Send a request of the viewer to the API, without the Origin header of the browser. Service rule 5.5.

    Only a page of this service may ask for it, and the API key comes from the person at the page.
    """
    if request.headers.get(hdrs.ORIGIN, str(request.url.origin())) != str(request.url.origin()):
        raise web.HTTPForbidden
    assert request.transport is not None
    host, port = request.transport.get_extra_info("sockname")[:2]
    url = URL.build(scheme="http", host=host, port=port).join(
        URL(request.rel_url.raw_path_qs.removeprefix(RELAY), encoded=True)
    )
    headers = {name: request.headers[name] for name in _RELAYED if name in request.headers}
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_RELAY_SECONDS)) as session,
            session.request(request.method, url, headers=headers, data=await request.read()) as reply,
        ):
            kept = {
                name: reply.headers[name] for name in (hdrs.RETRY_AFTER, hdrs.CONTENT_TYPE) if name in reply.headers
            }
            return web.Response(status=reply.status, body=await reply.read(), headers=kept)
    except (aiohttp.ClientError, TimeoutError):
        return web.Response(status=502, text="The service closed the connection without a whole reply.")


def _page(text: str, policy: str) -> web.Response:
    headers = {"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}
    return web.Response(text=text, content_type="text/html", headers=headers)


@cache
def _template(name: str) -> Template:
    return Template((_HERE / name).read_text(encoding="utf-8"))


@cache
def _viewer_folder() -> Path:
    package, folder = _SWAGGER_UI
    return Path(str(resources.files(package) / folder))
