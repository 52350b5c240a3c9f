"""Uploaded images in the books: prepared, uploaded, ready; Service section 2.3 and 4, upload flow."""

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from batchkiln.service.books.credits import add_usage, may_use, usage_of
from batchkiln.service.config import Limits
from batchkiln.service.errors import ApiError
from batchkiln.service.rules.validation import invalid
from batchkiln.service.rules.windows import Calendar

# A made-up host: stored request bodies stay valid whatever port the service has after a restart.
ASSET_URL = "https://assets.batchkiln.invalid/"
MAX_FILES = 5
MAX_FILE_BYTES = 30 * 1024 * 1024
CONTENT_TYPES = ("image/jpeg", "image/png", "image/webp")
MAX_NAME_CHARACTERS = 255


@dataclass(frozen=True, slots=True)
class FileToUpload:
    """One entry of POST /uploads."""

    name: str
    content_type: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Asset:
    """An uploaded image, or one that is still to come."""

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

    @property
    def url(self) -> str:
        """What generation inputs name it by."""
        return f"{ASSET_URL}{self.account}/{self.id}"


def check_files(body: object) -> list[FileToUpload]:
    """Read the body of POST /uploads. Raises ApiError 422."""
    files = _only_list(body, "files")
    if not 1 <= len(files) <= MAX_FILES:
        raise invalid(f"files has {len(files)} entries; allowed: 1 to {MAX_FILES}")
    return [_file(entry, f"files[{index}]") for index, entry in enumerate(files)]


def check_asset_ids(body: object) -> list[str]:
    """Read the body of POST /uploads/complete. Raises ApiError 422."""
    ids = _only_list(body, "asset_ids")
    if not 1 <= len(ids) <= MAX_FILES or not all(isinstance(entry, str) for entry in ids):
        raise invalid(f"asset_ids must be 1 to {MAX_FILES} asset identifiers")
    return [str(entry) for entry in ids]


def _only_list(body: object, field: str) -> list[object]:
    if not isinstance(body, dict) or not isinstance(body.get(field), list):
        raise invalid(f"{field} is required, an array")
    if unknown := sorted(set(body) - {field}):
        raise invalid(f"unknown field {unknown[0]!r}; allowed: {field}")
    entries: list[object] = body[field]
    return entries


def _file(entry: object, where: str) -> FileToUpload:
    if not isinstance(entry, dict) or set(entry) != {"name", "type", "size"}:
        raise invalid(f"{where} must have exactly the fields name, type and size")
    name, content_type, size = entry["name"], entry["type"], entry["size"]
    if not isinstance(name, str) or not 1 <= len(name) <= MAX_NAME_CHARACTERS:
        raise invalid(f"{where}.name must be text of 1 to {MAX_NAME_CHARACTERS} characters")
    if content_type not in CONTENT_TYPES:
        raise invalid(f"{where}.type must be one of {', '.join(CONTENT_TYPES)}")
    if not isinstance(size, int) or isinstance(size, bool) or not 1 <= size <= MAX_FILE_BYTES:
        raise invalid(f"{where}.size must be an integer of 1 to {MAX_FILE_BYTES} bytes")
    return FileToUpload(name, content_type, size)


class AssetBooks:
    """The rules of uploads that need the account's limits and days."""

    def __init__(self, limits: Limits, calendar: Calendar) -> None:
        self._limits = limits
        self._calendar = calendar

    def prepare(
        self,
        connection: sqlite3.Connection,
        account: str,
        files: Sequence[FileToUpload],
        *,
        new_id: Callable[[], str],
        now_ms: int,
        expires_at_ms: int,
        link_expires_at_ms: int,
    ) -> list[Asset]:
        """Enter files to come; they count towards the day's budget from here on. Service section 8."""
        if not may_use(connection, account):
            raise ApiError(403, "credits_required", "uploads need a subscription or remaining purchased credits")
        day = self._calendar.day_of(now_ms)
        size = sum(file.size_bytes for file in files)
        self._check_day(connection, account, files=len(files), size_bytes=size, now_ms=now_ms)
        add_usage(connection, account, day, upload_files=len(files), upload_bytes=size)
        assets = [
            Asset(
                id=new_id(),
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
            for file in files
        ]
        for asset in assets:
            connection.execute(
                "INSERT INTO assets (id, account, name, content_type, size_bytes, state, expires_at_ms,"
                " link_expires_at_ms) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
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
    row = connection.execute("SELECT * FROM assets WHERE id = ?", (asset_id,)).fetchone()
    return Asset(**{name: row[name] for name in Asset.__dataclass_fields__}) if row else None


def mark_uploaded(connection: sqlite3.Connection, asset_id: str) -> None:
    """Remember that the bytes of an asset have arrived whole."""
    connection.execute("UPDATE assets SET state = 'uploaded' WHERE id = ? AND state = 'prepared'", (asset_id,))


def mark_ready(connection: sqlite3.Connection, asset_id: str, size_pixels: tuple[int, int]) -> None:
    """Remember that an asset was looked at and is an image of that size."""
    connection.execute(
        "UPDATE assets SET state = 'ready', width = ?, height = ? WHERE id = ?", (*size_pixels, asset_id)
    )


def own_assets(connection: sqlite3.Connection, account: str, asset_ids: Sequence[str]) -> list[Asset]:
    """Return an account's assets. Raises ApiError when one is missing or was never uploaded."""
    assets = []
    for asset_id in asset_ids:
        asset = find_asset(connection, asset_id)
        if asset is None or asset.account != account:
            raise ApiError(404, "asset_not_found", f"asset {asset_id!r} is not known to this account")
        if asset.state == "prepared":
            raise ApiError(422, "asset_not_ready", f"asset {asset_id!r} was not uploaded yet")
        assets.append(asset)
    return assets


def resolve_inputs(
    connection: sqlite3.Connection, account: str, urls: Sequence[str], *, now_ms: int
) -> tuple[str, ...]:
    """Return the asset ids behind input URLs: own, ready, not expired. Service rules 2.2.4 and 2.2.5."""
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
    if now_ms >= asset.expires_at_ms:
        raise ApiError(422, "asset_expired", f"{name} has expired; upload the image again")
    if asset.state != "ready":
        raise ApiError(422, "asset_not_ready", f"{name} is not ready; complete its upload first")
    return asset.id
