"""Receives the PUT of an upload: the exact bytes, with all the headers of its ticket."""

import asyncio
import os
import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import BinaryIO, Final

from aiohttp import hdrs, web

from batchkiln_service.context import CONTEXT, Context
from batchkiln_service.db.assets import Asset, find_asset, mark_uploaded
from batchkiln_service.errors import ApiError
from batchkiln_service.transport.bodies import UNREADABLE_BODY, unreadable_body

PATH: Final = "/storage/uploads/{asset_id}"
ASSET_HEADER: Final = "X-Upload-Asset"
# An upload may take this many times the longest pause, ten minutes by default, so that a client
# cannot hold a connection forever by sending single bytes.
MAX_SILENCES: Final = 20
_CHUNK_BYTES: Final = 256 * 1024


def upload_url(context: Context, asset: Asset, *, origin: str) -> str:
    """Return the signed URL for the PUT of an asset."""
    path = PATH.format(asset_id=asset.id)
    return origin + context.links.sign("PUT", path, asset.link_expires_at_ms, _bound(asset))


def upload_headers(asset: Asset) -> dict[str, str]:
    """Return the headers that the PUT must have, with their exact values."""
    return {"Content-Type": asset.content_type, "Content-Length": str(asset.size_bytes), ASSET_HEADER: asset.id}


async def receive(request: web.Request) -> web.StreamResponse:
    """Store the bytes of an asset; they may be sent again before completion. Service section 4, upload flow 2."""
    context = request.app[CONTEXT]
    asset = await _linked(context, request)
    _check_headers(request, asset)
    _check_open(asset)
    path = context.asset_dir / asset.id
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")
    try:
        await _save(request, asset, temporary)
        # Not during a completion, nor while the sweeper deletes an abandoned upload.
        async with context.asset_locks.held([asset.id]):
            _check_open(await _found(context, asset.id) or asset)
            await asyncio.to_thread(_put_in_place, temporary, path)
            await context.database.run(lambda connection: mark_uploaded(connection, asset.id))
    finally:
        await asyncio.to_thread(temporary.unlink, missing_ok=True)
    return web.Response()


async def _linked(context: Context, request: web.Request) -> Asset:
    """Return the asset of a valid link. A forged link does not reveal whether the upload exists."""
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
    """Raise ApiError unless all headers are present once with their exact values. Service section 4, upload flow 2."""
    for name, value in upload_headers(asset).items():
        given = request.headers.getall(name, [])
        if not given and name == hdrs.CONTENT_LENGTH:
            raise ApiError(411, "length_required", "send Content-Length, not chunks")
        if given != [value]:
            raise ApiError(400, "upload_header_mismatch", f"header {name} must be {value!r}")
    if hdrs.CONTENT_ENCODING in request.headers:
        # A compressed body would be unpacked, and differ from the announced bytes.
        raise ApiError(415, "unsupported_content_encoding", "send the file as it is, without Content-Encoding")


def _check_open(asset: Asset) -> None:
    """Raise ApiError if the asset is complete or abandoned, because its file must not change after that."""
    if asset.state == "ready":
        raise ApiError(409, "already_complete", "this upload was completed; prepare another one for other bytes")
    if asset.is_purged:
        raise ApiError(403, "link_expired", "this upload was abandoned; prepare it again")


async def _save(request: web.Request, asset: Asset, path: Path) -> None:
    """Write the body to disk, up to its announced size. Raise ApiError unless it has that size."""
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
    """Yield the body as it arrives.

    Raise ApiError if the client pauses too long, takes too long in all, or sends invalid HTTP. Times are real.
    """
    within_seconds = MAX_SILENCES * silence_seconds
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
        except UNREADABLE_BODY as error:
            raise unreadable_body() from error
        if not chunk:
            return
        yield chunk


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def _put_in_place(temporary: Path, path: Path) -> None:
    """Rename the file and flush its folder, so that a recorded upload survives a power cut."""
    temporary.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
