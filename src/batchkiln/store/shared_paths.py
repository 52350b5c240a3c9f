"""Paths of outputs in a queue that several machines use: relative to the folder that all of them mount.

Each machine may mount the shared folder at another place. A queue file, and a database without a configured shared
folder, hold absolute paths.
"""

from pathlib import Path

from batchkiln.core.errors import InputError, OutputDirNotWritable
from batchkiln.store.session import Session


def shared_dir(session: Session) -> Path | None:
    """Return the shared folder as this machine mounts it; None for a queue file, or where none is configured."""
    found: Path | None = getattr(session, "shared_dir", None)  # a queue file's session has none
    return found


def stored_path(session: Session, path: str) -> str:
    """Return a path as the queue holds it: relative to the shared folder where it is below that one."""
    root = shared_dir(session)
    return path if root is None else _below(root, path) or path


def stored_dir(session: Session, path: str) -> str:
    """Return an output folder as the queue holds it. Raise `InputError` where it is outside the shared folder."""
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
    """Return a path as this machine reads it; a relative one stays so where no shared folder is configured."""
    root = shared_dir(session)
    return stored if root is None else str(root / stored)


def local_dir_of(session: Session, stored: str) -> str:
    """Return an output folder that is to be written. Raise `OutputDirNotWritable` where this machine has no place."""
    path = local_path_of(session, stored)
    if not Path(path).is_absolute():
        raise OutputDirNotWritable(
            f"{stored}: it is in a shared folder, which the configuration does not name. Set shared_dir to the place "
            "where this machine mounts it."
        )
    return path


def _below(root: Path, path: str) -> str | None:
    """Return a path relative to a folder; None where it is elsewhere. Links are followed on both sides."""
    for folder, place in ((root, Path(path)), (root.resolve(), Path(path).resolve())):
        if place.is_relative_to(folder):
            return place.relative_to(folder).as_posix()
    return None
