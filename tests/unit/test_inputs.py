"""Local images, as uploads need them."""

import hashlib
from pathlib import Path
from uuid import uuid4

import pytest

from batchkiln import object_storage
from batchkiln.core.errors import InputError
from batchkiln.core.job import InputFile
from batchkiln.inputs import LocalInputs, SharedInputs
from batchkiln.object_storage import ObjectFolder, StorageSettings


@pytest.mark.parametrize(
    ("content", "is_unchanged"), [(b"owl", True), (b"fox", False), (b"owls", False), (None, False)]
)
async def test_change_of_an_image_is_noticed(tmp_path: Path, content: bytes | None, *, is_unchanged: bool) -> None:
    """An upload is of the bytes that the manifest was accepted with, or is not made."""
    path = tmp_path / "owl.png"
    if content is not None:
        path.write_bytes(content)
    file = InputFile(str(path), hashlib.sha256(b"owl").hexdigest(), 3, "image/png")

    assert await LocalInputs().is_unchanged(file) is is_unchanged


async def test_content_can_be_read_again(tmp_path: Path) -> None:
    """A second try of an upload begins at the first byte."""
    path = tmp_path / "owl.png"
    path.write_bytes(b"x" * 600_000)
    content = LocalInputs().content(InputFile(str(path), "", 600_000, "image/png"))

    first = b"".join([chunk async for chunk in content()])
    second = b"".join([chunk async for chunk in content()])

    assert first == second == b"x" * 600_000


def an_image(folder: Path, content: bytes = b"owl") -> InputFile:
    """Write an image, and return it as a manifest records it."""
    folder.mkdir(exist_ok=True)
    path = folder / "owl.png"
    path.write_bytes(content)
    return InputFile(str(path), hashlib.sha256(content).hexdigest(), len(content), "image/png")


async def test_an_image_is_read_on_another_machine(tmp_path: Path) -> None:
    """Its copy in the shared folder serves where the path of the manifest leads nowhere."""
    file = an_image(tmp_path / "own")
    SharedInputs(tmp_path).keep(file)
    Path(file.path).unlink()
    inputs = LocalInputs(tmp_path)

    assert await inputs.is_unchanged(file)
    assert b"".join([chunk async for chunk in inputs.content(file)()]) == b"owl"


async def test_a_copy_that_was_damaged_is_noticed_and_copied_again(tmp_path: Path) -> None:
    """The hash decides, not the name."""
    file = an_image(tmp_path / "own")
    SharedInputs(tmp_path).keep(file)
    copy = tmp_path / ".inputs" / file.sha256
    copy.write_bytes(b"fox")

    was_unchanged = await LocalInputs(tmp_path).is_unchanged(file)
    SharedInputs(tmp_path).keep(file)

    assert (was_unchanged, copy.read_bytes()) == (False, b"owl")


def test_one_content_is_copied_once(tmp_path: Path) -> None:
    """Two paths of one content share a copy, and a second enqueue writes nothing."""
    file, same = an_image(tmp_path / "a"), an_image(tmp_path / "b")
    SharedInputs(tmp_path).keep(file)
    before = (tmp_path / ".inputs" / file.sha256).stat()

    SharedInputs(tmp_path).keep(same)

    assert [path.stat() for path in (tmp_path / ".inputs").iterdir()] == [before]


def test_an_image_that_changed_meanwhile_is_not_copied(tmp_path: Path) -> None:
    """The manifest was accepted with other bytes."""
    file = an_image(tmp_path / "own")
    Path(file.path).write_bytes(b"fox")

    with pytest.raises(InputError, match="changed while it was read"):
        SharedInputs(tmp_path).keep(file)

    assert list((tmp_path / ".inputs").iterdir()) == []


def test_a_shared_folder_that_is_not_mounted_is_named(tmp_path: Path) -> None:
    """No folder is made in its place."""
    file = an_image(tmp_path / "own")

    with pytest.raises(InputError, match=r"cannot be copied to .*No such file.*is mounted"):
        SharedInputs(tmp_path / "mnt").keep(file)

    assert not (tmp_path / "mnt").exists()


async def test_an_image_from_before_the_folder_was_shared_is_read_where_it_was(tmp_path: Path) -> None:
    """Its queue may have been configured since."""
    file = an_image(tmp_path / "own")

    assert await LocalInputs(tmp_path).is_unchanged(file)


def test_an_image_that_is_an_object_stays_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where no copies are kept, and another account reads another image meanwhile."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = ObjectFolder(f"memory://{uuid4().hex}")
    owl, fox = (object_of(folder, content) for content in (b"owl", b"fox"))
    object_storage.configure(lambda: StorageSettings(copies_bytes=0))
    try:
        with LocalInputs().held(owl) as path, LocalInputs().held(fox):
            assert path.read_bytes() == b"owl"
    finally:
        object_storage.configure(StorageSettings)


def object_of(folder: ObjectFolder, content: bytes) -> InputFile:
    name = f"{content.decode()}.png"
    folder.write(name, content)
    return InputFile(folder.url_of(name), hashlib.sha256(content).hexdigest(), len(content), "image/png")
