"""A folder of objects at a URL. An object is created whole and, where the storage permits, never over another one.

S3 and Google Cloud Storage create an object on the condition that its name is free, which also holds among several
machines. For other file systems, the name is looked up before the object is created, and the result is compared with
the bytes that were sent.
"""

import hashlib
import mimetypes
import secrets
from pathlib import Path
from typing import Any, Final

from batchkiln.core.errors import StorageError
from batchkiln.core.urls import scheme_of
from batchkiln.object_storage.filesystems import open_url, translated_errors
from batchkiln.object_storage.threads import CALL_SECONDS, transfer_seconds, within

_S3: Final = frozenset({"s3", "s3a"})
_GCS: Final = frozenset({"gs", "gcs"})
CONDITIONAL: Final = _S3 | _GCS
"""Schemes of storage that gives a name once, whoever asks at the same moment."""

_WHOLE: Final = frozenset({"hf", "abfs", "abfss", "az", "oss", "memory"})
"""Schemes of storage where a file appears once all of it is there. Others get a temporary name first."""

_READ_BYTES: Final = 1 << 20
_MAX_SMALL_BYTES: Final = 16 * 1024 * 1024


class ObjectFolder:
    """A folder of objects. Its methods block, and raise `StorageError`. Names are relative to it."""

    def __init__(self, url: str) -> None:
        """Initialize without opening the URL."""
        self.url = url.rstrip("/")
        self.scheme = scheme_of(url)

    def url_of(self, name: str) -> str:
        """Return the URL of an object."""
        return f"{self.url}/{name}"

    def create(self, source: Path, name: str, *, sha256: str, media_type: str) -> None:
        """Write a local file as a new object, with its hash in the metadata if the storage supports metadata.

        Raise `FileExistsError` if the name is taken, whatever the content.
        """
        with translated_errors():
            files, path = open_url(self.url_of(name))
            if self.scheme in CONDITIONAL:
                files.put_file(str(source), path, mode="create", **self._metadata(sha256, media_type))
                return
            if files.exists(path):
                raise FileExistsError(path)
            files.makedirs(path.rpartition("/")[0], exist_ok=True)
            if self.scheme in _WHOLE:
                files.put_file(str(source), path)
                return
            part = f"{path}.{secrets.token_hex(8)}.part"
            files.put_file(str(source), part)
            if files.exists(path):
                files.rm_file(part)
                raise FileExistsError(path)
            files.mv(part, path)

    def write(self, name: str, content: bytes) -> None:
        """Write a small new object. Raise `FileExistsError` if the name is taken."""
        extra = self._metadata(hashlib.sha256(content).hexdigest(), mimetypes.guess_type(name)[0] or "text/plain")
        with translated_errors():
            files, path = open_url(self.url_of(name))
            if self.scheme not in CONDITIONAL:
                files.makedirs(path.rpartition("/")[0], exist_ok=True)
            files.pipe_file(path, content, mode="create", **extra)

    def holds(self, name: str, *, size_bytes: int, sha256: str) -> bool | None:
        """Return whether an object has this content; None if there is no object of this name.

        A hash in the metadata is trusted only if the storage writes it together with the content. Without such a hash,
        the object is read.
        """
        try:
            with translated_errors():
                files, path = open_url(self.url_of(name))
                info = files.info(path)
                if info.get("type") != "file" or info.get("size") != size_bytes:
                    return False
                recorded = self._recorded_hash(files, path, info)
                return (recorded or _hash_of(files, path)) == sha256
        except FileNotFoundError:
            return None

    def size_of(self, name: str) -> int | None:
        """Return the size of an object in bytes; None if there is none."""
        try:
            with translated_errors():
                files, path = open_url(self.url_of(name))
                info = files.info(path)
                return int(info["size"]) if info.get("type") == "file" else None
        except FileNotFoundError:
            return None

    def read(self, name: str) -> bytes | None:
        """Return the content of a small object; None if there is none, or if it is too large."""
        try:
            with translated_errors():
                files, path = open_url(self.url_of(name))
                if (files.info(path).get("size") or 0) > _MAX_SMALL_BYTES:
                    return None
                return bytes(files.cat_file(path))
        except FileNotFoundError:
            return None

    def remove(self, name: str) -> None:
        """Remove an object, if it exists."""
        try:
            with translated_errors():
                files, path = open_url(self.url_of(name))
                files.rm_file(path)
        except FileNotFoundError:
            pass

    def names(self, folder: str) -> list[str]:
        """Return the names of the objects directly in a folder, without its path; no names if it does not exist."""
        try:
            with translated_errors():
                files, path = open_url(self.url_of(folder).rstrip("/"))
                entries = files.ls(path, detail=True)
                return [str(entry["name"]).rpartition("/")[2] for entry in entries if entry["type"] == "file"]
        except FileNotFoundError:
            return []

    def check(self, owner: str, *, is_shared: bool = False) -> None:
        """Write, read and remove an object, and write it a second time, which must fail.

        `owner` makes its name unique. With `is_shared`, the storage must ensure that only one of several machines can
        create an object of a name. Each step has a time limit. Raise `StorageError`.
        """
        name, content = f".batchkiln/{owner}.probe", owner.encode()
        if is_shared and self.scheme not in CONDITIONAL:
            raise StorageError(
                f"{self.scheme}:// cannot create an object on the condition that its name is free, so that two workers "
                "could overwrite each other's results; s3:// and gs:// can",
                is_lasting=True,
            )
        within(CALL_SECONDS, lambda: self.remove(name))
        try:
            within(CALL_SECONDS, lambda: self.write(name, content))
            if within(CALL_SECONDS, lambda: self.read(name)) != content:
                raise StorageError("an object that was just written reads differently", is_lasting=True)
            self._check_created_once(name)
        except FileNotFoundError as error:
            raise StorageError("there is no such bucket or folder", is_lasting=True) from error
        finally:
            within(CALL_SECONDS, lambda: self.remove(name))
        if within(CALL_SECONDS, lambda: self.read(name)) is not None:
            raise StorageError("an object that was removed is still there", is_lasting=True)

    def _check_created_once(self, name: str) -> None:
        try:
            within(CALL_SECONDS, lambda: self.write(name, b"second"))
        except FileExistsError:
            return
        raise StorageError(
            "it overwrites an object although asked to create a new one (If-None-Match is ignored), so that a file "
            "could replace another one",
            is_lasting=True,
        )

    def _metadata(self, sha256: str, media_type: str) -> dict[str, Any]:
        if self.scheme in _S3:
            return {"Metadata": {"sha256": sha256}, "ContentType": media_type}
        if self.scheme in _GCS:
            return {"metadata": {"sha256": sha256}, "content_type": media_type}
        return {}

    def _recorded_hash(self, files: Any, path: str, info: dict[str, Any]) -> str | None:  # noqa: ANN401  fsspec has no types
        if self.scheme in _S3:
            return dict(files.metadata(path)).get("sha256")
        if self.scheme in _GCS:
            return (info.get("metadata") or {}).get("sha256")
        return None


def _hash_of(files: Any, path: str) -> str:  # noqa: ANN401  fsspec has no types
    digest = hashlib.sha256()
    with files.open(path, "rb") as content:
        while piece := content.read(_READ_BYTES):
            digest.update(piece)
    return digest.hexdigest()


def write_object(folder: ObjectFolder, source: Path, name: str, *, sha256: str, media_type: str) -> bool:
    """Create an object and verify it; return False if the name is taken by other content.

    An existing object with the same content counts as success, because an earlier try has written it. Raise
    `StorageError`.
    """
    size_bytes = source.stat().st_size
    try:
        folder.create(source, name, sha256=sha256, media_type=media_type)
    except FileExistsError:
        return folder.holds(name, size_bytes=size_bytes, sha256=sha256) is True
    except FileNotFoundError as error:
        raise StorageError("there is no such bucket or folder", is_lasting=True) from error
    if not folder.holds(name, size_bytes=size_bytes, sha256=sha256):
        raise StorageError(f"{folder.url_of(name)} does not hold the bytes that were sent")
    return True


def send_seconds(size_bytes: int) -> float:
    """Return the time limit of `write_object`: the file is sent, and perhaps read once."""
    return 2 * transfer_seconds(size_bytes)
