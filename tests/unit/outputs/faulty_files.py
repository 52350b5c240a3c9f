"""A file system in memory that fails, or loses its power, at a chosen operation."""

import errno
import hashlib
import itertools
from dataclasses import dataclass
from pathlib import Path

from batchkiln.outputs import FileSystem


class PowerCut(BaseException):
    """The machine is off: no handler may catch it."""


@dataclass
class _File:
    content: bytes = b""
    synced: bytes = b""


class FaultyFiles(FileSystem):
    """Counts its operations; at number `fail_at` it raises `fault`, or is off for good where that is a `PowerCut`.

    Two views of what a power cut leaves: `kept` has only what was flushed, `leaked` has every name at
    once (systems may write names early) but only the content that was flushed.
    """

    def __init__(self, *, fail_at: int = 0, fault: BaseException | None = None, free_bytes: int = 10**12) -> None:
        self.fail_at = fail_at
        self.fault = fault or OSError(errno.ENOSPC, "full")
        self.operations: list[str] = []
        self.free = free_bytes
        self.has_links = True
        self.folders = {Path("/"), Path("/out")}
        self._names: dict[Path, _File] = {}
        self._synced_names: dict[Path, _File] = {}
        self._open: dict[int, _File] = {}
        self._numbers = itertools.count(3)

    @property
    def seen(self) -> dict[str, bytes]:
        """What a program sees that is not interrupted."""
        return {str(path): file.content for path, file in self._names.items()}

    @property
    def kept(self) -> dict[str, bytes]:
        return {str(path): file.synced for path, file in self._synced_names.items()}

    @property
    def leaked(self) -> dict[str, bytes]:
        return {str(path): file.synced for path, file in self._names.items()}

    @property
    def open_count(self) -> int:
        return len(self._open)

    def put(self, path: str, content: bytes) -> None:
        self._names[Path(path)] = self._synced_names[Path(path)] = _File(content, content)

    def real_path(self, path: Path) -> Path:
        return path

    def is_folder(self, path: Path) -> bool:
        return path in self.folders

    def make_folder(self, path: Path) -> None:
        self._step(f"make_folder {path}")
        self.folders.add(path)

    def sync_folder(self, path: Path) -> None:
        self._step(f"sync_folder {path}")
        for name in [*self._names, *self._synced_names]:
            if name.parent == path and name in self._names:
                self._synced_names[name] = self._names[name]
            elif name.parent == path:
                self._synced_names.pop(name, None)

    def free_bytes(self, folder: Path) -> int:
        self._step(f"free_bytes {folder}")
        return self.free

    def create(self, path: Path) -> int:
        self._step(f"create {path}")
        self._refuse_taken(path)
        handle = next(self._numbers)
        self._names[path] = self._open[handle] = _File()
        return handle

    def write(self, handle: int, chunk: bytes) -> None:
        # A write that fails half-way has written something.
        half = len(chunk) // 2
        self._open[handle].content += chunk[:half]
        self._step("write")
        self._open[handle].content += chunk[half:]

    def read_at(self, handle: int, offset_bytes: int, size_bytes: int) -> bytes:
        return self._open[handle].content[offset_bytes : offset_bytes + size_bytes]

    def truncate(self, handle: int) -> None:
        self._step("truncate")
        self._open[handle].content = b""

    def sync_file(self, handle: int) -> None:
        self._step("sync_file")
        self._open[handle].synced = self._open[handle].content

    def close(self, handle: int) -> None:
        del self._open[handle]
        self._step("close")

    def publish(self, part: Path, final: Path, *, handle: int) -> None:
        self._step(f"publish {final}")
        self._refuse_taken(final)
        assert self._names[part] is self._open[handle]
        self._names[final] = self._names[part]
        if not self.has_links:
            del self._names[part]

    def unlink(self, path: Path) -> None:
        self._step(f"unlink {path}")
        self._names.pop(path, None)

    def size_of(self, path: Path) -> int | None:
        self._step(f"size_of {path}")
        return len(self._names[path].content) if path in self._names else None

    def sha256_of(self, path: Path) -> str:
        self._step(f"sha256_of {path}")
        return hashlib.sha256(self._names[path].content).hexdigest()

    def read(self, path: Path) -> bytes:
        self._step(f"read {path}")
        return self._names[path].content

    def sync_path(self, path: Path) -> None:
        self._step(f"sync_path {path}")
        self._names[path].synced = self._names[path].content

    def _refuse_taken(self, path: Path) -> None:
        if path in self._names or path in self.folders:
            raise FileExistsError(errno.EEXIST, "taken", str(path))

    def _step(self, name: str) -> None:
        self.operations.append(name)
        number = len(self.operations)
        if number == self.fail_at or (isinstance(self.fault, PowerCut) and 0 < self.fail_at < number):
            raise self.fault
