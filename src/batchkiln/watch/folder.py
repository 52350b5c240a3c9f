"""Lists the manifests of the watched folder, and tracks which of them have stopped changing."""

import hashlib
import os
from collections.abc import Iterable, Mapping
from math import inf
from pathlib import Path
from typing import Final

from msgspec import Struct

MANIFEST_SUFFIXES: Final = frozenset({".yaml", ".yml"})
STABLE_SECONDS: Final = 1.0
"""A file is read after it has been unchanged for so long. Each stable version of a file gets a result."""


class FileStamp(Struct, frozen=True):
    """A file's inode, size and modification time; one of them differs after a write or replacement."""

    inode: int
    size_bytes: int
    modified_ns: int


def manifests_in(folder: Path, *, ignored: Iterable[str] = ()) -> dict[str, FileStamp]:
    """Return the manifests in a folder by name, without subfolders. Raise `OSError` if the folder cannot be read.

    Links, hidden files, `ignored` names and anything that is not a regular file are left out, so that no file outside
    the folder is ever read as a manifest.
    """
    found: dict[str, FileStamp] = {}
    skipped = set(ignored)
    with os.scandir(folder) as entries:
        for entry in entries:
            name = entry.name
            if name.startswith(".") or name in skipped or Path(name).suffix not in MANIFEST_SUFFIXES:
                continue
            try:
                if entry.is_file(follow_symlinks=False):
                    status = entry.stat(follow_symlinks=False)
                    found[name] = FileStamp(status.st_ino, status.st_size, status.st_mtime_ns)
            except FileNotFoundError:  # deleted since the folder was listed
                continue
    return found


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file's content, in hex. Raise `OSError`, also if the path is a symbolic link."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class StabilityTracker:
    """Tracks when each file last changed, and which files were handled in their present version."""

    def __init__(self, stable_seconds: float = STABLE_SECONDS) -> None:
        """Start with no files."""
        self._stable_seconds = stable_seconds
        self._due: dict[str, tuple[FileStamp, float]] = {}
        self._handled: dict[str, FileStamp] = {}

    def update(self, found: Mapping[str, FileStamp], now: float) -> list[str]:
        """Record a listing taken at the monotonic moment `now`, and return the names of the files that are due."""
        self._handled = {name: stamp for name, stamp in self._handled.items() if name in found}
        due: dict[str, tuple[FileStamp, float]] = {}
        for name, stamp in found.items():
            if self._handled.get(name) == stamp:
                continue
            known = self._due.get(name)
            due[name] = known if known is not None and known[0] == stamp else (stamp, now + self._stable_seconds)
        self._due = due
        return sorted(name for name, (_, at) in due.items() if at <= now)

    def mark_handled(self, name: str) -> None:
        """Record a file as handled. It is due again only after a change."""
        if name in self._due:
            self._handled[name] = self._due.pop(name)[0]

    def postpone(self, name: str, until: float) -> None:
        """Make a file due again at the monotonic moment `until`, even if it does not change."""
        if name in self._due:
            self._due[name] = (self._due[name][0], until)

    @property
    def next_due_at(self) -> float:
        """The earliest monotonic moment at which a file may be due; infinite if none is pending."""
        return min((at for _, at in self._due.values()), default=inf)
