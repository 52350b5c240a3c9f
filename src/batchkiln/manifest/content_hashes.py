"""What the items of a manifest are made of, as hashes: the text, the sources, and this program."""

import hashlib
import sys
import zlib
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import BinaryIO, Final

from msgspec.structs import astuple

from batchkiln.core.catalog_checks import Catalogue
from batchkiln.core.responses import ModelEntry
from batchkiln.manifest.file_access import FileAccess
from batchkiln.yaml_reading.diagnostics import open_bytes

_READING: Final = 1
"""To be raised when the same text and sources make other items than in an earlier version."""

_LIBRARIES: Final = ("batchkiln", "jinja2", "orjson", "PyYAML")
_PIECE_SIZE_BYTES: Final = 1 << 20


class HashedSource:
    """A source that is read once, from its beginning. `sha256` is None until its end was read."""

    def __init__(self, stream: BinaryIO, size_bytes: int | None = None) -> None:
        """Read from `stream`; `size_bytes` is None if it is unknown."""
        self._stream = stream
        self._size_bytes = size_bytes
        self._read_bytes = 0
        self._digest = hashlib.sha256()
        self.sha256: str | None = None

    def read(self, size: int = -1, /) -> bytes:
        """Return the next bytes."""
        piece = self._stream.read(size)
        self._digest.update(piece)
        self._read_bytes += len(piece)
        if not piece:
            self.sha256 = self._digest.hexdigest()
        return piece

    @property
    def share(self) -> float | None:
        """The part of the source that was read, from 0 to 1; None if its size is unknown."""
        return min(1.0, self._read_bytes / self._size_bytes) if self._size_bytes else None


class ReadSources:
    """The sources that the items were read from. `are_known` is false if one of them cannot be recognised later."""

    def __init__(self) -> None:
        self.are_known = True
        self.current: tuple[str, HashedSource] | None = None
        self._found: dict[str, str] = {}

    def add(self, path: Path, sha256: str | None) -> None:
        """Add a source by its path; with None, it cannot be recognised."""
        if sha256 is None or self._found.setdefault(str(path), sha256) != sha256:
            self.are_known = False

    @property
    def found(self) -> Mapping[str, str]:
        """The hash of each source by its path."""
        return self._found


def key_of(text: Path, folder: Path, access: FileAccess | None, catalogue: Catalogue | None) -> str:
    """Return a hash of all that the items of a manifest are made of, apart from the rows of its sources."""
    listed = None if catalogue is None else (catalogue.profile, sorted(map(_listed, catalogue.models.values())))
    parts = (_READING, sys.version, *_versions(), hash_of(text), str(folder), access, listed)
    return hashlib.sha256(repr(parts).encode("utf-8", "surrogateescape")).hexdigest()


@cache
def _versions() -> tuple[str, ...]:
    """Return the versions of what reads a manifest. Looking them up takes as long as a short manifest does."""
    return tuple(map(version, _LIBRARIES))


def _listed(model: ModelEntry) -> tuple[str, ...]:
    """Return the fields of a model as text that is equal in each process; the order of a set is not."""
    values = astuple(model)
    return tuple(repr(sorted(value) if isinstance(value, frozenset) else value) for value in values)


def are_as_before(sources: Mapping[str, str]) -> bool:
    """Return whether sources have these hashes now, by path."""
    return all(hash_of(Path(path)) == sha256 for path, sha256 in sources.items())


def hash_of(path: Path) -> str | None:
    """Return the hash of a file, as its reader sees it: decompressed. None if it cannot be read."""
    digest = hashlib.sha256()
    try:
        with open_bytes(path) as stream:
            while piece := stream.read(_PIECE_SIZE_BYTES):
                digest.update(piece)
    except (OSError, EOFError, ValueError, zlib.error):
        return None
    return digest.hexdigest()
