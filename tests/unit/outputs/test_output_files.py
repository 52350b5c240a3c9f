"""Outputs on a file system that fails: under its final name a file is whole, or it is not there. Law 7."""

import hashlib
from pathlib import Path

import pytest

from batchkiln.core.errors import InvariantBroken, OutputDirNotWritable
from batchkiln.core.job import SavedFile
from batchkiln.core.responses import DownloadBroken, DownloadTruncated
from batchkiln.outputs import NotAnOutput, OutputFiles, WrongLength
from batchkiln.outputs.output_files import MIN_FREE_BYTES
from batchkiln.outputs.partial_file import BUFFER_BYTES
from unit.outputs.faulty_files import FaultyFiles, PowerCut

OUT = Path("/out")
END = b"\0\0\0\0IEND\xae\x42\x60\x82"
PICTURE = b"\x89PNG\r\n\x1a\n" + b"pixels" * 100_000 + END
OTHER = PICTURE[: -len(END) - 1] + b"!" + END
SAVED = SavedFile("/out/birds/fox.png", len(PICTURE), hashlib.sha256(PICTURE).hexdigest(), "image/png")


async def save(files: FaultyFiles, content: bytes = PICTURE, name: str = "birds/fox") -> SavedFile:
    outputs = OutputFiles(files)
    part = await outputs.open_part(OUT, name)
    for at in range(0, len(content), 100_000):
        await part.write(content[at : at + 100_000])
    return await outputs.finish(part, total_bytes=len(content), name_for=lambda extension: f"{name}.{extension}")


async def test_a_whole_file_gets_its_name() -> None:
    """The file is published under the name for its content's extension, and nothing else remains."""
    files = FaultyFiles()

    assert await save(files) == SAVED

    assert files.seen == {SAVED.path: PICTURE}
    assert files.kept[SAVED.path] == PICTURE
    assert files.open_count == 0


async def test_content_then_name_then_folder() -> None:
    """The order that survives a power cut: the file is flushed before it has a name, the folder after."""
    files = FaultyFiles()

    await save(files)

    steps = [step for step in files.operations if step.startswith(("sync", "publish", "unlink"))]
    assert steps == [
        "sync_folder /out",
        "unlink /out/birds/.fox.part",
        "sync_file",
        "publish /out/birds/fox.png",
        "sync_folder /out/birds",
        "unlink /out/birds/.fox.part",
    ]


async def operations_of_a_save() -> int:
    files = FaultyFiles()
    await save(files)
    return len(files.operations)


async def test_a_failure_at_any_operation_leaves_no_half_file() -> None:
    """At every n-th operation: the disk fails, no final name is partial, and the next try succeeds."""
    for at in range(1, await operations_of_a_save() + 1):
        files = FaultyFiles(fail_at=at)
        try:
            result = await save(files)
        except OutputDirNotWritable:
            result = None

        assert files.seen.get(SAVED.path) in {None, PICTURE}, files.operations[-1]
        assert result is None or files.kept[SAVED.path] == PICTURE, files.operations[-1]
        assert await save(files) == SAVED
        assert set(files.seen) == {SAVED.path}


async def test_a_power_cut_at_any_operation_leaves_no_half_file() -> None:
    """After a power cut at any operation, each file with a final name is complete."""
    for at in range(1, await operations_of_a_save() + 1):
        files = FaultyFiles(fail_at=at, fault=PowerCut())
        with pytest.raises(PowerCut):
            await save(files)

        assert files.kept.get(SAVED.path) in {None, PICTURE}, files.operations[-1]
        assert files.leaked.get(SAVED.path) in {None, PICTURE}, files.operations[-1]


async def test_a_file_that_was_named_but_not_recorded_is_adopted() -> None:
    """A crash between name and record is found again by content, and made durable before it is told."""
    files = FaultyFiles()
    files.put(SAVED.path, PICTURE)

    assert await save(files) == SAVED

    assert set(files.seen) == {SAVED.path}
    assert files.operations.index("sync_path /out/birds/fox.png") < files.operations.index("sync_folder /out/birds")


