"""The dashboard as a server on loopback."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from importlib.resources import files
from pathlib import Path
from typing import Final

from aiohttp import web

from batchkiln.clock import machine_now
from batchkiln.config import Config
from batchkiln.core.errors import InputError
from batchkiln.dashboard import file_responses, forms, pages, sse
from batchkiln.dashboard.auth import Access, read_token
from batchkiln.dashboard.context import CONTEXT, Context
from batchkiln.dashboard.live_state import EngineProbe
from batchkiln.dashboard.metrics import metrics
from batchkiln.dashboard.middleware import add_headers, guard, tell_errors
from batchkiln.store import Store

HOST: Final = "127.0.0.1"
PORT: Final = 8642
STOP_SECONDS: Final = 2.0
FORM_MAX_BYTES: Final = 64 * 1024

_STATIC: Final = {
    "style.css": "text/css",
    "live.js": "text/javascript",
    "icon.svg": "image/svg+xml",
    "icon-look.svg": "image/svg+xml",
    "icon-help.svg": "image/svg+xml",
}


@dataclass(frozen=True, slots=True)
class Served:
    """A dashboard that is served. Its links let in whoever has them: they are for the person who started it."""

    url: str
    access: Access

    @property
    def link(self) -> str:
        """The link with the token."""
        return f"{self.url}/?{self.access.query}"

    def link_for_once(self) -> str:
        """Return a link that works once, for a browser's command line."""
        return f"{self.url}/?{self.access.once()}"


@asynccontextmanager
async def serving(
    queue: Path,
    config: Config,
    *,
    port: int | None = None,
    beside: EngineProbe | None = None,
    clock: Callable[[], datetime] = machine_now,
) -> AsyncIterator[Served]:
    """Serve the dashboard of a queue; without a port, at the usual one or else at any.

    Raises `QueueUnusable` where no queue is, and `InputError` where the port cannot be had.
    """
    store = await Store.open_for_reading(queue)
    try:
        access = Access(read_token(queue))
        context = Context(queue, config, store, access, clock, beside)
        runner = web.AppRunner(
            application(context), access_log=None, handle_signals=False, shutdown_timeout=STOP_SECONDS
        )
        await runner.setup()
        try:
            await _listen(runner, port)
            yield Served(f"http://{HOST}:{runner.addresses[0][1]}", access)
        finally:
            context.stopping.set()
            await runner.cleanup()
    finally:
        await store.close()


async def _listen(runner: web.AppRunner, port: int | None) -> None:
    wanted = (PORT, 0) if port is None else (port,)
    for number in wanted:
        try:
            await web.TCPSite(runner, HOST, number).start()
        except OSError as error:
            if number == wanted[-1]:
                raise InputError(
                    f"the dashboard cannot be served at {HOST}:{number}: {error.strerror}; nothing was changed. "
                    "Name another port with --port"
                ) from error
        else:
            return


def application(context: Context) -> web.Application:
    """Return the dashboard's application."""
    app = web.Application(middlewares=[tell_errors, guard], client_max_size=FORM_MAX_BYTES)
    app[CONTEXT] = context
    app.on_response_prepare.append(add_headers)
    names = "|".join(forms.ACTIONS)
    app.add_routes(
        [
            web.get("/", pages.overview),
            web.get("/failures", pages.failures),
            web.get("/days", pages.days),
            web.get("/jobs/{job}", pages.job),
            web.get("/jobs/{job}/items", pages.gallery),
            web.get("/jobs/{job}/item", pages.item),
            web.get("/jobs/{job}/resolve", forms.ask_resolve),
            web.post("/jobs/{job}/resolve", forms.act_resolve),
            web.get(f"/jobs/{{job}}/{{action:{names}}}", forms.ask),
            web.post(f"/jobs/{{job}}/{{action:{names}}}", forms.act),
            web.get(r"/thumbs/{id:\d{1,18}}/{sha:[0-9a-fA-F]{16}}", file_responses.thumb),
            web.get(r"/media/{id:\d{1,18}}/{sha:[0-9a-fA-F]{16}}", file_responses.media),
            web.get("/events", sse.events),
            web.get("/metrics", metrics),
            web.get("/static/{name}", _static()),
            web.get("/favicon.ico", _favicon),
        ]
    )
    return app


def _static() -> Callable[[web.Request], Awaitable[web.Response]]:
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
