# ruff: noqa: PLC0414  re-exports are marked by an alias
"""Functions that open a queue, and the modules of all other names that `import batchkiln` offers."""

import os
from collections.abc import Generator, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from types import FunctionType, TracebackType
from typing import TYPE_CHECKING, Final, NoReturn

import batchkiln
from batchkiln.api.app_context import AppContext
from batchkiln.api.apply_manifests import Applied as Applied
from batchkiln.api.changes import FetchReport as FetchReport
from batchkiln.api.queue import opened_as
from batchkiln.api.run import RunResult as RunResult, Until as Until
from batchkiln.config import Config, config_of, load_config, queue_path
from batchkiln.core.errors import (
    BatchkilnError as BatchkilnError,
    ExitStatus as ExitStatus,
    InputError as InputError,
    NoDriver as NoDriver,
    QueueBusy as QueueBusy,
    QueueInUse as QueueInUse,
    QueueUnusable as QueueUnusable,
)
from batchkiln.core.job import Verdict as Verdict
from batchkiln.core.states import ItemState as ItemState
from batchkiln.exports import ExportResult as ExportResult
from batchkiln.logs import use_standard_logging
from batchkiln.manifest.typed_fields import (
    Budget as Budget,
    Defaults as Defaults,
    Item as Item,
    Manifest as Manifest,
    MatrixItems as MatrixItems,
    Output as Output,
    Parameters as Parameters,
    TableItems as TableItems,
)
from batchkiln.planning.plan import JobPlan as JobPlan, Plan as Plan
from batchkiln.presentation import python_words
from batchkiln.presentation.overview import JobView as JobView, Overview as Overview
from batchkiln.python.async_queue import Queue as Queue
from batchkiln.python.sync_queue import SyncQueue as SyncQueue
from batchkiln.python.words import in_python_words
from batchkiln.rehearsal.simulation import RehearsalResult as RehearsalResult
from batchkiln.reports.report_writer import WrittenReport as WrittenReport
from batchkiln.store import (
    ApplyReport as ApplyReport,
    AskedAgain as AskedAgain,
    CancelReport as CancelReport,
    Decided as Decided,
    Decision as Decision,
    Filter as Filter,
    ItemDetail as ItemDetail,
    ItemSummary as ItemSummary,
    JobSummary as JobSummary,
    LoggedEvent as LoggedEvent,
    OutputSummary as OutputSummary,
    QueueLocation,
    RedoReport as RedoReport,
    Resolved as Resolved,
    RetryReport as RetryReport,
    ReviewReport as ReviewReport,
    ReviewStep as ReviewStep,
    Skipped as Skipped,
    hide_passwords,
    parse_location,
)

AnyConfig = Config | Mapping[str, object] | str | os.PathLike[str] | None


_HOW_TO_OPEN: Final = (
    "write `async with batchkiln.open_queue(…) as queue:`, or, without asyncio, `queue = batchkiln.open_queue_sync(…)`"
)


class OpeningQueue(AbstractAsyncContextManager[Queue]):
    """The result of `open_queue`. `async with` opens the queue."""

    def __init__(self, app: AppContext) -> None:
        """Use `open_queue` instead."""
        self._app = app
        self._opened = opened_as(app, Queue)

    def __repr__(self) -> str:
        """Return that the queue is not open yet, and its place without a password."""
        return f"<{type(self).__name__} {hide_passwords(str(self._app.queue))}, opened by `async with`>"

    async def __aenter__(self) -> Queue:
        with in_python_words():
            return await self._opened.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        with in_python_words():
            return await self._opened.__aexit__(kind, error, trace)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            """Raise an `AttributeError` that says how to open the queue."""
            raise AttributeError(f"no {name} before the queue is open: {_HOW_TO_OPEN}")

        def __await__(self) -> Generator[None, None, NoReturn]:
            """Raise a `TypeError` that says how to open the queue."""
            raise TypeError(f"`open_queue` is not awaited: {_HOW_TO_OPEN}")

        def __enter__(self) -> NoReturn:
            """Raise a `TypeError` that says how to open the queue."""
            raise TypeError(f"`with` does not open this queue: {_HOW_TO_OPEN}")

        def __exit__(self, *_: object) -> None:
            """Only there so that `with` asks `__enter__`."""


@in_python_words()
def open_queue(
    path: str | os.PathLike[str],
    *,
    config: AnyConfig = None,
    profile: str | None = None,
    working_dir: str | os.PathLike[str] | None = None,
) -> OpeningQueue:
    """Return a context manager for `async with` that opens a queue, and creates it if it does not exist.

    The folder of a new queue is made, if the folder around it is there. `config` is a configuration file or its
    content; without it, the rules of the commands apply. `profile` takes precedence over a manifest's profile. Outputs
    and inputs are relative to `working_dir`, by default the current folder.

    Raise `InputError` for an invalid configuration or place, and `QueueUnusable` or `QueueBusy` if the queue cannot be
    opened.
    """
    use_standard_logging(python_words.in_python_words)
    location = _location(path)
    if isinstance(location, Path) and not location.absolute().parent.parent.is_dir():  # one new folder is made
        folder = location.absolute().parent.parent
        raise InputError(f"{location}: there is no folder {folder}; nothing was made. Make it, or correct the path")
    app = AppContext(
        queue=location,
        config=_config(config),
        profile=profile,
        working_dir=Path(working_dir or ".").absolute(),
    )
    if profile is not None:
        if not isinstance(profile, str):
            raise InputError(f"profile must be the name of one, not {type(profile).__name__}; nothing was made")
        app.config.profile(profile)
    return OpeningQueue(app)


def open_queue_sync(
    path: str | os.PathLike[str],
    *,
    config: AnyConfig = None,
    profile: str | None = None,
    working_dir: str | os.PathLike[str] | None = None,
) -> SyncQueue:
    """Open a queue for a script or a notebook without asyncio, with the arguments and errors of `open_queue`.

    Close it by its `close`, or use it in a `with` statement.
    """
    return SyncQueue(open_queue(path, config=config, profile=profile, working_dir=working_dir))


def _location(path: str | os.PathLike[str]) -> QueueLocation:
    if not isinstance(path, str | os.PathLike):
        raise InputError(f"a queue is a path, or the URL of a database, not {type(path).__name__}; nothing was made")
    location = parse_location(path) if isinstance(path, str) else Path(path)
    return queue_path(location) if isinstance(location, Path) else location


def _config(given: AnyConfig) -> Config:
    match given:
        case Config():
            return given
        case Mapping():
            return config_of(given)
        case None:
            named = os.environ.get("BATCHKILN_CONFIG")
            return load_config(Path(named) if named else None, os.environ)
        case str() | os.PathLike():
            return load_config(Path(given), os.environ)
        case _:
            raise InputError(f"config must be a path or a mapping, not {type(given).__name__}; nothing was made")


def _name_as_documented() -> None:
    """Let `repr`, tracebacks and `help` name public classes and functions as a program writes them."""
    for name in batchkiln.__all__:
        public = globals().get(name)
        if isinstance(public, type | FunctionType):
            public.__module__ = "batchkiln"


_name_as_documented()
