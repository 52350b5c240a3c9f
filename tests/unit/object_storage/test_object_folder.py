"""A folder of objects: whole or absent, never over another one, and no call without an end."""

import hashlib
import threading
from pathlib import Path
from uuid import uuid4

import pytest
from msgspec.structs import replace

from batchkiln import object_storage
from batchkiln.core.errors import OutputDirNotWritable, StorageError
from batchkiln.core.job import SavedFile, Sidecar
from batchkiln.object_storage import ObjectFolder, StorageSettings, in_background, within
from batchkiln.object_storage.copies import copy_path
from batchkiln.object_storage.object_folder import write_object
from batchkiln.outputs import StagedObjects

CONTENT = b"\x89PNG a fox"


@pytest.fixture
def url() -> str:
    return f"memory://{uuid4().hex}/out"


@pytest.fixture
def picture(tmp_path: Path) -> SavedFile:
    """A file that is complete on the disk."""
    path = tmp_path / "fox.png"
    path.write_bytes(CONTENT)
    return SavedFile(str(path), len(CONTENT), hashlib.sha256(CONTENT).hexdigest(), "image/png")


def write(folder: ObjectFolder, picture: SavedFile) -> bool:
    return write_object(folder, Path(picture.path), "a/fox.png", sha256=picture.sha256, media_type=picture.media_type)


def places(tmp_path: Path) -> list[ObjectFolder]:
    """Return storage where a file appears at once, and a file system that needs a temporary name."""
    return [ObjectFolder(f"memory://{uuid4().hex}/out"), ObjectFolder(f"local://{tmp_path}/out")]


def test_an_object_is_written_and_compared(tmp_path: Path, picture: SavedFile) -> None:
    """Its folder is made where there are folders, and nothing else stays there."""
    for folder in places(tmp_path):
        assert write(folder, picture)
        assert folder.read("a/fox.png") == CONTENT
        assert folder.names("a") == ["fox.png"]


def test_an_object_with_the_same_content_is_adopted(tmp_path: Path, picture: SavedFile) -> None:
    """A run that crashed has written it."""
    for folder in places(tmp_path):
        write(folder, picture)

        assert write(folder, picture)


@pytest.mark.parametrize("other", [b"other", b"\x89PNG a wol"])
def test_other_content_of_that_name_is_left_alone(tmp_path: Path, picture: SavedFile, other: bytes) -> None:
    """Of another size, or of the same."""
    for folder in places(tmp_path):
        folder.write("a/fox.png", other)

        assert not write(folder, picture)
        assert folder.read("a/fox.png") == other


def test_bytes_that_differ_after_the_write_are_an_error(url: str, picture: SavedFile) -> None:
    """Nothing is recorded of what the storage did not keep."""

    class Torn(ObjectFolder):
        def create(self, source: Path, name: str, *, sha256: str, media_type: str) -> None:
            del sha256, media_type
            self.write(name, source.read_bytes()[:5])

    with pytest.raises(StorageError, match="does not hold the bytes that were sent"):
        write(Torn(url), picture)


def test_a_probe_leaves_nothing(url: str) -> None:
    """It writes, reads, and removes."""
    folder = ObjectFolder(url)

    folder.check("one")

    assert folder.names(".batchkiln") == []


def test_storage_that_overwrites_is_refused(url: str) -> None:
    """It ignores the condition, so that one result could replace another."""

    class Careless(ObjectFolder):
        def write(self, name: str, content: bytes) -> None:
            self.remove(name)
            super().write(name, content)

    with pytest.raises(StorageError, match="If-None-Match is ignored"):
        Careless(url).check("one")


@pytest.mark.parametrize("scheme", ["memory", "local", "hf", "sftp"])
def test_only_storage_that_gives_a_name_once_is_shared(scheme: str) -> None:
    """Others look first and create then, between which another worker may create."""
    with pytest.raises(StorageError, match=r"s3:// and gs:// can"):
        ObjectFolder(f"{scheme}://all/out").check("one", is_shared=True)


