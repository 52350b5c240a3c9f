"""The page in place of a queue that does not exist yet. It makes no file, so that a mistyped path leaves none."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

from aiohttp import web
from msgspec import Struct

from batchkiln.api.reading import open_reader
from batchkiln.clock import ServiceClock
from batchkiln.config import HttpSettings
from batchkiln.core.errors import QueueBusy, QueueUnusable
from batchkiln.dashboard.middleware import HEADERS
from batchkiln.dashboard.rendering import environment, queue_name
from batchkiln.dashboard.server import check_tokens, listen, static_files

_LOOK_SECONDS: Final = 0.5
_TRIES: Final = 20
"""How often a file that is there is opened: the command that makes a queue needs a moment."""


class WaitingPage(Struct, frozen=True):
    """The page while it is served. `code` lets the browser that has it open into the dashboard that follows, once."""

    url: str
    port: int
    code: str


@asynccontextmanager
async def serving_waiting_page(
    queue: Path, http: HttpSettings, *, port: int | None = None
) -> AsyncIterator[WaitingPage]:
    """Serve the page that says how the queue is made. Raise `InputError` if the port is not available.

    Nobody has to sign in: the page has the names of the queue's file and folder, and nothing else of this machine. As
    for the dashboard itself, raise `InputError` if other machines could reach it, and no token is configured.
    """
    check_tokens(http)
    app = web.Application()
    app.on_response_prepare.append(_add_headers)
    app.add_routes(
        [
            web.get("/", _page(queue_name(queue))),
            web.get("/waiting", _is_waiting),
            web.get("/static/{name}", static_files()),
        ]
    )
    runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=0.0)
    await runner.setup()
    try:
        await listen(runner, http, port)
        host, number = f"[{http.host}]" if ":" in http.host else http.host, runner.addresses[0][1]
        yield WaitingPage(http.public_url or f"http://{host}:{number}", number, secrets.token_urlsafe(16))
    finally:
        await runner.cleanup()


async def wait_for_queue(queue: Path, stop: asyncio.Event) -> bool:
    """Wait until the queue can be opened; return False if `stop` was set first. A file that is no queue ends it too."""
    clock, tries = ServiceClock(), 0
    while not stop.is_set() and tries < _TRIES:
        if queue.exists():
            tries += 1
            with suppress(QueueUnusable, QueueBusy):
                async with open_reader(queue):
                    return True
        await clock.sleep_until(clock.monotonic() + _LOOK_SECONDS, stop)
    return not stop.is_set()


def _page(name: str) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def page(request: web.Request) -> web.Response:
        del request
        text = environment().get_template("waiting.html").render(name=name)
        return web.Response(text=text, content_type="text/html")

    return page


async def _is_waiting(request: web.Request) -> web.Response:
    del request
    return web.Response(text="waiting\n")


async def _add_headers(request: web.Request, response: web.StreamResponse) -> None:
    del request
    response.headers.update(HEADERS)
    response.headers["Cache-Control"] = "no-store"
