"""Whether a file still is what was recorded of it."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Final

from batchkiln.core.sample_names import DatasetRow

_READ_BYTES: Final = 1 << 20


class Sources:
    """Looks at outputs and at what was made of them. `pulse` is called often; what it raises ends the export."""

    def __init__(self, *, is_thorough: bool, pulse: Callable[[], None]) -> None:
        """Compare contents, or where not thorough the sizes only."""
        self._is_thorough = is_thorough
        self._pulse = pulse

    def problem(self, row: DatasetRow) -> str | None:
        """Say why an output cannot be exported; None for a good one."""
        path = Path(row.path)
        try:
            size_bytes = path.stat().st_size
            if size_bytes != row.size_bytes:
                return f"it has {size_bytes:,} bytes, and {row.size_bytes:,} were recorded"
            if self._is_thorough and self.sha256_of(path) != row.sha256:
                return "its content is not what was recorded"
        except FileNotFoundError:
            return "the file is gone"
        except OSError as error:
            return f"it cannot be read: {error.strerror}"
        return None

    def is_whole(self, row: DatasetRow, path: Path | None, size_bytes: int) -> bool:
        """Tell whether a file of an earlier export is the output. Where it is not at hand, its size has to do."""
        if size_bytes != row.size_bytes:
            return False
        try:
            return path is None or not self._is_thorough or self.sha256_of(path) == row.sha256
        except OSError:
            return False

    def sha256_of(self, path: Path) -> str:
        """Return the hash of a file's content, in hex. Raises `OSError`."""
        digest = hashlib.sha256()
        with path.open("rb", buffering=0) as file:
            while chunk := file.read(_READ_BYTES):
                digest.update(chunk)
                self._pulse()
        return digest.hexdigest()
