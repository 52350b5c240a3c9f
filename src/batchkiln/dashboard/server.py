"""The dashboard's HTTP server: the pages, and the HTTP interface. It listens on loopback unless a host is set."""

import errno
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from importlib.resources import files
from pathlib import Path
from typing import Final

from aiohttp import web
from msgspec import Struct
from msgspec.structs import replace

from batchkiln.api import QueueLocation
from batchkiln.api.app_context import AppContext
from batchkiln.api.changes import Action
from batchkiln.api.reading import open_reader
from batchkiln.clock import machine_now
from batchkiln.config import Config, HttpSettings
from batchkiln.core.errors import InputError
from batchkiln.dashboard import connections, file_responses, forms, gallery, history_page, pages, review_page, sse
from batchkiln.dashboard.auth import Access, kept_token, read_token, token_file
from batchkiln.dashboard.context import CONTEXT, Context
from batchkiln.dashboard.http_api.routes import operations
from batchkiln.dashboard.live_state import EngineProbe
from batchkiln.dashboard.middleware import add_headers, authorize, error_pages
from batchkiln.dashboard.server_names import Origins
from batchkiln.manifest import FileAccess

PORT: Final = 8642
STOP_SECONDS: Final = 2.0
FORM_MAX_BYTES: Final = 64 * 1024

_STATIC: Final = {
    "style.css": "text/css",
    "live.js": "text/javascript",
    "review.js": "text/javascript",
    "gallery.js": "text/javascript",
    "waiting.js": "text/javascript",
    "icon.svg": "image/svg+xml",
    "icon-look.svg": "image/svg+xml",
    "icon-help.svg": "image/svg+xml",
}


class ServedDashboard(Struct, frozen=True):
    """A running dashboard. Its links grant access, so they are only for the person who started it.

    `url` is the public URL if there is one. `listens_at` is the address that the server listens at. `token_file` holds
    the access token; it is None if the token could not be stored.
    """

    url: str
    access: Access
    listens_at: str
    http: HttpSettings
    token_file: Path | None

    @property
    def link(self) -> str:
        """The link with the access token."""
        return f"{self.url}/?{self.access.query}"

    def one_time_link(self) -> str:
        """Return a link that works once, for the command line of a browser."""
        return f"{self.url}/?{self.access.one_time_query()}"


@asynccontextmanager
async def serving_dashboard(
    queue: QueueLocation,
    config: Config,
    *,
    profile: str | None = None,
    port: int | None = None,
    engine: EngineProbe | None = None,
    clock: Callable[[], datetime] = machine_now,
    code: str | None = None,
) -> AsyncIterator[ServedDashboard]:
    """Serve the dashboard of a queue. Without a port, use the configured one, or the default or a free one.

    `profile` takes precedence over the one of a manifest that is sent over HTTP. A link with `code` signs in once.

    Raise `QueueUnusable` if there is no usable queue, and `InputError` if the port is not available, a token cannot be
    read, or other machines could reach the server and no token is configured.
    """
    http = config.http
    check_tokens(http)
    async with open_reader(queue) as reader:
        token = read_token(queue)
        access = Access(token, http.digests(), code)
        app = AppContext(queue, config, profile)
        confined = replace(app, access=FileAccess(app.output_base, http.files))
        context = Context(confined, reader, access, Origins(http), clock, engine)
        runner = web.AppRunner(
            application(context),
            access_log=None,
            handle_signals=False,
            shutdown_timeout=STOP_SECONDS,
            keepalive_timeout=connections.IDLE_SECONDS,
        )
        await runner.setup()
        try:
            await listen(runner, http, port)
            host = f"[{http.host}]" if ":" in http.host else http.host
            address = f"http://{host}:{runner.addresses[0][1]}"
            kept_in = token_file(queue).absolute() if kept_token(queue) == token else None
            yield ServedDashboard(http.public_url or address, access, address, http, kept_in)
        finally:
            context.stopping.set()
            await runner.cleanup()
            await context.kept.aclose()


