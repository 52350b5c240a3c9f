"""Deletes expired files and marks their rows. Service section 2.1.

The task sleeps on the service's clock until something is due. A file is deleted before its row is marked: after a
crash in between, the file is deleted again without effect, and no file is left without a row. A file that cannot
be deleted is tried again later and does not delay others.
"""

import asyncio
import logging
import re
import sqlite3
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import Final, Self, TypeVar

from msgspec import Struct

from batchkiln_service.clock import ServiceClock
from batchkiln_service.config import ServiceConfig
from batchkiln_service.db.assets import AssetLocks, find_expired_assets, first_asset_ends, mark_assets_purged
from batchkiln_service.db.database import Database
from batchkiln_service.db.generations import PURGE_BATCH, find_expired_files, first_end_kept, mark_purged, settle_unseen
from batchkiln_service.media.renderer import is_shared

Result = TypeVar("Result")
_log = logging.getLogger(__name__)
# How long an abandoned upload is kept after its link expires: the client may still complete it.
ABANDONED_AFTER_SECONDS: Final = 86_400.0
# The delay before another try for files that could not be deleted or are still needed for rendering.
PAUSE_SECONDS: Final = 60.0
# File names of outputs, assets, shared small files, and their temporary files.
_OURS: Final = re.compile(r"(?:gen|ast)_[0-9a-f]{24}(?:\..+)?|instant\..+\.part")


class Retention(Struct, frozen=True):
    """Retention periods in ms: of media from the end of their generation, of incomplete uploads from their link.

    `shortest_ms` is a lower bound on the time until a file that does not exist yet expires.
    """

    media_ms: int
    abandoned_ms: int
    shortest_ms: int

    @classmethod
    def of(cls, config: ServiceConfig) -> Self:
        """Return the periods of a configuration."""
        abandoned_seconds = ABANDONED_AFTER_SECONDS
        shortest_seconds = min(
            config.media_retention_seconds,
            config.asset_retention_seconds,
            config.upload_link_seconds + abandoned_seconds,
        )
        return cls(
            media_ms=round(config.media_retention_seconds * 1000),
            abandoned_ms=round(abandoned_seconds * 1000),
            shortest_ms=round(shortest_seconds * 1000),
        )


class RetentionSweeper:
    """Deletes expired media, expired assets and abandoned uploads, in one task that runs as long as the service."""

    def __init__(
        self,
        *,
        database: Database,
        clock: ServiceClock,
        retention: Retention,
        media_dir: Path,
        asset_dir: Path,
        asset_locks: AssetLocks,
    ) -> None:
        self._database = database
        self._clock = clock
        self._retention = retention
        self._media_dir = media_dir
        self._asset_dir = asset_dir
        self._asset_locks = asset_locks
        self._rests_until_ms: int | None = None
        self._turn = asyncio.Condition()

    async def run(self) -> None:
        """Delete everything that is due and sleep, until cancelled. Errors are logged, and the deletion is repeated."""
        while True:
            now_ms = self._clock.now_ms()
            try:
                await self._delete_due(now_ms)
                due_at_ms = await self._due_at_ms(now_ms)
            except (OSError, sqlite3.Error):
                _log.exception("retention_failed")
                due_at_ms = now_ms
            # Do not retry at once what was already due and could not be deleted.
            rests_until_ms = due_at_ms if due_at_ms > now_ms else now_ms + round(PAUSE_SECONDS * 1000)
            async with self._turn:
                self._rests_until_ms = rests_until_ms
                self._turn.notify_all()
            await self._clock.sleep((rests_until_ms - self._clock.now_ms()) / 1000)

    async def done(self) -> None:
        """Wait until everything that has expired by the time of the call is deleted."""
        async with self._turn:
            await self._turn.wait_for(
                lambda: self._rests_until_ms is not None and self._clock.now_ms() < self._rests_until_ms
            )

    async def _delete_due(self, now_ms: int) -> None:
        """Delete everything that is due, in batches, so that requests are served in between."""
        ended_before_ms = now_ms - self._retention.media_ms
        try:
            await self._run(lambda connection: settle_unseen(connection, ended_before_ms, now_ms))
        except sqlite3.Error:
            # Deletion continues even if the database cannot be written because the disk is full.
            _log.exception("retention_failed")
        await self._purge_media(ended_before_ms)
        await self._purge_assets(now_ms)

    async def _purge_media(self, ended_before_ms: int) -> None:
        stuck = 0
        while ended := await self._run(partial(find_expired_files, ended_before_ms=ended_before_ms, skipped=stuck)):
            names = [name for _, name in ended if name is not None and not is_shared(name)]
            left = await asyncio.to_thread(_delete, self._media_dir, names)
            gone = [generation_id for generation_id, name in ended if name not in left]
            await self._run(partial(mark_purged, generation_ids=gone))
            stuck += len(ended) - len(gone)

    async def _purge_assets(self, now_ms: int) -> None:
        stuck = 0
        while found := await self._run(partial(self._expired_assets, now_ms=now_ms, skipped=stuck)):
            # The locks keep a client from completing or replacing an upload while it is deleted.
            async with self._asset_locks.held(found):
                still = await self._run(partial(self._expired_assets, now_ms=now_ms, skipped=stuck))
                due = [asset_id for asset_id in found if asset_id in still]
                left = await asyncio.to_thread(_delete, self._asset_dir, due)
                await self._run(partial(mark_assets_purged, asset_ids=[each for each in due if each not in left]))
            stuck += len(left)

    def _expired_assets(self, connection: sqlite3.Connection, *, now_ms: int, skipped: int) -> list[str]:
        return find_expired_assets(
            connection,
            expired_before_ms=now_ms,
            abandoned_before_ms=now_ms - self._retention.abandoned_ms,
            limit=PURGE_BATCH,
            skipped=skipped,
        )

    async def _due_at_ms(self, now_ms: int) -> int:
        """Return the instant in milliseconds at which something may be due next."""

        def first(connection: sqlite3.Connection) -> list[int]:
            end = first_end_kept(connection)
            expiry, link = first_asset_ends(connection)
            due = [
                None if end is None else end + self._retention.media_ms,
                expiry,
                None if link is None else link + self._retention.abandoned_ms,
            ]
            return [at_ms for at_ms in due if at_ms is not None]

        return min([now_ms + self._retention.shortest_ms, *await self._run(first)])

    async def _run(self, job: Callable[[sqlite3.Connection], Result]) -> Result:
        return await self._database.run(job)


async def ended(task: "asyncio.Task[None]") -> None:
    """Cancel the task and wait for its end."""
    task.cancel()
    await asyncio.wait([task])


def delete_strays(folder: Path, kept: Collection[str]) -> None:
    """Delete temporary files and files without a row, left by a crash. Call it before anything writes to the folder.

    Only files with names that the service gives are deleted, because the folder may contain others.
    """
    _delete(folder, [path.name for path in folder.iterdir() if _OURS.fullmatch(path.name) and path.name not in kept])


def delete_finished(folder: Path) -> None:
    """Delete the files of outputs and assets. Temporary files stay, because their writers delete them."""
    names = [path.name for path in folder.iterdir()]
    _delete(folder, [name for name in names if _OURS.fullmatch(name) and not name.endswith(".part")])


def _delete(folder: Path, names: Collection[str]) -> set[str]:
    """Delete files, if they exist; log and return the names of those that cannot be deleted."""
    left = set()
    for name in names:
        try:
            (folder / name).unlink(missing_ok=True)
        except OSError:
            _log.exception("retention_failed", extra={"file": name})
            left.add(name)
    return left
