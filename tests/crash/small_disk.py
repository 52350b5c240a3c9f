"""A file system of a few MiB that is filled and emptied at will: a tmpfs in a mount namespace of its own."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

# As root, and as anybody else where the kernel lets users have namespaces.
_WAYS: Final[tuple[tuple[str, ...], ...]] = ((), ("--user", "--map-root-user"))
_MOUNT: Final = 'mount -t tmpfs -o size="$1" small-disk "$0" && echo ready && exec cat'
_ENTER: Final = 'cd "$0" && exec "$@"'
_CHUNK: Final = bytes(64 * 1024)


class NoNamespaces(Exception):
    """This machine lets nobody mount anything, or not here."""


@dataclass(frozen=True)
class SmallDisk:
    """The disk at `folder`, for those who come in by `entrance`. The process `holder` keeps it mounted."""

    folder: Path
    holder: int
    is_of_user: bool

    def entrance(self, working_folder: Path) -> list[str]:
        """Return what a command is preceded by in order to see the disk; the process keeps its id."""
        way = ("--user", "--preserve-credentials") if self.is_of_user else ()
        return ["nsenter", *way, "--mount", "--target", str(self.holder), "sh", "-c", _ENTER, str(working_folder)]

    def seen(self, path: Path) -> Path:
        """Return where a process outside finds what those inside find at `path`."""
        return Path(f"/proc/{self.holder}/root{path.absolute()}")

    def fill(self, *, left_bytes: int = 0) -> None:
        """Take all room but about `left_bytes`; a page is the least that can be had."""
        with self._ballast.open("ab", buffering=0) as stream:
            with contextlib.suppress(OSError):
                while stream.write(_CHUNK):
                    pass
            stream.truncate(max(0, stream.tell() - left_bytes))

    def make_room(self) -> None:
        """Give back what `fill` has taken."""
        self._ballast.unlink()

    @property
    def _ballast(self) -> Path:
        return self.seen(self.folder) / "ballast"


@contextlib.contextmanager
def small_disk(folder: Path, *, size_mib: int) -> Iterator[SmallDisk]:
    """Mount an empty disk at `folder`, and let it vanish afterwards. Raises `NoNamespaces`."""
    folder.mkdir(parents=True, exist_ok=True)
    refusals = []
    for way in _WAYS:
        holder = subprocess.Popen(
            ["unshare", *way, "--mount", "sh", "-c", _MOUNT, str(folder), f"{size_mib}m"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert holder.stdin is not None
        assert holder.stdout is not None
        try:
            if holder.stdout.readline() == b"ready\n":
                yield SmallDisk(folder, holder.pid, is_of_user=bool(way))
                return
        finally:
            _, said = holder.communicate()  # the end of its input ends it, and its namespace with it
        refusals.append(f"{' '.join(['unshare', *way])}: {os.fsdecode(said).strip()}")
    raise NoNamespaces("; ".join(refusals))
