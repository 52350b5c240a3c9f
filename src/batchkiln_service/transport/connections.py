"""Connections of clients: bounds on time and number, and replies to invalid HTTP.

aiohttp bounds the size of a request's head; this module bounds its time. All durations are real time, because they
protect the process and must not shrink with the time scale.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any, Final

import orjson
from aiohttp import hdrs, http_exceptions, web
from aiohttp.abc import AbstractAccessLogger
from msgspec import Struct, field

from batchkiln_service.transport.access_log import CODE
from batchkiln_service.transport.bodies import http_date

with contextlib.suppress(ImportError):  # POSIX only
    import resource

_log = logging.getLogger(__name__)
SERVER: Final = "batchkiln"  # the Server header; aiohttp's would reveal versions
RESERVED_FILES: Final = 64  # file descriptors reserved for the database, media and logs
# Exceptions that a client can cause; they are not logged as errors of the service.
_CLIENT_FAULTS: Final = (http_exceptions.HttpProcessingError, web.RequestPayloadError, web.PayloadAccessError)


class Timeouts(Struct, frozen=True):
    """The bounds on a client's time, in seconds."""

    head_seconds: float = 20.0  # from the first byte until the head is complete
    idle_seconds: float = 75.0  # between two requests
    unread_seconds: float = 60.0  # for reading what was sent


class ConnectionLimiter(Struct):
    """Limits the number of connections, and creates their protocols. None are accepted any more once `is_stopping`."""

    timeouts: Timeouts
    max_connections: int
    now_ms: Callable[[], int]
    access_log: logging.Logger
    access_log_class: type[AbstractAccessLogger]
    is_stopping: bool = False
    _inside: set["Connection"] = field(default_factory=set)

    def enter(self, connection: "Connection") -> bool:
        """Count a new connection; return False if the limit is reached."""
        if len(self._inside) >= self.max_connections:
            return False
        self._inside.add(connection)
        return True

    def leave(self, connection: "Connection") -> None:
        """Remove a closed connection."""
        self._inside.discard(connection)

    def protocols(self, server: web.Server) -> Callable[[], "Connection"]:
        """Return the factory of protocols for the connections of a server."""
        loop, make_request = asyncio.get_running_loop(), server.request_factory

        def begun(*parts: Any) -> web.BaseRequest:  # noqa: ANN401 - passed on as they come
            connection = parts[2]
            assert isinstance(connection, Connection)
            connection.complete_head()
            return make_request(*parts)

        server.request_factory = begun
        return lambda: Connection(server, self, loop)


