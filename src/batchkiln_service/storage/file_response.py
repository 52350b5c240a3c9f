"""A response that sends a file in chunks, read in a thread. It stays intact if the file is replaced or deleted."""

import asyncio
import os
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from aiohttp import hdrs, web
from aiohttp.abc import AbstractStreamWriter
from multidict import CIMultiDict

from batchkiln_service.errors import ApiError
from batchkiln_service.storage.ranges import FileFacts, Sending, decide
from batchkiln_service.transport.bodies import http_date, refusal

# Small enough for a slow client to read within `unread_seconds`.
CHUNK_BYTES: Final = 64 * 1024


class OpenFile:
    """An open file that stays readable when it is deleted or replaced; closed when it is garbage-collected."""

    def __init__(self, path: Path) -> None:
        """Open the file. Raise OSError."""
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        # A reply may end in many ways, also without being sent, so none of them closes the file.
        weakref.finalize(self, os.close, self._descriptor)
        self.size_bytes = os.fstat(self._descriptor).st_size

    def read(self, start: int, length: int) -> bytes:
        """Return up to `length` bytes from an offset."""
        return os.pread(self._descriptor, length, start)


class FileReply(web.StreamResponse):
    """The response to a GET or HEAD of a file: all of it or the requested range.

    `headers` are sent in each case. The connection drops a client that does not read.
    """

    def __init__(self, file: OpenFile, facts: FileFacts, headers: CIMultiDict[str], sending: Sending) -> None:
        super().__init__(status=sending.status, headers=headers)
        self.file = file
        self.facts = facts
        self.sending = sending
        self.content_length = sending.stop - sending.start
        self.headers.update(sending.content_range(facts.size_bytes))

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        """Send the head and the body of the response."""
        writer = await super().prepare(request)
        if request.method != hdrs.METH_HEAD:
            position = self.sending.start
            while position < self.sending.stop:
                length = min(CHUNK_BYTES, self.sending.stop - position)
                chunk = await asyncio.to_thread(self.file.read, position, length)
                if len(chunk) < length:
                    raise ConnectionResetError(
                        "the file has become shorter: only a closed connection can show that to the client"
                    )
                await self.write(chunk)
                position += length
        await self.write_eof()
        return writer

    async def in_memory(self, request: web.Request, *, extra_bytes: int = 0) -> web.Response:
        """Return the same response in memory, as from a file with `extra_bytes` more or fewer bytes at its end."""
        content = await asyncio.to_thread(self.file.read, 0, self.facts.size_bytes)
        content = content[:extra_bytes] if extra_bytes < 0 else content + bytes(extra_bytes)
        facts = FileFacts(len(content), self.facts.etag, self.facts.modified_at_ms)
        headers = CIMultiDict(self.headers)
        headers.popall(hdrs.CONTENT_LENGTH, None)
        headers.popall(hdrs.CONTENT_RANGE, None)
        sending = decide(request.method, request.headers, facts)
        if not sending.has_bytes:
            return _bodiless(sending.status, facts, headers)
        headers.update(sending.content_range(len(content)))
        return web.Response(status=sending.status, headers=headers, body=content[sending.start : sending.stop])


def file_reply(
    request: web.Request, file: OpenFile, facts: FileFacts, *, headers: Mapping[str, str]
) -> web.StreamResponse:
    """Return the response to a GET or HEAD of a file; `headers` describe its content and caching."""
    all_headers = CIMultiDict(headers)
    all_headers[hdrs.ETAG] = facts.etag
    all_headers[hdrs.LAST_MODIFIED] = http_date(facts.modified_at_ms)
    all_headers[hdrs.ACCEPT_RANGES] = "bytes"
    sending = decide(request.method, request.headers, facts)
    return (
        FileReply(file, facts, all_headers, sending)
        if sending.has_bytes
        else _bodiless(sending.status, facts, all_headers)
    )


def _bodiless(status: int, facts: FileFacts, headers: CIMultiDict[str]) -> web.Response:
    """Return the response with status 304, 412 or 416, without bytes of the file."""
    if status == web.HTTPNotModified.status_code:
        kept = (hdrs.ETAG, hdrs.LAST_MODIFIED, hdrs.CACHE_CONTROL)
        return web.Response(status=304, headers={name: headers[name] for name in kept if name in headers})
    if status == web.HTTPPreconditionFailed.status_code:
        return refusal(ApiError(412, "precondition_failed", "the file is not the one that the request names"))
    text = f"the file has {facts.size_bytes} bytes; request a range within them"
    response = refusal(ApiError(416, "range_not_satisfiable", text))
    response.headers[hdrs.CONTENT_RANGE] = f"bytes */{facts.size_bytes}"
    response.headers[hdrs.ETAG] = facts.etag
    return response
