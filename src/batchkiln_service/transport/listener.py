"""The listening socket: its port is kept over restarts, and stopping completes the replies under way."""

import asyncio
import logging
import re
import signal
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from aiohttp import web
from msgspec import Struct

from batchkiln_service.config import ServiceConfig
from batchkiln_service.transport.access_log import LOGGER, AccessLog
from batchkiln_service.transport.connections import ConnectionLimiter, Timeouts, connections_within

STOP_SECONDS: Final = 2.0  # how long requests under way may take after a stop
PORT_FILE_NAME: Final = "port"
_WILDCARDS: Final = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104 - recognised, not bound
_HOST: Final = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?|\[[0-9A-Fa-f:.]{2,45}\])(?::\d{1,5})?")


class Address(Struct, frozen=True):
    """The address of the service.

    If the service listens on all addresses, `is_known` is False, and the Host of a request is used.
    """

    origin: str
    is_known: bool

    def for_request(self, request: web.BaseRequest) -> str:
        """Return the URL origin that the client of a request can reach."""
        if self.is_known:
            return self.origin
        host = request.headers.get("Host", "")
        return f"http://{host}" if _HOST.fullmatch(host) else self.origin


def address_of(config: ServiceConfig, port: int) -> Address:
    """Return the address by which clients reach a service that is bound to a port."""
    if config.public_url is not None:
        return Address(config.public_url.rstrip("/"), is_known=True)
    return Address(origin_of(config.host, port), is_known=config.host not in _WILDCARDS)


def origin_of(host: str, port: int) -> str:
    """Return the URL origin of an address that was bound; all interfaces are named by loopback."""
    host = _WILDCARDS.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


async def listen(
    stack: AsyncExitStack, app: web.Application, config: ServiceConfig, *, now_ms: Callable[[], int]
) -> int:
    """Bind the configured port, or that of the last run if it is free, and return it.

    When the stack is closed, new connections are refused, idle ones are closed at once, and requests under way get
    `STOP_SECONDS`. Raise OSError if the port is in use.
    """
    runner = web.AppRunner(app, handle_signals=False, shutdown_timeout=STOP_SECONDS)
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    assert runner.server is not None
    limiter = ConnectionLimiter(
        timeouts=Timeouts(
            head_seconds=config.head_seconds, idle_seconds=config.idle_seconds, unread_seconds=config.unread_seconds
        ),
        max_connections=connections_within(config.max_connections),
        now_ms=now_ms,
        access_log=logging.getLogger(LOGGER),
        access_log_class=AccessLog,
    )
    server = await _bound(config, limiter.protocols(runner.server))
    stack.push_async_callback(_stop_listening, server, limiter)
    port = _ports_of(server)[0]
    (config.state_dir / PORT_FILE_NAME).write_text(f"{port}\n", encoding="ascii")
    return port


async def _stop_listening(server: asyncio.Server, limiter: ConnectionLimiter) -> None:
    """Close the listening sockets, and each connection that was accepted at the same time.

    For one turn of the event loop they accept nothing more, because asyncio of Python 3.11 leaves a connection open
    whose transport is made after the server was closed.
    """
    limiter.is_stopping = True
    for listener in server.sockets:
        asyncio.get_running_loop().remove_reader(listener)
    try:
        await asyncio.sleep(0)  # noqa: TID251 - a turn, no time
    finally:
        server.close()


def stop_on_signals() -> asyncio.Event:
    """Return an event that SIGINT or SIGTERM sets; a second signal ends the process at once."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()

    def stopped() -> None:
        stop.set()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped)
    return stop


def remembered_port(path: Path) -> list[int]:
    """Return the port of the last run from its file, in a list, or an empty list if there is none."""
    try:
        return [int(path.read_text(encoding="ascii"))]
    except (OSError, ValueError):
        return []


async def _bound(config: ServiceConfig, protocols: Callable[[], asyncio.BaseProtocol]) -> asyncio.Server:
    wanted = [config.port] if config.port else [*remembered_port(config.state_dir / PORT_FILE_NAME), 0]
    for port in wanted[:-1]:
        try:
            return await _bound_once(config.host, port, protocols)
        except OSError:
            continue
    return await _bound_once(config.host, wanted[-1], protocols)


async def _bound_once(host: str, port: int, protocols: Callable[[], asyncio.BaseProtocol]) -> asyncio.Server:
    """Bind all addresses of a host to one port. With port 0, each address would otherwise get a different port."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(protocols, host, port, start_serving=False)
    ports = _ports_of(server)
    if len(set(ports)) > 1:
        server.close()
        server = await loop.create_server(protocols, host, ports[0], start_serving=False)
    try:
        await server.start_serving()
    except BaseException:  # cancelled: asyncio would leave the socket open
        server.close()
        raise
    return server


def _ports_of(server: asyncio.Server) -> list[int]:
    return [int(listener.getsockname()[1]) for listener in server.sockets]
