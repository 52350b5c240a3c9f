"""The places of event streams, and messages to them. A client that stops reading does not keep its place."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from aiohttp import web

from batchkiln.dashboard.context import PRINCIPAL, context_of
from batchkiln.dashboard.http_api.bodies import busy

STREAMS_MAX: Final = 32
"""The number of streams of one token at a time, so that no token takes the places of another one."""

SEND_SECONDS: Final = 30.0
"""The longest time, in seconds of real time, in which a client reads nothing of a message."""


@contextmanager
def stream_place(request: web.Request) -> Iterator[None]:
    """Occupy a place of the sender's token. Raise `ProblemError` if none is free."""
    streams, token = context_of(request).streams, request[PRINCIPAL].digest
    if streams[token] >= STREAMS_MAX:
        raise busy("Too many streams of this token are open.")
    streams[token] += 1
    try:
        yield
    finally:
        streams[token] -= 1


async def send(request: web.Request, response: web.StreamResponse, message: bytes) -> None:
    """Send a message. Raise `ConnectionResetError` if the client is gone, or does not read for `SEND_SECONDS`."""
    try:
        async with asyncio.timeout(SEND_SECONDS):
            await response.write(message)
    except TimeoutError:
        if request.transport is not None:
            request.transport.abort()  # the end of the response would wait for this client as well
        raise ConnectionResetError("the client does not read") from None
