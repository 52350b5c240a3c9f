"""Where a dataset is written, as the formats see it: a folder of this machine, or whatever fsspec reaches by a URL.

A file gets its final name only when it is whole. Nothing is deleted but what this process made and did not need.
"""

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Final, Protocol

CARD: Final = "README.md"
HEAD_BYTES: Final = 64 * 1024


class Link(StrEnum):
    """How media come into a folder."""

    HARD = "hard"
    SYM = "sym"
    COPY = "copy"


class Destination(Protocol):
    """Where a dataset is written. Names are relative, with slashes. Raises `OutputsUnwritable`."""

    title: str

    @property
    def staging(self) -> Path:
        """A folder of this machine for what is being made; on the same disk where the place is a folder."""

    def card(self) -> str | None:
        """Give the text of the dataset's card; None where there is none."""

    def is_empty(self) -> bool:
        """Whether nothing is there, hidden files apart."""

    def sizes(self, folder: str) -> Mapping[str, int]:
        """Give the files right in a folder with their sizes; links count as what they lead to."""

    def local(self, name: str) -> Path | None:
        """Give the path at which a file there can be read on this machine."""

    def head(self, name: str) -> bytes:
        """Give the first 64 KiB of a file, nothing where it is not there."""

    def take(self, source: Path, name: str) -> None:
        """Link or copy an output to a name, in place of any file that is there; at a URL, soon."""

    def publish(self, staged: Path, name: str) -> None:
        """Give a file that was made in `staging` its name, in place of any that is there."""

    def withdraw(self, name: str) -> None:
        """Remove a table of an earlier export that no row is left for."""

    def settle(self) -> None:
        """Come back when all that was taken is there, and survives a power cut where that can be had."""

    def close(self) -> None:
        """Remove what was made and not needed."""


def needs_extra(what: str) -> str:
    """Say that an optional part is not installed, and how it is."""
    return f"{what} needs an optional part that is not installed: pip install 'batchkiln[datasets]'"
