"""A place that fsspec reaches by a URL: files are committed as a whole, by the transactions of fsspec."""

import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Final

from batchkiln.core.errors import InputError, OutputDirNotWritable
from batchkiln.exports.destinations import CARD, HEAD_BYTES, needs_extra

_PUT_AT_ONCE: Final = 64  # object stores take many at once
_CREDENTIALS: Final = re.compile(r"(?<=://)[^/\s]*@")
_QUERY: Final = re.compile(r"(?<=\S)\?\S+")


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
        self._fs.invalidate_cache()  # its listings may be older than an export of another process
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
        entries = self._ask(lambda: self._fs.ls(self._root, detail=True)) or []
        names = {str(entry["name"]).rstrip("/") for entry in entries} - {
            self._root
        }  # stores may list a folder in itself
        return all(PurePosixPath(name).name.startswith(".") for name in names)

    def sizes(self, folder: str) -> Mapping[str, int]:
        """List a folder."""
        entries = self._ask(lambda: self._fs.ls(self._at(folder).rstrip("/"), detail=True)) or []
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
        return bytes(self._ask(lambda: self._fs.cat_file(self._at(name), start=0, end=HEAD_BYTES)) or b"")

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

    def _failed(self, error: Exception) -> OutputDirNotWritable:
        said = redacted(" ".join(str(error).split()))[:300]
        return OutputDirNotWritable(
            f"{self.title}: {type(error).__name__}: {said}. What was exported stays, and nothing was charged; run the "
            "same command again once that is mended: it goes on from there"
        )


def redacted(text: str) -> str:
    """Drop from a text what may be secret in its URLs (Law 8)."""
    return _QUERY.sub("?…", _CREDENTIALS.sub("…@", text))
