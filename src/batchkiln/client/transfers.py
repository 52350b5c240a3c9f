"""Uploads to and downloads from the storage by signed links, without our API keys (Law 8)."""

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from http import HTTPStatus
from typing import Final

import aiohttp
from msgspec import Struct
from yarl import URL

from batchkiln.client.http_session import NETWORK_ERRORS, Timeouts, describe_network_error
from batchkiln.core.responses import (
    BytesStored,
    DownloadBroken,
    DownloadReply,
    DownloadStarted,
    LinkBarred,
    LinkRefused,
    NoResponse,
    NotContinued,
    PutReply,
    TicketRefused,
)

_CHUNK_BYTES: Final = 256 * 1024
_REDIRECTS_MAX: Final = 3
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
# Bounded, because `int` refuses numbers of thousands of digits.
_CONTENT_RANGE: Final = re.compile(r"bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18}|\*)", re.IGNORECASE)
_LENGTH: Final = re.compile(r"[0-9]{1,18}")
_OWN_HEADERS: Final = ("Accept", "Accept-Encoding", "Content-Type")
# Statuses that ask for a later retry, and do not refuse the link.
_RETRYABLE: Final = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS})


UNENCRYPTED: Final = (
    "the service uses https, but its link leads to plain http, where others can read and change the file; "
    "`allow_http_links: true` in the profile allows that"
)


class LinkGuard(Struct, frozen=True):
    """Decides which links are followed: a file that was requested over https is not fetched over plain http.

    `origin` is the service's own address. If that is plain http, http links reveal nothing more.
    """

    origin: URL
    allows_http: bool = False

    def rejection(self, origin: URL, url: URL) -> LinkBarred | None:
        """Return why a step from one address to another is refused; None if it is allowed."""
        if self.allows_http or origin.scheme != "https" or url.scheme == "https":
            return None
        return LinkBarred(UNENCRYPTED)


class _Source:
    """The bytes of an upload: exactly as many as announced. Keeps the error if reading them fails."""

    def __init__(self, content: Callable[[], AsyncIterator[bytes]], size_bytes: int) -> None:
        self._content = content
        self._left_bytes = size_bytes
        self.error: Exception | None = None
        self.has_wrong_length = False

    async def chunks(self) -> AsyncIterator[bytes]:
        pending = b""  # the last chunk is kept back until the length is known to be right: it would complete the file
        try:
            async for chunk in self._content():
                self._left_bytes -= len(chunk)
                if self._left_bytes < 0:
                    break
                if pending:
                    yield pending
                pending = chunk
        except Exception as error:  # noqa: BLE001  the caller's own error, raised again by `put`
            self.error = error
        if self.error is not None or self._left_bytes != 0:
            self.has_wrong_length = self.error is None
            # Ending without an error would leave the storage waiting for the announced rest.
            raise aiohttp.ClientPayloadError
        if pending:
            yield pending


async def put(
    session: aiohttp.ClientSession,
    url: URL,
    *,
    headers: Sequence[tuple[str, str]],
    content: Callable[[], AsyncIterator[bytes]],
    size_bytes: int,
    timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109  aiohttp's own, per phase of the request
) -> PutReply:
    """Upload bytes with exactly these headers; `Content-Length` is added if the ticket lacks it.

    Propagate the exceptions of `content`.
    """
    announced = [value for name, value in headers if name.lower() == "content-length"]
    if announced and announced != [str(size_bytes)]:
        return TicketRefused("the ticket is for a file of another size")
    sent = [*headers] if announced else [*headers, ("Content-Length", str(size_bytes))]
    source = _Source(content, size_bytes)
    reason = ""
    try:
        async with session.put(
            url,
            data=source.chunks(),
            headers=sent,
            skip_auto_headers=_OWN_HEADERS,
            allow_redirects=False,
            timeout=timeout,
        ) as response:
            return _put_reply(response.status)
    except NETWORK_ERRORS as error:
        reason = describe_network_error(error)
    if source.error is not None:
        raise source.error
    return NoResponse("the file changed while it was sent" if source.has_wrong_length else reason)


@asynccontextmanager
async def download(
    session: aiohttp.ClientSession,
    url: URL | None,
    *,
    offset_bytes: int,
    etag: str | None,
    guard: LinkGuard,
    timeouts: Timeouts,
) -> AsyncIterator[DownloadReply]:
    """Open a download; the connection is closed on exit.

    A range is requested only with a strong etag, since otherwise the rest could be of another file.
    """
    if url is None:
        yield NoResponse("the output link is malformed")
        return
    headers = {"Accept": "*/*", "Accept-Encoding": "identity"}
    continued = etag if offset_bytes > 0 and etag is not None and etag.startswith('"') else None
    if continued is not None:
        headers |= {"Range": f"bytes={offset_bytes}-", "If-Range": continued}
    response = await _get(session, url, headers, guard, timeouts)
    if not isinstance(response, aiohttp.ClientResponse):
        yield response
        return
    async with response, aclosing(_chunks(response, timeouts)) as chunks:
        if continued is None:
            yield _whole_reply(response, chunks)
        else:
            yield _continued_reply(response, chunks, offset_bytes=offset_bytes, etag=continued)


