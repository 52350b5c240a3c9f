"""Sources at URLs that fsspec opens. Each is copied to a temporary file once, and then read like a local file."""

import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from queue import Empty, Full, Queue
from threading import Event, Thread
from typing import Any, Final

from batchkiln.core.urls import redacted
from batchkiln.manifest.diagnostics import quoted

MAX_SIZE_BYTES: Final = 2 << 30
SILENCE_SECONDS: Final = 60.0
"""How long nothing may come of a source, in seconds of real time."""

_PIECE_SIZE_BYTES: Final = 1 << 20
_PIECES_AHEAD: Final = 4
_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_EXTRA: Final = "pip install 'batchkiln[datasets]'"


class SourceNotFetched(Exception):
    """Raised for a URL that cannot be read. It has the reason and the remedy."""

    def __init__(self, reason: str, remedy: str | None = None) -> None:
        self.reason = reason
        self.remedy = remedy
        super().__init__(reason)


def is_url(name: str) -> bool:
    """Return whether a source is a URL."""
    return _URL.match(name) is not None


def file_name_of(url: str) -> str:
    """Return the last part of a URL's path, without a query."""
    return re.split(r"[?#]", url.partition("://")[2])[0].rstrip("/").rpartition("/")[2]


class RemoteSources:
    """The copies of a manifest's URLs. They exist until `close`."""

    def __init__(self, silence_seconds: float = SILENCE_SECONDS, max_size_bytes: int = MAX_SIZE_BYTES) -> None:
        """Copy nothing yet."""
        self._copies: dict[str, Path] = {}
        self._silence_seconds = silence_seconds
        self._max_size_bytes = max_size_bytes

    def path_of(self, url: str) -> Path:
        """Return the copy of a URL's content, made at the first use. Raise `SourceNotFetched`."""
        if url not in self._copies:
            self._copies[url] = self._copied(url)
        return self._copies[url]

    def close(self) -> None:
        """Delete the copies."""
        for path in self._copies.values():
            path.unlink(missing_ok=True)
        self._copies.clear()

    def _copied(self, url: str) -> Path:
        suffix = ".gz" if file_name_of(url).lower().endswith(".gz") else ""
        handle, name = tempfile.mkstemp(prefix="batchkiln-", suffix=suffix)
        path = Path(name)
        try:
            with os.fdopen(handle, "wb") as copy:
                self._fetch(url, copy.write)
        except OSError as error:
            path.unlink(missing_ok=True)
            raise SourceNotFetched(f"its copy cannot be written: {error.strerror or error}") from error
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        return path

    def _fetch(self, url: str, write: Callable[[bytes], object]) -> None:
        """Write the content as it comes. A read that hangs is left to its thread, which ends with the process."""
        pieces: Queue[bytes | Exception] = Queue(_PIECES_AHEAD)
        given_up = Event()
        arguments = (url, self._max_size_bytes, pieces, given_up)
        Thread(target=_read, args=arguments, name="batchkiln-source", daemon=True).start()
        size_bytes = 0
        try:
            while True:
                try:
                    piece = pieces.get(timeout=self._silence_seconds)
                except Empty:
                    reason = f"nothing came for {self._silence_seconds:.0f} seconds"
                    raise SourceNotFetched(reason, "run the command again, or copy the file to this machine") from None
                if isinstance(piece, Exception):
                    raise _not_fetched(piece)
                if not piece:
                    return
                size_bytes += len(piece)
                if size_bytes > self._max_size_bytes:
                    raise _too_large(self._max_size_bytes)
                write(piece)
        finally:
            given_up.set()


def _read(url: str, max_size_bytes: int, pieces: "Queue[bytes | Exception]", given_up: Event) -> None:
    def put(piece: bytes | Exception) -> bool:
        while not given_up.is_set():
            try:
                pieces.put(piece, timeout=1)
            except Full:
                continue
            return True
        return False

    try:
        from fsspec.core import url_to_fs  # noqa: PLC0415  an extra, and slow to import

        fs: Any
        fs, path = url_to_fs(url)
        if (fs.info(path).get("size") or 0) > max_size_bytes:
            put(_too_large(max_size_bytes))
            return
        with fs.open(path, "rb") as stream:
            while piece := stream.read(_PIECE_SIZE_BYTES):
                if not put(piece):
                    return
    except Exception as error:  # noqa: BLE001  each kind of storage raises different ones
        put(error)
    else:
        put(b"")


def _too_large(max_size_bytes: int) -> SourceNotFetched:
    return SourceNotFetched(f"it has more than {max_size_bytes:,} bytes", "split it into several files")


def _not_fetched(error: Exception) -> SourceNotFetched:
    message = quoted(redacted(" ".join(str(error).split())), 300)
    match error:
        case SourceNotFetched():
            return error
        case ModuleNotFoundError(name="fsspec"):
            return SourceNotFetched("a URL needs packages that are not installed", _EXTRA)
        case ImportError():
            return SourceNotFetched(f"this kind of URL needs another package: {message}")
        case FileNotFoundError():
            return SourceNotFetched("there is no such file")
        case _:
            return SourceNotFetched(f"{type(error).__name__}: {message}")
