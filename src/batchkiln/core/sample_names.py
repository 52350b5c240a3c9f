"""The rows of a dataset, one per output: their splits and their unique sample names."""

import hashlib
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from msgspec import Struct

from batchkiln.core.filenames import safe_value
from batchkiln.core.job import Mode

ITEMS_PER_FOLDER: Final = 10_000
"""Items per folder: larger folders are slow to list, and the Hugging Face Hub allows no more files."""

_HASH_BYTES: Final = 8


class DatasetRow(Struct, frozen=True):
    """One output of a done item, with the fields of a dataset row. `path` is absolute, `sha256` is in hex."""

    item: str
    index: int
    output: int
    path: str
    size_bytes: int
    sha256: str
    media_type: str
    saved_at: datetime
    prompt: str
    model: str
    mode: Mode
    parameters: Mapping[str, Any]
    generation_id: str | None
    metadata: Mapping[str, Any]

    @property
    def is_video(self) -> bool:
        """Whether the output is a video; otherwise it is an image."""
        return self.media_type.startswith("video/")


class Splits(Struct, frozen=True):
    """Names of splits with their shares, which sum to one. The default is one split, `train`."""

    shares: tuple[tuple[str, float], ...] = (("train", 1.0),)

    def split_of(self, item: str) -> str:
        """Return the split of an item, by a hash of its name, so that other items do not affect it.

        The order in which splits are named does not matter.
        """
        if len(self.shares) == 1:
            return self.shares[0][0]
        digest = hashlib.sha256(item.encode()).digest()[:_HASH_BYTES]
        place = int.from_bytes(digest, "big") / 2 ** (8 * _HASH_BYTES)
        shares = sorted(self.shares)
        bound = 0.0
        for name, share in shares:
            bound += share
            if place < bound:
                return name
        return shares[-1][0]  # by rounding, the shares may sum to slightly less than one


def sample_stem(item: str, output: int) -> str:
    """Return the file name of an output without its extension, unique among the outputs of a job.

    The stem of a later output is derived with a character that no id may contain, so it gets a hash and cannot equal
    another item's: `fox` has `fox` and `fox_2~…`, and an item `fox-2` keeps its name.
    """
    return safe_value(item if output == 1 else f"{item}\0{output}")


def sample_key(item: str, output: int) -> str:
    """Return the key of an output's sample: its stem without dots, because WebDataset ends a key at the first dot."""
    name = item if output == 1 else f"{item}\0{output}"
    return safe_value(name.replace(".", "\1"))


def media_dir(index: int) -> str:
    """Return an item's numbered folder with a slash; empty for the first ten thousand items."""
    number = index // ITEMS_PER_FOLDER
    return f"{number:04d}/" if number else ""
