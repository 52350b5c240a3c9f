"""Destinations of a dataset: a local folder, or a URL that fsspec opens.

A file gets its final name only when it is complete. Only files that this export made are deleted.
"""

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Final, Protocol

from batchkiln.core.errors import OutputDirNotWritable

CARD: Final = "README.md"
HEAD_BYTES: Final = 64 * 1024


class Link(StrEnum):
    """The way in which media are put into a folder."""

    HARD = "hard"
    SYM = "sym"
    COPY = "copy"


class Destination(Protocol):
    """The destination of a dataset. Names are relative and use slashes. Methods raise `OutputDirNotWritable`."""

    title: str

    @property
    def staging(self) -> Path:
        """A local folder for unfinished files. It is on the destination's own disk if the destination is a folder."""

    def card(self) -> str | None:
        """Return the text of the dataset's card; None if there is none."""

    def is_empty(self) -> bool:
        """Return whether the destination contains no files, apart from hidden ones."""

    def sizes(self, folder: str) -> Mapping[str, int]:
        """Return the sizes in bytes of the files directly in a folder, by name. Links are followed."""

    def local_path(self, name: str) -> Path | None:
        """Return the local path of a file; None for a destination that is not on this machine."""

    def head(self, name: str) -> bytes:
        """Return the first 64 KiB of a file; no bytes if there is no such file."""

    def add_media(self, source: str, name: str) -> None:
        """Link or copy an output to a name, replacing any file there. A URL may send it only in `flush`."""

    def publish(self, staged: Path, name: str) -> None:
        """Move a file from `staging` to its name, replacing any file there."""

    def remove(self, name: str) -> None:
        """Remove a table of an earlier export that has no rows now."""

    def flush(self) -> None:
        """Put all media in place, so that they survive a power cut if the destination can ensure that."""

    def close(self) -> None:
        """Remove the staging folder."""


def missing_extra(feature: str) -> str:
    """Return the message for a feature whose packages are not installed."""
    return f"{feature} needs packages that are not installed: pip install 'batchkiln[datasets]'"


def not_written(
    place: str, reason: object, remedy: str = "fix that and run the same command again to continue"
) -> OutputDirNotWritable:
    """Return the error of a destination that cannot be written."""
    return OutputDirNotWritable(f"{place}: {reason}. Exported files are kept and nothing was charged; {remedy}")
