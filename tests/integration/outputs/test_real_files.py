"""Outputs on a real disk: links, permissions and names as this system has them."""

import asyncio
import errno
import hashlib
import os
from pathlib import Path

import pytest

from batchkiln.core.errors import OutputDirNotWritable
from batchkiln.core.job import SavedFile
from batchkiln.outputs import FileSystem, OutputFiles

PICTURE = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 4096 + b"\0\0\0\0IEND\xae\x42\x60\x82"


class NoLinks(FileSystem):
    """A disk without hard links, as exFAT is."""

    def link(self, part: Path, final: Path) -> None:
        raise OSError(errno.EPERM, "no links here", str(part), None, str(final))


async def save(outputs: OutputFiles, folder: Path, name: str = "birds/fox") -> SavedFile:
    part = await outputs.open_part(folder, name)
    for at in range(0, len(PICTURE), 65_536):
        await part.write(PICTURE[at : at + 65_536])
    return await outputs.finish(part, total_bytes=len(PICTURE), name_for=lambda extension: f"{name}.{extension}")


def names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir()}


@pytest.mark.parametrize("files", [FileSystem(), NoLinks()])
async def test_a_published_file_is_complete(tmp_path: Path, files: FileSystem) -> None:
    """Bytes, hash and type of the record are those of the file, with links and without. Law 7."""
    saved = await save(OutputFiles(files), tmp_path)

    content = Path(saved.path).read_bytes()
    assert content == PICTURE
    assert (saved.size_bytes, saved.sha256) == (len(PICTURE), hashlib.sha256(PICTURE).hexdigest())
    assert (names(tmp_path), saved.media_type) == ({"birds/fox.png"}, "image/png")


@pytest.mark.parametrize("files", [FileSystem(), NoLinks()])
async def test_a_foreign_file_stays_as_it_is(tmp_path: Path, files: FileSystem) -> None:
    """An existing file, a dangling link and a folder are all taken names."""
    (tmp_path / "birds").mkdir()
    (tmp_path / "birds/fox.png").write_bytes(b"mine")
    (tmp_path / "birds/fox~2.png").symlink_to(tmp_path / "nowhere")
    (tmp_path / "birds/fox~3.png").mkdir()

    saved = await save(OutputFiles(files), tmp_path)

    assert saved.path == str(tmp_path / "birds/fox~4.png")
    assert (tmp_path / "birds/fox.png").read_bytes() == b"mine"
    assert not (tmp_path / "nowhere").exists()


async def test_a_crash_between_both_names_loses_nothing(tmp_path: Path) -> None:
    """The output survives although its leftover temporary name is the same file; it is adopted."""
    saved = await save(OutputFiles(), tmp_path)
    os.link(saved.path, tmp_path / "birds/.fox.part")

    again = await save(OutputFiles(), tmp_path)

    assert again == saved
    assert Path(saved.path).read_bytes() == PICTURE
    assert names(tmp_path) == {"birds/fox.png"}


async def test_a_link_that_leads_out_is_refused(tmp_path: Path) -> None:
    """A folder that is a link to elsewhere is no way out of the output folder."""
    out, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    out.mkdir()
    elsewhere.mkdir()
    (out / "birds").symlink_to(elsewhere)

    with pytest.raises(OutputDirNotWritable, match="symbolic link"):
        await save(OutputFiles(), out)

    assert names(elsewhere) == set()


async def test_the_output_folder_itself_may_be_a_link(tmp_path: Path) -> None:
    """People put outputs on another disk by a link."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "disk")

    saved = await save(OutputFiles(), tmp_path / "out")

    assert saved.path == str(tmp_path / "out/birds/fox.png")


async def test_a_planted_link_is_not_written_through(tmp_path: Path) -> None:
    """A link under the temporary name is removed, and what it leads to stays as it is."""
    (tmp_path / "victim").write_bytes(b"mine")
    (tmp_path / ".fox.part").symlink_to(tmp_path / "victim")

    await save(OutputFiles(), tmp_path, "fox")

    assert (tmp_path / "victim").read_bytes() == b"mine"


async def test_a_replaced_temporary_file_is_not_published(tmp_path: Path) -> None:
    """Two programs in one folder never give each other's bytes a name."""
    outputs = OutputFiles()
    part = await outputs.open_part(tmp_path, "fox")
    await part.write(PICTURE)
    await OutputFiles().open_part(tmp_path, "fox")

    with pytest.raises(OutputDirNotWritable, match="only one program"):
        await outputs.finish(part, total_bytes=None, name_for=lambda _: "fox.png")

    assert names(tmp_path) == {".fox.part"}


async def test_a_file_in_the_way_of_a_folder_is_explained(tmp_path: Path) -> None:
    """The error names the place and what to do."""
    (tmp_path / "birds").write_bytes(b"a file")

    with pytest.raises(OutputDirNotWritable, match=r"birds.*move it away"):
        await save(OutputFiles(), tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
async def test_a_folder_without_permission_is_found_before_spending(tmp_path: Path) -> None:
    """The check fails where a save would."""
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(OutputDirNotWritable, match="permission"):
            await OutputFiles().check_writable(tmp_path / "out")
    finally:
        tmp_path.chmod(0o700)


async def test_the_check_leaves_an_empty_folder(tmp_path: Path) -> None:
    """The folder is made with its parents; nothing stays in it."""
    await OutputFiles().check_writable(tmp_path / "a/b")

    assert (tmp_path / "a/b").is_dir()
    assert names(tmp_path) == set()


async def test_a_canceled_save_can_be_discarded(tmp_path: Path) -> None:
    """Cancellation leaves no thread that writes into a closed file, and the part can be removed."""
    part = await OutputFiles().open_part(tmp_path, "fox")
    writing = asyncio.ensure_future(part.write(PICTURE))
    part.lock.acquire()
    while not writing.done():
        writing.cancel()
        await asyncio.wait([writing], timeout=0.01)
    part.lock.release()

    await part.discard()

    assert writing.cancelled()
    assert names(tmp_path) == set()
