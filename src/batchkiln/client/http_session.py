"""The HTTP session that every request goes through, and how long each may take."""

from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Final

import aiohttp

import batchkiln

# The scheduler bounds what runs at the same time; this only keeps a bug from exhausting file descriptors.
_CONNECTIONS_MAX: Final = 64


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long to wait, in real seconds: networks do not speed up with a rehearsal's clock."""

    connect_seconds: float = 10
    read_seconds: float = 30  # between two pieces of a reply
    total_seconds: float = 60  # of a call to the API
    upload_seconds: float = 600  # of one upload: a storage that stops reading gives no other sign
    least_seconds: float = 30  # of a download: in so long a wait,
    least_bytes: int = 64 * 1024  # so many bytes have to come, or it is broken off

    def of_calls(self) -> aiohttp.ClientTimeout:
        """Bound a call to the API as a whole."""
        return aiohttp.ClientTimeout(
            total=self.total_seconds, sock_connect=self.connect_seconds, sock_read=self.read_seconds
        )

    def of_downloads(self) -> aiohttp.ClientTimeout:
        """Bound the pauses of a download, not its length."""
        return aiohttp.ClientTimeout(
            total=None, connect=self.total_seconds, sock_connect=self.connect_seconds, sock_read=self.read_seconds
        )

    def of_uploads(self) -> aiohttp.ClientTimeout:
        """Bound an upload as a whole: a file has at most 30 MiB (Service section 8)."""
        return aiohttp.ClientTimeout(
            total=self.upload_seconds, sock_connect=self.connect_seconds, sock_read=self.read_seconds
        )


class SentTwice(aiohttp.ClientConnectionError):
    """aiohttp was about to send a request a second time by itself."""


def new_connector() -> aiohttp.BaseConnector:
    """Make what opens connections of TCP. Needs a running loop."""
    return aiohttp.TCPConnector(limit=_CONNECTIONS_MAX)


def new_session(
    connector: aiohttp.BaseConnector | None = None, *, listening: Sequence[aiohttp.TraceConfig] = ()
) -> aiohttp.ClientSession:
    """Make a session without cookies, environment proxies, or requests sent twice. Needs a running loop."""
    return aiohttp.ClientSession(
        connector=connector or new_connector(),
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={"User-Agent": f"batchkiln/{batchkiln.__version__}"},
        trust_env=False,
        trace_configs=[_send_once(), *listening],
    )


def _send_once() -> aiohttp.TraceConfig:
    """Refuse the second connection that aiohttp takes for one request after the first was closed on it.

    aiohttp resends GET and PUT once, silently: a poll would arrive twice within ten seconds (Service rule 4.4)
    and count twice against the windows. Its switch for that is private; tracing is public, and every attempt
    passes here before its first byte is sent. A redirect (of a download) is a new request and starts over.
    """

    async def refuse_second(_: aiohttp.ClientSession, request: SimpleNamespace, __: object) -> None:
        if getattr(request, "has_connected", False):
            raise SentTwice
        request.has_connected = True

    async def start_over(_: aiohttp.ClientSession, request: SimpleNamespace, __: object) -> None:
        request.has_connected = False

    trace = aiohttp.TraceConfig()
    trace.on_connection_create_start.append(refuse_second)
    trace.on_connection_reuseconn.append(refuse_second)
    trace.on_request_redirect.append(start_over)
    return trace
