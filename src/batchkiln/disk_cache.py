"""Caches on the local disk, below `$XDG_CACHE_HOME/batchkiln`: what is missing there is made again."""

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path


def cache_folder(name: str) -> Path:
    """Return the folder of a cache, whether it exists or not."""
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())
    return caches / "batchkiln" / name


def trim(files: Iterable[Path], max_bytes: int, *, newest: Path | None = None) -> None:
    """Remove the files that were unused for the longest time while all of them have more than `max_bytes`.

    `newest` stays. A file that another process has removed, or that cannot be removed, is no error.
    """
    found: list[tuple[float, int, Path]] = []
    for file in files:
        with suppress(OSError):
            status = file.stat()
            found.append((status.st_mtime, status.st_size, file))
    excess = sum(size for _, size, _ in found) - max_bytes
    for _, size, file in sorted(found):
        if excess <= 0:
            return
        if file != newest:
            with suppress(OSError):
                file.unlink()
            excess -= size
