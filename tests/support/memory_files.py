"""Outputs and inputs in memory: the scheduler's two ports to the disk."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from batchkiln.core.job import InputFile, SavedFile, Sidecar
from batchkiln.core.responses import DownloadBroken, DownloadTruncated, DownloadUnusable

if TYPE_CHECKING:
    from batchkiln.core.errors import StorageError

CUT = b"[cut]"
"""A file that ends like this lacks the end of its format."""

NO_OUTPUT = b"<html>"
"""A file that begins like this is an error page."""


class MemoryPart:
    """A file that is being written."""

    def __init__(self) -> None:
        self.content = bytearray()
        self.restarts = 0
        self.is_discarded = False

    @property
    def size_bytes(self) -> int:
        return len(self.content)

    async def write(self, chunk: bytes) -> None:
        self.content += chunk

    async def restart(self) -> None:
        self.restarts += 1
        self.content.clear()

    async def digest(self) -> str:
        return hashlib.sha256(self.content).hexdigest()

    async def discard(self) -> None:
        self.is_discarded = True


class MemoryOutputs:
    """Files by their final path: whole, or not there (Law 7)."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.parts: list[MemoryPart] = []

    async def check_writable(self, directory: Path) -> None:
        assert directory.is_absolute()

    async def open_part(self, directory: Path, relative_name: str) -> MemoryPart:
        assert directory.is_absolute()
        assert relative_name
        part = MemoryPart()
        self.parts.append(part)
        return part

    async def finish(
        self,
        part: MemoryPart,
        *,
        total_bytes: int | None,
        name_for: Callable[[str], str],
        content_type: str | None = None,  # noqa: ARG002  every file in memory is a picture
        link_extension: str | None = None,  # noqa: ARG002  as above
        accepted_sha256: str | None = None,
    ) -> SavedFile:
        if total_bytes is not None and part.size_bytes != total_bytes:
            raise DownloadBroken(f"{part.size_bytes} bytes of {total_bytes}")
        content = bytes(part.content)
        if content.startswith(NO_OUTPUT):
            raise DownloadUnusable("a text came in place of the file")
        digest = hashlib.sha256(content).hexdigest()
        if content.endswith(CUT) and digest != accepted_sha256:
            raise DownloadTruncated("the file does not end as it should", sha256=digest)
        path = str(Path("/out") / name_for("png"))
        assert self.files.get(path, content) == content, f"{path} would be overwritten"
        self.files[path] = content
        return SavedFile(path, len(content), digest, "image/png")

    async def write_sidecar(self, path: str, kind: Sidecar, content: bytes) -> str | None:
        sidecar = str(Path(path).with_suffix(f".{kind}"))
        is_new = sidecar not in self.files
        assert self.files.setdefault(sidecar, content) == content, f"{sidecar} would be overwritten"
        return sidecar if is_new else None

    async def remove_sidecar(self, path: str) -> None:
        del self.files[path]

    async def holds(self, file: SavedFile) -> bool:
        content = self.files.get(file.path)
        return content is not None and hashlib.sha256(content).hexdigest() == file.sha256


class MemoryObjects:
    """Object storage, which has an object or does not: the port of the worker to URLs.

    `troubles` befall sends, one after the other, and `sidecar_troubles` what is written beside them.
    """

    def __init__(self, staged: MemoryOutputs) -> None:
        self.staged = staged
        self.objects: dict[str, bytes] = {}
        self.troubles: list[StorageError | None] = []
        self.sidecar_troubles: list[StorageError] = []
        self.sends = 0

    def folder_of(self, url: str) -> Path:
        assert "://" in url
        return Path("/out")

    @asynccontextmanager
    async def held(self, url: str, file: SavedFile) -> AsyncIterator[Path | None]:
        path = self.folder_of(url) / file.path
        content = self.staged.files.get(str(path))
        yield path if content is not None and hashlib.sha256(content).hexdigest() == file.sha256 else None

    async def send(self, url: str, source: Path, file: SavedFile, name: str) -> SavedFile:
        self.sends += 1
        await asyncio.sleep(0)
        if self.troubles and (trouble := self.troubles.pop(0)) is not None:
            raise trouble
        content = self.staged.files[str(source)]
        path = f"{url}/{name}"
        while self.objects.setdefault(path, content) != content:
            path = f"{path}~2"
        await asyncio.sleep(0)
        return replace(file, path=path)

    async def write_sidecar(self, url: str, path: str, kind: Sidecar, content: bytes) -> str | None:
        if self.sidecar_troubles:
            raise self.sidecar_troubles.pop(0)
        sidecar = f"{path}.{kind}"
        assert sidecar.startswith(url)
        is_new = sidecar not in self.objects
        assert self.objects.setdefault(sidecar, content) == content, f"{sidecar} would be overwritten"
        return sidecar if is_new else None

    async def remove(self, url: str, path: str) -> None:
        assert path.startswith(url)
        del self.objects[path]

    async def keep(self, source: Path, file: SavedFile) -> None:
        assert file.path in self.objects
        self.staged.files.pop(str(source), None)


class MemoryInputs:
    """Local images by path."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    def put(self, name: str, content: bytes) -> InputFile:
        path = f"/images/{name}"
        self.files[path] = content
        return InputFile(path, hashlib.sha256(content).hexdigest(), len(content), "image/png")

    async def is_unchanged(self, file: InputFile) -> bool:
        content = self.files.get(file.path)
        return content is not None and hashlib.sha256(content).hexdigest() == file.sha256

    def content(self, file: InputFile) -> Callable[[], AsyncIterator[bytes]]:
        async def chunks() -> AsyncIterator[bytes]:
            yield self.files[file.path]

        return chunks
