"""The disk's refusals, in words for a person: the path, the reason, and what to do."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from batchkiln.core.errors import OutputDirNotWritable

_REMEDIES: Final = {
    errno.ENOSPC: "Free some space on that disk, then start again.",
    errno.EDQUOT: "Free some space or have the quota raised, then start again.",
    errno.EACCES: "Give this user the permission to write there, or choose another output.dir.",
    errno.EPERM: "Give this user the permission to write there, or choose another output.dir.",
    errno.EROFS: "Mount that disk for writing, or choose another output.dir.",
    errno.EIO: "The disk reports an error: check it before anything else, or choose another output.dir.",
    errno.ENAMETOOLONG: "Choose a shorter output.filename or output.dir.",
    errno.ENOTDIR: "A file stands where a folder is needed: move it away, or choose another output.dir.",
    errno.EEXIST: "Something else stands there: move it away, or choose another output.dir.",
    errno.EISDIR: "A folder stands where a file is needed: move it away, or choose another output.filename.",
    errno.ELOOP: "The symbolic links there lead in a circle: remove one of them.",
    errno.EMFILE: "Raise the limit of open files (ulimit -n), then start again.",
    errno.ENFILE: "Too many files are open on this machine: close some programs, then start again.",
    errno.EFBIG: "That file system does not hold files of this size: choose another output.dir.",
    errno.ESTALE: "Let only one program write to this output.dir.",
}
_REMEDY: Final = "Check the disk and the folder, then start again."


def unwritable(path: Path, reason: str, remedy: str) -> OutputDirNotWritable:
    """Make the error: what has been paid stays known, so that starting again goes on where it stopped."""
    return OutputDirNotWritable(f"{path}: {reason}. {remedy}")


@contextmanager
def translate_os_errors(path: Path) -> Iterator[None]:
    """Turn an `OSError` into `OutputDirNotWritable` about `path`."""
    try:
        yield
    except OSError as fault:
        reason = os.strerror(fault.errno) if fault.errno else type(fault).__name__
        raise unwritable(path, reason, _REMEDIES.get(fault.errno or 0, _REMEDY)) from fault
