"""Files over signed links: uploads to and downloads from the storage, which gets none of our keys (Law 8)."""

import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from http import HTTPStatus
from typing import Final

import aiohttp
from yarl import URL

from batchkiln.client.faults import FAULTS, describe_fault
from batchkiln.core.replies import (
    BytesStored,
    DownloadBroken,
    DownloadReply,
    DownloadStarted,
    LinkRefused,
    NoReply,
    PutReply,
    TicketRefused,
)

_CHUNK_BYTES: Final = 256 * 1024
_REDIRECTS_MAX: Final = 3
_CONTENT_RANGE: Final = re.compile(r"bytes (?:(\d+)-\d+|\*)/(\d+|\*)")
_OWN_HEADERS: Final = ("Accept", "Accept-Encoding", "Content-Type")
# Statuses by which the storage says "not now" rather than "not with this link".
_PASSING: Final = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS})


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
    return NoReply("the file changed while it was sent" if source.has_wrong_length else fault_words)


@asynccontextmanager
async def download(
    session: aiohttp.ClientSession,
    url: URL | None,
    *,
    offset_bytes: int,
    etag: str | None,
    timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - aiohttp's own, per phase of the request
) -> AsyncIterator[DownloadReply]:
    """Open a download; the connection is closed with the context.

    A range is only asked for with a strong etag: without one, the rest could be of another file.
    """
    if url is None:
        yield NoReply("the output link is not an address")
        return
    headers = {"Accept": "*/*", "Accept-Encoding": "identity"}
    is_continued = offset_bytes > 0 and etag is not None and etag.startswith('"')
    if is_continued and etag is not None:
        headers |= {"Range": f"bytes={offset_bytes}-", "If-Range": etag}
    try:
        response = await session.get(url, headers=headers, max_redirects=_REDIRECTS_MAX, timeout=timeout)
    except FAULTS as fault:
        reply: DownloadReply = NoReply(describe_fault(fault))
        response = None
    if response is None:
        yield reply
        return
    async with response, aclosing(_chunks(response)) as chunks:
        yield _download_reply(response, chunks, asked_offset_bytes=offset_bytes if is_continued else 0)


def _put_reply(status: int) -> PutReply:
    if HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
        return BytesStored()
    if HTTPStatus.BAD_REQUEST <= status < HTTPStatus.INTERNAL_SERVER_ERROR and status not in _PASSING:
        return TicketRefused(f"the storage answered {status}")
    return NoReply(f"the storage answered {status}")


def _download_reply(
    response: aiohttp.ClientResponse, chunks: AsyncIterator[bytes], *, asked_offset_bytes: int
) -> DownloadReply:
    """Read status and headers; a range other than the one asked for is of no use to anybody."""
    status = response.status
    is_encoded = response.headers.get("Content-Encoding", "identity").lower() != "identity"
    started_bytes, total_bytes = 0, None if is_encoded else response.content_length
    if status == HTTPStatus.PARTIAL_CONTENT:
        span = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", "").strip())
        if span is None or span[1] is None or int(span[1]) != asked_offset_bytes or is_encoded:
            return NoReply("the storage sent another part of the file than asked for")
        started_bytes, total_bytes = asked_offset_bytes, None if span[2] == "*" else int(span[2])
    elif status != HTTPStatus.OK:
        is_refusal = HTTPStatus.BAD_REQUEST <= status < HTTPStatus.INTERNAL_SERVER_ERROR and status not in _PASSING
        return LinkRefused(status) if is_refusal else NoReply(f"the storage answered {status}")
    return DownloadStarted(
        offset_bytes=started_bytes,
        total_bytes=total_bytes,
        media_type=response.headers.get("Content-Type"),
        etag=None if is_encoded else response.headers.get("ETag"),
        chunks=chunks,
    )


async def _chunks(response: aiohttp.ClientResponse) -> AsyncGenerator[bytes, None]:
    """Give the bytes as they come. Raises `DownloadBroken` where they stop early."""
    words = ""
    try:
        async for chunk in response.content.iter_chunked(_CHUNK_BYTES):
            yield chunk
    except FAULTS as fault:
        words = describe_fault(fault)
    if words:
        # Raised here, and not inside the handler, so that no traceback carries the link.
        raise DownloadBroken(words)
