"""Brings outputs to their places in a dataset, and leaves alone what an earlier export brought."""

from collections.abc import Mapping
from enum import Enum, auto
from pathlib import Path
from typing import Final

from batchkiln.core.sample_names import DatasetRow, media_dir, sample_stem
from batchkiln.exports.destinations import Destination
from batchkiln.exports.source_files import Sources
from batchkiln.outputs.file_formats import extension_of


class Brought(Enum):
    """What became of a file that can be exported."""

    NEW = auto()
    THERE = auto()


def file_name(row: DatasetRow) -> str:
    """Return where an output stands below the folder of its kind: it depends on its item alone."""
    return f"{media_dir(row.index)}{sample_stem(row.item, row.output)}.{extension_of(row.media_type)}"


class MediaFiles:
    """Takes rows in the order of their index, so that one listing per folder is all that is held."""

    def __init__(self, place: Destination, sources: Sources) -> None:
        """Bring files to `place` after `sources` has looked at them."""
        self._place: Final = place
        self._sources: Final = sources
        self._listed: dict[str, tuple[str, Mapping[str, int]]] = {}

    def bring(self, row: DatasetRow, home: str) -> Brought | str:
        """Bring an output into the folder `home`, or say why it cannot be exported.

        A whole copy of an earlier export serves even where the output itself is gone: it may be the last one.
        """
        name = f"{home}{file_name(row)}"
        parent, _, base = name.rpartition("/")
        size_bytes = self._sizes(home, parent).get(base)
        if size_bytes is not None and self._sources.is_whole(row, self._place.local(name), size_bytes):
            return Brought.THERE
        problem = self._sources.problem(row)
        if problem is not None:
            return problem
        self._place.take(Path(row.path), name)
        return Brought.NEW

    def _sizes(self, home: str, parent: str) -> Mapping[str, int]:
        held = self._listed.get(home)
        if held is None or held[0] != parent:
            held = self._listed[home] = (parent, self._place.sizes(parent))
        return held[1]