def check_tokens(http: HttpSettings) -> None:
    """Raise `InputError` if other machines could reach the server, and no token is configured."""
    if http.is_beyond_loopback and not http.digests():
        raise InputError(
            f"{http.host}: other machines could reach this queue, and no token is configured; nothing was served. "
            "`batchkiln token NAME` makes one for http.tokens in the configuration"
        )


async def listen(runner: web.AppRunner, http: HttpSettings, port: int | None) -> None:
    """Listen at the port that was given, else at the configured one, else at the default or a free one."""
    configured = http.port if port is None else port
    wanted = (PORT, 0) if configured is None else (configured,)
    for number in wanted:
        try:
            await connections.BoundedSite(runner, http.host, number).start()
        except OSError as error:
            if number == wanted[-1]:
                is_used = error.errno == errno.EADDRINUSE
                reason = "another program, perhaps another dashboard, uses this port" if is_used else error.strerror
                remedy = "choose another --port, or leave it out" if port is not None else "change or remove http.port"
                raise InputError(
                    f"the dashboard cannot be served at {http.host}:{number}: {reason}; {remedy} for a free one; "
                    "nothing was served"
                ) from error
        else:
            return


def application(context: Context) -> web.Application:
    """Return the web application of the dashboard."""
    app = web.Application(middlewares=[error_pages, authorize], client_max_size=FORM_MAX_BYTES)
    app[CONTEXT] = context
    app.on_response_prepare.append(add_headers)
    names = "|".join(Action)
    app.add_routes(
        [
            web.get("/", pages.overview),
            web.get("/failures", pages.failures),
            web.get("/days", pages.days),
            web.get("/events", history_page.show),
            web.get("/jobs/{job}", pages.job),
            web.get("/jobs/{job}/items", gallery.show),
            web.post("/jobs/{job}/items", gallery.act),
            web.get("/jobs/{job}/item", pages.item),
            web.get("/jobs/{job}/review", review_page.show),
            web.post("/jobs/{job}/review", review_page.act),
            web.get("/jobs/{job}/resolve", forms.ask_resolve),
            web.post("/jobs/{job}/resolve", forms.act_resolve),
            web.post("/jobs/{job}/fetch", forms.act_fetch),
            web.get("/jobs/{job}/use-version", forms.ask_version),
            web.post("/jobs/{job}/use-version", forms.act_version),
            web.get(f"/jobs/{{job}}/{{action:{names}}}", forms.ask),
            web.post(f"/jobs/{{job}}/{{action:{names}}}", forms.act),
            web.get(r"/thumbs/{id:\d{1,18}}/{sha:[0-9a-fA-F]{16}}", file_responses.thumbnail),
            web.get(r"/media/{id:\d{1,18}}/{sha:[0-9a-fA-F]{16}}", file_responses.media),
            web.get(r"/inputs/{id:\d{1,18}}/{sha:[0-9a-fA-F]{16}}", file_responses.input_media),
            web.get("/live", sse.events),
            web.get("/metrics", _metrics),
            *(operation.route() for operation in operations()),
            web.get("/static/{name}", static_files()),
            web.get("/favicon.ico", _favicon),
        ]
    )
    return app


async def _metrics(request: web.Request) -> web.Response:
    from batchkiln.dashboard.metrics import metrics  # noqa: PLC0415  slow to import, and few are asked for metrics

    return await metrics(request)


def static_files() -> Callable[[web.Request], Awaitable[web.Response]]:
    """Return the handler of the style sheet, the scripts and the icons."""
    folder = files("batchkiln.dashboard").joinpath("static")
    contents = {name: folder.joinpath(name).read_bytes() for name in _STATIC}

    async def static(request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if name not in contents:
            raise web.HTTPNotFound
        return web.Response(body=contents[name], content_type=_STATIC[name])

    return static


async def _favicon(request: web.Request) -> web.Response:
    del request
    raise web.HTTPFound("/static/icon.svg")
