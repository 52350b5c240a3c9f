"""Responses with output files and thumbnails. A URL names a file by its id in the queue, never by a path."""

import asyncio
from contextlib import nullcontext
from pathlib import Path, PurePosixPath
from typing import Final
from urllib.parse import quote

from aiohttp import web

from batchkiln.api import OutputFile
from batchkiln.core.errors import InputError
from batchkiln.core.urls import is_url
from batchkiln.dashboard.context import context_of
from batchkiln.object_storage import local_file
from batchkiln.outputs.thumbnails import NoThumbnail

DISPLAYED_TYPES: Final = frozenset(
    {
        "image/png",
        "image/jpeg",
        "image/webp",
        "image/gif",
        "image/avif",
        "video/mp4",
        "video/webm",
        "video/quicktime",
    }
)
"""Media types that a browser may display; other types are sent as downloads."""

_ASKED_AGAIN: Final = "private, no-cache"  # kept by the browser, which asks each time whether the file has changed
_NO_PICTURE: Final = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 96 96" fill="none" stroke="#888" stroke-width="2">'
    '<rect x="32" y="30" width="32" height="24" rx="2"/><path d="M30 58 66 26"/>'
    '<text x="48" y="74" fill="#888" stroke="none" text-anchor="middle" font-family="sans-serif" font-size="9">'
    "{}</text></svg>"
)
_REASONS: Final = {
    NoThumbnail.GONE: "missing",
    NoThumbnail.CHANGED: "changed",
    NoThumbnail.UNREADABLE: "broken",
}


async def thumbnail(request: web.Request) -> web.StreamResponse:
    """Return a file's thumbnail, or a picture that names the reason why there is none."""
    file = await _file(request)
    path = await _local(request, file)
    if path is None:
        return _no_picture("cannot be read")
    content = await asyncio.to_thread(_content_of, path, file)
    if isinstance(content, NoThumbnail):
        return _no_picture(_REASONS[content])
    headers = {"Cache-Control": _ASKED_AGAIN, "ETag": f'"{content}"'}
    if any(tag.value == content for tag in request.if_none_match or ()):
        return web.Response(status=304, headers=headers)
    picture = await context_of(request).thumbnails.of(path, content, file.media_type)
    if isinstance(picture, NoThumbnail):
        return _no_picture(_REASONS[picture])
    return web.Response(body=picture.content, content_type=picture.media_type, headers=headers)


def _content_of(path: Path, file: OutputFile) -> str | NoThumbnail:
    """Return a word that changes with a file's content, or why it is not the saved file. It is not read for this.

    The copy of an object is known by its hash, since each use changes its time.
    """
    if is_url(file.path):
        return file.sha256
    try:
        status = path.stat()
    except OSError:
        return NoThumbnail.GONE
    if status.st_size != file.size_bytes:
        return NoThumbnail.CHANGED
    return f"{file.sha256[:16]}-{status.st_mtime_ns:x}"


def _no_picture(reason: str) -> web.Response:
    return web.Response(status=404, text=_NO_PICTURE.format(reason), content_type="image/svg+xml")


async def media(request: web.Request) -> web.StreamResponse:
    """Return a file, or the requested range of it."""
    return await whole_file(request, await _file(request), is_download="download" in request.query)


async def input_media(request: web.Request) -> web.StreamResponse:
    """Return an image that an item is made from."""
    wanted = int(request.match_info["id"])
    file = await context_of(request).reader.read(lambda reader: reader.items.input_file(wanted))
    if file is None or not file.sha256.startswith(request.match_info["sha"]):
        raise InputError("the queue has no such file")
    found = OutputFile(file.path, file.size_bytes, file.sha256, file.media_type)
    return await whole_file(request, found, is_download="download" in request.query)


async def whole_file(request: web.Request, file: OutputFile, *, is_download: bool) -> web.FileResponse:
    """Return a file; aiohttp then sends the requested range of it. Raise `InputError` if it is gone."""
    path = await _local(request, file)
    if path is None or not await asyncio.to_thread(path.is_file):
        raise InputError("the file was moved or deleted, or its object cannot be read")
    is_shown = file.media_type in DISPLAYED_TYPES
    headers = {
        "Content-Type": file.media_type if is_shown else "application/octet-stream",
        "Cache-Control": _ASKED_AGAIN,
    }
    if not is_shown or is_download:
        headers["Content-Disposition"] = f"attachment; filename*=UTF-8''{quote(PurePosixPath(file.path).name, safe='')}"
    return web.FileResponse(path, headers=headers)


async def _local(request: web.Request, file: OutputFile) -> Path | None:
    """Return a local file with the content; of an object, a copy. None if the object cannot be read.

    Few objects are read at a time: each occupies a thread, and a run in the same process needs threads too.
    """
    async with context_of(request).object_reads if is_url(file.path) else nullcontext():
        try:
            return await asyncio.to_thread(local_file, file.path, sha256=file.sha256, size_bytes=file.size_bytes)
        except OSError:
            return None


async def _file(request: web.Request) -> OutputFile:
    file = await context_of(request).reader.read(lambda reader: reader.items.output_file(int(request.match_info["id"])))
    if file is None or not file.sha256.startswith(request.match_info["sha"]):
        raise InputError("the queue has no such file")
    return file
