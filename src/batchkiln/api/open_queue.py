"""Opening a queue from a Python program.

Cancelling a program at any moment is as safe as killing it: the next run continues from what is on disk. Leaving
`open_queue` otherwise stops a run as the first Ctrl-C does: work in progress is finished and recorded.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from batchkiln.api.app_context import AppContext
from batchkiln.api.queue import Queue
from batchkiln.config import Config, config_of, load_config, queue_path
from batchkiln.logs import use_standard_logging
from batchkiln.store import QueueLocation, Store, parse_location


@asynccontextmanager
async def open_queue(
    path: str | os.PathLike[str],
    *,
    config: Config | Mapping[str, object] | str | os.PathLike[str] | None = None,
    profile: str | None = None,
    working_dir: str | os.PathLike[str] | None = None,
) -> AsyncIterator[Queue]:
    """Open a queue: a file, which is made if it is not there, or a database by its URL `postgresql://…`.

    `config` is a configuration file or its content; without it, the command's own rules find one. `profile` wins
    over a manifest's. Outputs and inputs are relative to `working_dir`, the current folder unless it is given.
    Raise `InputError` for a wrong configuration, `QueueUnusable` and `QueueBusy` for a file that cannot serve.
    """
    use_standard_logging()
    setting = AppContext(
        queue=_location(path),
        config=_config(config),
        profile=profile,
        working_dir=Path(working_dir or ".").absolute(),
    )
    if profile is not None:
        setting.config.profile(profile)
    async with opened(setting) as queue:
        yield queue


@asynccontextmanager
async def opened(setting: AppContext) -> AsyncIterator[Queue]:
    """Open the queue of a context; see `open_queue`."""
    store = await Store.open_for_writing(setting.queue)
    try:
        reader = await Store.open_for_reading(setting.queue)
        try:
            queue = Queue(store, reader, setting)
            try:
                yield queue
            except asyncio.CancelledError:
                await queue.abandon()
                raise
            except BaseException:
                with suppress(Exception):  # the caller's own error must be raised
                    await queue.close()
                raise
            await queue.close()
        finally:
            await reader.close()
    finally:
        await store.close()


def _location(path: str | os.PathLike[str]) -> QueueLocation:
    location = parse_location(path) if isinstance(path, str) else Path(path)
    return queue_path(location) if isinstance(location, Path) else location


def _config(given: Config | Mapping[str, object] | str | os.PathLike[str] | None) -> Config:
    match given:
        case Config():
            return given
        case Mapping():
            return config_of(given)
        case None:
            named = os.environ.get("BATCHKILN_CONFIG")
            return load_config(Path(named) if named else None, os.environ)
        case _:
            return load_config(Path(given), os.environ)
