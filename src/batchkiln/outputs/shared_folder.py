"""A folder or URL that several machines share: checks that all use the same one, and that each name is created once."""

from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from batchkiln.core.errors import InputError, OutputDirNotWritable, SharedFolderAway, StorageError
from batchkiln.object_storage import ObjectFolder, within
from batchkiln.object_storage.threads import CALL_SECONDS
from batchkiln.outputs.filesystem import NO_LINKS, FileSystem, translate_os_errors

MARKS_FOLDER: Final = ".batchkiln"

T = TypeVar("T")


class SharedFolder:
    """The folder of all results and input images, as this machine mounts it. Its methods block."""

    def __init__(self, root: Path, files: FileSystem | None = None) -> None:
        """Use an existing folder. It is never created, because the mount may be missing."""
        self._files = files or FileSystem()
        self.root = root
        self._marks = root / MARKS_FOLDER

    def mark_path(self, token: str) -> Path:
        """Return the file that holds a token."""
        return self._marks / token

    def check_names(self, owner: str) -> None:
        """Write a file, and link it to the same second name twice: the second link must fail.

        This protects workers that finish files of one name at the same moment. Raise `SharedFolderAway` if the folder
        is not there, `InputError` if its file system is unsuitable, and `OutputDirNotWritable` if it refuses the write.
        """
        if not self._files.is_folder(self.root):
            raise SharedFolderAway(
                f"shared_dir: {self.root} is not there. Mount the shared folder at that place, or name the place "
                "where it is mounted. Nothing was sent"
            )
        probe = self._marks / f"{owner}.probe"
        second = self._marks / f"{owner}.link"
        with translate_os_errors(probe):
            self._files.make_folder(self._marks)
            self._files.unlink(probe)
            self._files.unlink(second)
            try:
                self._write(probe, owner)
                if not self._links_once(probe, second):
                    raise InputError(
                        f"shared_dir: the file system of {self.root} has no hard links, so that two workers could "
                        "overwrite each other's results. Use one that has them, such as NFS. Nothing was sent"
                    )
            finally:
                self._files.unlink(second)
                self._files.unlink(probe)

    def write_mark(self, token: str) -> None:
        """Write a token by which other machines recognise the folder. Raise `OutputDirNotWritable`."""
        with translate_os_errors(self.mark_path(token)):
            self._files.make_folder(self._marks)
            self._write(self.mark_path(token), token)
            self._files.sync_folder(self._marks)

    def remove_mark(self, token: str) -> None:
        """Remove a token that was not needed. Raise `OutputDirNotWritable`."""
        with translate_os_errors(self.mark_path(token)):
            self._files.unlink(self.mark_path(token))

    def has_mark(self, token: str) -> bool:
        """Return whether the folder is the one in which the token was written. Raise `OutputDirNotWritable`."""
        with translate_os_errors(self.mark_path(token)):
            return self._files.size_of(self.mark_path(token)) is not None

    def _write(self, path: Path, text: str) -> None:
        handle = self._files.create(path)
        try:
            self._files.write(handle, text.encode())
            self._files.sync_file(handle)
        finally:
            self._files.close(handle)

    def _links_once(self, probe: Path, second: Path) -> bool:
        try:
            self._files.link(probe, second)
        except OSError as error:
            if error.errno in NO_LINKS:
                return False
            raise
        try:
            self._files.link(probe, second)
        except FileExistsError:
            return True
        return False


class SharedObjects:
    """The URL of all results and input images. Its methods block, with time limits."""

    def __init__(self, folder: ObjectFolder) -> None:
        """Initialize with the folder of objects; nothing is opened yet."""
        self.root = folder.url
        self._folder = folder

    def mark_path(self, token: str) -> str:
        """Return the URL of the object that holds a token."""
        return self._folder.url_of(f"{MARKS_FOLDER}/{token}")

    def check_names(self, owner: str) -> None:
        """Create an object twice: the second time must fail. This protects workers that finish files of one name.

        Raise `InputError` if the storage is unsuitable, and `SharedFolderAway` if it is out of reach.
        """
        try:
            self._folder.check(owner, is_shared=True)
        except StorageError as error:
            remedy = error.remedy or "Check the URL, the credentials of its storage and the network"
            kind = InputError if error.is_lasting else SharedFolderAway
            raise kind(f"shared_dir: {self.root}: {error}. {remedy}. Nothing was sent") from error

    def write_mark(self, token: str) -> None:
        """Write a token by which other machines recognise the URL. Raise `OutputDirNotWritable`."""
        self._call(lambda: self._folder.write(f"{MARKS_FOLDER}/{token}", token.encode()))

    def remove_mark(self, token: str) -> None:
        """Remove a token that was not needed. Raise `OutputDirNotWritable`."""
        self._call(lambda: self._folder.remove(f"{MARKS_FOLDER}/{token}"))

    def has_mark(self, token: str) -> bool:
        """Return whether the URL is the one at which the token was written. Raise `OutputDirNotWritable`."""
        return self._call(lambda: self._folder.size_of(f"{MARKS_FOLDER}/{token}")) is not None

    def _call(self, work: Callable[[], T]) -> T:
        try:
            return within(CALL_SECONDS, work)
        except StorageError as error:
            remedy = error.remedy or "Run the same command again"
            raise OutputDirNotWritable(f"{self.root}: {error}. {remedy}.") from error


SharedPlace = SharedFolder | SharedObjects
