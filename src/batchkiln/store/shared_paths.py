"""Paths of outputs in a queue that several machines use: relative to the folder or URL that all of them share.

Each machine may mount the shared folder at another place. A queue file, and a database without a configured shared
place, hold absolute paths. A URL outside of the shared place is stored whole: each machine can read it.
"""

import os
from pathlib import Path
from typing import Final

from batchkiln.core.errors import InputError, OutputDirNotWritable
from batchkiln.core.urls import is_url, scheme_of
from batchkiln.store.session import Session

PRIVATE_SCHEMES: Final = frozenset({"memory", "file", "local"})
"""Schemes of places that other machines cannot read."""


def shared_dir(session: Session) -> Path | str | None:
    """Return the shared folder or URL on this machine; None for a queue file, or if none is configured."""
    found: Path | str | None = getattr(session, "shared_dir", None)  # a queue file's session has none
    return found


def stored_path(session: Session, path: str) -> str:
    """Return a path as the queue stores it: relative to the shared place if it is inside."""
    root = shared_dir(session)
    return path if root is None else _below(root, path) or path


def stored_dir(session: Session, path: str) -> str:
    """Return an output folder as the queue stores it. Raise `InputError` if other machines could not read it."""
    root = shared_dir(session)
    if root is None:
        return path
    found = _below(root, path)
    if found is None and is_url(path) and scheme_of(path) not in PRIVATE_SCHEMES:
        return path
    if found is None:
        raise InputError(
            f"output.dir: {path} is not below {root}, which shared_dir names: the other machines could not read the "
            "results. Choose a folder below it; nothing was enqueued"
        )
    return found


def local_path_of(session: Session, stored: str) -> str:
    """Return a stored path as this machine reads it. Without a shared place, relative paths are unchanged."""
    root = shared_dir(session)
    if root is None or is_url(stored):
        return stored
    return str(root / Path(stored)) if isinstance(root, Path) or Path(stored).is_absolute() else f"{root}/{stored}"


def local_dir_of(session: Session, stored: str) -> str:
    """Return an output folder for writing. Raise `OutputDirNotWritable` if this machine has no shared place."""
    path = local_path_of(session, stored)
    if not os.path.isabs(path) and not is_url(path):  # noqa: PTH117  once for each finished generation
        raise OutputDirNotWritable(
            f"{stored}: it is in a shared folder, which the configuration does not name. Set shared_dir to the place "
            "where this machine mounts it."
        )
    return path


def _below(root: Path | str, path: str) -> str | None:
    """Return a path relative to a folder or URL; None if it is outside. Links are followed on both sides."""
    if isinstance(root, str):
        return path.removeprefix(f"{root}/") if path.startswith(f"{root}/") else None
    if is_url(path):
        return None
    for folder, place in ((root, Path(path)), (root.resolve(), Path(path).resolve())):
        if place.is_relative_to(folder):
            return place.relative_to(folder).as_posix()
    return None
