"""PUT of the exact bytes, with all the headers that were given out."""

import asyncio
import secrets
from pathlib import Path
from typing import Final

from aiohttp import web

from batchkiln.service.api.context import CONTEXT, Context
from batchkiln.service.books.assets import Asset, find_asset, mark_uploaded
from batchkiln.service.errors import ApiError

PATH: Final = "/storage/uploads/{asset_id}"
ASSET_HEADER: Final = "X-Upload-Asset"
_CHUNK_BYTES: Final = 256 * 1024


def upload_url(context: Context, asset: Asset) -> str:
    """Return where the bytes of an asset are to be PUT."""
    path = PATH.format(asset_id=asset.id)
    return context.origin() + context.links.sign("PUT", path, asset.link_expires_at_ms, _bound(asset))


def upload_headers(asset: Asset) -> dict[str, str]:
    """Return the headers that the PUT has to carry, with their exact values."""
    return {
        "Content-Type": asset.content_type,
        "Content-Length": str(asset.size_bytes),
        ASSET_HEADER: asset.id,
    }


async def receive(request: web.Request) -> web.StreamResponse:
    """PUT of the exact bytes, with all the headers that were given out. Outside of the API: no windows."""
    context = request.app[CONTEXT]
    asset = await asyncio.wrap_future(
        context.database.submit(lambda connection: find_asset(connection, request.match_info["asset_id"]))
    )
    if asset is None:
        raise ApiError(404, "not_found", "there is no such upload")
    _check_link(context, request, asset)
    _check_headers(request, asset)
    if asset.state == "ready":
        raise ApiError(409, "already_complete", "this upload was completed")
    await _save(request, asset, context.asset_dir / asset.id)
    await asyncio.wrap_future(context.database.submit(lambda connection: mark_uploaded(connection, asset.id)))
    return web.Response()


def _bound(asset: Asset) -> str:
    return "\n".join(f"{name}: {value}" for name, value in upload_headers(asset).items())


def _check_link(context: Context, request: web.Request, asset: Asset) -> None:
    verdict = context.links.check(
        "PUT", request.path, request.query, now_ms=context.clock.now_ms(), bound=_bound(asset)
    )
    if verdict != "good":
        raise ApiError(403, f"link_{verdict}", f"the upload link is {verdict}")


def _check_headers(request: web.Request, asset: Asset) -> None:
    """Service section 4, upload flow 2: all headers, with their exact values."""
    for name, value in upload_headers(asset).items():
        given = request.headers.get(name)
        if given is None and name == "Content-Length":
            raise ApiError(411, "length_required", "send Content-Length, not chunks")
        if given != value:
            raise ApiError(400, "upload_header_mismatch", f"header {name} must be {value!r}")


async def _save(request: web.Request, asset: Asset, path: Path) -> None:
    """Write the body by temporary name and rename. Raises ApiError when it is not as long as promised."""
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")
    received = 0
    try:
        with temporary.open("wb") as file:
            async for chunk in request.content.iter_chunked(_CHUNK_BYTES):
                received += len(chunk)
                await asyncio.to_thread(file.write, chunk)
        if received != asset.size_bytes:
            raise ApiError(400, "upload_incomplete", f"{received} of {asset.size_bytes} bytes arrived")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
