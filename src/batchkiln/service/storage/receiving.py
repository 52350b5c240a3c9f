"""PUT of the exact bytes, with all the headers that were given out. Outside of the API: no key and no window."""

import asyncio
import os
import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import BinaryIO, Final

import aiohttp
import aiohttp.http
from aiohttp import hdrs, web

from batchkiln.service.books.assets import Asset, find_asset, mark_uploaded
from batchkiln.service.context import CONTEXT, Context
from batchkiln.service.errors import ApiError

PATH: Final = "/storage/uploads/{asset_id}"
ASSET_HEADER: Final = "X-Upload-Asset"
_CHUNK_BYTES: Final = 256 * 1024


def upload_url(context: Context, asset: Asset, *, origin: str) -> str:
    """Return where the bytes of an asset are to be PUT."""
    path = PATH.format(asset_id=asset.id)
    return origin + context.links.sign("PUT", path, asset.link_expires_at_ms, _bound(asset))


def upload_headers(asset: Asset) -> dict[str, str]:
    """Return the headers that the PUT has to carry, with their exact values."""
    return {
        "Content-Type": asset.content_type,
        "Content-Length": str(asset.size_bytes),
        ASSET_HEADER: asset.id,
    }


async def receive(request: web.Request) -> web.StreamResponse:
    """Take the bytes of an asset; before its completion they may be sent again. Service section 4, upload flow 2."""
    context = request.app[CONTEXT]
    asset = await _asset(context, request.match_info["asset_id"])
    _check_link(context, request, asset)
    _check_headers(request, asset)
    _check_open(asset)
    path = context.asset_dir / asset.id
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")
    try:
        await _save(request, asset, temporary)
        async with context.asset_locks.held([asset.id]):  # not while a completion looks at the bytes before
            _check_open(await _asset(context, asset.id))
            await asyncio.to_thread(_put_in_place, temporary, path)
            await asyncio.wrap_future(context.database.submit(lambda connection: mark_uploaded(connection, asset.id)))
    finally:
        await asyncio.to_thread(temporary.unlink, missing_ok=True)
    return web.Response()


async def _asset(context: Context, asset_id: str) -> Asset:
    asset = await asyncio.wrap_future(context.database.submit(lambda connection: find_asset(connection, asset_id)))
    if asset is None:
        raise ApiError(404, "not_found", "there is no such upload")
    return asset


def _bound(asset: Asset) -> str:
    return "\n".join(f"{name}: {value}" for name, value in upload_headers(asset).items())


def _check_link(context: Context, request: web.Request, asset: Asset) -> None:
    verdict = context.links.check(
        "PUT", request.path, request.query, now_ms=context.clock.now_ms(), bound=_bound(asset)
    )
    if verdict != "good":
        raise ApiError(403, f"link_{verdict}", f"the upload link is {verdict}; prepare the upload again")


def _check_headers(request: web.Request, asset: Asset) -> None:
    """Service section 4, upload flow 2: all headers, with their exact values, each once."""
    for name, value in upload_headers(asset).items():
        given = request.headers.getall(name, [])
        if not given and name == hdrs.CONTENT_LENGTH:
            raise ApiError(411, "length_required", "send Content-Length, not chunks")
        if given != [value]:
            raise ApiError(400, "upload_header_mismatch", f"header {name} must be {value!r}")
    if hdrs.CONTENT_ENCODING in request.headers:
        # It would be unpacked on the way, and other bytes stored than were promised.
        raise ApiError(415, "unsupported_content_encoding", "send the file as it is, without Content-Encoding")


def _check_open(asset: Asset) -> None:
    """Refuse what is complete, or was given up: nobody may change it any more."""
    if asset.state == "ready":
        raise ApiError(409, "already_complete", "this upload was completed; prepare another one for other bytes")
    if asset.is_purged:
        raise ApiError(403, "link_expired", "this upload was given up; prepare it again")


async def _save(request: web.Request, asset: Asset, path: Path) -> None:
    """Write the body to disk, never more of it than was promised. Raises ApiError when it is not of that length."""
    received = 0
    file = await asyncio.to_thread(path.open, "wb")
    try:
        async for chunk in _chunks(request, request.app[CONTEXT].config.upload_silence_seconds):
            received += len(chunk)
            if received > asset.size_bytes:
                break
            await asyncio.to_thread(file.write, chunk)
        if received != asset.size_bytes:
            raise ApiError(400, "upload_incomplete", f"{received} of {asset.size_bytes} bytes arrived")
        await asyncio.to_thread(_sync, file)
    finally:
        await asyncio.to_thread(file.close)


async def _chunks(request: web.Request, silence_seconds: float) -> AsyncIterator[bytes]:
    """Give the body as it arrives. Raises ApiError when the sender is silent for so long, or cannot be understood.

    The seconds are real ones.
    """
    while True:
        try:
            async with asyncio.timeout(silence_seconds):
                chunk = await request.content.read(_CHUNK_BYTES)
        except TimeoutError as error:
            raise ApiError(408, "request_timeout", f"nothing arrived for {silence_seconds:g} seconds") from error
        except (web.RequestPayloadError, aiohttp.ClientPayloadError, aiohttp.http.HttpProcessingError) as error:
            raise ApiError(400, "invalid_body", "the body cannot be read: check its length and encoding") from error
        if not chunk:
            return
        yield chunk


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def _put_in_place(temporary: Path, path: Path) -> None:
    """Let the file appear under its name, for good: what the books call uploaded survives a power cut."""
    temporary.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