async def test_a_foreign_file_is_never_overwritten() -> None:
    """A taken name gets a number, also where only the content differs and not the size."""
    files = FaultyFiles()
    files.put(SAVED.path, OTHER)
    files.put("/out/birds/fox~2.png", b"short")

    saved = await save(files)

    assert saved.path == "/out/birds/fox~3.png"
    assert files.seen == {SAVED.path: OTHER, "/out/birds/fox~2.png": b"short", saved.path: PICTURE}


async def test_a_file_system_without_links_leaves_no_temporary_name() -> None:
    """The file is renamed instead, so no second name has to be removed."""
    files = FaultyFiles()
    files.has_links = False

    assert await save(files) == SAVED
    assert set(files.seen) == {SAVED.path}


async def test_a_leftover_is_replaced_and_never_adopted() -> None:
    """What a crash left under the temporary name is not the beginning of the new file."""
    files = FaultyFiles()
    files.put("/out/birds/.fox.part", b"leftover")
    files.folders.add(OUT / "birds")

    part = await OutputFiles(files).open_part(OUT, "birds/fox")

    assert part.size_bytes == 0
    assert files.seen == {"/out/birds/.fox.part": b""}


async def test_workers_in_one_folder_leave_each_others_temporary_files() -> None:
    """One that stood still may go on with its own, though another fetches the same file by now."""
    files = FaultyFiles()
    await OutputFiles(files, owner="one-2").open_part(OUT, "birds/fox")
    await OutputFiles(files, owner="two-3").open_part(OUT, "birds/fox")

    assert set(files.seen) == {"/out/birds/.fox.one-2.part", "/out/birds/.fox.two-3.part"}


async def test_two_parts_of_one_name_do_not_mix() -> None:
    """Two files that are fetched at a time under one name end under two, each whole."""
    files = FaultyFiles()
    outputs = OutputFiles(files)
    parts = [await outputs.open_part(OUT, "fox") for _ in range(2)]
    for part, content in zip(parts, (PICTURE, OTHER), strict=True):
        await part.write(content)

    saved = [
        await outputs.finish(part, total_bytes=None, name_for=lambda extension: f"fox.{extension}") for part in parts
    ]

    assert [file.path for file in saved] == ["/out/fox.png", "/out/fox~2.png"]
    assert files.seen == {"/out/fox.png": PICTURE, "/out/fox~2.png": OTHER}


async def test_a_short_file_can_be_continued() -> None:
    """A file without its announced length gets no name; the rest may follow."""
    files = FaultyFiles()
    outputs = OutputFiles(files)
    part = await outputs.open_part(OUT, "fox")
    await part.write(PICTURE[:1000])
    with pytest.raises(WrongLength) as broken:
        await finish(outputs, part_total=len(PICTURE), part=part)

    await part.write(PICTURE[part.size_bytes :])
    saved = await finish(outputs, part_total=len(PICTURE), part=part)

    assert isinstance(broken.value, DownloadBroken)
    assert files.seen == {saved.path: PICTURE}


async def finish(
    outputs: OutputFiles,
    *,
    part: object,
    part_total: int | None,
    content_type: str | None = None,
    link_extension: str | None = None,
    believed: str | None = None,
) -> SavedFile:
    return await outputs.finish(
        part,  # type: ignore[arg-type]  # a Part, which the tests need not name
        total_bytes=part_total,
        name_for=lambda extension: f"fox.{extension}",
        content_type=content_type,
        link_extension=link_extension,
        accepted_sha256=believed,
    )


