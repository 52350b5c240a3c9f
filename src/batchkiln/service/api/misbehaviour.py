"""Faults at work: answering in place of a handler, and spoiling a reply after the work is done."""

import asyncio

from aiohttp import web

from batchkiln.service.api import edge
from batchkiln.service.api.bodies import refusal
from batchkiln.service.api.context import CONTEXT
from batchkiln.service.errors import ApiError
from batchkiln.service.faults import FaultRule


def blocked() -> web.Response:
    """Return what the edge firewall answers."""
    return web.Response(status=403, text=edge.PAGE, content_type="text/html")


def misbehaved_before(request: web.Request, fault: FaultRule) -> web.StreamResponse:
    """Answer in place of the handler."""
    match fault.kind:
        case "throttle":
            return refusal(
                ApiError(429, "rate_limited", "too many requests", retry_after_seconds=round(fault.seconds or 1))
            )
        case "unavailable":
            wait = None if fault.seconds is None else round(fault.seconds)
            return refusal(ApiError(503, "unavailable", "try again later", retry_after_seconds=wait))
        case "edge_block":
            return blocked()
        case "html":
            return web.Response(text="<!doctype html><p>Please sign in</p>", content_type="text/html")
        case _:
            _drop(request, is_abrupt=True)
            return web.Response()


def sent_status(fault: FaultRule, response: web.StreamResponse) -> int:
    """Return the status for the log: 0 when the connection was reset."""
    return 0 if fault.kind == "reset_before" else response.status


async def misbehaved_after(request: web.Request, response: web.StreamResponse, fault: FaultRule) -> web.StreamResponse:
    """Spoil the reply; the work is done."""
    match fault.kind:
        case "slow":
            await request.app[CONTEXT].clock.sleep(fault.seconds or 0)
        case "cut_body":
            return await _cut(request, response)
        case _:
            _drop(request, is_abrupt=False)
    return response


async def _cut(request: web.Request, response: web.StreamResponse) -> web.StreamResponse:
    """Promise the whole body, send half, close."""
    if isinstance(response, web.FileResponse):
        body = await asyncio.to_thread(response._path.read_bytes)  # noqa: SLF001 - aiohttp offers no accessor
    else:
        assert isinstance(response, web.Response)
        assert isinstance(response.body, bytes)
        body = response.body
    cut = web.StreamResponse(status=response.status, headers=response.headers)
    cut.content_length = len(body)
    await cut.prepare(request)
    await cut.write(body[: len(body) // 2])
    _drop(request, is_abrupt=False)
    return cut


def _drop(request: web.Request, *, is_abrupt: bool) -> None:
    """Close the connection, with a reset when it is to be abrupt."""
    if request.transport is None:
        return
    if is_abrupt:
        request.transport.abort()
    else:
        request.transport.close()
