"""Files that stand where new outputs are to come: what another queue may have made, and paid for."""

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path, PurePosixPath


def taken_names(directory: Path, names: Iterable[str]) -> list[str]:
    """Return which of the relative names a file has already, whatever its extension. What cannot be read is empty."""
    stems: dict[str, dict[str, str]] = {}
    found: list[str] = []
    if not directory.is_dir():
        return found
    for name in names:
        path = PurePosixPath(name)
        parent = str(path.parent)
        if parent not in stems:
            stems[parent] = _stems(directory / parent)
        if (there := stems[parent].get(path.stem)) is not None:
            found.append(str(path.with_name(there)))
    return found


def _stems(folder: Path) -> dict[str, str]:
    """Return the names of a folder's files by what stands before their extension."""
    with suppress(OSError), os.scandir(folder) as entries:
        return {Path(entry.name).stem: entry.name for entry in entries if entry.is_file()}
    return {}
