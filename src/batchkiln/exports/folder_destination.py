"""A folder of this machine: a file is made in a hidden folder beside, flushed where that matters, and renamed."""

import errno
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from batchkiln.core.errors import InputError, OutputDirNotWritable
from batchkiln.exports.destinations import CARD, HEAD_BYTES, Link

_STAGING: Final = ".batchkiln-export-"  # and the process, so that two exports never share a file
# What file systems without hard links, or between two of them, answer to `link`.
_NO_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV})


class FolderPlace:
    """A folder of this machine."""

    def __init__(self, root: Path, link: Link | None) -> None:
        """Take the folder, made when something is written; without `link`, hard links where they can be had."""
        self.title = str(root)
        self._root = root.absolute()
        self._may_copy = link in {None, Link.COPY}
        self._link = link or Link.HARD
        self._wants_copies = link is Link.COPY
        self._made: set[Path] = set()
        with self._explained(""):
            if root.exists() and not root.is_dir():
                raise InputError(f"--to {root}: a file stands there; name a folder")

    @property
    def staging(self) -> Path:
        """A hidden folder in it, of this process."""
        return self._root / f"{_STAGING}{os.getpid()}"

    def card(self) -> str | None:
        """Read the card."""
        try:
            return (self._root / CARD).read_text("utf-8")
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{self.title}/{CARD} cannot be read: {error}") from error

    def is_empty(self) -> bool:
        """Whether nothing is there; what begins with a dot, such as `.git`, is not counted."""
        with self._explained(""):
            return not self._root.exists() or all(path.name.startswith(".") for path in self._root.iterdir())

    def sizes(self, folder: str) -> Mapping[str, int]:
        """Look at a folder; a link that leads nowhere is not there, nor is any where none is wanted."""
        found: dict[str, int] = {}
        try:
            with os.scandir(self._root / folder) as entries:
                for entry in entries:
                    if entry.is_file() and self._is_as_wanted(entry):
                        found[entry.name] = entry.stat().st_size
        except FileNotFoundError:
            pass
        except OSError as error:
            raise self._unwritable(folder, error) from error
        return found

    def local(self, name: str) -> Path | None:
        """Give the path itself."""
        return self._root / name

    def head(self, name: str) -> bytes:
        """Read the beginning."""
        try:
            with (self._root / name).open("rb") as file:
                return file.read(HEAD_BYTES)
        except FileNotFoundError:
            return b""

    def take(self, source: Path, name: str) -> None:
        """Make a hard link at once; anything else, or in place of a file, is made beside and renamed."""
        final, part = self._root / name, self.staging / "media"
        with self._explained(name):
            self._make_folder(final.parent)
            if self._link is Link.HARD and self._has_linked(source, final):
                return
            self._make_folder(self.staging)
            part.unlink(missing_ok=True)
            self._make(source, part, final)
            part.replace(final)
            part.unlink(missing_ok=True)  # renaming a hard link onto its twin does nothing

    def publish(self, staged: Path, name: str) -> None:
        """Rename a file into its place; one that is there with the same content stays as it is."""
        final = self._root / name
        with self._explained(name):
            if final.is_file() and _are_equal(staged, final):
                staged.unlink()
                return
            self._make_folder(final.parent)
            _sync(staged)
            staged.replace(final)
            _sync(final.parent)

    def withdraw(self, name: str) -> None:
        """Remove a table."""
        with self._explained(name):
            (self._root / name).unlink(missing_ok=True)

    def settle(self) -> None:
        """Flush all that was copied, at once: a flush for each of a million files would take hours."""
        if self._link is Link.COPY:
            os.sync()

    def close(self) -> None:
        """Remove the hidden folder, and those of exports that were killed."""
        shutil.rmtree(self.staging, ignore_errors=True)
        for folder in self._root.glob(f"{_STAGING}*"):
            if not _is_alive(folder.name.removeprefix(_STAGING)):
                shutil.rmtree(folder, ignore_errors=True)

    def _is_as_wanted(self, entry: os.DirEntry[str]) -> bool:
        """Tell whether a file may stay: copies share nothing with the outputs, also where links were made before."""
        if entry.is_symlink():
            return self._link is Link.SYM
        return not self._wants_copies or entry.stat().st_nlink == 1

    def _make(self, source: Path, part: Path, final: Path) -> None:
        if self._link is Link.SYM:
            # Relative, so that the dataset names no folder of this machine.
            part.symlink_to(os.path.relpath(source.resolve(), final.parent.resolve()))
        elif self._link is Link.COPY or not self._has_linked(source, part):
            shutil.copyfile(source, part)

    def _has_linked(self, source: Path, target: Path) -> bool:
        """Make a hard link, unless a file is in its place; where the disk has none, copies are made from then on."""
        try:
            os.link(source.resolve() if source.is_symlink() else source, target)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno not in _NO_LINKS or not self._may_copy:
                raise
            self._link = Link.COPY
            return False
        return True

    def _make_folder(self, folder: Path) -> None:
        if folder not in self._made:
            folder.mkdir(parents=True, exist_ok=True)
            self._made.add(folder)

    @contextmanager
    def _explained(self, name: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._unwritable(name, error) from error

    def _unwritable(self, name: str, error: OSError) -> OutputDirNotWritable:
        remedy = "run the same command again once that is mended: it goes on from there"
        if error.errno in _NO_LINKS and self._link is Link.HARD:
            remedy = "hard links cannot be made from the outputs to there: use --link copy"
        return OutputDirNotWritable(
            f"{self.title}/{name}: {error.strerror or error}. What was exported stays, nothing was charged; {remedy}"
        )


def _are_equal(left: Path, right: Path) -> bool:
    if left.stat().st_size != right.stat().st_size:
        return False
    with left.open("rb") as one, right.open("rb") as other:
        while True:
            chunk = one.read(1 << 20)
            if chunk != other.read(1 << 20):
                return False
            if not chunk:
                return True


def _is_alive(pid: str) -> bool:
    try:
        os.kill(int(pid), 0)
    except (ProcessLookupError, ValueError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in {errno.EINVAL, errno.ENOTSUP}:  # a file system that cannot has nothing more to give
            raise
    finally:
        os.close(handle)
