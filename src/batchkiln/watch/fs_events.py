"""Wakes the watcher by file system events (inotify and the like), where `watchfiles` is installed."""

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import structlog

from batchkiln.watch.folder import SUFFIXES
from batchkiln.watch.watcher import Watcher

log = structlog.get_logger()

FALLBACK_POLL_SECONDS: Final = 60.0
"""Poll interval while events arrive: network file systems send none, and the system drops some under load."""

_DEBOUNCE_MS: Final = 200
_TIMEOUT_MS: Final = 5_000


async def watch_events(watcher: Watcher) -> None:
    """Wake the watcher whenever its folder changes, until cancelled. Without events, the watcher polls."""
    if find_spec("watchfiles") is None:
        log.info("folder_is_polled", duration_seconds=watcher.poll_seconds, remedy="batchkiln[watch]")
        return
    watchfiles = import_module("watchfiles")  # an optional extra, and slow to import
    poll_seconds = watcher.poll_seconds
    try:
        async for changes in watchfiles.awatch(
            watcher.folder,
            watch_filter=lambda _, path: Path(path).suffix in SUFFIXES,
            debounce=_DEBOUNCE_MS,
            rust_timeout=_TIMEOUT_MS,
            yield_on_timeout=True,
            recursive=False,
        ):
            # Events are known to work only from here on; polling has found all earlier changes.
            is_first, watcher.poll_seconds = watcher.poll_seconds == poll_seconds, FALLBACK_POLL_SECONDS
            if changes or is_first:
                watcher.wake.set()
    except (OSError, RuntimeError) as error:
        watcher.poll_seconds = poll_seconds
        log.warning("folder_is_polled", reason=type(error).__name__, duration_seconds=poll_seconds)
        watcher.wake.set()
