"""The HTTP session of all requests: its timeouts, its connector, its network errors in words, and its latencies."""

import os
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Final

import aiohttp
from msgspec import Struct, field

import batchkiln

# The worker bounds concurrency; this limit only keeps a bug from exhausting file descriptors.
_CONNECTIONS_MAX: Final = 64


class Timeouts(Struct, frozen=True):
    """Timeouts in real seconds: networks do not run at a rehearsal's speed."""

    connect_seconds: float = 10
    read_seconds: float = 30  # between two chunks of a reply
    total_seconds: float = 60  # of an API call
    upload_seconds: float = 600  # of an upload: a storage that stops reading is noticed in no other way
    stall_seconds: float = 30  # a download is broken off if within this time
    stall_min_bytes: int = 64 * 1024  # fewer bytes than this arrive

    def for_calls(self) -> aiohttp.ClientTimeout:
        """Return the timeout of an API call, bounded as a whole."""
        return aiohttp.ClientTimeout(
            total=self.total_seconds, sock_connect=self.connect_seconds, sock_read=self.read_seconds
        )

    def for_downloads(self) -> aiohttp.ClientTimeout:
        """Return the timeout of a download: its pauses are bounded, its length is not."""
        return aiohttp.ClientTimeout(
            total=None, connect=self.total_seconds, sock_connect=self.connect_seconds, sock_read=self.read_seconds
        )

    def for_uploads(self) -> aiohttp.ClientTimeout:
        """Return the timeout of an upload, bounded as a whole: a file has at most 30 MiB (Service section 8)."""
        return aiohttp.ClientTimeout(
            total=self.upload_seconds, sock_connect=self.connect_seconds, sock_read=self.read_seconds
        )


class DuplicateSend(aiohttp.ClientConnectionError):
    """aiohttp was about to resend a request on its own."""


def new_connector() -> aiohttp.BaseConnector:
    """Return a TCP connector. Needs a running event loop."""
    return aiohttp.TCPConnector(limit=_CONNECTIONS_MAX)


def new_session(
    connector: aiohttp.BaseConnector | None = None,
    *,
    proxy: str | None = None,
    trace_configs: Sequence[aiohttp.TraceConfig] = (),
) -> aiohttp.ClientSession:
    """Return a session without cookies or resends; all its requests use the `proxy`. Needs a running event loop.

    The environment's proxies are looked up by the caller: aiohttp would also send the passwords of `~/.netrc`.
    """
    return aiohttp.ClientSession(
        connector=connector or new_connector(),
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={"User-Agent": f"batchkiln/{batchkiln.__version__}"},
        proxy=proxy,
        trust_env=False,
        trace_configs=[_send_once(), _keep_back(), *trace_configs],
    )


def _send_once() -> aiohttp.TraceConfig:
    """Return a trace config that refuses a second connection for one request.

    aiohttp silently resends GET and PUT once when the connection was closed. A poll would then arrive twice within ten
    seconds (Service rule 4.4) and count twice against the limits. Its switch is private, but tracing is public and sees
    each attempt before the first byte is sent. A redirect of a download is a new request.
    """

    async def refuse_second(_: aiohttp.ClientSession, request: SimpleNamespace, __: object) -> None:
        if getattr(request, "has_connected", False):
            raise DuplicateSend
        request.has_connected = True

    async def start_over(_: aiohttp.ClientSession, request: SimpleNamespace, __: object) -> None:
        request.has_connected = False

    trace = aiohttp.TraceConfig()
    trace.on_connection_create_start.append(refuse_second)
    trace.on_connection_reuseconn.append(refuse_second)
    trace.on_request_redirect.append(start_over)
    return trace


class Sending(Struct, frozen=True):
    """The trace context of a request. `guard` is called right before sending, and may raise to prevent it."""

    guard: Callable[[], None] | None = None


def _keep_back() -> aiohttp.TraceConfig:
    """Return a trace config that calls a request's guard right before its bytes leave.

    Between the call and the first byte a connection may have to be made, which takes seconds. aiohttp calls these hooks
    before it writes the head, and before it writes a piece of the body.
    """

    async def ask(_: aiohttp.ClientSession, request: SimpleNamespace, __: object) -> None:
        sending = getattr(request, "trace_request_ctx", None)
        if isinstance(sending, Sending) and sending.guard is not None:
            sending.guard()

    trace = aiohttp.TraceConfig()
    trace.on_request_headers_sent.append(ask)
    trace.on_request_chunk_sent.append(ask)
    return trace


# What a request may raise: errors of aiohttp, sockets, TLS and timeouts, and `ValueError` for unsendable values.
NETWORK_ERRORS: Final = (aiohttp.ClientError, OSError, TimeoutError, ValueError)

# Most specific first: the first type that matches names the error.
_WORDS: Final[tuple[tuple[type[BaseException], str], ...]] = (
    (aiohttp.ClientProxyConnectionError, "could not connect to the proxy"),
    (aiohttp.ClientHttpProxyError, "the proxy refused the connection"),
    (aiohttp.ClientConnectorDNSError, "the host name could not be resolved"),
    (aiohttp.ClientConnectorCertificateError, "the server's certificate was not accepted"),
    (aiohttp.ServerFingerprintMismatch, "the server's certificate was not accepted"),
    (aiohttp.ClientConnectorSSLError, "no secure connection could be made"),
    (aiohttp.ConnectionTimeoutError, "connecting took too long"),
    (aiohttp.ClientConnectorError, "could not connect"),
    (TimeoutError, "no answer came in time"),
    (ConnectionError, "the connection was closed before the reply"),
    (aiohttp.ClientOSError, "the connection failed"),
    (aiohttp.ClientPayloadError, "the reply was cut off"),
    (aiohttp.ClientResponseError, "the reply is not valid HTTP"),
    (aiohttp.InvalidURL, "the URL cannot be requested"),
    (aiohttp.NonHttpUrlClientError, "the URL cannot be requested"),
    (aiohttp.ClientConnectionError, "the connection was closed before the reply"),
    (OSError, "the connection failed"),
)


def describe_network_error(fault: BaseException) -> str:
    """Return an error in words for logs and replies, without addresses, headers or keys."""
    words = next((words for kind, words in _WORDS if isinstance(fault, kind)), "the request failed")
    number = fault.errno if isinstance(fault, OSError) else None
    # The system's text for the number, because the exception's own text may contain the address (Law 8).
    cause = os.strerror(number) if isinstance(number, int) and number > 0 else type(fault).__name__
    return words if isinstance(fault, DuplicateSend) else f"{words} ({cause})"


BOUNDS_SECONDS: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
NO_REPLY: Final = "no_reply"


class Latencies(Struct):
    """A histogram of one endpoint's latencies: one count per bound, and a last one for all longer requests."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_SECONDS) + 1))
    total_seconds: float = 0.0

    def add(self, seconds: float) -> None:
        """Count one request."""
        self.counts[bisect_left(BOUNDS_SECONDS, seconds)] += 1
        self.total_seconds += seconds


class RequestMeter(Struct):
    """This process's requests by endpoint (the first segment of the path, never an id) and status.

    Durations are service seconds: real seconds, except in a rehearsal.
    """

    latencies: dict[str, Latencies] = field(default_factory=dict)
    replies: Counter[tuple[str, str]] = field(default_factory=Counter)

    def record(self, path: str, status: str, seconds: float) -> None:
        """Count a finished request."""
        endpoint = path.split("/")[1]
        self.latencies.setdefault(endpoint, Latencies()).add(seconds)
        self.replies[endpoint, status] += 1
