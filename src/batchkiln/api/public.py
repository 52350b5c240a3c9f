# ruff: noqa: PLC0414  re-exports are marked by an alias
"""The Python interface: `open_queue`, and the modules of the other names that `import batchkiln` offers."""

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from batchkiln.api.app_context import AppContext
from batchkiln.api.apply_manifests import Applied as Applied
from batchkiln.api.queue import Queue as Queue, opened
from batchkiln.api.run import RunResult as RunResult, Until as Until
from batchkiln.config import Config, config_of, load_config, queue_path
from batchkiln.core.errors import (
    BatchkilnError as BatchkilnError,
    ExitStatus as ExitStatus,
    InputError as InputError,
    NoDriver as NoDriver,
    QueueBusy as QueueBusy,
    QueueInUse as QueueInUse,
)
from batchkiln.core.states import ItemState as ItemState
from batchkiln.logs import use_standard_logging
from batchkiln.presentation.overview import JobView as JobView, Overview as Overview
from batchkiln.store import (
    ItemDetail as ItemDetail,
    ItemSummary as ItemSummary,
    LoggedEvent as LoggedEvent,
    QueueLocation,
    parse_location,
)


@asynccontextmanager
async def open_queue(
    path: str | os.PathLike[str],
    *,
    config: Config | Mapping[str, object] | str | os.PathLike[str] | None = None,
    profile: str | None = None,
    working_dir: str | os.PathLike[str] | None = None,
) -> AsyncIterator[Queue]:
    """Open a queue; create it if it does not exist.

    `config` is a configuration file or its content; without it, the rules of the commands apply. `profile` takes
    precedence over a manifest's profile. Outputs and inputs are relative to `working_dir`, by default the current
    folder.

    Raise `InputError` for an invalid configuration, and `QueueUnusable` or `QueueBusy` if the queue cannot be opened.
    """
    use_standard_logging()
    app = AppContext(
        queue=_location(path),
        config=_config(config),
        profile=profile,
        working_dir=Path(working_dir or ".").absolute(),
    )
    if profile is not None:
        app.config.profile(profile)
    async with opened(app) as queue:
        yield queue


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
