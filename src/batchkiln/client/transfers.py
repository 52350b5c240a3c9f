"""Files over signed links: uploads to and downloads from the storage, which gets none of our keys (Law 8)."""

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

import aiohttp
from yarl import URL

from batchkiln.client.http_session import Timeouts
from batchkiln.client.network_errors import FAULTS, describe_fault
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
# No file has a length of more digits, and `int` refuses thousands of them.
_CONTENT_RANGE: Final = re.compile(r"bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18}|\*)", re.IGNORECASE)
_LENGTH: Final = re.compile(r"[0-9]{1,18}")
_OWN_HEADERS: Final = ("Accept", "Accept-Encoding", "Content-Type")
# Statuses by which the storage says "not now" rather than "not with this link".
_PASSING: Final = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS})


UNENCRYPTED: Final = (
    "the service speaks https, and its link leads to plain http, where others can read and change the file; "
    "`allow_http_links: true` in the profile allows that"
)


@dataclass(frozen=True, slots=True)
class LinkGuard:
    """Where links of a service may lead: what was asked for in secret is not fetched in clear.

    `origin` is the service's own address; where that is plain http already, nothing is lost by an http link.
    """

    origin: URL
    allows_http: bool = False

    def bars(self, origin: URL, url: URL) -> LinkBarred | None:
        """Return why a step from one address to another is not taken; None where it is."""
        if self.allows_http or origin.scheme != "https" or url.scheme == "https":
            return None
        return LinkBarred(UNENCRYPTED)


class _Source:
    """A file's bytes on their way out: exactly as many as were announced, and what went wrong reading them."""

    def __init__(self, content: Callable[[], AsyncIterator[bytes]], size_bytes: int) -> None:
        self._content = content
        self._left_bytes = size_bytes
        self.fault: Exception | None = None
        self.has_wrong_length = False

    async def chunks(self) -> AsyncIterator[bytes]:
        held = b""  # the last piece waits for the file's end: with it the storage would take the file as whole
        try:
            async for chunk in self._content():
                self._left_bytes -= len(chunk)
                if self._left_bytes < 0:
                    break
                if held:
                    yield held
                held = chunk
        except Exception as fault:  # noqa: BLE001 - the caller's own, handed back to it by `put`
            self.fault = fault
        if self.fault is not None or self._left_bytes != 0:
            self.has_wrong_length = self.fault is None
            # Stopping silently would leave the storage waiting for the announced rest.
            raise aiohttp.ClientPayloadError
        if held:
            yield held


async def put(
    session: aiohttp.ClientSession,
    url: URL,
    *,
    headers: Sequence[tuple[str, str]],
    content: Callable[[], AsyncIterator[bytes]],
    size_bytes: int,
    timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - aiohttp's own, per phase of the request
) -> PutReply:
    """Send the bytes with exactly these headers; `Content-Length` is added only where the ticket lacks it."""
    announced = [value for name, value in headers if name.lower() == "content-length"]
    if announced and announced != [str(size_bytes)]:
        return TicketRefused("the ticket is for a file of another length")
    sent = [*headers] if announced else [*headers, ("Content-Length", str(size_bytes))]
    source = _Source(content, size_bytes)
    fault_words = ""
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
    except FAULTS as fault:
        fault_words = describe_fault(fault)
    if source.fault is not None:
        raise source.fault
    return NoResponse("the file changed while it was sent" if source.has_wrong_length else fault_words)


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
    """Open a download; the connection is closed with the context.

    A range is only asked for with a strong etag: without one, the rest could be of another file.
    """
    if url is None:
        yield NoResponse("the output link is not an address")
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
    """Ask for a file, and follow the storage where it leads; each step is held against the guard first."""
    origin = guard.origin
    for _ in range(_REDIRECTS_MAX + 1):
        if (barred := guard.bars(origin, url)) is not None:
            return barred
        try:
            response = await session.get(url, headers=headers, allow_redirects=False, timeout=timeouts.of_downloads())
        except FAULTS as fault:
            return NoResponse(describe_fault(fault))
        location = response.headers.get("Location")
        if response.status not in _REDIRECTS or location is None:
            return response
        response.close()
        try:
            origin, url = url, url.join(URL(location, encoded=location.isascii() and " " not in location))
        except ValueError:
            return NoResponse("the storage led on to what is no address")
    return NoResponse(f"the storage led on more than {_REDIRECTS_MAX} times")


def _put_reply(status: int) -> PutReply:
    if HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
        return BytesStored()
    if HTTPStatus.BAD_REQUEST <= status < HTTPStatus.INTERNAL_SERVER_ERROR and status not in _PASSING:
        return TicketRefused(f"the storage answered {status}")
    return NoResponse(f"the storage answered {status}")


def _whole_reply(response: aiohttp.ClientResponse, chunks: AsyncIterator[bytes]) -> DownloadReply:
    """Read what answered a request for a whole file."""
    if response.status != HTTPStatus.OK:
        return _refusal(response.status)
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
    """Read what answered a request for the rest of a file: the same file from that very place, or the whole of one.

    A 206 that does not name the etag again may be of another file: not every server looks at `If-Range`.
    """
    if response.status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
        return NotContinued("the storage no longer has so much of the file")
    if response.status != HTTPStatus.PARTIAL_CONTENT:
        return _whole_reply(response, chunks)
    span = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", "").strip())
    if span is None or int(span[1]) != offset_bytes or _is_encoded(response):
        return NotContinued("the storage sent another part of the file than asked for")
    if response.headers.get("ETag") != etag:
        return NotContinued("the storage sent the rest of another file")
    return DownloadStarted(
        offset_bytes=offset_bytes,
        total_bytes=None if span[3] == "*" else int(span[3]),
        media_type=response.headers.get("Content-Type"),
        etag=etag,
        chunks=chunks,
    )


def _refusal(status: int) -> LinkRefused | NoResponse:
    """Tell a link that no longer works from a storage in trouble, and from what nobody asked for."""
    is_refusal = HTTPStatus.BAD_REQUEST <= status < HTTPStatus.INTERNAL_SERVER_ERROR and status not in _PASSING
    return LinkRefused(status) if is_refusal else NoResponse(f"the storage answered {status}")


def _is_encoded(response: aiohttp.ClientResponse) -> bool:
    return response.headers.get("Content-Encoding", "identity").lower() != "identity"


def _length_of(response: aiohttp.ClientResponse) -> int | None:
    """Return the announced length; None where there is none, or one that no file has."""
    length = response.headers.get("Content-Length", "")
    return int(length) if _LENGTH.fullmatch(length) else None


async def _chunks(response: aiohttp.ClientResponse, timeouts: Timeouts) -> AsyncGenerator[bytes, None]:
    """Give the bytes as they come. Raises `DownloadBroken` where they stop early, or come too slowly.

    Only the time spent waiting for the network counts: a slow disk is no fault of the storage's.
    """
    loop, words = asyncio.get_running_loop(), ""
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
            if came_bytes >= timeouts.least_bytes:
                waited_seconds, came_bytes = 0.0, 0
            elif waited_seconds >= timeouts.least_seconds:
                words = f"fewer than {timeouts.least_bytes} bytes came in {timeouts.least_seconds:g} seconds"
                break
    except FAULTS as fault:
        words = describe_fault(fault)
    if words:
        # Raised here, and not inside the handler, so that no traceback carries the link.
        raise DownloadBroken(words)
