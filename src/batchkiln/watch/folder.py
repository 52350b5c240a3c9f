"""What lies in the watched folder, and which of it has been still for long enough to be taken as whole."""

import hashlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Final

ENDINGS: Final = frozenset({".yaml", ".yml"})
STILL_SECONDS: Final = 1.0
"""How long a file has to be unchanged: who writes more slowly is answered for what is there, and then again."""

_HASHED_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class FileStamp:
    """What changes when a file is written or replaced."""

    inode: int
    size_bytes: int
    modified_ns: int


def manifests_in(folder: Path, *, ignored: Iterable[str] = ()) -> dict[str, FileStamp]:
    """Return the manifests that lie in a folder itself, by name. Raises OSError when it cannot be read.

    Links, hidden files and whatever is no file are none: nothing outside of the folder is ever taken for a manifest.
    """
    found: dict[str, FileStamp] = {}
    passed_over = set(ignored)
    with os.scandir(folder) as entries:
        for entry in entries:
            name = entry.name
            if name.startswith(".") or name in passed_over or Path(name).suffix not in ENDINGS:
                continue
            try:
                if entry.is_file(follow_symlinks=False):
                    status = entry.stat(follow_symlinks=False)
                    found[name] = FileStamp(status.st_ino, status.st_size, status.st_mtime_ns)
            except FileNotFoundError:  # gone since the folder was read
                continue
    return found


def sha256_of(path: Path) -> str:
    """Return the hash of a file's content, in hex. Raises OSError, also for a link that was put in its place."""
    digest = hashlib.sha256()
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        while chunk := file.read(_HASHED_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


class StabilityTracker:
    """Since when each file is as it is, and which of them have been dealt with as they are."""

    def __init__(self, still_seconds: float = STILL_SECONDS) -> None:
        """Begin with nothing seen."""
        self._still_seconds = still_seconds
        self._due: dict[str, tuple[FileStamp, float]] = {}
        self._dealt_with: dict[str, FileStamp] = {}

    def look(self, found: Mapping[str, FileStamp], now: float) -> list[str]:
        """Take in what lies there at a monotonic moment; return what is due, by name. What has gone is forgotten."""
        self._dealt_with = {name: stamp for name, stamp in self._dealt_with.items() if name in found}
        due: dict[str, tuple[FileStamp, float]] = {}
        for name, stamp in found.items():
            if self._dealt_with.get(name) == stamp:
                continue
            known = self._due.get(name)
            due[name] = known if known is not None and known[0] == stamp else (stamp, now + self._still_seconds)
        self._due = due
        return sorted(name for name, (_, at) in due.items() if at <= now)

    def deal_with(self, name: str) -> None:
        """Leave a file alone until it changes."""
        if name in self._due:
            self._dealt_with[name] = self._due.pop(name)[0]

    def postpone(self, name: str, until: float) -> None:
        """Try a file again at a moment, as it is."""
        if name in self._due:
            self._due[name] = (self._due[name][0], until)

    @property
    def next_at(self) -> float:
        """The earliest moment at which a file may be due; infinite while none is awaited."""
        return min((at for _, at in self._due.values()), default=inf)
