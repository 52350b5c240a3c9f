"""Where a file may stand: inside the output folder, whatever its name holds and wherever links lead."""

import hashlib
from pathlib import Path, PurePosixPath
from typing import Final

from batchkiln.outputs.filesystem import FileSystem
from batchkiln.outputs.os_errors import unwritable

_NAME_MAX_BYTES: Final = 255
_FOLDERS_MAX: Final = 64


def place_inside(files: FileSystem, directory: Path, relative_name: str) -> Path:
    """Give the absolute path of a name below `directory`. Raises `OutputsUnwritable` for one that leaves it.

    The real paths are compared: a folder that is a link to elsewhere would lead out as well.
    """
    root = directory.absolute()
    name = PurePosixPath(relative_name)
    is_plain = not any(character < " " or character == "\x7f" for character in relative_name)
    if not name.parts or name.is_absolute() or ".." in name.parts or not is_plain or relative_name.endswith("/"):
        raise unwritable(root, f"the name {relative_name!r} is not one of a file in it", "Change output.filename.")
    path = root / name
    if not files.real_path(path.parent).is_relative_to(files.real_path(root)):
        raise unwritable(path, f"a symbolic link leads out of {root}", "Remove the link, or choose another output.dir.")
    return path


def part_path(target: Path, number: int) -> Path:
    """Give the temporary name beside a target, hidden; a long name is replaced by its hash."""
    suffix = ".part" if number == 1 else f".{number}.part"
    name = f".{target.name}{suffix}"
    if len(name.encode()) > _NAME_MAX_BYTES:
        name = f".{hashlib.sha256(target.name.encode()).hexdigest()[:32]}{suffix}"
    return target.with_name(name)


def numbered(target: Path, number: int) -> Path:
    """Give the n-th choice of a name: `fox.png`, `fox~2.png`, `fox~3.png`."""
    return target if number == 1 else target.with_name(f"{target.stem}~{number}{target.suffix}")


def make_folders(files: FileSystem, folder: Path) -> None:
    """Make a folder with its parents; each new one's own parent is flushed, or a power cut could undo it."""
    missing: list[Path] = []
    while not files.is_folder(folder) and len(missing) < _FOLDERS_MAX and folder != folder.parent:
        missing.append(folder)
        folder = folder.parent
    for path in reversed(missing):
        files.make_folder(path)
        files.sync_folder(path.parent)
