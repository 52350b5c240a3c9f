"""Uploaded images: prepared, uploaded, ready. Service sections 2.3 and 4, upload flow."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final
from weakref import WeakValueDictionary

from msgspec import Struct

from batchkiln_service.config import Limits
from batchkiln_service.db.credits import add_usage, may_use, usage_of
from batchkiln_service.db.sql import load_queries
from batchkiln_service.errors import ApiError
from batchkiln_service.rules.windows import Calendar
from batchkiln_service.rules.wire import ASSET_URL

_SQL: Final = load_queries("assets")


class FileToUpload(Struct, frozen=True):
    """One entry of POST /uploads."""

    name: str
    content_type: str
    size_bytes: int


class Asset(Struct, frozen=True):
    """An uploaded image, or a prepared upload."""

    id: str
    account: str
    name: str
    content_type: str
    size_bytes: int
    state: str
    expires_at_ms: int
    link_expires_at_ms: int
    width: int | None
    height: int | None
    is_purged: bool = False  # its file is deleted

    @property
    def url(self) -> str:
        """The URL by which a generation's `inputs` name the asset."""
        return f"{ASSET_URL}{self.account}/{self.id}"


class AssetStore:
    """The operations on uploads that need the account's limits and calendar."""

    def __init__(self, limits: Limits, calendar: Calendar) -> None:
        self._limits = limits
        self._calendar = calendar

    def prepare(
        self,
        connection: sqlite3.Connection,
        account: str,
        files: Sequence[FileToUpload],
        *,
        new_id: Callable[[str], str],
        now_ms: int,
        expires_at_ms: int,
        link_expires_at_ms: int,
    ) -> list[Asset]:
        """Insert prepared uploads; they count in the day's upload budget from now on. Service section 8.

        `new_id` returns the identifier of a subject, which consists of the file's data and the number of earlier assets
        with equal data.
        """
        if not may_use(connection, account):
            raise ApiError(403, "credits_required", "uploads need a subscription or remaining purchased credits")
        day = self._calendar.day_of(now_ms)
        size = sum(file.size_bytes for file in files)
        self._check_day(connection, account, files=len(files), size_bytes=size, now_ms=now_ms)
        add_usage(connection, account, day, upload_files=len(files), upload_bytes=size)
        assets = []
        for file in files:
            same = (account, file.name, file.content_type, file.size_bytes)
            (ordinal,) = connection.execute(_SQL["count_same"], same).fetchone()
            asset = Asset(
                id=new_id(f"{same}:{ordinal}"),
                account=account,
                name=file.name,
                content_type=file.content_type,
                size_bytes=file.size_bytes,
                state="prepared",
                expires_at_ms=expires_at_ms,
                link_expires_at_ms=link_expires_at_ms,
                width=None,
                height=None,
            )
            assets.append(asset)
            connection.execute(
                _SQL["insert_asset"],
                (
                    asset.id,
                    account,
                    asset.name,
                    asset.content_type,
                    asset.size_bytes,
                    asset.state,
                    expires_at_ms,
                    link_expires_at_ms,
                ),
            )
        return assets

    def _check_day(
        self, connection: sqlite3.Connection, account: str, *, files: int, size_bytes: int, now_ms: int
    ) -> None:
        used = usage_of(connection, account, self._calendar.day_of(now_ms))
        for name, more, limit in (
            ("upload_files", files, self._limits.upload_files_per_day),
            ("upload_bytes", size_bytes, self._limits.upload_bytes_per_day),
        ):
            if used[name] + more > limit:
                raise ApiError(
                    429,
                    "daily_limit",
                    f"{used[name]} of {limit} {name} of this day are used, {more} more do not fit",
                    retry_after_seconds=self._calendar.wait_seconds(now_ms),
                )


def find_asset(connection: sqlite3.Connection, asset_id: str) -> Asset | None:
    """Return an asset of any account."""
    row = connection.execute(_SQL["find_asset"], (asset_id,)).fetchone()
    if row is None:
        return None
    columns = {name: row[name] for name in Asset.__struct_fields__}
    return Asset(**columns | {"is_purged": bool(row["is_purged"])})


def mark_uploaded(connection: sqlite3.Connection, asset_id: str) -> None:
    """Record that all bytes of an asset have arrived."""
    connection.execute(_SQL["mark_uploaded"], (asset_id,))


