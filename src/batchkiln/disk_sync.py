"""Flushes files and folders, so that they survive a power cut.

On macOS, `fsync` hands the data to the drive, which may keep it in a cache without a battery; `F_FULLFSYNC` writes it
to the medium. Its manual page fsync(2) says so, and SQLite (`PRAGMA fullfsync`) and CPython's `fcntl` know the call.
"""

import errno
import fcntl
import os
from pathlib import Path
from typing import Final

_NOT_SUPPORTED: Final = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOTTY})


def sync_file(handle: int) -> None:
    """Flush an open file's content to the medium. Raise `OSError`.

    Some file systems of macOS, such as network mounts, have only `fsync`.
    """
    full = getattr(fcntl, "F_FULLFSYNC", None)
    if full is not None:
        try:
            fcntl.fcntl(handle, full)
        except OSError as error:
            if error.errno not in _NOT_SUPPORTED:
                raise
        else:
            return
    os.fsync(handle)


def sync_folder(folder: Path) -> None:
    """Flush a folder's entries to the medium, if its file system can do that. Raise `OSError`."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        sync_file(handle)
    except OSError as error:
        if error.errno not in _NOT_SUPPORTED:
            raise
    finally:
        os.close(handle)
