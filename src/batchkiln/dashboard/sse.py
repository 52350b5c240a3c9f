"""Server-sent events with the changed parts of a live page, at most once a second."""

from typing import Final

import orjson
import structlog
from aiohttp import web

from batchkiln.clock import ServiceClock
from batchkiln.dashboard.context import Context, context_of
from batchkiln.dashboard.gallery import gallery_sections, view_of
from batchkiln.dashboard.history_page import history_sections, wanted_of
from batchkiln.dashboard.partials import day_sections, failure_sections, item_sections, sections
from batchkiln.dashboard.stream_places import send, stream_place

log = structlog.get_logger()

TICK_SECONDS: Final = 1.0
IDLE_TICKS: Final = 5
"""The number of ticks after which parts are rendered without a change in the queue, because waits and days end."""

CLOSED: Final = b"event: closed\ndata: {}\n\n"
"""The last message of a stream: the dashboard ends, and no connection was lost."""


async def events(request: web.Request) -> web.StreamResponse:
    """Send the changed parts of a page until it is closed or the dashboard ends."""
    context = context_of(request)
    of = dict(request.query)
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
    request: web.Request, response: web.StreamResponse, of: dict[str, str], sent: dict[str, str], *, shows_ages: bool
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


async def _changed(context: Context, of: dict[str, str], sent: dict[str, str]) -> tuple[dict[str, str], bool]:
    """Return the parts that differ from those already sent, and whether the page shows ages."""
    parts, shows_ages = await _parts(context, of)
    return {name: html for name, html in parts.items() if sent.get(name) != html}, shows_ages


async def _parts(context: Context, of: dict[str, str]) -> tuple[dict[str, str], bool]:
    """Render the parts of the page that the stream's query names: without names, those of the overview."""
    match of:
        case {"page": "events"}:
            return await history_sections(context, wanted_of(of)), False
        case {"page": "failures"}:
            return await failure_sections(context), False
        case {"page": "days"}:
            return await day_sections(context), False
        case {"job": job, "gallery": query}:
            return await gallery_sections(context, view_of(job, query)), False
        case {"job": job, "item": item}:
            return await item_sections(context, job, item), False
        case _:
            pass
    parts, now = await sections(context, of.get("job"))
    return parts, now.shows_ages


def _message(parts: dict[str, str]) -> bytes:
    return b"data: " + orjson.dumps(parts) + b"\n\n"