def mark_ready(connection: sqlite3.Connection, asset_id: str, size_pixels: tuple[int, int]) -> None:
    """Record that an asset is an image of that size in pixels."""
    connection.execute(_SQL["mark_ready"], (*size_pixels, asset_id))


def own_assets(connection: sqlite3.Connection, account: str, asset_ids: Sequence[str], *, now_ms: int) -> list[Asset]:
    """Return an account's assets. Raise ApiError if one is unknown, not uploaded or expired."""
    assets = []
    for asset_id in asset_ids:
        asset = find_asset(connection, asset_id)
        if asset is None or asset.account != account:
            raise ApiError(404, "asset_not_found", f"asset {asset_id!r} is not known to this account")
        if asset.is_purged or now_ms >= asset.expires_at_ms:
            raise ApiError(422, "asset_expired", f"asset {asset_id!r} has expired; upload the image again")
        if asset.state == "prepared":
            raise ApiError(422, "asset_not_ready", f"asset {asset_id!r} was not uploaded yet")
        assets.append(asset)
    return assets


def resolve_inputs(
    connection: sqlite3.Connection, account: str, urls: Sequence[str], *, now_ms: int
) -> tuple[str, ...]:
    """Return the asset ids of input URLs. Raise ApiError for one that cannot be used. Service rules 2.2.4, 2.2.5."""
    return tuple(
        _resolve_input(connection, account, url, name=f"inputs[{index}].url", now_ms=now_ms)
        for index, url in enumerate(urls)
    )


def _resolve_input(connection: sqlite3.Connection, account: str, url: str, *, name: str, now_ms: int) -> str:
    if not url.startswith(ASSET_URL):
        raise ApiError(422, "external_url_not_allowed", f"{name} must be a URL returned by the upload flow")
    owner, _, asset_id = url.removeprefix(ASSET_URL).partition("/")
    asset = find_asset(connection, asset_id)
    if asset is None or not account == owner == asset.account:
        raise ApiError(422, "asset_not_found", f"{name} is not an asset of this account")
    if asset.is_purged or now_ms >= asset.expires_at_ms:
        raise ApiError(422, "asset_expired", f"{name} has expired; upload the image again")
    if asset.state != "ready":
        raise ApiError(422, "asset_not_ready", f"{name} is not ready; complete its upload first")
    return asset.id


def find_expired_assets(
    connection: sqlite3.Connection, *, expired_before_ms: int, abandoned_before_ms: int, limit: int, skipped: int = 0
) -> list[str]:
    """Return a batch of assets whose files are to be deleted: expired ones and abandoned uploads.

    Inputs of generations that are not rendered yet are kept. The first `skipped` are left out.
    """
    rows = connection.execute(
        _SQL["expired_assets"], (expired_before_ms, abandoned_before_ms, limit, skipped)
    ).fetchall()
    return [row["id"] for row in rows]


def mark_assets_purged(connection: sqlite3.Connection, asset_ids: Iterable[str]) -> None:
    """Record that the files of these assets are deleted."""
    connection.executemany(_SQL["mark_assets_purged"], [(each,) for each in asset_ids])


def kept_assets(connection: sqlite3.Connection) -> set[str]:
    """Return the ids of all assets whose files exist or may still arrive."""
    return {row["id"] for row in connection.execute(_SQL["kept_assets"])}


def first_asset_ends(connection: sqlite3.Connection) -> tuple[int | None, int | None]:
    """Return the earliest expiry of a kept asset, and of the upload link of an incomplete one."""
    kept = connection.execute(_SQL["first_expiry"]).fetchone()
    incomplete = connection.execute(_SQL["first_link_expiry"]).fetchone()
    return kept["first"], incomplete["first"]


class AssetLocks:
    """The locks of assets. A lock exists while a task holds it or waits for it."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def held(self, asset_ids: Iterable[str]) -> AsyncIterator[None]:
        """Hold the locks of all assets; they are acquired in a fixed order, which prevents deadlocks."""
        locks = [self._locks.setdefault(asset_id, asyncio.Lock()) for asset_id in sorted(set(asset_ids))]
        async with AsyncExitStack() as stack:
            for lock in locks:
                await stack.enter_async_context(lock)
            yield
