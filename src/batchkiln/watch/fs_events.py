"""News of a folder from the system (inotify and its like), where `watchfiles` is installed and the system has any."""

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import structlog

from batchkiln.watch.folder import ENDINGS
from batchkiln.watch.watcher import Watcher

log = structlog.get_logger()

LOOK_EVERY_SECONDS: Final = 60.0
"""With news: file systems of other machines have none, and the system drops some when there are too many."""

_DEBOUNCE_MS: Final = 200
_TIMEOUT_MS: Final = 5_000


async def watch_events(watcher: Watcher) -> None:
    """Wake the watcher when its folder changes, until cancelled; without news it goes on looking by itself."""
    if find_spec("watchfiles") is None:
        log.info("folder_is_polled", duration_seconds=watcher.look_every_seconds, remedy="batchkiln[watch]")
        return
    watchfiles = import_module("watchfiles")  # an extra, and slow to import
    often = watcher.look_every_seconds
    try:
        async for changes in watchfiles.awatch(
            watcher.folder,
            watch_filter=lambda _, path: Path(path).suffix in ENDINGS,
            debounce=_DEBOUNCE_MS,
            rust_timeout=_TIMEOUT_MS,
            yield_on_timeout=True,
            recursive=False,
        ):
            # Only now the system is known to watch: what came before was found by looking often.
            is_first, watcher.look_every_seconds = watcher.look_every_seconds == often, LOOK_EVERY_SECONDS
            if changes or is_first:
                watcher.wake.set()
    except (OSError, RuntimeError) as error:
        watcher.look_every_seconds = often
        log.warning("folder_is_polled", reason=type(error).__name__, duration_seconds=often)
        watcher.wake.set()
