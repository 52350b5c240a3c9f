"""The history as server-sent events. A client that was cut off goes on with `Last-Event-ID`, and misses nothing."""

from typing import Final

import orjson
import structlog
from aiohttp import web

from batchkiln.api import LoggedEvent, Reader
from batchkiln.clock import ServiceClock
from batchkiln.dashboard.http_api.operation import Call
from batchkiln.dashboard.http_api.problems import Kind, ProblemError
from batchkiln.dashboard.http_api.requests import Body, StreamQuery
from batchkiln.dashboard.stream_places import send, stream_place
from batchkiln.presentation.item_documents import event_document

CHECK_INTERVAL_SECONDS: Final = 0.5
"""The queue is checked for changes at this interval, in seconds of real time. A check reads a few bytes."""

IDLE_LOOKS: Final = 20
"""The number of looks without an event after which a comment shows that the stream is alive."""

RECONNECT_MILLISECONDS: Final = 2000
_AT_ONCE: Final = 500
_DIGITS_MAX: Final = 18
_ALIVE: Final = b": alive\n\n"

log = structlog.get_logger()


async def stream_events(call: Call[StreamQuery, Body]) -> web.StreamResponse:
    """Send the events as they occur, until the client or the server ends the stream."""
    with stream_place(call.request):
        after = await _start(call)
        headers = {"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        response = web.StreamResponse(headers=headers)
        await response.prepare(call.request)
        try:
            await send(call.request, response, b"retry: %d\n\n" % RECONNECT_MILLISECONDS)
            await _follow(call, response, after)
        except ConnectionResetError:
            raise
        except Exception as error:  # noqa: BLE001  the response has started; the client reconnects and gets the error
            log.warning("http_stream_failed", error=type(error).__name__)
    return response


async def _start(call: Call[StreamQuery, Body]) -> int:
    """Return the id of the event after which the stream begins. Raise `ProblemError` or `InputError`."""
    job, reader = call.query.job, call.context.reader
    if job is not None:
        await reader.read(lambda each: each.jobs.id_of(job))
    last = call.request.headers.get("Last-Event-ID", "")
    if last:
        if not (last.isascii() and last.isdecimal() and len(last) <= _DIGITS_MAX):
            raise ProblemError(Kind.MALFORMED, "Last-Event-ID is not an id of this stream.", "Send the last `id`.")
        return int(last)
    if call.query.after is not None:
        return call.query.after
    return await reader.read(lambda each: each.events.last_id())


async def _follow(call: Call[StreamQuery, Body], response: web.StreamResponse, after: int) -> None:
    reader, stopping = call.context.reader, call.context.stopping
    ticker, silent = ServiceClock(), 0
    version = -1
    while not stopping.is_set():
        known, version = version, await reader.data_version()
        events: list[LoggedEvent] = []
        if version != known:  # read first, so that no change is missed
            events = await reader.read(_events_after, after)
        if events:
            after = events[-1].id
            version = -1 if len(events) == _AT_ONCE else version
            wanted = [event for event in events if call.query.job in {None, event.job}]
            silent = 0 if wanted else silent
            await send(call.request, response, b"".join(map(_message, wanted)) or _position(after))
            continue
        silent += 1
        if silent % IDLE_LOOKS == 0:
            await send(call.request, response, _ALIVE)
        await ticker.sleep_until(ticker.monotonic() + CHECK_INTERVAL_SECONDS, stopping)


def _events_after(reader: Reader, after: int) -> list[LoggedEvent]:
    return reader.events.after(after, _AT_ONCE)


def _message(event: LoggedEvent) -> bytes:
    return b"id: %d\ndata: %s\n\n" % (event.id, orjson.dumps(event_document(event)))


def _position(after: int) -> bytes:
    """Return a message without data, which moves `Last-Event-ID` past the events of other jobs."""
    return b"id: %d\n\n" % after
