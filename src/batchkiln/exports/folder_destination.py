"""A local folder as a destination: files are written to a hidden folder inside it, flushed and renamed."""

import filecmp
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from batchkiln.core.errors import InputError, OutputDirNotWritable
from batchkiln.exports.destinations import CARD, HEAD_BYTES, Link, not_written
from batchkiln.outputs.filesystem import NO_LINKS, FileSystem

_STAGING: Final = ".batchkiln-export-"  # followed by the process id, so that two exports never share a file


class FolderDestination:
    """A local folder. It is created at the first write."""

    def __init__(self, root: Path, link: Link | None) -> None:
        """Without `link`, media are hard-linked if the file system can, and copied otherwise.

        Raise `InputError` if `root` is a file.
        """
        self.title = str(root)
        self._root = root.absolute()
        self._may_copy = link in {None, Link.COPY}
        self._link = link or Link.HARD
        self._wants_copies = link is Link.COPY
        self._made: set[str] = set()
        self._files = FileSystem()
        with self._translated_errors(""):
            if root.exists() and not root.is_dir():
                raise InputError(f"--to {root}: this is a file; name a folder")

    @property
    def staging(self) -> Path:
        """A hidden folder of this process, inside the destination."""
        return self._root / f"{_STAGING}{os.getpid()}"

    def card(self) -> str | None:
        """Read the card. Raise `InputError` if it is not readable as text."""
        try:
            return (self._root / CARD).read_text("utf-8")
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{self.title}/{CARD} cannot be read: {error}") from error

    def is_empty(self) -> bool:
        """Return whether only hidden files, such as `.git`, are in the folder."""
        with self._translated_errors(""):
            return not self._root.exists() or all(path.name.startswith(".") for path in self._root.iterdir())

    def sizes(self, folder: str) -> Mapping[str, int]:
        """Return the sizes in bytes of files that are linked as requested. Broken links are left out."""
        found: dict[str, int] = {}
        with self._translated_errors(folder):
            try:
                with os.scandir(self._root / folder) as entries:
                    for entry in entries:
                        if entry.is_file() and self._is_wanted_link(entry):
                            found[entry.name] = entry.stat().st_size
            except FileNotFoundError:
                pass
        return found

    def local_path(self, name: str) -> Path | None:
        """Return the path of a file."""
        return self._root / name

    def head(self, name: str) -> bytes:
        """Read the beginning of a file."""
        try:
            with (self._root / name).open("rb") as file:
                return file.read(HEAD_BYTES)
        except FileNotFoundError:
            return b""

    def add_media(self, source: str, name: str) -> None:
        """Make a hard link in place. A copy, a symlink or a replacement is made in `staging` and renamed."""
        with self._translated_errors(name):
            folder = name.rpartition("/")[0]
            if folder not in self._made:
                (self._root / folder).mkdir(parents=True, exist_ok=True)
                self._made.add(folder)
            if self._link is Link.HARD and self._try_link(source, f"{self._root}/{name}"):
                return
            final, part = self._root / name, self.staging / "media"
            self.staging.mkdir(parents=True, exist_ok=True)
            part.unlink(missing_ok=True)
            if self._link is Link.SYM:
                # A relative link keeps this machine's folders out of the dataset.
                part.symlink_to(os.path.relpath(Path(source).resolve(), final.parent.resolve()))
            elif self._link is Link.COPY or not self._try_link(source, part):
                shutil.copyfile(source, part)
            part.replace(final)
            part.unlink(missing_ok=True)  # renaming one hard link to another of the same file does nothing

    def publish(self, staged: Path, name: str) -> None:
        """Rename a file to its final name. An existing file with the same content is left untouched."""
        final = self._root / name
        with self._translated_errors(name):
            if final.is_file() and filecmp.cmp(staged, final, shallow=False):
                staged.unlink()
                return
            final.parent.mkdir(parents=True, exist_ok=True)
            self._files.sync_path(staged)
            staged.replace(final)
            self._files.sync_folder(final.parent)

    def remove(self, name: str) -> None:
        """Remove a table."""
        with self._translated_errors(name):
            (self._root / name).unlink(missing_ok=True)

    def flush(self) -> None:
        """Flush all copies in one call: a flush for each of a million files would take hours."""
        if self._link is Link.COPY:
            os.sync()

    def close(self) -> None:
        """Remove the staging folder, and those of exports that were killed."""
        shutil.rmtree(self.staging, ignore_errors=True)
        for folder in self._root.glob(f"{_STAGING}*"):
            if not _is_running(folder.name.removeprefix(_STAGING)):
                shutil.rmtree(folder, ignore_errors=True)

    def _is_wanted_link(self, entry: os.DirEntry[str]) -> bool:
        """Return whether an existing file may stay. A copy must share no data with the outputs."""
        if entry.is_symlink():
            return self._link is Link.SYM
        return not self._wants_copies or entry.stat().st_nlink == 1

    def _try_link(self, source: str, target: str | Path) -> bool:
        """Make a hard link. Return False if `target` exists, or if the file system requires copies from now on."""
        try:
            os.link(os.path.realpath(source) if os.path.islink(source) else source, target)  # noqa: PTH114
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno not in NO_LINKS or not self._may_copy:
                raise
            self._link = Link.COPY
            return False
        return True

    @contextmanager
    def _translated_errors(self, name: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._not_written(f"{self.title}/{name}", error) from error

    def _not_written(self, where: str, error: OSError) -> OutputDirNotWritable:
        if error.errno in NO_LINKS and self._link is Link.HARD:
            remedy = "hard links to the outputs cannot be made there: use --link copy"
            return not_written(where, error.strerror or error, remedy)
        return not_written(where, error.strerror or error)


def _is_running(pid: str) -> bool:
    try:
        os.kill(int(pid), 0)
    except (ProcessLookupError, ValueError, OverflowError):
        return False
    except PermissionError:
        return True
    return True