def test_a_call_that_hangs_is_given_up() -> None:
    """Its thread is left behind, and the process does not wait for it."""
    for_ever = threading.Event()

    with pytest.raises(StorageError, match="nothing was heard of it for 0 seconds"):
        within(0.01, for_ever.wait)

    for_ever.set()


async def test_a_transfer_that_hangs_is_given_up() -> None:
    """Without a thread that others need."""
    for_ever = threading.Event()

    with pytest.raises(StorageError, match="nothing was heard"):
        await in_background(0.01, for_ever.wait)

    for_ever.set()


def test_errors_show_no_secret(url: str) -> None:
    """Neither credentials nor signatures in a URL (Law 8)."""

    class Refused(ObjectFolder):
        def write(self, name: str, content: bytes) -> None:
            del name, content
            from batchkiln.object_storage.filesystems import translated_errors  # noqa: PLC0415

            with translated_errors():
                raise PermissionError("https://me:canary-1@host/fox.png?X-Amz-Signature=canary-2 says no")

    with pytest.raises(StorageError, match="access is denied") as caught:
        Refused(url).check("one")

    assert caught.value.is_lasting
    assert "canary" not in str(caught.value)


async def test_a_sidecar_is_written_beside_its_object(tmp_path: Path, url: str) -> None:
    """A second try finds it, and another file's is left alone."""
    objects = StagedObjects(tmp_path)
    ObjectFolder(url).write("a/owl.txt", b"somebody else's")

    first = await objects.write_sidecar(url, f"{url}/a/fox.png", Sidecar.TXT, b"a fox")
    again = await objects.write_sidecar(url, f"{url}/a/fox.png", Sidecar.TXT, b"a fox")
    other = await objects.write_sidecar(url, f"{url}/a/owl.png", Sidecar.TXT, b"an owl")

    assert (first, again, other) == (f"{url}/a/fox.txt", None, f"{url}/a/owl.png.txt")


async def test_a_place_out_of_reach_is_told(tmp_path: Path) -> None:
    """Before credits are spent."""
    with pytest.raises(OutputDirNotWritable, match="nowhere://studio/out"):
        await StagedObjects(tmp_path).check("nowhere://studio/out", "one")


async def test_a_sent_file_becomes_a_local_copy(tmp_path: Path, url: str, picture: SavedFile) -> None:
    """It is found again where its object is gone."""
    objects = StagedObjects(tmp_path / "outgoing")
    staged = objects.folder_of(url) / "a" / "fox.png"
    staged.parent.mkdir(parents=True)
    staged.write_bytes(CONTENT)
    file = replace(picture, path="a/fox.png")

    async with objects.held(url, file) as found:
        assert found == staged
    await objects.keep(staged, file)
    async with objects.held(url, file) as found:
        assert found is not None
        assert found != staged
        assert found.read_bytes() == CONTENT
        found.write_bytes(b"damaged")
    async with objects.held(url, file) as found:
        assert found is None


async def test_a_copy_that_is_sent_twice_stays_until_both_are_sent(
    tmp_path: Path, url: str, picture: SavedFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two items have the same content, and no copies are kept: the first does not remove it under the second."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    objects = StagedObjects(tmp_path / "outgoing")
    fox, twin = replace(picture, path="a/fox.png"), replace(picture, path="a/twin.png")
    copy = copy_path(picture.sha256, "fox.png")
    copy.parent.mkdir(parents=True)
    copy.write_bytes(CONTENT)
    object_storage.configure(lambda: StorageSettings(copies_bytes=0))
    try:
        async with objects.held(url, fox) as first, objects.held(url, twin) as second:
            assert first is not None
            assert second is not None
            await objects.keep(first, fox)

            assert second.read_bytes() == CONTENT
    finally:
        object_storage.configure(StorageSettings)
    assert [path for path in copy.parent.parent.rglob("*") if path.is_file()] == [copy]
