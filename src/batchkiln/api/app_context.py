"""The context of every command: the queue, the configuration, and the machine's clock, network and disk."""

import os
import socket
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

from batchkiln.clock import boottime_seconds, machine_now, machine_suspended
from batchkiln.config import Config
from batchkiln.core.rate_limits import Limits
from batchkiln.core.urls import is_url
from batchkiln.object_storage import ObjectFolder, configure as configure_storage
from batchkiln.outputs import FileSystem, OutputFiles, StagedObjects
from batchkiln.store import DatabaseUrl, QueueLocation, local_path

if TYPE_CHECKING:
    from aiohttp import BaseConnector

    from batchkiln.manifest import FileAccess

_KEPT_MINUTES: Final = 5.0
"""Number of limit minutes that the request log covers: more than a sliding minute plus one request's duration."""


def kept_seconds(limits: Limits) -> float:
    """Return the seconds for which the queue's request log keeps a request under these limits."""
    return _KEPT_MINUTES * limits.minute_seconds


def _new_connector() -> "BaseConnector":
    from batchkiln.client import new_connector  # noqa: PLC0415  slow to import, and needed only to send

    return new_connector()


def outgoing_folder(queue: QueueLocation) -> Path:
    """Return the folder of this machine for complete files that are still to be sent to a URL."""
    return Path(f"{local_path(queue)}.outgoing")


class Environment(Struct, frozen=True):
    """Clock, network and disk of the machine; a simulation replaces them."""

    wall: Callable[[], datetime] = machine_now
    connector: "Callable[[], BaseConnector]" = _new_connector
    files: Callable[[], FileSystem] = FileSystem
    objects: Callable[[str], ObjectFolder] = ObjectFolder
    suspended: Callable[[], float] | None = machine_suspended
    boottime: Callable[[], float] = boottime_seconds  # for leases
    seed: int | None = None  # seed of the random delays between retries


class ManifestStep(Struct, frozen=True):
    """A step in reading a manifest, or in storing its new items.

    `items` are those so far. `phase` is the file that is read, or empty while `total` items are stored. `share` is the
    part of the file, or of the total, that is done; None if it is unknown.
    """

    items: int
    phase: str
    share: float | None
    total: int = 0

    @property
    def is_reading(self) -> bool:
        """Whether items are read, not stored."""
        return bool(self.phase)


class AppContext(Struct, frozen=True):
    """The context of a command. `profile` is --profile, which takes precedence over a manifest's profile.

    If `output_root` is set, as in a rehearsal, all files go there, in a folder per job, and not where the manifests
    say. `access` is set for manifests that another machine has sent. `on_step` is called in another thread while a
    manifest is read and stored.
    """

    queue: QueueLocation
    config: Config
    profile: str | None = None
    working_dir: Path = field(default_factory=Path.cwd)
    environment: Environment = field(default_factory=Environment)
    output_root: Path | None = None
    access: "FileAccess | None" = None
    on_step: Callable[[ManifestStep], None] = lambda _: None

    def __post_init__(self) -> None:
        """Set the configured object storage options for this process, to be read when the first URL is opened."""
        configure_storage(self.config.object_storage.read)

    @property
    def shared_dir(self) -> Path | str | None:
        """The folder, or URL, of all results and input images, for a queue that several machines use."""
        return self.queue.shared_dir if isinstance(self.queue, DatabaseUrl) else None

    def staged_objects(self) -> StagedObjects:
        """Return the writer of complete files to URLs."""
        return StagedObjects(outgoing_folder(self.queue), self.environment.files(), self.environment.objects)

    async def check_output_dir(self, directory: str, owner: str = "") -> None:
        """Check that an output folder or URL is writable, before credits are spent. Raise `OutputDirNotWritable`."""
        outputs, objects = OutputFiles(self.environment.files(), owner=owner), self.staged_objects()
        if not is_url(directory):
            await outputs.check_writable(Path(directory))
            return
        await outputs.check_writable(objects.folder_of(directory))
        await objects.check(directory, owner or f"{socket.gethostname()}-{os.getpid()}")

    @property
    def output_base(self) -> Path | str:
        """The folder or URL against which a relative `output.dir` is resolved."""
        return self.shared_dir or self.working_dir
