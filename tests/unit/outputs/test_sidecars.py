"""Sidecars on a file system that fails: whole beside their file, or not there, and never over another file. Law 7."""

import json
from contextlib import suppress
from pathlib import Path

import pytest

from batchkiln.core.errors import OutputDirNotWritable
from batchkiln.core.job import Sidecar
from batchkiln.outputs import OutputFiles
from unit.outputs.faulty_files import FaultyFiles, PowerCut

FOX = {"job": "birds", "item": "fox", "version": 1, "output": 1, "file": "fox.png", "sha256": "aa"}


def content_of(**facts: object) -> bytes:
    return json.dumps(FOX | facts).encode()


async def write(
    files: FaultyFiles, path: str = "/out/fox.png", content: bytes | None = None, kind: Sidecar = Sidecar.JSON
) -> str | None:
    return await OutputFiles(files).write_sidecar(path, kind, content_of() if content is None else content)


@pytest.mark.parametrize(
    ("file", "sidecar"),
    [
        ("fox.png", "fox.json"),
        ("fox.v2.png", "fox.v2.json"),
        ("fox-2.png", "fox-2.json"),
        ("fox-2.v3.png", "fox-2.v3.json"),
        ("fox~2.mp4", "fox~2.json"),
        ("red.fox", "red.fox.json"),  # its end is no extension: `red.hen` must not get the same
        ("fox", "fox.json"),
    ],
)
async def test_a_sidecar_replaces_the_extension_of_its_file(file: str, sidecar: str) -> None:
    """Versions and further outputs have sidecars of their own."""
    files = FaultyFiles()

    assert await write(files, f"/out/{file}") == f"/out/{sidecar}"

    assert files.seen == {f"/out/{sidecar}": content_of()}
    assert files.open_count == 0


async def test_a_foreign_file_is_never_overwritten() -> None:
    """A taken name gives way to one that contains the extension, then to numbers."""
    files = FaultyFiles()
    files.put("/out/fox.json", b"{}")
    files.put("/out/fox.png.json", content_of(item="hen"))

    assert await write(files) == "/out/fox.png~2.json"

    assert files.seen == {
        "/out/fox.json": b"{}",
        "/out/fox.png.json": content_of(item="hen"),
        "/out/fox.png~2.json": content_of(),
    }


@pytest.mark.parametrize("there", [b"not json", b"[1]", b"null", b"[" * 200_000])
async def test_a_foreign_file_may_hold_anything(there: bytes) -> None:
    """A file that is no sidecar is left alone."""
    files = FaultyFiles()
    files.put("/out/fox.json", there)

    assert await write(files) == "/out/fox.png.json"


async def test_the_sidecar_of_an_earlier_try_is_kept() -> None:
    """A crash between sidecar and record is met by its identity, though the metadata has changed since."""
    files = FaultyFiles()
    files.put("/out/fox.json", content_of(metadata={"mood": "calm"}))

    assert await write(files, content=content_of(metadata={})) is None

    assert files.seen == {"/out/fox.json": content_of(metadata={"mood": "calm"})}


async def test_an_equal_caption_is_kept_and_another_is_not() -> None:
    """Two outputs with one name and one prompt share their caption."""
    files = FaultyFiles()
    files.put("/out/fox.txt", b"a red fox")

    assert await write(files, content=b"a red fox", kind=Sidecar.TXT) is None
    assert await write(files, content=b"a red hen", kind=Sidecar.TXT) == "/out/fox.png.txt"


async def operations() -> int:
    files = FaultyFiles()
    await write(files)
    return len(files.operations)


async def test_a_failure_at_any_operation_leaves_no_half_sidecar() -> None:
    """At every n-th operation: the disk fails, nothing is partial, and the next try succeeds."""
    for at in range(1, await operations() + 1):
        files = FaultyFiles(fail_at=at)
        with suppress(OutputDirNotWritable):
            await write(files)

        assert files.seen.get("/out/fox.json") in {None, content_of()}, files.operations[-1]
        await write(files)
        assert files.seen == {"/out/fox.json": content_of()}, files.operations[-1]
        assert files.kept["/out/fox.json"] == content_of()


async def test_a_power_cut_at_any_operation_leaves_no_half_sidecar() -> None:
    """After a power cut at any operation, a sidecar with its final name is complete."""
    for at in range(1, await operations() + 1):
        files = FaultyFiles(fail_at=at, fault=PowerCut())
        with pytest.raises(PowerCut):
            await write(files)

        assert files.kept.get("/out/fox.json") in {None, content_of()}, files.operations[-1]
        assert files.leaked.get("/out/fox.json") in {None, content_of()}, files.operations[-1]


async def test_a_sidecar_on_a_real_disk(tmp_path: Path) -> None:
    """The real file system gives the same, and a removed sidecar is gone."""
    outputs = OutputFiles()
    made = await outputs.write_sidecar(str(tmp_path / "fox.png"), Sidecar.TXT, b"a red fox")

    assert made == str(tmp_path / "fox.txt")
    assert await outputs.write_sidecar(str(tmp_path / "fox.png"), Sidecar.TXT, b"a red fox") is None
    assert [path.name for path in tmp_path.iterdir()] == ["fox.txt"]
    assert Path(made).read_bytes() == b"a red fox"

    await outputs.remove_sidecar(made)

    assert list(tmp_path.iterdir()) == []
