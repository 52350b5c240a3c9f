"""Server-sent events with the changed parts of a live page, at most once a second."""

from typing import Final

import orjson
import structlog
from aiohttp import web

from batchkiln.clock import ServiceClock
from batchkiln.dashboard.context import Context, context_of
from batchkiln.dashboard.gallery import View, gallery_sections, view_of
from batchkiln.dashboard.partials import item_sections, sections
from batchkiln.dashboard.stream_places import send, stream_place

log = structlog.get_logger()

TICK_SECONDS: Final = 1.0
IDLE_TICKS: Final = 5
"""The number of ticks after which parts are rendered without a change in the queue, because waits and days end."""

CLOSED: Final = b"event: closed\ndata: {}\n\n"
"""The last message of a stream: the dashboard ends, and no connection was lost."""

_PageKey = tuple[str | None, str | None, View | None]  # the job, the item and the gallery of a page; none: the overview


async def events(request: web.Request) -> web.StreamResponse:
    """Send the changed parts of a page until it is closed or the dashboard ends."""
    context = context_of(request)
    job, text = request.query.get("job"), request.query.get("gallery")
    of = (job, request.query.get("item"), None if job is None or text is None else view_of(job, text))
    with stream_place(request):
        sent, shows_ages = await _changed(context, of, {})  # an unknown job or item fails before the stream starts
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "X-Accel-Buffering": "no"})
        await response.prepare(request)
        try:
            await send(request, response, _message(sent))
            await _follow(request, response, of, sent, shows_ages=shows_ages)
        except ConnectionResetError:
            raise  # the page was closed
        except Exception as error:  # noqa: BLE001  the response has started; the page reconnects and gets the error
            log.warning("dashboard_stream_failed", error=type(error).__name__)
    return response


async def _follow(
    request: web.Request, response: web.StreamResponse, of: _PageKey, sent: dict[str, str], *, shows_ages: bool
) -> None:
    context = context_of(request)
    ticker, ticks = ServiceClock(), 0
    version = await context.reader.data_version()
    while not context.stopping.is_set():
        await ticker.sleep_until(ticker.monotonic() + TICK_SECONDS, context.stopping)
        ticks += 1
        known, version = version, await context.reader.data_version()
        if version == known and not shows_ages and ticks % IDLE_TICKS:
            continue
        changed, shows_ages = await _changed(context, of, sent)
        sent |= changed
        # Also without a change: a page without messages shows that it is not connected.
        await send(request, response, _message(changed))
    await send(request, response, CLOSED)


async def _changed(context: Context, of: _PageKey, sent: dict[str, str]) -> tuple[dict[str, str], bool]:
    """Return the parts that differ from those already sent, and whether the page shows ages."""
    job, item, view = of
    if view is not None:
        parts, shows_ages = await gallery_sections(context, view), False
    elif job is not None and item is not None:
        parts, shows_ages = await item_sections(context, job, item), False
    else:
        parts, now = await sections(context, job)
        shows_ages = now.shows_ages
    return {name: html for name, html in parts.items() if sent.get(name) != html}, shows_ages


def _message(parts: dict[str, str]) -> bytes:
    return b"data: " + orjson.dumps(parts) + b"\n\n"
