"""POST /uploads and /uploads/complete; `storage/upload.py` has the PUT between them."""

import sqlite3
from functools import partial
from typing import get_args

from aiohttp import web
from msgspec.structs import replace

from batchkiln_service.api.handling import ApiCall, execute, read_body
from batchkiln_service.clock import iso
from batchkiln_service.context import Context
from batchkiln_service.db.admission import Caller
from batchkiln_service.db.assets import Asset, FileToUpload, own_assets
from batchkiln_service.faults.fault_rules import UPLOAD_LINK
from batchkiln_service.rules.replies import AssetList, ReadyAsset, UploadList, UploadTicket
from batchkiln_service.rules.validation import check_completion, check_uploads
from batchkiln_service.rules.wire import ContentType
from batchkiln_service.storage.upload import upload_headers, upload_url
from batchkiln_service.storage.verification import complete_assets
from batchkiln_service.transport.bodies import reply


async def prepare(request: web.Request, call: ApiCall) -> web.StreamResponse:
    """POST /uploads: return a signed URL and headers for each file."""
    context = call.context
    _, checked = await read_body(request, call, check_uploads)

    def work(connection: sqlite3.Connection, caller: Caller) -> list[Asset]:
        return context.assets.prepare(
            connection,
            caller.account,
            [FileToUpload(file.name, file.type, file.size) for file in checked.get()],
            new_id=partial(context.new_id, "ast"),
            now_ms=caller.now_ms,
            expires_at_ms=caller.now_ms + round(context.config.asset_retention_seconds * 1000),
            link_expires_at_ms=caller.now_ms + round(context.config.upload_link_seconds * 1000),
        )

    caller, assets = await execute(call, work)
    early = call.outcome_fault(UPLOAD_LINK)
    early_ms = None if early is None else caller.now_ms + round((early.seconds or 0) * 1000)
    origin = context.origin(request)
    return reply(UploadList(uploads=[_ticket_of(context, asset, early_ms, origin=origin) for asset in assets]))


async def complete(request: web.Request, call: ApiCall) -> web.StreamResponse:
    """POST /uploads/complete: verify the files and return the URL of each. The call may be repeated."""
    _, checked = await read_body(request, call, check_completion)

    def own(connection: sqlite3.Connection, caller: Caller) -> list[Asset]:
        return own_assets(connection, caller.account, checked.get(), now_ms=caller.now_ms)

    caller, _ = await execute(call, own)
    completed = await complete_assets(call.context, caller.account, checked.get())
    return reply(AssetList(assets=[_ready(asset, size) for asset, size in completed]))


def _ticket_of(context: Context, asset: Asset, early_ms: int | None, *, origin: str) -> UploadTicket:
    """Return the ticket of an upload. With `early_ms`, its link expires at that instant, before `expires_at`."""
    link_ends_at_ms = asset.link_expires_at_ms if early_ms is None else min(early_ms, asset.link_expires_at_ms)
    return UploadTicket(
        asset_id=asset.id,
        name=asset.name,
        upload_url=upload_url(context, replace(asset, link_expires_at_ms=link_ends_at_ms), origin=origin),
        upload_headers=upload_headers(asset),
        expires_at=iso(asset.link_expires_at_ms),
    )


def _ready(asset: Asset, size_pixels: tuple[int, int]) -> ReadyAsset:
    return ReadyAsset(
        asset_id=asset.id,
        status="ready",
        url=asset.url,
        type=_type_of(asset),
        size=asset.size_bytes,
        width=size_pixels[0],
        height=size_pixels[1],
        expires_at=iso(asset.expires_at_ms),
    )


def _type_of(asset: Asset) -> ContentType:
    return next(content_type for content_type in get_args(ContentType) if content_type == asset.content_type)