class Connection(web.RequestHandler):
    """aiohttp's protocol with time limits."""

    __slots__ = ("_due_at", "_is_busy", "_is_inside", "_limiter", "_timer", "_unread_timer")

    def __init__(self, server: web.Server, limiter: ConnectionLimiter, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(
            server,
            loop=loop,
            keepalive_timeout=limiter.timeouts.idle_seconds,
            access_log=limiter.access_log,
            access_log_class=limiter.access_log_class,
        )
        self._limiter = limiter
        self._is_inside = False
        self._is_busy = False  # from a complete head until its reply is sent
        self._due_at: float | None = None  # deadline of the expected head; None if none is expected
        # One timer serves many heads: it checks the deadline when it fires, so that a request costs no timer.
        self._timer: asyncio.TimerHandle | None = None
        self._unread_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Accept the connection and wait for a head, or refuse it."""
        assert isinstance(transport, asyncio.Transport)
        if self._limiter.is_stopping:  # it came while the listening socket was closed, and nobody else closes it
            transport.abort()
            return
        self._is_inside = self._limiter.enter(self)
        if not self._is_inside:
            reply = self._raw("503 Service Unavailable", "too_many_connections", "the service has too many connections")
            transport.write(reply)
            transport.close()
            return
        super().connection_made(transport)
        self._expect_head()

    def data_received(self, data: bytes) -> None:
        """Start the deadline of a head with its first byte."""
        if not self._is_inside:
            return
        if data and self._due_at is None and not self._is_busy:
            self._expect_head()
        super().data_received(data)

    def complete_head(self) -> None:
        """Stop the deadline, because the head is complete. The handler limits the time for the body."""
        self._is_busy = True
        self._due_at = None

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Send a reply, then accept the head of the next request."""
        if isinstance(resp, web.HTTPException):  # aiohttp's own error for the header Expect, before any middleware
            resp = _refusal(resp.status, resp.reason.lower().replace(" ", "_"), resp.reason)
        finished = await super().finish_response(request, resp, start_time)
        self._is_busy = False
        return finished

    def pause_writing(self) -> None:
        """Start the deadline within which the client has to read."""
        super().pause_writing()
        self._unread_timer = self._loop.call_later(self._limiter.timeouts.unread_seconds, self._abort)

    def resume_writing(self) -> None:
        """Stop the deadline, because the client has read."""
        super().resume_writing()
        self._forget_unread()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Cancel the timers."""
        self._forget_unread()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._is_inside:
            self._limiter.leave(self)
            super().connection_lost(exc)

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        """Return the reply to invalid HTTP or to an exception outside of handlers. It quotes nothing received."""
        del message
        is_unreadable = isinstance(exc, _CLIENT_FAULTS)
        if is_unreadable:
            _log.debug("request_unreadable", extra={"ip": request.remote, "reason": type(exc).__name__})
        else:
            _log.error("request_failed", exc_info=exc)
        if request.writer.output_size > 0:
            raise ConnectionError("a part of the reply is sent already")
        code = "bad_request" if is_unreadable else "internal_error"
        text = "the request is not valid HTTP" if is_unreadable else "the service failed unexpectedly"
        response = _refusal(status, code, text)
        response.headers[hdrs.DATE] = http_date(self._limiter.now_ms())
        response.force_close()
        return response

    def log_exception(self, *_: Any, **kw: Any) -> None:  # noqa: ANN401 - as in aiohttp
        """Log an unexpected exception; those that a client can cause are not logged."""
        exc = kw.get("exc_info")
        if isinstance(exc, _CLIENT_FAULTS):
            _log.debug("request_broken_off", extra={"reason": type(exc).__name__})
            return
        _log.error("connection_failed", exc_info=exc)

    def _expect_head(self) -> None:
        self._due_at = self._loop.time() + self._limiter.timeouts.head_seconds
        if self._timer is None:
            self._timer = self._loop.call_at(self._due_at, self._check_head)

    def _check_head(self) -> None:
        self._timer = None
        if self._due_at is None or self.transport is None:
            return
        if self._loop.time() < self._due_at:
            self._timer = self._loop.call_at(self._due_at, self._check_head)
            return
        _log.info("request_head_overdue", extra={"ip": self._ip()})
        self.transport.write(
            self._raw("408 Request Timeout", "request_timeout", "the head of the request took too long")
        )
        self.force_close()

    def _abort(self) -> None:
        if self.transport is not None:
            _log.info("reply_not_read", extra={"ip": self._ip()})
            self.transport.abort()

    def _forget_unread(self) -> None:
        if self._unread_timer is not None:
            self._unread_timer.cancel()
            self._unread_timer = None

    def _ip(self) -> str | None:
        return str(self.peername[0]) if isinstance(self.peername, tuple) else None

    def _raw(self, status: str, code: str, message: str) -> bytes:
        """Return the bytes of a whole reply, for use without a request."""
        body = _error(code, message)
        head = [
            f"HTTP/1.1 {status}",
            f"Date: {http_date(self._limiter.now_ms())}",
            f"Server: {SERVER}",
            "Content-Type: application/json; charset=utf-8",
            f"Content-Length: {len(body)}",
            "Connection: close",
        ]
        return "\r\n".join([*head, "", ""]).encode() + body


def connections_within(wanted: int) -> int:
    """Return the number of connections to allow: `wanted`, or fewer if the process may not open that many files."""
    try:
        may_open, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    except NameError:
        return wanted
    return wanted if may_open == resource.RLIM_INFINITY else max(1, min(wanted, may_open - RESERVED_FILES))


def _refusal(status: int, code: str, message: str) -> web.Response:
    response = web.Response(status=status, body=_error(code, message), content_type="application/json", charset="utf-8")
    response.headers[hdrs.SERVER] = SERVER
    response[CODE] = code
    return response


def _error(code: str, message: str) -> bytes:
    return orjson.dumps({"error": {"code": code, "message": message}})
