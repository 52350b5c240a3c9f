"""Sockets that speak HTTP badly, or not at all."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from batchkiln_service import LocalService

PATIENCE_SECONDS = 20.0  # only a test that fails waits so long


@dataclass(frozen=True, slots=True)
class Line:
    """A connection to the service, in bytes."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def say(self, content: bytes) -> None:
        self.writer.write(content)
        await self.writer.drain()

    async def head(self) -> bytes:
        """Read up to the end of a reply's head."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await self.reader.readuntil(b"\r\n\r\n")

    async def rest(self) -> bytes:
        """Read until the service closes the connection, which it has to do."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            try:
                return await self.reader.read()
            except ConnectionError:
                return b""

    async def close(self) -> None:
        self.writer.close()
        try:
            await self.writer.wait_closed()
        except ConnectionError:
            return


async def connect(service: LocalService) -> Line:
    """Open a connection and say nothing."""
    host, port = service.base_url.removeprefix("http://").partition("/")[0].rsplit(":", 1)
    return Line(*await asyncio.open_connection(host, int(port)))


async def told(service: LocalService, content: bytes) -> bytes:
    """Say something on a new connection and return all that comes until the service closes it."""
    line = await connect(service)
    await line.say(content)
    answer = await line.rest()
    await line.close()
    return answer


async def until(holds: Callable[[], bool]) -> None:
    """Let everything else go on until something holds."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not holds():  # noqa: ASYNC110 - what is waited for tells nobody
            await asyncio.sleep(0)
