"""Paths of output files. They are always inside the output folder, whatever names contain and wherever links lead."""

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path, PurePosixPath
from typing import Final

from batchkiln.core.errors import StorageError
from batchkiln.core.urls import is_url
from batchkiln.object_storage import ObjectFolder, within
from batchkiln.object_storage.threads import CALL_SECONDS
from batchkiln.outputs.filesystem import FileSystem, unwritable

_MAX_NAME_BYTES: Final = 255
_MAX_FOLDERS: Final = 64
_MAX_LISTINGS: Final = 50
_OUTPUT_EXTENSIONS: Final = frozenset({"png", "jpg", "jpeg", "webp", "gif", "avif", "mp4", "webm", "mov"})


def place_inside(files: FileSystem, directory: Path, relative_name: str) -> Path:
    """Return the absolute path of a name below `directory`. Raise `OutputDirNotWritable` for a name outside it.

    Real paths are compared, because a folder may be a link that leads elsewhere.
    """
    root = directory.absolute()
    name = PurePosixPath(relative_name)
    has_control = any(character < " " or character == "\x7f" for character in relative_name)
    if not name.parts or name.is_absolute() or ".." in name.parts or has_control or relative_name.endswith("/"):
        raise unwritable(root, f"{relative_name!r} is not the name of a file in it", "Change output.filename.")
    path = root / name
    if not files.real_path(path.parent).is_relative_to(files.real_path(root)):
        raise unwritable(path, f"a symbolic link leads out of {root}", "Remove the link, or choose another output.dir.")
    return path


def part_path(target: Path, number: int, owner: str = "") -> Path:
    """Return the hidden temporary name beside a target. A name that would be too long is replaced by its hash.

    `owner` names the worker and its epoch if several workers write to one folder.
    """
    suffix = (f".{owner}" if owner else "") + (".part" if number == 1 else f".{number}.part")
    name = f".{target.name}{suffix}"
    if len(name.encode()) > _MAX_NAME_BYTES:
        name = f".{hashlib.sha256(target.name.encode()).hexdigest()[:32]}{suffix}"
    return target.with_name(name)


def numbered(target: Path, number: int) -> Path:
    """Return the n-th alternative of a name: `fox.png`, `fox~2.png`, `fox~3.png`."""
    return target if number == 1 else target.with_name(f"{target.stem}~{number}{target.suffix}")


def sidecar_paths(file: Path, extension: str) -> Iterator[Path]:
    """Yield the possible names of a file's sidecar: `fox.json`, `fox.png.json`, `fox.png~2.json`.

    The first replaces the extension, as programs that read captions expect. A name that does not end in the extension
    of an output is kept whole (`a.b` gives `a.b.json`).
    """
    if file.suffix[1:].lower() in _OUTPUT_EXTENSIONS:
        yield file.with_suffix(f".{extension}")
    whole = file.with_name(f"{file.name}.{extension}")
    for number in count(1):
        yield numbered(whole, number)


def make_folders(files: FileSystem, folder: Path) -> None:
    """Make a folder and its parents. The parent of each new folder is flushed, so that it survives a power cut."""
    missing: list[Path] = []
    while not files.is_folder(folder) and len(missing) < _MAX_FOLDERS and folder != folder.parent:
        missing.append(folder)
        folder = folder.parent
    for path in reversed(missing):
        files.make_folder(path)
        files.sync_folder(path.parent)


def taken_names(directory: str, names: Iterable[str]) -> list[str]:
    """Return the existing files with these relative names below a folder or URL, whatever their extensions.

    Another queue may have paid for them. A place that cannot be read counts as empty. At a URL, only the first 50
    folders of the names are listed.
    """
    files_by_stem: dict[str, dict[str, str]] = {}
    taken: list[str] = []
    list_folder = _object_lister(directory) if is_url(directory) else partial(_files_by_stem, directory)
    if not is_url(directory) and not Path(directory).is_dir():
        return taken
    for name in names:
        path = PurePosixPath(name)
        parent = str(path.parent)
        if parent not in files_by_stem:
            files_by_stem[parent] = list_folder(parent)
        if (file := files_by_stem[parent].get(path.stem)) is not None:
            taken.append(str(path.with_name(file)))
    return taken


def _object_lister(url: str) -> Callable[[str], dict[str, str]]:
    """Return a function that lists folders of objects, until one cannot be read or enough were listed."""
    place, left = ObjectFolder(url), _MAX_LISTINGS

    def list_folder(folder: str) -> dict[str, str]:
        nonlocal left
        left -= 1
        if left < 0:
            return {}
        try:
            names = within(CALL_SECONDS, partial(place.names, "" if folder == "." else folder))
        except StorageError:
            left = 0
            return {}
        return {PurePosixPath(name).stem: name for name in names}

    return list_folder


def _files_by_stem(directory: str, folder: str) -> dict[str, str]:
    with suppress(OSError), os.scandir(Path(directory, folder)) as entries:
        return {Path(entry.name).stem: entry.name for entry in entries if entry.is_file()}
    return {}
