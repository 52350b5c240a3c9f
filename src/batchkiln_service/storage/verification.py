"""Completes uploads. All files are decoded before any asset of the request becomes ready."""

import asyncio
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from batchkiln_service.context import Context
from batchkiln_service.db.assets import Asset, mark_ready, own_assets
from batchkiln_service.errors import ApiError
from batchkiln_service.media.input_images import UnreadablePictureError, size_by_header
from batchkiln_service.media.worker_pool import TaskFailedError, WorkerLostError

_FORMATS: Final[Mapping[str, str]] = {"image/jpeg": "JPEG", "image/png": "PNG", "image/webp": "WEBP"}
_Size = tuple[int, int]


async def complete_assets(context: Context, account: str, asset_ids: Sequence[str]) -> list[tuple[Asset, _Size]]:
    """Verify the files of an account's assets and mark all of them ready, or none.

    Return each asset with its width and height in pixels. Raise ApiError 422, which names every asset whose file is
    not as announced. The other assets can be completed without these.
    """

    def own(connection: sqlite3.Connection) -> list[Asset]:
        return own_assets(connection, account, asset_ids, now_ms=context.clock.now_ms())

    async with context.asset_locks.held(asset_ids):
        assets = await context.database.run(own)  # read again under the lock
        sizes: list[_Size] = []
        wrong: list[str] = []
        for asset in assets:
            match await _size_of(context, asset):
                case str(reason):
                    wrong.append(f"asset {asset.id!r} {reason}")
                case size:
                    sizes.append(size)
        if wrong:
            raise ApiError(422, "asset_invalid", "; ".join(dict.fromkeys(wrong)))
        found = list(zip(assets, sizes, strict=True))

        def enter(connection: sqlite3.Connection) -> None:
            for asset, size in found:
                mark_ready(connection, asset.id, size)

        await context.database.run(enter)
    return found


async def _size_of(context: Context, asset: Asset) -> _Size | str:
    """Return the size of a picture in pixels, or the reason why it is invalid."""
    if asset.width is not None and asset.height is not None:
        return asset.width, asset.height
    path = context.asset_dir / asset.id
    return await asyncio.wrap_future(context.examining.submit(lambda: _verified_size(context, path, asset)))


def _verified_size(context: Context, path: Path, asset: Asset) -> _Size | str:
    if not path.exists() or path.stat().st_size != asset.size_bytes:
        return f"does not have the {asset.size_bytes} bytes that were announced; upload it again"
    kind = _FORMATS[asset.content_type]
    try:
        width, height = size_by_header(path, kind)
        seen = context.examining.do("decode", str(path), kind, pixels=width * height)
    except UnreadablePictureError as error:
        return str(error)
    except (WorkerLostError, TaskFailedError):
        if context.examining.is_closed:
            raise
        return f"is a {kind} picture that needs too much memory or time to decode"
    if isinstance(seen, str):
        return seen
    assert isinstance(seen, list)
    return seen[0], seen[1]
