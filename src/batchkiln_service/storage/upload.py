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

from batchkiln_service.context import CONTEXT, Context
from batchkiln_service.db.assets import Asset, find_asset, mark_uploaded
from batchkiln_service.errors import ApiError

PATH: Final = "/storage/uploads/{asset_id}"
ASSET_HEADER: Final = "X-Upload-Asset"
# A file may take as long as so many of the longest silences: ten minutes, unless another silence was set. Nobody can
# hold a connection and a file for ever by sending a byte now and then.
MOST_SILENCES: Final = 20
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
    asset = await _linked(context, request)
    _check_headers(request, asset)
    _check_open(asset)
    path = context.asset_dir / asset.id
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")
    try:
        await _save(request, asset, temporary)
        # Not while a completion looks at the bytes before, nor while housekeeping gives the upload up.
        async with context.asset_locks.held([asset.id]):
            _check_open(await _found(context, asset.id) or asset)
            await asyncio.to_thread(_put_in_place, temporary, path)
            await context.database.run(lambda connection: mark_uploaded(connection, asset.id))
    finally:
        await asyncio.to_thread(temporary.unlink, missing_ok=True)
    return web.Response()


async def _linked(context: Context, request: web.Request) -> Asset:
    """Return the asset of a good link. A forged link is told nothing, also not whether there is such an upload."""
    asset = await _found(context, request.match_info["asset_id"])
    bound = _bound(asset) if asset else ""
    verdict = context.links.check("PUT", request.path, request.query, now_ms=context.clock.now_ms(), bound=bound)
    if asset is None or verdict != "good":
        verdict = "expired" if asset and verdict == "expired" else "forged"
        raise ApiError(403, f"link_{verdict}", f"the upload link is {verdict}; prepare the upload again")
    return asset


async def _found(context: Context, asset_id: str) -> Asset | None:
    return await context.database.run(lambda connection: find_asset(connection, asset_id))


def _bound(asset: Asset) -> str:
    return "\n".join(f"{name}: {value}" for name, value in upload_headers(asset).items())


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
    """Give the body as it arrives.

    Raises ApiError when the sender is silent for so long, takes many times that in all, or cannot be understood. The
    seconds are real ones.
    """
    within_seconds = MOST_SILENCES * silence_seconds
    clock = asyncio.get_running_loop().time
    ends_at = clock() + within_seconds
    while True:
        try:
            async with asyncio.timeout_at(min(clock() + silence_seconds, ends_at)):
                chunk = await request.content.read(_CHUNK_BYTES)
        except TimeoutError as error:
            reason = f"nothing arrived for {silence_seconds:g} seconds"
            if clock() >= ends_at:
                reason = f"the file did not arrive in {within_seconds:g} seconds"
            raise ApiError(408, "request_timeout", reason) from error
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
