"""From bytes to a file that stands whole under its final name, or not at all (Law 7).

The order is the promise: the content is flushed, then the file gets its name without overwriting anything,
then the folder is flushed; only then is it told to the caller, who records it. A crash before the name
leaves a temporary file; a crash between the name and the record is found again by content.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Final

from batchkiln.core.errors import OutputDirNotWritable
from batchkiln.core.file_encoding import NAMES_UNSPELLED, can_spell_names
from batchkiln.core.job import SavedFile
from batchkiln.core.responses import DownloadCut
from batchkiln.outputs.completeness import is_complete
from batchkiln.outputs.file_formats import Media, media_of
from batchkiln.outputs.filesystem import FileSystem, RealFiles
from batchkiln.outputs.os_errors import translate_os_errors, unwritable
from batchkiln.outputs.partial_file import PartialFile, WrongLength, WrongMedia
from batchkiln.outputs.paths import make_folders, numbered, part_path, place_inside

# Below this not even one clip is sure to fit, and it would be paid before that showed.
FREE_MIN_BYTES: Final = 32 * 1024 * 1024
# Equal names with other content come from other programs; so many of them are a mistake.
_NAMES_MAX: Final = 1000


class OutputFiles:
    """Writes outputs. Disk work is done in threads; every failure of the disk is an `OutputDirNotWritable`."""

    def __init__(self, files: FileSystem | None = None) -> None:
        """Take another file system only in tests."""
        self._files: FileSystem = files or RealFiles()
        self._open_parts: dict[Path, PartialFile] = {}
        self._opening = Lock()

    async def check_writable(self, directory: Path) -> None:
        """Make the folder and try a file in it, before any credit is spent. Raises `OutputDirNotWritable`."""
        if not can_spell_names():
            raise OutputDirNotWritable(f"{directory}: {NAMES_UNSPELLED}.")
        await asyncio.to_thread(self._check_writable, directory)

    async def open_part(self, directory: Path, relative_name: str) -> PartialFile:
        """Begin a file that will stand at about `relative_name` below `directory`.

        Its folders are made. What a crash left under the temporary name is removed, never adopted.
        Raises `OutputDirNotWritable`, also for a name that leads out of `directory`.
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
        believed_sha256: str | None = None,
    ) -> SavedFile:
        """Check the file, give it its final name, and tell what stands there now.

        `name_for` gives the relative name for an extension (without a dot), which the content decides, whatever was
        asked for; where it does not tell its kind, what the server or the link call it.
        A taken name gets `~2`, `~3` … before its extension, unless that file has the same content: then
        a crash came between name and record, and it is adopted. A file without the end that its
        format demands is taken only with `believed_sha256`. Raises `WrongLength`, `WrongMedia`, `DownloadCut` (the
        part stays open) and `OutputDirNotWritable`.
        """
        media_of = partial(_checked, total_bytes=total_bytes, content_type=content_type, link_extension=link_extension)
        return await asyncio.to_thread(
            self._finish, part, media_of=media_of, name_for=name_for, believed_sha256=believed_sha256
        )

    def _check_writable(self, directory: Path) -> None:
        probe = part_path(directory.absolute() / "batchkiln-write-check", 1)
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
        if free_bytes < FREE_MIN_BYTES:
            reason = f"only {free_bytes >> 20} MiB are free on its disk, and {FREE_MIN_BYTES >> 20} are needed"
            raise unwritable(probe.parent, reason, "Free some space there, or choose another output.dir.")

    def _open_part(self, directory: Path, relative_name: str) -> PartialFile:
        with self._opening, translate_os_errors(directory / relative_name.replace("\0", " ")):
            target = place_inside(self._files, directory, relative_name)
            make_folders(self._files, target.parent)
            self._open_parts = {path: part for path, part in self._open_parts.items() if part.is_open}
            # Two outputs of one name at a time are told apart here; when both are whole, by their final names.
            choices = (part_path(target, number) for number in range(1, len(self._open_parts) + 2))
            path = next(choice for choice in choices if choice not in self._open_parts)
            # Emptying the file instead would empty the output, where a crash left both names on one file.
            self._files.unlink(path)
            part = PartialFile(self._files, directory=directory, path=path, handle=self._files.create(path))
            self._open_parts[path] = part
        return part

    def _finish(
        self,
        part: PartialFile,
        *,
        media_of: Callable[[PartialFile], Media],
        name_for: Callable[[str], str],
        believed_sha256: str | None,
    ) -> SavedFile:
        with part.lock:
            part.flush()
            media = media_of(part)
            with translate_os_errors(part.path):
                if part.sha256 != believed_sha256 and not is_complete(media, part.size_bytes, part.read_at):
                    raise DownloadCut(f"the {media.media_type} does not end as it should", sha256=part.sha256)
                self._files.sync_file(part.handle)
            target = place_inside(self._files, part.directory, name_for(media.extension))
            with translate_os_errors(target):
                make_folders(self._files, target.parent)
                final = self._publish(part, target)
                self._files.sync_folder(final.parent)
            # The file is whole and has its name: a temporary name that stays is removed another time.
            with suppress(OSError):
                part.release()
                self._files.unlink(part.path)
        return SavedFile(str(final), part.size_bytes, part.sha256, media.media_type)

    def _publish(self, part: PartialFile, target: Path) -> Path:
        """Give the file the first name that is free, or find it standing there already."""
        for number in range(1, _NAMES_MAX + 1):
            final = numbered(target, number)
            try:
                self._files.publish(part.path, final, handle=part.handle)
            except FileExistsError:
                if self._holds(final, part):
                    self._files.sync_path(final)
                    return final
            else:
                return final
        raise unwritable(target, f"{_NAMES_MAX} files of this name exist", "Choose another output.filename.")

    def _holds(self, path: Path, part: PartialFile) -> bool:
        return self._files.size_of(path) == part.size_bytes and self._files.sha256_of(path) == part.sha256


def _checked(
    part: PartialFile, *, total_bytes: int | None, content_type: str | None, link_extension: str | None
) -> Media:
    """Compare the file with what was announced, and tell what it is, before it gets a name."""
    if total_bytes is not None and part.size_bytes != total_bytes:
        raise WrongLength(f"{part.size_bytes} bytes came, {total_bytes} were announced")
    media = media_of(part.head, content_type=content_type, link_extension=link_extension)
    if media is None:
        raise WrongMedia("a text came in place of the file" if part.head else "an empty file came")
    return media
