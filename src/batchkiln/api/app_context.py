"""The context of every command: the queue, the configuration, and what comes from the machine."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from batchkiln.clock import boottime_seconds, machine_now, machine_suspended
from batchkiln.config import Config
from batchkiln.core.rate_limits import Limits
from batchkiln.outputs import FileSystem
from batchkiln.store import DatabaseUrl, QueueLocation

if TYPE_CHECKING:
    from aiohttp import BaseConnector

    from batchkiln.manifest import FileAccess

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
    """Clock, network and disk of the machine; a simulation replaces them."""

    wall: Callable[[], datetime] = machine_now
    connector: "Callable[[], BaseConnector]" = _new_connector
    files: Callable[[], FileSystem] = FileSystem
    suspended: Callable[[], float] | None = machine_suspended
    boottime: Callable[[], float] = boottime_seconds  # for leases
    seed: int | None = None  # seed of the random delays between retries


@dataclass(frozen=True, slots=True)
class AppContext:
    """The context of a command. `profile` is --profile, which takes precedence over a manifest's profile.

    If `output_root` is set, as in a rehearsal, all files go there, in a folder per job, and not where the manifests
    say. `access` is set for manifests that another machine has sent.
    """

    queue: QueueLocation
    config: Config
    profile: str | None = None
    working_dir: Path = field(default_factory=Path.cwd)
    environment: Environment = field(default_factory=Environment)
    output_root: Path | None = None
    access: "FileAccess | None" = None

    @property
    def shared_dir(self) -> Path | None:
        """The folder of all results and input images, for a queue that several machines use."""
        return self.queue.shared_dir if isinstance(self.queue, DatabaseUrl) else None

    @property
    def output_base(self) -> Path:
        """The folder that a relative `output.dir` is below."""
        return self.shared_dir or self.working_dir
