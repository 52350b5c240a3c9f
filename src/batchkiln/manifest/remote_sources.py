"""Sources at URLs that fsspec opens. Each is copied to a temporary file once, and then read like a local file."""

import os
import re
import tempfile
from pathlib import Path

from batchkiln.core.errors import StorageError
from batchkiln.object_storage import stream
from batchkiln.object_storage.threads import CALL_SECONDS
from batchkiln.object_storage.url_streams import MAX_SIZE_BYTES


class SourceNotFetched(Exception):
    """Raised for a URL that cannot be read. It has the reason and the remedy."""

    def __init__(self, reason: str, remedy: str | None = None) -> None:
        self.reason = reason
        self.remedy = remedy
        super().__init__(reason)


def file_name_of(url: str) -> str:
    """Return the last part of a URL's path, without the query."""
    return re.split(r"[?#]", url.partition("://")[2])[0].rstrip("/").rpartition("/")[2]


class RemoteSources:
    """The copies of a manifest's URLs. They exist until `close`."""

    def __init__(self, silence_seconds: float = CALL_SECONDS, max_size_bytes: int = MAX_SIZE_BYTES) -> None:
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
                stream(url, copy.write, silence_seconds=self._silence_seconds, max_size_bytes=self._max_size_bytes)
        except FileNotFoundError as error:
            path.unlink(missing_ok=True)
            raise SourceNotFetched("there is no such file") from error
        except StorageError as error:
            path.unlink(missing_ok=True)
            raise SourceNotFetched(str(error), error.remedy) from error
        except OSError as error:
            path.unlink(missing_ok=True)
            raise SourceNotFetched(f"its copy cannot be written: {error.strerror or error}") from error
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        return path
