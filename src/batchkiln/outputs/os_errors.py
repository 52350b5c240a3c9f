"""Errors of the operating system as messages for a person: the path, the reason and the remedy."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from batchkiln.core.errors import OutputDirNotWritable

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
    errno.EFBIG: "That file system cannot hold files of this size: choose another output.dir.",
    errno.ESTALE: "Let only one program write to this output.dir.",
}
_REMEDY: Final = "Check the disk and the folder, then start again."


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
