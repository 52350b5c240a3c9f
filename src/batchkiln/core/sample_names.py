"""What a dataset is made of: a row an output, its split by its item's name, names that never meet."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from batchkiln.core.filenames import safe_value
from batchkiln.core.job import Mode

ITEMS_PER_FOLDER: Final = 10_000
"""Of so many items the files stand in one folder: more are slow to list, and the Hub takes no more."""

_HASH_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class DatasetRow:
    """One output of an item that is done, with all that a dataset tells of it. `path` is absolute, `sha256` hex."""

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
        """Whether it is a clip; the only other kind is a picture."""
        return self.media_type.startswith("video/")


@dataclass(frozen=True, slots=True)
class Splits:
    """Names of splits with their shares, which sum to one. The default is one split that has all."""

    shares: tuple[tuple[str, float], ...] = (("train", 1.0),)

    def split_of(self, item: str) -> str:
        """Return the split of an item: a hash of its name decides, so that no other item moves it.

        The order in which splits were named makes no difference.
        """
        digest = hashlib.sha256(item.encode()).digest()[:_HASH_BYTES]
        place = int.from_bytes(digest, "big") / 2 ** (8 * _HASH_BYTES)
        shares = sorted(self.shares)
        bound = 0.0
        for name, share in shares:
            bound += share
            if place < bound:
                return name
        return shares[-1][0]  # their sum may lie a rounding below one


def sample_stem(item: str, output: int) -> str:
    """Return the name of an output's file without its extension; no two outputs of a job share one.

    A later output has a character in it that no id may hold, so that it gets a hash and cannot be the name of
    another item: `fox` has `fox` and `fox_2~…`, and an item `fox-2` keeps its name.
    """
    return safe_value(item if output == 1 else f"{item}\0{output}")


def sample_key(item: str, output: int) -> str:
    """Return the key of an output's sample: its stem, made without dots, which would end a key."""
    name = item if output == 1 else f"{item}\0{output}"
    return safe_value(name.replace(".", "\1"))


def media_dir(index: int) -> str:
    """Return the numbered folder of an item, empty for the first ten thousand; it depends on the item alone."""
    number = index // ITEMS_PER_FOLDER
    return f"{number:04d}/" if number else ""
