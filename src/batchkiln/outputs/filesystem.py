"""The few things that outputs ask of a file system, so that tests can fail or cut the power at each of them."""

import errno
import hashlib
import os
import stat
from pathlib import Path
from typing import Final, Protocol

# What file systems without hard links (exFAT, some network mounts) answer to `link`.
_NO_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV})
_HASHED_BYTES: Final = 1024 * 1024


class FileSystem(Protocol):
    """Blocking file operations, each of which raises `OSError`. `handle` is what `create` gave."""

    def real_path(self, path: Path) -> Path:
        """Give the path with every symbolic link followed; what does not exist stays as it is."""

    def is_folder(self, path: Path) -> bool:
        """Whether a folder, or a link to one, stands there."""

    def make_folder(self, path: Path) -> None:
        """Make one folder; that it exists already is no error."""

    def sync_folder(self, path: Path) -> None:
        """Make the folder's names survive a power cut."""

    def free_bytes(self, folder: Path) -> int:
        """Give the room that this user has on the disk."""

    def create(self, path: Path) -> int:
        """Make a new, empty file for writing. Raises `FileExistsError` where any file stands."""

    def write(self, handle: int, chunk: bytes) -> None:
        """Append all of the bytes."""

    def read_at(self, handle: int, offset_bytes: int, size_bytes: int) -> bytes:
        """Give so many bytes from an offset; fewer only where the file ends."""

    def truncate(self, handle: int) -> None:
        """Make the file empty, and write from its beginning."""

    def sync_file(self, handle: int) -> None:
        """Make the file's content survive a power cut."""

    def close(self, handle: int) -> None:
        """End the use of the handle."""

    def publish(self, part: Path, final: Path, *, handle: int) -> None:
        """Give the open file a second, final name. Raises `FileExistsError` where any file has it already."""

    def unlink(self, path: Path) -> None:
        """Remove a name; that it is gone already is no error."""

    def size_of(self, path: Path) -> int | None:
        """Give the size of a regular file (no link is followed); None for anything else, or nothing."""

    def sha256_of(self, path: Path) -> str:
        """Give the hash of a file's content, in hex."""

    def sync_path(self, path: Path) -> None:
        """Make an existing file's content survive a power cut."""


class RealFiles:
    """The file system of this machine."""

    def real_path(self, path: Path) -> Path:
        """Give the path with every symbolic link followed."""
        return path.resolve()

    def is_folder(self, path: Path) -> bool:
        """Whether a folder, or a link to one, stands there."""
        return path.is_dir()

    def make_folder(self, path: Path) -> None:
        """Make one folder, unless it is there."""
        path.mkdir(exist_ok=True)

    def sync_folder(self, path: Path) -> None:
        """Flush the folder; on a file system that cannot (EINVAL), there is nothing more to be had."""
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        except OSError as fault:
            if fault.errno not in {errno.EINVAL, errno.ENOTSUP}:
                raise
        finally:
            os.close(handle)

    def free_bytes(self, folder: Path) -> int:
        """Give the room that this user has on the disk."""
        figures = os.statvfs(folder)
        return figures.f_bavail * figures.f_frsize

    def create(self, path: Path) -> int:
        """Make a new file; `O_EXCL` also refuses a symbolic link that somebody put there."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)

    def write(self, handle: int, chunk: bytes) -> None:
        """Append all of the bytes: the system may take them in several pieces."""
        view = memoryview(chunk)
        while view:
            view = view[os.write(handle, view) :]

    def read_at(self, handle: int, offset_bytes: int, size_bytes: int) -> bytes:
        """Give so many bytes from an offset."""
        return os.pread(handle, size_bytes, offset_bytes)

    def truncate(self, handle: int) -> None:
        """Make the file empty, and write from its beginning."""
        os.ftruncate(handle, 0)
        os.lseek(handle, 0, os.SEEK_SET)

    def sync_file(self, handle: int) -> None:
        """Make the file's content survive a power cut."""
        os.fsync(handle)

    def close(self, handle: int) -> None:
        """End the use of the handle."""
        os.close(handle)

    def publish(self, part: Path, final: Path, *, handle: int) -> None:
        """Link the file, which never overwrites; where links do not exist, rename after a check.

        The check leaves a moment in which another program's new file of that name could be lost;
        within this program the queue's lease keeps it from happening.
        """
        ours, named = os.fstat(handle), os.lstat(part)
        if (ours.st_dev, ours.st_ino) != (named.st_dev, named.st_ino):
            raise OSError(errno.ESTALE, "another process replaced the temporary file", str(part))
        try:
            self.link(part, final)
        except OSError as fault:
            if fault.errno not in _NO_LINKS:
                raise
            if os.path.lexists(final):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(final)) from None
            part.rename(final)

    def link(self, part: Path, final: Path) -> None:
        """Give a file a second name; some file systems cannot."""
        os.link(part, final, follow_symlinks=False)

    def unlink(self, path: Path) -> None:
        """Remove a name; that it is gone already is no error."""
        path.unlink(missing_ok=True)

    def size_of(self, path: Path) -> int | None:
        """Give the size of a regular file; None for anything else, or nothing."""
        try:
            status = path.lstat()
        except FileNotFoundError:
            return None
        return status.st_size if stat.S_ISREG(status.st_mode) else None

    def sha256_of(self, path: Path) -> str:
        """Give the hash of a file's content, in hex."""
        digest = hashlib.sha256()
        with path.open("rb") as file:
            while chunk := file.read(_HASHED_BYTES):
                digest.update(chunk)
        return digest.hexdigest()

    def sync_path(self, path: Path) -> None:
        """Make an existing file's content survive a power cut."""
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
