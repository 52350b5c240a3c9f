"""POST /uploads and /uploads/complete, and the PUT that goes to the storage between them."""

import asyncio
import secrets
import sqlite3
from functools import partial
from pathlib import Path

from aiohttp import web
from PIL import Image, UnidentifiedImageError

from batchkiln.service.admission import Ticket
from batchkiln.service.answering import answered
from batchkiln.service.assets import (
    Asset,
    check_asset_ids,
    check_files,
    find_asset,
    mark_ready,
    mark_uploaded,
    own_assets,
)
from batchkiln.service.bodies import iso, parse_json, read_body, reply
from batchkiln.service.context import CONTEXT, Context
from batchkiln.service.errors import ApiError

PATH = "/storage/uploads/{asset_id}"
ACCOUNT_HEADER = "X-Upload-Asset"
_FORMATS = {"image/jpeg": "JPEG", "image/png": "PNG", "image/webp": "WEBP"}
MAX_PIXELS = 64_000_000  # decoded it would be four bytes each
_CHUNK_BYTES = 256 * 1024


async def prepare(request: web.Request, ticket: Ticket) -> web.StreamResponse:
    """POST /uploads: a signed URL and headers per file."""
    context = request.app[CONTEXT]
    body = parse_json(await read_body(request))
    now_ms = ticket.arrived_at_ms

    def work(connection: sqlite3.Connection) -> list[Asset]:
        files = check_files(body)
        assert ticket.account is not None
        return context.assets.prepare(
            connection,
            ticket.account,
            files,
            new_id=partial(context.new_id, "ast"),
            now_ms=now_ms,
            expires_at_ms=now_ms + round(context.config.asset_retention_seconds * 1000),
        )

    assets = await answered(context, ticket, work)
    return reply({"uploads": [_upload_json(context, asset, now_ms) for asset in assets]})


async def complete(request: web.Request, ticket: Ticket) -> web.StreamResponse:
    """POST /uploads/complete: looks at the files and gives each its URL; may be repeated."""
    context = request.app[CONTEXT]
    body = parse_json(await read_body(request))

    def own(connection: sqlite3.Connection) -> list[Asset]:
        assert ticket.account is not None
        return own_assets(connection, ticket.account, check_asset_ids(body))

    assets = await answered(context, ticket, own)
    sizes = [await asyncio.to_thread(_size_of, context.asset_dir / asset.id, asset) for asset in assets]

    def enter(connection: sqlite3.Connection) -> None:
        for asset, size in zip(assets, sizes, strict=True):
            mark_ready(connection, asset.id, size)

    await asyncio.wrap_future(context.database.submit(enter))
    ready = [_asset_json(asset, size) for asset, size in zip(assets, sizes, strict=True)]
    return reply({"assets": ready})


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


def _upload_json(context: Context, asset: Asset, now_ms: int) -> dict[str, object]:
    expires_at_ms = now_ms + round(context.config.upload_link_seconds * 1000)
    path = PATH.format(asset_id=asset.id)
    return {
        "asset_id": asset.id,
        "name": asset.name,
        "upload_url": context.origin() + context.links.sign("PUT", path, expires_at_ms, _bound(asset)),
        "upload_headers": _headers(asset),
        "expires_at": iso(expires_at_ms),
    }


def _asset_json(asset: Asset, size_pixels: tuple[int, int]) -> dict[str, object]:
    return {
        "asset_id": asset.id,
        "status": "ready",
        "url": asset.url,
        "type": asset.content_type,
        "size": asset.size_bytes,
        "width": size_pixels[0],
        "height": size_pixels[1],
        "expires_at": iso(asset.expires_at_ms),
    }


def _headers(asset: Asset) -> dict[str, str]:
    return {
        "Content-Type": asset.content_type,
        "Content-Length": str(asset.size_bytes),
        ACCOUNT_HEADER: asset.id,
    }


def _bound(asset: Asset) -> str:
    return "\n".join(f"{name}: {value}" for name, value in _headers(asset).items())


def _check_link(context: Context, request: web.Request, asset: Asset) -> None:
    verdict = context.links.check(
        "PUT", request.path, request.query, now_ms=context.clock.now_ms(), bound=_bound(asset)
    )
    if verdict != "good":
        raise ApiError(403, f"link_{verdict}", f"the upload link is {verdict}")


def _check_headers(request: web.Request, asset: Asset) -> None:
    """Service section 4, upload flow 2: all headers, with their exact values."""
    for name, value in _headers(asset).items():
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


def _size_of(path: Path, asset: Asset) -> tuple[int, int]:
    """Look at an uploaded file. Raises ApiError 422 when it is not an image of its type."""
    try:
        with Image.open(path, formats=[_FORMATS[asset.content_type]]) as image:
            if image.width * image.height <= MAX_PIXELS:
                image.load()  # a header alone says nothing of a truncated file
                return image.size
    except (UnidentifiedImageError, Image.DecompressionBombError, OSError, SyntaxError, ValueError) as error:
        raise ApiError(422, "asset_invalid", f"asset {asset.id!r} is not a readable {asset.content_type}") from error
    raise ApiError(422, "asset_invalid", f"asset {asset.id!r} has more than {MAX_PIXELS} pixels")