@pytest.mark.parametrize(
    "content",
    [b"<html>expired", b"", b'{"error": "gone"}', b"<?xml version='1.0'?><Error>\xe9</Error>", b"not found\n"],
)
async def test_text_in_place_of_the_file_gets_no_name(content: bytes) -> None:
    """An error page is no result, whatever its status and type say; starting over may bring the file."""
    files = FaultyFiles()
    outputs = OutputFiles(files)
    part = await outputs.open_part(OUT, "fox")
    await part.write(content)
    with pytest.raises(NotAnOutput):
        await finish(outputs, part=part, part_total=None, content_type="image/png", link_extension="png")

    await part.restart()
    await part.write(PICTURE)
    saved = await finish(outputs, part=part, part_total=len(PICTURE))

    assert (files.seen, saved.sha256) == ({"/out/fox.png": PICTURE}, SAVED.sha256)


@pytest.mark.parametrize(
    ("content", "content_type", "link_extension", "name", "media_type"),
    [
        (b"BM" + bytes(12) + b"\x28" + bytes(40), "image/png", "png", "fox.bmp", "image/bmp"),
        (b"\x01\x02\xff" * 99, None, None, "fox.bin", "application/octet-stream"),
        (b"\x01\x02\xff" * 99, "Image/X-Future; q=1", "png", "fox.future", "image/x-future"),
        (b"\x01\x02\xff" * 99, "video/x-future", None, "fox.future", "video/x-future"),
        (b"\x01\x02\xff" * 99, "text/html", "splat", "fox.splat", "application/octet-stream"),
        (b"\x01\x02\xff" * 99, "application/octet-stream", "exe", "fox.bin", "application/octet-stream"),
        (b"\x01\x02\xff" * 99, "image/../../x", "../x", "fox.bin", "application/octet-stream"),
    ],
)
async def test_any_other_kind_is_saved_as_what_it_is(
    content: bytes, content_type: str | None, link_extension: str | None, name: str, media_type: str
) -> None:
    """Paid files of any type are kept; an executable extension is not taken from a link."""
    files = FaultyFiles()
    outputs = OutputFiles(files)
    part = await outputs.open_part(OUT, "fox")
    await part.write(content)

    saved = await finish(
        outputs, part=part, part_total=len(content), content_type=content_type, link_extension=link_extension
    )

    assert (saved.path, saved.media_type) == (f"/out/{name}", media_type)


async def test_a_file_without_its_end_gets_no_name() -> None:
    """What was announced came, and is less than a picture: it is taken only when the caller believes it."""
    files = FaultyFiles()
    outputs = OutputFiles(files)
    part = await outputs.open_part(OUT, "fox")
    await part.write(PICTURE[:-1])
    with pytest.raises(DownloadTruncated) as cut:
        await finish(outputs, part=part, part_total=len(PICTURE) - 1)
    assert files.seen.keys() == {"/out/.fox.part"}

    saved = await finish(outputs, part=part, part_total=len(PICTURE) - 1, believed=cut.value.sha256)

    assert files.seen == {saved.path: PICTURE[:-1]}


async def test_pieces_are_gathered_before_the_disk_is_asked() -> None:
    """Small pieces cost no change of threads; all of them count as received at once."""
    files = FaultyFiles()
    part = await OutputFiles(files).open_part(OUT, "fox")
    await part.write(b"x" * (BUFFER_BYTES - 1))
    before = files.operations.count("write")

    await part.write(b"x")

    assert (before, files.operations.count("write"), part.size_bytes) == (0, 1, BUFFER_BYTES)


async def test_a_discarded_part_leaves_nothing() -> None:
    """A download that is given up leaves no file and no open handle; twice is no error."""
    files = FaultyFiles()
    part = await OutputFiles(files).open_part(OUT, "fox")
    await part.write(b"x")

    await part.discard()
    await part.discard()

    assert (files.seen, files.open_count) == ({}, 0)


