"""Paths of outputs in a queue that several machines use: relative to the folder that all of them mount.

Each machine may mount the shared folder at another place. A queue file, and a database without a configured shared
folder, hold absolute paths.
"""

import os
from pathlib import Path

from batchkiln.core.errors import InputError, OutputDirNotWritable
from batchkiln.store.session import Session


def shared_dir(session: Session) -> Path | None:
    """Return the path of the shared folder on this machine; None for a queue file, or if none is configured."""
    found: Path | None = getattr(session, "shared_dir", None)  # a queue file's session has none
    return found


def stored_path(session: Session, path: str) -> str:
    """Return a path as the queue stores it: relative to the shared folder if it is inside."""
    root = shared_dir(session)
    return path if root is None else _below(root, path) or path


def stored_dir(session: Session, path: str) -> str:
    """Return an output folder as the queue stores it. Raise `InputError` if it is outside the shared folder."""
    root = shared_dir(session)
    if root is None:
        return path
    found = _below(root, path)
    if found is None:
        raise InputError(
            f"output.dir: {path} is not below {root}, which shared_dir names: the other machines could not read the "
            "results. Choose a folder below it; nothing was enqueued"
        )
    return found


def local_path_of(session: Session, stored: str) -> str:
    """Return a stored path as a path of this machine. Without a shared folder, relative paths are unchanged."""
    root = shared_dir(session)
    return stored if root is None else str(root / stored)


def local_dir_of(session: Session, stored: str) -> str:
    """Return an output folder for writing. Raise `OutputDirNotWritable` if this machine has no shared folder."""
    path = local_path_of(session, stored)
    if not os.path.isabs(path):  # noqa: PTH117  once for each finished generation
        raise OutputDirNotWritable(
            f"{stored}: it is in a shared folder, which the configuration does not name. Set shared_dir to the place "
            "where this machine mounts it."
        )
    return path


def _below(root: Path, path: str) -> str | None:
    """Return a path relative to a folder; None if it is outside. Links are followed on both sides."""
    for folder, place in ((root, Path(path)), (root.resolve(), Path(path).resolve())):
        if place.is_relative_to(folder):
            return place.relative_to(folder).as_posix()
    return None
