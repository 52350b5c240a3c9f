"""Puts outputs into a dataset: checks them against the queue's record, then links or copies them."""

import hashlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from batchkiln.core.sample_names import DatasetRow, media_dir, sample_stem
from batchkiln.core.urls import is_url
from batchkiln.exports.destinations import Destination
from batchkiln.object_storage import local_file
from batchkiln.outputs.file_formats import extension_of

_READ_BYTES: Final = 1 << 20


class OutputUnusable(Exception):
    """An output cannot be exported. The text gives the reason."""


class OutputChecker:
    """Compares files with the queue's record of them: size and hash, or only the size if not `is_thorough`.

    `check_interrupted` is called for each MiB read; an exception that it raises ends the export.
    """

    def __init__(self, *, is_thorough: bool, check_interrupted: Callable[[], None]) -> None:
        self._is_thorough = is_thorough
        self._check_interrupted = check_interrupted

    def check(self, row: DatasetRow) -> str:
        """Return an output's local file. Raise `OutputUnusable` if it is gone, changed or unreadable."""
        try:
            path = local_output(row)
            size_bytes = os.stat(path).st_size  # noqa: PTH116  a `Path` for each of many files takes longer than this
            if size_bytes != row.size_bytes:
                raise OutputUnusable(f"it has {size_bytes:,} bytes, and {row.size_bytes:,} were recorded")
            if self._is_thorough and self._sha256(path) != row.sha256:
                raise OutputUnusable("its content differs from the recorded hash")
        except FileNotFoundError as error:
            raise OutputUnusable("the file is gone") from error
        except OSError as error:
            raise OutputUnusable(f"it cannot be read: {error.strerror}") from error
        return path

    def is_copy(self, row: DatasetRow, path: Path | None, size_bytes: int) -> bool:
        """Return whether an exported file equals the output. Without a local path, only the size is compared."""
        if size_bytes != row.size_bytes:
            return False
        try:
            return path is None or not self._is_thorough or self._sha256(path) == row.sha256
        except OSError:
            return False

    def _sha256(self, path: str | Path) -> str:
        digest = hashlib.sha256()
        file = os.open(path, os.O_RDONLY)
        try:
            while chunk := os.read(file, _READ_BYTES):
                digest.update(chunk)
                self._check_interrupted()
        finally:
            os.close(file)
        return digest.hexdigest()


def local_output(row: DatasetRow) -> str:
    """Return an output's local file, or a local copy of an object. Raise `OSError`."""
    return str(local_file(row.path, sha256=row.sha256, size_bytes=row.size_bytes)) if is_url(row.path) else row.path


def file_name(row: DatasetRow) -> str:
    """Return the name of an output below its media folder. Other items do not influence it."""
    return f"{media_dir(row.index)}{sample_stem(row.item, row.output)}.{extension_of(row.media_type)}"


class MediaFiles:
    """Adds outputs to a destination. Rows come in the order of their index, so only one listing is kept."""

    def __init__(self, destination: Destination, checker: OutputChecker) -> None:
        self._destination = destination
        self._checker = checker
        self._listings: dict[str, tuple[str, Mapping[str, int]]] = {}

    def add(self, row: DatasetRow, folder: str, own_name: str) -> bool:
        """Add an output below a folder, by `file_name`; return False if an earlier export has already done so.

        An intact copy of an earlier export counts even if the output itself is gone: it may be the last copy.
        Raise `OutputUnusable`.
        """
        name = f"{folder}{own_name}"
        parent, _, base = name.rpartition("/")
        size_bytes = self._sizes(folder, parent).get(base)
        if size_bytes is not None and self._checker.is_copy(row, self._destination.local_path(name), size_bytes):
            return False
        self._destination.add_media(self._checker.check(row), name)
        return True

    def _sizes(self, folder: str, parent: str) -> Mapping[str, int]:
        listing = self._listings.get(folder)
        if listing is None or listing[0] != parent:
            listing = self._listings[folder] = (parent, self._destination.sizes(parent))
        return listing[1]
