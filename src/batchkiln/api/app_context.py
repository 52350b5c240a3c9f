"""The context of every command: queue, configuration and environment."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from batchkiln.clock import machine_now, machine_suspended
from batchkiln.config import Config
from batchkiln.core.rate_limits import Limits
from batchkiln.outputs import FileSystem, RealFiles

if TYPE_CHECKING:
    from aiohttp import BaseConnector

_KEPT_MINUTES: Final = 5.0
"""Number of limit minutes that the request log covers: more than a sliding minute plus one request's duration."""


def kept_seconds(limits: Limits) -> float:
    """Return how long the queue's request log keeps a request under these limits, in seconds."""
    return _KEPT_MINUTES * limits.minute_seconds


def _new_connector() -> "BaseConnector":
    from batchkiln.client import new_connector  # noqa: PLC0415  slow to import, and only who sends needs it

    return new_connector()


@dataclass(frozen=True, slots=True)
class Environment:
    """The environment that a simulation can replace: wall clock, network and disk."""

    wall: Callable[[], datetime] = machine_now
    connector: "Callable[[], BaseConnector]" = _new_connector
    files: Callable[[], FileSystem] = RealFiles
    suspended: Callable[[], float] | None = machine_suspended
    seed: int | None = None  # seed of the random delays between retries


@dataclass(frozen=True, slots=True)
class AppContext:
    """The context of every command.

    `profile` is --profile, which overrides a manifest's own. `output_root`, used by rehearsals, replaces the manifests'
    output folders; it gets a folder for each job.
    """

    queue: Path
    config: Config
    profile: str | None = None
    working_dir: Path = field(default_factory=Path.cwd)
    surroundings: Environment = field(default_factory=Environment)
    output_root: Path | None = None
