"""Writes output files: a file has its final name and is complete, or it has no final name (Law 7).

The order of the steps gives that guarantee. The content is flushed; the file gets its name without overwriting another;
the folder is flushed; only then is the file returned to the caller, who records it. A crash before the naming leaves a
temporary file. A crash between the naming and the record leaves a file that the next attempt recognises by its content.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import Final

from batchkiln.core.byte_sizes import format_size
from batchkiln.core.errors import OutputDirNotWritable
from batchkiln.core.filename_encoding import FILENAME_ENCODING_ERROR, can_encode_filenames
from batchkiln.core.job import SavedFile, Sidecar
from batchkiln.core.origin import tells_same
from batchkiln.core.responses import DownloadTruncated
from batchkiln.outputs.completeness import is_complete
from batchkiln.outputs.file_formats import FileFormat, format_of
from batchkiln.outputs.filesystem import FileSystem, is_whole, translate_os_errors, unwritable
from batchkiln.outputs.partial_file import NotAnOutput, PartialFile, WrongLength
from batchkiln.outputs.paths import make_folders, numbered, part_path, place_inside, sidecar_paths

MIN_FREE_BYTES: Final = 32 * 1024 * 1024  # one video may need as much, and it is charged before the disk is full
_SHARE: Final = "Set shared_dir to the place where this machine mounts it."
_MAX_SIDECAR_BYTES: Final = 16 * 1024 * 1024  # a prompt and its metadata are far smaller
_MAX_NAMES: Final = 1000  # files of one name with different content; more of them mean a mistake


class OutputFiles:
    """Writes outputs in threads. Every error of the disk is raised as `OutputDirNotWritable`."""

    def __init__(self, files: FileSystem | None = None, *, owner: str = "") -> None:
        """Use the real file system, unless a test passes another.

        If several workers share a folder, `owner` is part of each temporary name, and each worker removes only its own
        files.
        """
        self._owner = owner
        self._files: FileSystem = files or FileSystem()
        self._open_parts: dict[Path, PartialFile] = {}
        self._opening = Lock()

    async def check_writable(self, directory: Path) -> None:
        """Make the folder and write a file in it, before credits are spent. Raise `OutputDirNotWritable`."""
        if not can_encode_filenames():
            raise OutputDirNotWritable(f"{directory}: {FILENAME_ENCODING_ERROR}.")
        if not directory.is_absolute():
            raise unwritable(directory, "it is in a shared folder, which the configuration does not name", _SHARE)
        await asyncio.to_thread(self._check_writable, directory)

    async def open_part(self, directory: Path, relative_name: str) -> PartialFile:
        """Open a new temporary file beside `relative_name` below `directory`, and make its folders.

        A leftover of a crash under the temporary name is removed and never reused. Raise `OutputDirNotWritable`, also
        for a name that leads out of `directory`.
        """
        return await asyncio.to_thread(self._open_part, directory, relative_name)

    async def finish(
        self,
        part: PartialFile,
        *,
        total_bytes: int | None,
        name_for: Callable[[str], str],
        content_type: str | None = None,
        link_extension: str | None = None,
        accepted_sha256: str | None = None,
    ) -> SavedFile:
        """Check the file, give it its final name, and return the saved file.

        The content decides the format; if it is unknown, the server's `content_type` or the link's extension does.
        `name_for` maps the format's extension (without a dot) to the relative name. A taken name gets `~2`, `~3` …
        before its extension, unless the existing file has the same content: it is then the result of an earlier run
        that crashed before the record. A file without the end that its format prescribes is refused, unless its hash is
        `accepted_sha256`.

        Raise `WrongLength`, `NotAnOutput` and `DownloadTruncated`, after which the part stays open, and
        `OutputDirNotWritable`.
        """
        checked = partial(_checked, total_bytes=total_bytes, content_type=content_type, link_extension=link_extension)
        return await asyncio.to_thread(
            self._finish, part, check=checked, name_for=name_for, accepted_sha256=accepted_sha256
        )

    async def write_sidecar(self, path: str, kind: Sidecar, content: bytes) -> str | None:
        """Write a small file beside a saved one, whole and never over another file; return its path.

        Its name is the first free one of `sidecar_paths`. Return None if the sidecar of the same output exists, because
        an interrupted run has written it. Raise `OutputDirNotWritable`.
        """
        return await asyncio.to_thread(self._write_sidecar, Path(path), kind, content)

    async def holds(self, file: SavedFile) -> bool:
        """Return whether a saved file is at its path, with its size and hash. An unreadable file counts as absent."""
        return await asyncio.to_thread(is_whole, self._files, Path(file.path), file)

    async def remove_sidecar(self, path: str) -> None:
        """Remove a sidecar that was just written, because its file got another name."""
        with translate_os_errors(Path(path)):
            await asyncio.to_thread(self._files.unlink, Path(path))

    def _write_sidecar(self, file: Path, kind: Sidecar, content: bytes) -> str | None:
        temporary = part_path(file.with_name(f"{file.name}.{kind}"), 1, self._owner)
        with self._opening, translate_os_errors(temporary):
            self._files.unlink(temporary)
            handle = self._files.create(temporary)
            try:
                self._files.write(handle, content)
                self._files.sync_file(handle)
                return self._publish_sidecar(temporary, handle, file, kind, content)
            finally:
                self._files.close(handle)
                with suppress(OSError):
                    self._files.unlink(temporary)

    def _publish_sidecar(self, temporary: Path, handle: int, file: Path, kind: Sidecar, content: bytes) -> str | None:
        for final in islice(sidecar_paths(file, kind), _MAX_NAMES):
            try:
                self._files.publish(temporary, final, handle=handle)
            except FileExistsError:
                if not self._is_sidecar(final, kind, content):
                    continue
                self._files.sync_path(final)
                self._files.sync_folder(final.parent)
                return None
            self._files.sync_folder(final.parent)
            return str(final)
        raise unwritable(file, f"{_MAX_NAMES} files have the name of its sidecar", "Choose another output.filename.")

    def _is_sidecar(self, path: Path, kind: Sidecar, content: bytes) -> bool:
        size_bytes = self._files.size_of(path)
        if size_bytes is None or size_bytes > _MAX_SIDECAR_BYTES:
            return False
        return tells_same(kind, self._files.read(path), content)

    def _check_writable(self, directory: Path) -> None:
        probe = part_path(directory.absolute() / "batchkiln-write-check", 1, self._owner)
        with translate_os_errors(probe.parent):
            make_folders(self._files, probe.parent)
            self._files.unlink(probe)
            handle = self._files.create(probe)
            try:
                self._files.write(handle, b"batchkiln")
                self._files.sync_file(handle)
            finally:
                self._files.close(handle)
                self._files.unlink(probe)
            self._files.sync_folder(probe.parent)
            free_bytes = self._files.free_bytes(probe.parent)
        if free_bytes < MIN_FREE_BYTES:
            reason = f"its disk has {format_size(free_bytes)} free, and {format_size(MIN_FREE_BYTES)} are needed"
            raise unwritable(probe.parent, reason, "Free some space there, or choose another output.dir.")

    def _open_part(self, directory: Path, relative_name: str) -> PartialFile:
        with self._opening, translate_os_errors(directory / relative_name.replace("\0", " ")):
            target = place_inside(self._files, directory, relative_name)
            make_folders(self._files, target.parent)
            self._open_parts = {path: part for path, part in self._open_parts.items() if part.is_open}
            # Two outputs of one name may be in progress at once: each gets a different temporary name.
            choices = (part_path(target, number, self._owner) for number in range(1, len(self._open_parts) + 2))
            path = next(choice for choice in choices if choice not in self._open_parts)
            # Remove and do not truncate: after a crash, the final name may be a link to the same file.
            self._files.unlink(path)
            part = PartialFile(self._files, directory=directory, path=path, handle=self._files.create(path))
            self._open_parts[path] = part
        return part

    def _finish(
        self,
        part: PartialFile,
        *,
        check: Callable[[PartialFile], FileFormat],
        name_for: Callable[[str], str],
        accepted_sha256: str | None,
    ) -> SavedFile:
        with part.lock:
            part.flush()
            found = check(part)
            with translate_os_errors(part.path):
                if part.sha256 != accepted_sha256 and not is_complete(found, part.size_bytes, part.read_at):
                    raise DownloadTruncated(f"the {found.media_type} file ends too early", sha256=part.sha256)
                self._files.sync_file(part.handle)
            target = place_inside(self._files, part.directory, name_for(found.extension))
            with translate_os_errors(target):
                make_folders(self._files, target.parent)
                final = self._publish(part, target)
                self._files.sync_folder(final.parent)
            # The file is complete and has its name. A leftover temporary name is removed by a later attempt.
            with suppress(OSError):
                part.release()
                self._files.unlink(part.path)
        return SavedFile(str(final), part.size_bytes, part.sha256, found.media_type)

    def _publish(self, part: PartialFile, target: Path) -> Path:
        """Give the file the first free name, or return the name of a file with the same content."""
        for number in range(1, _MAX_NAMES + 1):
            final = numbered(target, number)
            try:
                self._files.publish(part.path, final, handle=part.handle)
            except FileExistsError:
                if self._holds(final, part):
                    self._files.sync_path(final)
                    return final
            else:
                return final
        raise unwritable(target, f"{_MAX_NAMES} files have this name", "Choose another output.filename.")

    def _holds(self, path: Path, part: PartialFile) -> bool:
        return self._files.size_of(path) == part.size_bytes and self._files.sha256_of(path) == part.sha256


def _checked(
    part: PartialFile, *, total_bytes: int | None, content_type: str | None, link_extension: str | None
) -> FileFormat:
    """Compare the length with the announced one, and return the format."""
    if total_bytes is not None and part.size_bytes != total_bytes:
        raise WrongLength(f"the server announced {total_bytes} bytes and sent {part.size_bytes}")
    found = format_of(part.head, content_type=content_type, link_extension=link_extension)
    if found is None:
        raise NotAnOutput("the server sent text in place of the file" if part.head else "the server sent an empty file")
    return found
