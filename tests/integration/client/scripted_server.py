"""A server on loopback that records requests byte for byte and answers with whatever bytes a test likes."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime

from batchkiln.client import ServiceClient, fingerprint

KEY = "sk-canary-0123456789"
OLD_KEY = "sk-canary-older-9876"
RECORD = b'{"id":"gen_1","model":"epsilon-2","status":"pending","credits":{"cost":4},"outputs":[],"error":null}'
BODY = b'{"model":"epsilon-2",  "prompt":"caf\xc3\xa9"}'
Script = Callable[["Received", asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Received:
    """One request as it arrived; header names as they were written."""

    line: str
    headers: list[tuple[str, str]]
    body: bytes
    connection: int

    def header(self, name: str) -> str | None:
        return next((value for known, value in self.headers if known.lower() == name.lower()), None)


@dataclass
class FakeClock:
    seconds: float = 0.0
    observed: list[tuple[datetime, float, float]] = field(default_factory=list)

    def monotonic(self) -> float:
        self.seconds += 1
        return self.seconds

    def observe_date(self, date: datetime, *, sent_at: float, received_at: float) -> None:
        self.observed.append((date, sent_at, received_at))


class ScriptedServer:
    """Records each request, then lets the script write whatever bytes it likes."""

    def __init__(self) -> None:
        self.requests: list[Received] = []
        self.script: Script = reply(RECORD)
        self.origin = ""
        self.has_heard = asyncio.Event()
        self._connections = 0

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        connection = self._connections
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                pairs = [(name, value.strip()) for name, _, value in (row.partition(":") for row in head[1:] if row)]
                request = Received(head[0], pairs, b"", connection)
                request.body = await reader.readexactly(int(request.header("Content-Length") or 0))
                self.requests.append(request)
                self.has_heard.set()
                await self.script(request, writer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


def raw(*pieces: bytes, close: bool = True) -> Script:
    """Write these bytes as they are, then close the connection."""

    async def script(_: Received, writer: asyncio.StreamWriter) -> None:
        writer.writelines(pieces)
        if close:
            writer.close()

    return script


def reply(body: bytes, *headers: str, status: str = "202 Accepted", kind: str = "application/json") -> Script:
    lines = [f"HTTP/1.1 {status}", f"Content-Type: {kind}", f"Content-Length: {len(body)}", *headers]
    return raw("\r\n".join([*lines, "", ""]).encode() + body, close=False)


async def silence(_: Received, __: asyncio.StreamWriter) -> None:
    """Never answer."""


async def reset(_: Received, writer: asyncio.StreamWriter) -> None:
    """Drop the connection without a word."""
    writer.transport.abort()


async def create(client: ServiceClient, *, is_video: bool = False) -> object:
    return await client.create(
        is_video=is_video, body=BODY, idempotency_key="key-0123456789abcdef", key_fingerprint=fingerprint(OLD_KEY)
    )