async def _get(
    session: aiohttp.ClientSession, url: URL, headers: Mapping[str, str], guard: LinkGuard, timeouts: Timeouts
) -> aiohttp.ClientResponse | LinkBarred | NoResponse:
    """Request a file and follow redirects, each checked by the guard first."""
    origin = guard.origin
    for _ in range(_REDIRECTS_MAX + 1):
        if (rejection := guard.rejection(origin, url)) is not None:
            return rejection
        try:
            response = await session.get(url, headers=headers, allow_redirects=False, timeout=timeouts.for_downloads())
        except NETWORK_ERRORS as error:
            return NoResponse(describe_network_error(error))
        location = response.headers.get("Location")
        if response.status not in _REDIRECTS or location is None:
            return response
        response.close()
        try:
            origin, url = url, url.join(URL(location, encoded=location.isascii() and " " not in location))
        except ValueError:
            return NoResponse("the storage redirected to a malformed address")
    return NoResponse(f"the storage redirected more than {_REDIRECTS_MAX} times")


def _put_reply(status: int) -> PutReply:
    if HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
        return BytesStored()
    if _is_refused(status):
        return TicketRefused(f"the storage answered {status}")
    return NoResponse(f"the storage answered {status}")


def _whole_reply(response: aiohttp.ClientResponse, chunks: AsyncIterator[bytes]) -> DownloadReply:
    """Return the reply to a request for a whole file."""
    if response.status != HTTPStatus.OK:
        is_refused = _is_refused(response.status)
        return LinkRefused(response.status) if is_refused else NoResponse(f"the storage answered {response.status}")
    is_encoded = _is_encoded(response)
    return DownloadStarted(
        offset_bytes=0,
        total_bytes=None if is_encoded else _length_of(response),
        media_type=response.headers.get("Content-Type"),
        etag=None if is_encoded else response.headers.get("ETag"),
        chunks=chunks,
    )


def _continued_reply(
    response: aiohttp.ClientResponse, chunks: AsyncIterator[bytes], *, offset_bytes: int, etag: str
) -> DownloadReply:
    """Return the reply to a request for the rest of a file: the same file from `offset_bytes` on, or a whole file.

    A 206 without the same etag may be of another file, because not every server honours `If-Range`.
    """
    if response.status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
        return NotContinued("the storage's file is shorter than what was already fetched")
    if response.status != HTTPStatus.PARTIAL_CONTENT:
        return _whole_reply(response, chunks)
    span = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", "").strip())
    if span is None or int(span[1]) != offset_bytes or _is_encoded(response):
        return NotContinued("the storage sent another range than requested")
    if response.headers.get("ETag") != etag:
        return NotContinued("the storage sent the rest of another file")
    return DownloadStarted(
        offset_bytes=offset_bytes,
        total_bytes=None if span[3] == "*" else int(span[3]),
        media_type=response.headers.get("Content-Type"),
        etag=etag,
        chunks=chunks,
    )


def _is_refused(status: int) -> bool:
    """Return whether a status refuses the link itself, so that a retry with it is useless."""
    return HTTPStatus.BAD_REQUEST <= status < HTTPStatus.INTERNAL_SERVER_ERROR and status not in _RETRYABLE


def _is_encoded(response: aiohttp.ClientResponse) -> bool:
    return response.headers.get("Content-Encoding", "identity").lower() != "identity"


def _length_of(response: aiohttp.ClientResponse) -> int | None:
    """Return the announced length; None if it is missing or not plausible."""
    length = response.headers.get("Content-Length", "")
    return int(length) if _LENGTH.fullmatch(length) else None


async def _chunks(response: aiohttp.ClientResponse, timeouts: Timeouts) -> AsyncGenerator[bytes, None]:
    """Yield the bytes as they arrive. Raise `DownloadBroken` if they stop early or arrive too slowly.

    Only time spent waiting for the network counts, so that a slow disk breaks no download.
    """
    loop, reason = asyncio.get_running_loop(), ""
    waited_seconds, came_bytes = 0.0, 0
    pieces = response.content.iter_chunked(_CHUNK_BYTES)
    try:
        while True:
            asked_at = loop.time()
            piece = await anext(pieces, None)
            if piece is None:
                break
            waited_seconds, came_bytes = waited_seconds + loop.time() - asked_at, came_bytes + len(piece)
            yield piece
            if came_bytes >= timeouts.stall_min_bytes:
                waited_seconds, came_bytes = 0.0, 0
            elif waited_seconds >= timeouts.stall_seconds:
                reason = f"fewer than {timeouts.stall_min_bytes} bytes came in {timeouts.stall_seconds:g} seconds"
                break
    except NETWORK_ERRORS as error:
        reason = describe_network_error(error)
    if reason:
        # Raised outside the handler, so that no traceback contains the link (Law 8).
        raise DownloadBroken(reason)
