"""A URL as a destination. A transaction of fsspec gives a file its name only when it is complete."""

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Final

from batchkiln.core.errors import InputError, OutputDirNotWritable
from batchkiln.core.urls import redacted
from batchkiln.exports.destinations import CARD, HEAD_BYTES, missing_extra, not_written

_FILES_PER_PUT: Final = 64  # object stores accept many files at once


class UrlDestination:
    """A destination that fsspec opens by its URL."""

    def __init__(self, url: str) -> None:
        """Open the URL. Raise `InputError` if no installed package can open it."""
        try:
            from fsspec.core import url_to_fs  # noqa: PLC0415  an extra, which only URLs need
        except ImportError as error:
            raise InputError(missing_extra("--to with a URL")) from error
        self.title = redacted(url)
        try:
            self._fs, root = url_to_fs(url)
        except (ImportError, ValueError) as error:
            raise InputError(f"--to {self.title}: {redacted(str(error))}") from error
        self._fs.invalidate_cache()  # cached listings may be older than another process's export
        self._root = str(root).rstrip("/")
        self._pending: list[tuple[str, str]] = []
        self._staging: Path | None = None

    @property
    def staging(self) -> Path:
        """A temporary local folder, made at the first use."""
        if self._staging is None:
            self._staging = Path(tempfile.mkdtemp(prefix="batchkiln-export-"))
        return self._staging

    def card(self) -> str | None:
        """Fetch the card."""
        content = self._call(lambda: self._fs.cat_file(self._full_path(CARD)))
        return None if content is None else bytes(content).decode("utf-8", "replace")

    def is_empty(self) -> bool:
        """Return whether the URL has no files except hidden ones. Some stores list a folder among its own files."""
        names = {str(entry["name"]).rstrip("/") for entry in self._entries(self._root)} - {self._root}
        return all(PurePosixPath(name).name.startswith(".") for name in names)

    def sizes(self, folder: str) -> Mapping[str, int]:
        """Return the sizes in bytes of the files in a folder."""
        files = [entry for entry in self._entries(self._full_path(folder).rstrip("/")) if entry["type"] == "file"]
        return {PurePosixPath(str(entry["name"])).name: int(entry["size"] or 0) for entry in files}

    def local_path(self, name: str) -> Path | None:
        """Return None, because no file is on this machine."""
        del name
        return None

    def head(self, name: str) -> bytes:
        """Fetch the beginning of a file."""
        return bytes(self._call(lambda: self._fs.cat_file(self._full_path(name), start=0, end=HEAD_BYTES)) or b"")

    def add_media(self, source: str, name: str) -> None:
        """Queue a file; several are sent together."""
        self._pending.append((source, self._full_path(name)))
        if len(self._pending) >= _FILES_PER_PUT:
            self.flush()

    def publish(self, staged: Path, name: str) -> None:
        """Send a file after all queued media."""
        self.flush()
        self._pending.append((str(staged), self._full_path(name)))
        self.flush()
        staged.unlink()

    def remove(self, name: str) -> None:
        """Remove a table."""
        self._call(lambda: self._fs.rm_file(self._full_path(name)))

    def flush(self) -> None:
        """Send all queued files in one transaction."""
        pending, self._pending = self._pending, []
        if not pending:
            return

        def send() -> None:
            with self._fs.transaction:
                self._fs.put([source for source, _ in pending], [target for _, target in pending])

        self._call(send, writes=True)

    def close(self) -> None:
        """Remove the temporary local folder."""
        if self._staging is not None:
            shutil.rmtree(self._staging, ignore_errors=True)

    def _full_path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _entries(self, folder: str) -> list[dict[str, Any]]:
        return self._call(lambda: self._fs.ls(folder, detail=True)) or []

    def _call(self, work: Any, *, writes: bool = False) -> Any:  # noqa: ANN401  fsspec has no types
        """Return the result of `work`; None if a file to read or remove does not exist."""
        try:
            return work()
        except FileNotFoundError as error:
            if not writes:
                return None
            raise self._not_written(error) from error
        except Exception as error:  # each kind of store raises different errors
            raise self._not_written(error) from error

    def _not_written(self, error: Exception) -> OutputDirNotWritable:
        message = redacted(" ".join(str(error).split()))[:300]
        return not_written(self.title, f"{type(error).__name__}: {message}")
