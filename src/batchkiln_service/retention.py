"""What nobody asks for and has to be done all the same: deleting what is kept no longer. Service section 2.1.

It sleeps on the service's clock until something is due. Files go before the books say so: a crash in between leaves a
row whose file is deleted once more, which does no harm, and never a file that no row knows. What cannot be deleted is
tried again later, and keeps nothing else from being deleted.
"""

import asyncio
import logging
import re
import sqlite3
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Self, TypeVar

from batchkiln_service.clock import ServiceClock
from batchkiln_service.config import ServiceConfig
from batchkiln_service.db.asset_locks import AssetLocks
from batchkiln_service.db.assets import find_expired_assets, first_asset_ends, mark_assets_purged
from batchkiln_service.db.database import Database
from batchkiln_service.db.generations import (
    PURGE_BATCH,
    find_expired_files,
    first_end_kept,
    mark_purged,
    settle_unseen,
)
from batchkiln_service.media.renderer import is_shared

Result = TypeVar("Result")
_log = logging.getLogger(__name__)
# How long after its link an upload that was never completed is kept: a client may come back to complete it.
ABANDONED_AFTER_SECONDS: Final = 86_400.0
# When to look again at what could not be deleted, or is still being drawn from.
PAUSE_SECONDS: Final = 60.0
# A generation's file, an asset, and what is half written of either or of the shared small files.
_OURS: Final = re.compile(r"(?:gen|ast)_[0-9a-f]{24}(?:\..+)?|instant\..+\.part")


@dataclass(frozen=True, slots=True)
class Retention:
    """How long things are kept, in milliseconds: media after their end, an incomplete upload after its link died.

    `shortest_ms` bounds how soon something that does not exist yet can be due.
    """

    media_ms: int
    abandoned_ms: int
    shortest_ms: int

    @classmethod
    def of(cls, config: ServiceConfig) -> Self:
        """Take it from the configuration."""
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
    """Deletes expired media, expired assets and abandoned uploads; one task, for as long as the service runs."""

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
        """Work and rest, for ever. An accident is logged, and tried again later."""
        while True:
            now_ms = self._clock.now_ms()
            try:
                await self._tidy(now_ms)
                due_at_ms = await self._due_at_ms(now_ms)
            except (OSError, sqlite3.Error):
                _log.exception("housekeeping_failed")
                due_at_ms = now_ms
            # It never turns in circles: what was due already could not be done now.
            rests_until_ms = due_at_ms if due_at_ms > now_ms else now_ms + round(PAUSE_SECONDS * 1000)
            async with self._turn:
                self._rests_until_ms = rests_until_ms
                self._turn.notify_all()
            await self._clock.sleep((rests_until_ms - self._clock.now_ms()) / 1000)

    async def done(self) -> None:
        """Wait until nothing is left to do at the present instant of service time."""
        async with self._turn:
            await self._turn.wait_for(
                lambda: self._rests_until_ms is not None and self._clock.now_ms() < self._rests_until_ms
            )

    async def _tidy(self, now_ms: int) -> None:
        """Delete all that is due, some at a time, so that requests get their turn in between."""
        ended_before_ms = now_ms - self._retention.media_ms
        try:
            await self._run(lambda connection: settle_unseen(connection, ended_before_ms, now_ms))
        except sqlite3.Error:
            # A disk that is too full for the books is no reason not to delete, but one more to do it.
            _log.exception("housekeeping_failed")
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
            # Who completes one of them first keeps it, and nobody puts bytes in its place once it is given up.
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
        """Return when there may be something to do again."""

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
    """End the task, and wait until it is."""
    task.cancel()
    await asyncio.wait([task])


def delete_strays(folder: Path, kept: Collection[str]) -> None:
    """Delete what a crash left: files half written, and those that the books do not know. Before anybody writes.

    Only a name that the service gives is looked at: the folder may be shared, by mistake or not.
    """
    _delete(folder, [path.name for path in folder.iterdir() if _OURS.fullmatch(path.name) and path.name not in kept])


def _delete(folder: Path, names: Collection[str]) -> set[str]:
    """Delete files, or find them gone; log and return those that cannot be deleted."""
    left = set()
    for name in names:
        try:
            (folder / name).unlink(missing_ok=True)
        except OSError:
            _log.exception("housekeeping_failed", extra={"file": name})
            left.add(name)
    return left
