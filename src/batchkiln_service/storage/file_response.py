"""A response that sends a file in chunks, read in a thread; it stays intact if the file is replaced or deleted."""

import asyncio
import os
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Final, assert_never

from aiohttp import hdrs, web
from aiohttp.abc import AbstractStreamWriter
from multidict import CIMultiDict

from batchkiln_service.errors import ApiError
from batchkiln_service.storage.ranges import (
    FileFacts,
    NotModified,
    Part,
    PreconditionFailed,
    Unsatisfiable,
    Whole,
    decide,
)
from batchkiln_service.transport.bodies import http_date, refusal

# Small enough for a slow client to read within `unread_seconds`.
CHUNK_BYTES: Final = 64 * 1024


class OpenFile:
    """An open file that stays readable when it is deleted or replaced; closed when it is garbage-collected."""

    def __init__(self, path: Path) -> None:
        """Open the file. Raises OSError."""
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

    def __init__(self, file: OpenFile, facts: FileFacts, headers: CIMultiDict[str], part: Part | None = None) -> None:
        super().__init__(status=206 if part else 200, headers=headers)
        self.file = file
        self.facts = facts
        self.part = part or Part(0, facts.size_bytes)
        self.content_length = self.part.stop - self.part.start
        if part is not None:
            self.headers[hdrs.CONTENT_RANGE] = f"bytes {part.start}-{part.stop - 1}/{facts.size_bytes}"

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        """Send the head and the body."""
        writer = await super().prepare(request)
        if request.method != hdrs.METH_HEAD:
            position = self.part.start
            while position < self.part.stop:
                length = min(CHUNK_BYTES, self.part.stop - position)
                chunk = await asyncio.to_thread(self.file.read, position, length)
                if len(chunk) < length:
                    raise ConnectionResetError("the file has become shorter: only a break can tell the client")
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
        match decide(request.method, request.headers, facts):
            case Part(start, stop):
                headers[hdrs.CONTENT_RANGE] = f"bytes {start}-{stop - 1}/{len(content)}"
                return web.Response(status=206, headers=headers, body=content[start:stop])
            case Whole():
                return web.Response(headers=headers, body=content)
            case other:
                return _bodiless(other, facts, headers)


def file_reply(
    request: web.Request, file: OpenFile, facts: FileFacts, *, headers: Mapping[str, str]
) -> web.StreamResponse:
    """Return the response to a GET or HEAD of a file; `headers` describe its content and caching."""
    told = CIMultiDict(headers)
    told[hdrs.ETAG] = facts.etag
    told[hdrs.LAST_MODIFIED] = http_date(facts.modified_at_ms)
    told[hdrs.ACCEPT_RANGES] = "bytes"
    match decide(request.method, request.headers, facts):
        case Part() as part:
            return FileReply(file, facts, told, part)
        case Whole():
            return FileReply(file, facts, told)
        case other:
            return _bodiless(other, facts, told)


def _bodiless(
    sending: NotModified | PreconditionFailed | Unsatisfiable, facts: FileFacts, headers: CIMultiDict[str]
) -> web.Response:
    """Return a response without a body."""
    match sending:
        case NotModified():
            kept = (hdrs.ETAG, hdrs.LAST_MODIFIED, hdrs.CACHE_CONTROL)
            return web.Response(status=304, headers={name: headers[name] for name in kept if name in headers})
        case PreconditionFailed():
            return refusal(ApiError(412, "precondition_failed", "the file is not the one that the request names"))
        case Unsatisfiable():
            response = refusal(
                ApiError(416, "range_not_satisfiable", f"the file has {facts.size_bytes} bytes; ask for some of them")
            )
            response.headers[hdrs.CONTENT_RANGE] = f"bytes */{facts.size_bytes}"
            response.headers[hdrs.ETAG] = facts.etag
            return response
        case _:
            assert_never(sending)