async def test_after_a_failed_write_the_part_cannot_be_finished() -> None:
    """Nobody knows how much of the piece arrived, so only starting over or giving up are left."""
    files = FaultyFiles()
    outputs = OutputFiles(files)
    part = await outputs.open_part(OUT, "fox")
    files.fail_at = len(files.operations) + 1
    with pytest.raises(OutputDirNotWritable):
        await part.write(PICTURE)

    with pytest.raises(InvariantBroken):
        await finish(outputs, part=part, part_total=None)
    await part.restart()
    await part.write(PICTURE)

    assert (await finish(outputs, part=part, part_total=len(PICTURE))).sha256 == SAVED.sha256


@pytest.mark.parametrize("name", ["../fox", "a/../../fox", "/etc/fox", "", "a\0b", "a\nb", "a/"])
async def test_a_name_that_leaves_the_folder_is_refused(name: str) -> None:
    """Names come from prompts and columns: none leads out of the output folder (contract, section 3)."""
    files = FaultyFiles()

    with pytest.raises(OutputDirNotWritable):
        await OutputFiles(files).open_part(OUT, name)

    assert not any(step.startswith("create") for step in files.operations)


async def test_a_final_name_that_leaves_the_folder_is_refused() -> None:
    """The final name is checked as the temporary one was."""
    files = FaultyFiles()
    outputs = OutputFiles(files)
    part = await outputs.open_part(OUT, "fox")
    await part.write(PICTURE)

    with pytest.raises(OutputDirNotWritable):
        await outputs.finish(part, total_bytes=None, name_for=lambda _: "../fox.png")

    assert set(files.seen) == {"/out/.fox.part"}


async def test_a_long_name_still_has_a_temporary_one() -> None:
    """The temporary name is no longer than the file system allows, whatever the final one is."""
    files = FaultyFiles()

    part = await OutputFiles(files).open_part(OUT, "é" * 125)

    assert len(part.path.name.encode()) <= 255
    assert part.path.parent == OUT


async def test_a_failure_names_path_reason_and_remedy() -> None:
    """A person reads what is wrong and what to do, and loses nothing paid."""
    with pytest.raises(OutputDirNotWritable, match=r"/out/birds.*No space left.*Free some space"):
        await save(FaultyFiles(fail_at=1))


async def test_the_check_leaves_nothing_behind() -> None:
    """The folder is made and tried before any credit is spent."""
    files = FaultyFiles()

    await OutputFiles(files).check_writable(Path("/out/new/folder"))

    assert Path("/out/new/folder") in files.folders
    assert files.seen == {}


async def test_the_check_finds_each_failure() -> None:
    """Whatever the disk refuses in the check is found before any credit is spent, and no handle stays open."""
    files = FaultyFiles()
    await OutputFiles(files).check_writable(OUT)
    for at in range(1, len(files.operations) + 1):
        failing = FaultyFiles(fail_at=at)
        with pytest.raises(OutputDirNotWritable):
            await OutputFiles(failing).check_writable(OUT)
        assert failing.open_count == 0


async def test_a_nearly_full_disk_is_found_before_spending() -> None:
    """A disk that cannot take one clip stops the job while nothing is paid."""
    await OutputFiles(FaultyFiles(free_bytes=MIN_FREE_BYTES)).check_writable(OUT)

    with pytest.raises(OutputDirNotWritable, match="Free some space"):
        await OutputFiles(FaultyFiles(free_bytes=MIN_FREE_BYTES - 1)).check_writable(OUT)


async def test_loop_of_links_is_called_one(tmp_path: Path) -> None:
    """Nothing is a folder there, though something of that name exists."""
    (tmp_path / "out").symlink_to(tmp_path / "results")
    (tmp_path / "results").symlink_to(tmp_path / "out")

    with pytest.raises(OutputDirNotWritable, match="symbolic links there form a loop"):
        await OutputFiles().check_writable(tmp_path / "out" / "birds")
    with pytest.raises(OutputDirNotWritable, match="symbolic links there form a loop"):
        await OutputFiles().check_writable(tmp_path / "out")
