"""Finds missing and changed files by their recorded sizes, for the pages that show single items."""

import asyncio
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from batchkiln.api import ItemSummary
from batchkiln.core.job import InputFile
from batchkiln.core.urls import is_url
from batchkiln.presentation.formatting import plural

MISSING: Final = "is missing"


async def faults_of(items: Iterable[ItemSummary]) -> Mapping[int, str]:
    """Return the faults of items' files by the id of the output, such as `is missing`, to be read after a file's name.

    `batchkiln fetch` finds the same files. Objects are not asked for, because that takes too long, and a file that
    cannot be examined is not in the mapping.
    """
    files = [(output.id, output.path, output.size_bytes) for item in items for output in item.outputs]
    return await asyncio.to_thread(_faults, files)


async def missing_inputs(inputs: Iterable[tuple[int, InputFile]]) -> frozenset[int]:
    """Return the ids of the images that were moved or deleted. Objects are not asked for: that takes too long."""
    files = [(number, file.path) for number, file in inputs if not is_url(file.path)]
    return await asyncio.to_thread(_missing, files)


def _missing(files: Iterable[tuple[int, str]]) -> frozenset[int]:
    return frozenset(number for number, path in files if not Path(path).is_file())


def _faults(files: Iterable[tuple[int, str, int]]) -> dict[int, str]:
    found = ((number, _fault(path, size_bytes)) for number, path, size_bytes in files)
    return {number: fault for number, fault in found if fault is not None}


def _fault(path: str, size_bytes: int) -> str | None:
    if is_url(path) or not Path(path).is_absolute():  # relative: in a shared folder that this machine does not know
        return None
    try:
        found = Path(path).stat().st_size
    except (FileNotFoundError, NotADirectoryError):
        return MISSING
    except OSError:
        return None
    return None if found == size_bytes else f"has {plural(found, 'byte')}, not {size_bytes:,}"
