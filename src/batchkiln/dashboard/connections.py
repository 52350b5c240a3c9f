"""Bounds the connections of the server: a run in the same process needs open files too."""

import asyncio
import resource
from typing import Final

from aiohttp import web

CONNECTIONS_MAX: Final = 256
IDLE_SECONDS: Final = 75.0
"""The longest time in which a connection sends no whole head of a request. Proxies keep connections for 60 s."""


def connections_max() -> int:
    """Return the number of connections at a time: at most a quarter of the files that the process may open."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return CONNECTIONS_MAX if files == resource.RLIM_INFINITY else max(1, min(CONNECTIONS_MAX, files // 4))


class BoundedSite(web.BaseSite):
    """A listening address. Connections beyond the maximum are closed at once, and those that come during the stop."""

    def __init__(self, runner: web.BaseRunner, host: str, port: int) -> None:
        """Listen at this address once it is started."""
        super().__init__(runner)
        self._host = host
        self._port = port
        self._is_stopping = False

    @property
    def name(self) -> str:
        """The address."""
        return f"http://{self._host}:{self._port}"

    async def start(self) -> None:
        """Start to listen. Raise `OSError`."""
        await super().start()
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._protocol, self._host, self._port, start_serving=False)
        await self._server.start_serving()  # canceled here, the runner still closes the socket

    async def stop(self) -> None:
        """Stop to listen, and close each connection that was accepted at the same time.

        For one turn of the event loop nothing more is accepted, because asyncio of Python 3.11 leaves a connection open
        whose transport is made after the server was closed.
        """
        self._is_stopping = True
        try:
            if isinstance(self._server, asyncio.Server):
                for listener in self._server.sockets:
                    asyncio.get_running_loop().remove_reader(listener)
                await asyncio.sleep(0)  # noqa: TID251  a turn, no time
        finally:
            await super().stop()

    def _protocol(self) -> asyncio.Protocol:
        server = self._runner.server
        assert server is not None, "a site starts after its runner"
        is_refused = self._is_stopping or len(server.connections) >= connections_max()
        return _Refused() if is_refused else server()


class _Refused(asyncio.Protocol):
    """Closes a connection."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport), "a stream was accepted"
        transport.abort()
