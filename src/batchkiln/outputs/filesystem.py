"""The file operations of outputs, and their errors for a person: the path, the reason and the remedy.

Tests replace the operations to let each one fail, or to cut the power at it.
"""

import errno
import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from batchkiln.core.errors import OutputDirNotWritable
from batchkiln.core.job import SavedFile
from batchkiln.disk_sync import sync_file, sync_folder

# What `link` reports on file systems without hard links (exFAT, some network mounts), and between two file systems.
NO_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV})


class FileSystem:
    """Blocking file operations. Each raises `OSError`. A `handle` comes from `create`."""

    def real_path(self, path: Path) -> Path:
        """Return the path with all symbolic links resolved. Missing parts are kept."""
        return path.resolve()

    def is_folder(self, path: Path) -> bool:
        """Return whether the path is a folder, or a link to one."""
        return path.is_dir()

    def make_folder(self, path: Path) -> None:
        """Make one folder, unless it exists."""
        try:
            path.mkdir(exist_ok=True)
        except FileExistsError:
            path.stat()  # raises what a loop of links is, in place of a file that is in the way
            raise

    def sync_folder(self, path: Path) -> None:
        """Flush the folder's entries, so that they survive a power cut. Not every file system can do that."""
        sync_folder(path)

    def free_bytes(self, folder: Path) -> int:
        """Return the free space on the disk for this user."""
        figures = os.statvfs(folder)
        return figures.f_bavail * figures.f_frsize

    def create(self, path: Path) -> int:
        """Create a new, empty file. Raise `FileExistsError`, also for a symbolic link of that name."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)

    def write(self, handle: int, chunk: bytes) -> None:
        """Append all of the bytes."""
        view = memoryview(chunk)
        while view:
            view = view[os.write(handle, view) :]

    def read_at(self, handle: int, offset_bytes: int, size_bytes: int) -> bytes:
        """Return the bytes at an offset; fewer than `size_bytes` only at the end of the file."""
        return os.pread(handle, size_bytes, offset_bytes)

    def truncate(self, handle: int) -> None:
        """Empty the file and write from its beginning."""
        os.ftruncate(handle, 0)
        os.lseek(handle, 0, os.SEEK_SET)

    def sync_file(self, handle: int) -> None:
        """Flush the file's content, so that it survives a power cut."""
        sync_file(handle)

    def close(self, handle: int) -> None:
        """Close the handle."""
        os.close(handle)

    def publish(self, part: Path, final: Path, *, handle: int) -> None:
        """Give the open file its final name. Raise `FileExistsError` if the name is taken.

        A hard link never overwrites. If the file system has no hard links, the file is renamed after a check. Between
        check and rename, another program could create a file of that name, which is then overwritten; within this
        program the queue's lock prevents that.
        """
        ours, named = os.fstat(handle), os.lstat(part)
        if (ours.st_dev, ours.st_ino) != (named.st_dev, named.st_ino):
            raise OSError(errno.ESTALE, "another process replaced the temporary file", str(part))
        try:
            self.link(part, final)
        except OSError as error:
            if error.errno not in NO_LINKS:
                raise
            if os.path.lexists(final):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(final)) from None
            part.rename(final)

    def link(self, part: Path, final: Path) -> None:
        """Make a hard link. Tests override this method to imitate a file system without links."""
        os.link(part, final, follow_symlinks=False)

    def unlink(self, path: Path) -> None:
        """Remove a name, if it exists."""
        path.unlink(missing_ok=True)

    def size_of(self, path: Path) -> int | None:
        """Return the size in bytes of a regular file; None for a link, for anything else, and for a missing file."""
        try:
            status = path.lstat()
        except FileNotFoundError:
            return None
        return status.st_size if stat.S_ISREG(status.st_mode) else None

    def sha256_of(self, path: Path) -> str:
        """Return the SHA-256 of a file's content, in hex."""
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def read(self, path: Path) -> bytes:
        """Return the content of a small file."""
        return path.read_bytes()

    def sync_path(self, path: Path) -> None:
        """Flush an existing file's content, so that it survives a power cut."""
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            sync_file(handle)
        finally:
            os.close(handle)


_REMEDIES: Final = {
    errno.ENOSPC: "Free some space on that disk, then start again.",
    errno.EDQUOT: "Free some space or raise the quota, then start again.",
    errno.EACCES: "Give this user permission to write there, or choose another output.dir.",
    errno.EPERM: "Give this user permission to write there, or choose another output.dir.",
    errno.EROFS: "Mount that disk for writing, or choose another output.dir.",
    errno.EIO: "The disk reports an error: check it before anything else, or choose another output.dir.",
    errno.ENAMETOOLONG: "Choose a shorter output.filename or output.dir.",
    errno.ENOTDIR: "A file is where a folder is needed: move it away, or choose another output.dir.",
    errno.EEXIST: "Another file is there: move it away, or choose another output.dir.",
    errno.EISDIR: "A folder is where a file is needed: move it away, or choose another output.filename.",
    errno.ELOOP: "The symbolic links there form a loop: remove one of them.",
    errno.EMFILE: "Raise the limit of open files (ulimit -n), then start again.",
    errno.ENFILE: "Too many files are open on this machine: close some programs, then start again.",
    errno.EFBIG: "That file system does not allow files of this size: choose another output.dir.",
    errno.ESTALE: "Let only one program write to this output.dir.",
}
_REMEDY: Final = "Check the disk and the folder, then start again."


def is_whole(files: FileSystem, path: Path, file: SavedFile) -> bool:
    """Return whether a path contains the content of a saved file. An unreadable file does not count as whole."""
    try:
        return files.size_of(path) == file.size_bytes and files.sha256_of(path) == file.sha256
    except OSError:
        return False


def unwritable(path: Path, reason: str, remedy: str) -> OutputDirNotWritable:
    """Return the error of a path that cannot be written. Paid results stay recorded, and a restart fetches them."""
    return OutputDirNotWritable(f"{path}: {reason}. {remedy}")


@contextmanager
def translate_os_errors(path: Path) -> Iterator[None]:
    """Raise an `OSError` of the block as `OutputDirNotWritable` about `path`."""
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else type(error).__name__
        raise unwritable(path, reason, _REMEDIES.get(error.errno or 0, _REMEDY)) from error
