"""The proof that a folder is shared, and that a name in it is given once."""

import errno
from pathlib import Path
from unittest.mock import create_autospec

import pytest

from batchkiln.core.errors import ExitStatus, InputError, OutputDirNotWritable, StorageError
from batchkiln.object_storage.object_folder import ObjectFolder
from batchkiln.outputs.filesystem import FileSystem
from batchkiln.outputs.shared_folder import MARKS_FOLDER, SharedFolder, SharedObjects


class WithoutLinks(FileSystem):
    """A file system such as exFAT's."""

    def link(self, part: Path, final: Path) -> None:
        del part, final
        raise OSError(errno.EPERM, "Operation not permitted")


class Overwriting(FileSystem):
    """A file system on which a link takes the place of a file."""

    def link(self, part: Path, final: Path) -> None:
        self.unlink(final)
        super().link(part, final)


class Full(FileSystem):
    """A disk without room."""

    def write(self, handle: int, chunk: bytes) -> None:
        del handle, chunk
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_folder_with_hard_links_serves(tmp_path: Path) -> None:
    """The probe leaves nothing behind, also where a killed worker left its own."""
    (tmp_path / MARKS_FOLDER).mkdir()
    (tmp_path / MARKS_FOLDER / "one.probe").touch()
    (tmp_path / MARKS_FOLDER / "one.link").touch()

    SharedFolder(tmp_path).check_names("one")

    assert list((tmp_path / MARKS_FOLDER).iterdir()) == []


@pytest.mark.parametrize("files", [WithoutLinks(), Overwriting()])
def test_a_folder_in_which_names_are_given_twice_is_refused(tmp_path: Path, files: FileSystem) -> None:
    """Two workers would overwrite each other's results."""
    with pytest.raises(InputError, match=r"no hard links.*Nothing was sent"):
        SharedFolder(tmp_path, files).check_names("one")


@pytest.mark.parametrize(("is_lasting", "status"), [(True, ExitStatus.USAGE), (False, ExitStatus.UNEXPECTED)])
def test_storage_out_of_reach_is_no_mistake(*, is_lasting: bool, status: ExitStatus) -> None:
    """A worker that starts before the network is there is started again by systemd."""
    folder = create_autospec(ObjectFolder, instance=True, url="s3://studio/kiln")
    folder.check.side_effect = StorageError("no connection", is_lasting=is_lasting)

    with pytest.raises(InputError, match="no connection") as caught:
        SharedObjects(folder).check_names("one")

    assert caught.value.exit_status is status


def test_a_folder_that_is_not_mounted_is_refused_and_not_made(tmp_path: Path) -> None:
    """What would be made there is a folder of the machine's own disk."""
    with pytest.raises(InputError, match=r"is not there. Mount"):
        SharedFolder(tmp_path / "mnt").check_names("one")

    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_named(tmp_path: Path) -> None:
    """The sentence has the reason and the remedy."""
    with pytest.raises(OutputDirNotWritable, match=r"No space left.*Free some space"):
        SharedFolder(tmp_path, Full()).check_names("one")


def test_a_token_is_found_where_it_was_written_alone(tmp_path: Path) -> None:
    """Another machine sees it in the same folder, and not on a disk of its own."""
    (shared := tmp_path / "shared").mkdir()
    (private := tmp_path / "private").mkdir()
    SharedFolder(shared).write_mark("abc")

    found = [SharedFolder(folder).has_mark("abc") for folder in (shared, private)]

    assert found == [True, False]
