"""POST /uploads and /uploads/complete; the PUT that goes to the storage between them is `storage/receiving.py`."""

import asyncio
import sqlite3
from functools import partial
from pathlib import Path

from aiohttp import web
from PIL import Image, UnidentifiedImageError

from batchkiln.service.api.answering import answered
from batchkiln.service.api.bodies import iso, parse_json, read_body, reply
from batchkiln.service.api.context import CONTEXT, Context
from batchkiln.service.books.admission import Ticket
from batchkiln.service.books.assets import (
    Asset,
    check_asset_ids,
    check_files,
    mark_ready,
    own_assets,
)
from batchkiln.service.errors import ApiError
from batchkiln.service.storage.receiving import upload_headers, upload_url

_FORMATS = {"image/jpeg": "JPEG", "image/png": "PNG", "image/webp": "WEBP"}
MAX_PIXELS = 64_000_000  # decoded it would be four bytes each


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
            link_expires_at_ms=now_ms + round(context.config.upload_link_seconds * 1000),
        )

    assets = await answered(context, ticket, work)
    return reply({"uploads": [_upload_json(context, asset) for asset in assets]})


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


def _upload_json(context: Context, asset: Asset) -> dict[str, object]:
    return {
        "asset_id": asset.id,
        "name": asset.name,
        "upload_url": upload_url(context, asset),
        "upload_headers": upload_headers(asset),
        "expires_at": iso(asset.link_expires_at_ms),
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
