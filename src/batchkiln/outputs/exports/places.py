"""Where a dataset is written: a folder of this machine, or whatever fsspec reaches by a URL.

A file gets its final name only when it is whole. In a folder it is made in a hidden one beside and renamed; at a URL it
is committed as a whole (fsspec's transactions). Nothing is deleted but what this process made and did not need.
"""

import errno
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import Any, Final, Protocol
from urllib.parse import unquote, urlsplit

from batchkiln.core.errors import InputError, OutputsUnwritable

CARD: Final = "README.md"
_STAGING: Final = ".batchkiln-export-"  # and the process, so that two exports never share a file
_HEAD_BYTES: Final = 64 * 1024
_PUT_AT_ONCE: Final = 64  # object stores take many at once

# What file systems without hard links, or between two of them, answer to `link`.
_NO_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV})
_CREDENTIALS: Final = re.compile(r"(?<=://)[^/@\s]*@")
_QUERY: Final = re.compile(r"(?<=\S)\?\S+")


class Link(StrEnum):
    """How media come into a folder."""

    HARD = "hard"
    SYM = "sym"
    COPY = "copy"


class Place(Protocol):
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


def open_place(to: str, link: Link | None) -> Place:
    """Open a folder, or a URL of fsspec, which `://` tells. Raises `InputError`."""
    if "://" not in to:
        return LocalPlace(Path(to), link)
    if to.startswith("file://"):
        return LocalPlace(Path(unquote(urlsplit(to).path)), link)
    if link not in {None, Link.COPY}:
        raise InputError(f"--link {link}: links can only be made in a folder; at a URL files are copied")
    return UrlPlace(to)


class LocalPlace:
    """A folder of this machine."""

    def __init__(self, root: Path, link: Link | None) -> None:
        """Take the folder, made when something is written; without `link`, hard links where they can be had."""
        self.title = str(root)
        self._root = root.absolute()
        self._may_copy = link in {None, Link.COPY}
        self._link = link or Link.HARD
        self._made: set[Path] = set()
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
        return not self._root.exists() or all(path.name.startswith(".") for path in self._root.iterdir())

    def sizes(self, folder: str) -> Mapping[str, int]:
        """Look at a folder; a link that leads nowhere is not there, and one is not there where none is wanted."""
        found: dict[str, int] = {}
        try:
            with os.scandir(self._root / folder) as entries:
                for entry in entries:
                    if (self._link is Link.SYM or not entry.is_symlink()) and entry.is_file():
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
                return file.read(_HEAD_BYTES)
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

    def _unwritable(self, name: str, error: OSError) -> OutputsUnwritable:
        remedy = "run the same command again once that is mended: it goes on from there"
        if error.errno in _NO_LINKS and self._link is Link.HARD:
            remedy = "hard links cannot be made from the outputs to there: use --link copy"
        return OutputsUnwritable(
            f"{self.title}/{name}: {error.strerror or error}. What was exported stays, nothing was charged; {remedy}"
        )


class UrlPlace:
    """A place that fsspec reaches."""

    def __init__(self, url: str) -> None:
        """Open it. Raises `InputError` for a URL that this installation does not reach."""
        try:
            from fsspec.core import url_to_fs  # noqa: PLC0415  an extra, which only URLs need
        except ImportError as error:
            raise InputError(needs_extra("--to with a URL")) from error
        self.title = redacted(url)
        try:
            self._fs, root = url_to_fs(url)
        except (ImportError, ValueError) as error:
            raise InputError(f"--to {self.title}: {redacted(str(error))}") from error
        self._root = str(root).rstrip("/")
        self._waiting: list[tuple[str, str]] = []
        self._staging: Path | None = None

    @property
    def staging(self) -> Path:
        """A temporary folder, made when it is needed."""
        if self._staging is None:
            self._staging = Path(tempfile.mkdtemp(prefix="batchkiln-export-"))
        return self._staging

    def card(self) -> str | None:
        """Fetch the card."""
        content = self._ask(lambda: self._fs.cat_file(self._at(CARD)))
        return None if content is None else bytes(content).decode("utf-8", "replace")

    def is_empty(self) -> bool:
        """Whether nothing is there."""
        return not any(
            not PurePosixPath(str(entry["name"])).name.startswith(".")
            for entry in self._ask(lambda: self._fs.ls(self._root, detail=True)) or []
        )

    def sizes(self, folder: str) -> Mapping[str, int]:
        """List a folder."""
        entries = self._ask(lambda: self._fs.ls(self._at(folder).rstrip("/"), detail=True, refresh=True)) or []
        return {
            PurePosixPath(str(entry["name"])).name: int(entry["size"] or 0)
            for entry in entries
            if entry["type"] == "file"
        }

    def local(self, name: str) -> Path | None:
        """Nothing there can be read without fetching it."""
        del name
        return None

    def head(self, name: str) -> bytes:
        """Fetch the beginning."""
        return bytes(self._ask(lambda: self._fs.cat_file(self._at(name), start=0, end=_HEAD_BYTES)) or b"")

    def take(self, source: Path, name: str) -> None:
        """Note a file; some go together."""
        self._waiting.append((str(source), self._at(name)))
        if len(self._waiting) >= _PUT_AT_ONCE:
            self._put()

    def publish(self, staged: Path, name: str) -> None:
        """Send a file, after all that waits."""
        self._put()
        self._waiting.append((str(staged), self._at(name)))
        self._put()
        staged.unlink()

    def withdraw(self, name: str) -> None:
        """Remove a table."""
        self._ask(lambda: self._fs.rm_file(self._at(name)))

    def settle(self) -> None:
        """Send all that waits."""
        self._put()

    def close(self) -> None:
        """Remove the folder of this machine."""
        if self._staging is not None:
            shutil.rmtree(self._staging, ignore_errors=True)

    def _at(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _put(self) -> None:
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return

        def send() -> None:
            with self._fs.transaction:
                self._fs.put([source for source, _ in waiting], [target for _, target in waiting])

        self._ask(send, writes=True)

    def _ask(self, work: Any, *, writes: bool = False) -> Any:  # noqa: ANN401  fsspec has no types
        """Ask the file system; None where nothing is there. Each kind of it has errors of its own."""
        try:
            return work()
        except FileNotFoundError as error:
            if not writes:
                return None
            raise self._failed(error) from error
        except Exception as error:
            raise self._failed(error) from error

    def _failed(self, error: Exception) -> OutputsUnwritable:
        said = redacted(" ".join(str(error).split()))[:300]
        return OutputsUnwritable(
            f"{self.title}: {type(error).__name__}: {said}. What was exported stays, and nothing was charged; run the "
            "same command again once that is mended: it goes on from there"
        )


def needs_extra(what: str) -> str:
    """Say that an optional part is not installed, and how it is."""
    return f"{what} needs an optional part that is not installed: pip install 'batchkiln[datasets]'"


def redacted(text: str) -> str:
    """Drop from a text what may be secret in its URLs (Law 8)."""
    return _QUERY.sub("?…", _CREDENTIALS.sub("…@", text))


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
