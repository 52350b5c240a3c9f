"""Exports into a folder: what is laid out where, again and again, interrupted, and with damaged outputs."""

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from batchkiln.core.errors import InputError, OutputDirNotWritable
from batchkiln.core.sample_names import ITEMS_PER_FOLDER, DatasetRow, Splits
from batchkiln.exports import Format, Link

from .export_rows import clip, export, picture, row, tree

HALVES = Splits((("train", 0.5), ("test", 0.5)))
FORMATS = [*Format]


def pictures(folder: Path, count: int) -> list[DatasetRow]:
    return [picture(folder, f"bird-{index}", index, metadata={"n": index}) for index in range(count)]


class Killed(Exception):
    """Ends an export in the middle."""


def killed_after(calls: int) -> Callable[[], None]:
    left = iter(range(calls))

    def pulse() -> None:
        if next(left, None) is None:
            raise Killed

    return pulse


def test_an_image_folder_holds_metadata_and_media_and_nothing_else(tmp_path: Path) -> None:
    """Each line names its file relative to itself (contract, section 9)."""
    rows = pictures(tmp_path, 2)

    export(rows, tmp_path / "to")

    found = tree(tmp_path / "to")
    assert [*found] == ["README.md", "train/images/bird-0.png", "train/images/bird-1.png", "train/metadata.jsonl"]
    lines = [json.loads(line) for line in found["train/metadata.jsonl"].splitlines()]
    assert [(line["file_name"], line["text"], line["n"]) for line in lines] == [
        ("images/bird-0.png", "a picture of bird-0", 0),
        ("images/bird-1.png", "a picture of bird-1", 1),
    ]
    assert found["train/images/bird-0.png"] == Path(rows[0].path).read_bytes()


def test_pictures_and_clips_are_datasets_of_their_own(tmp_path: Path) -> None:
    """A loader takes one kind; each has its own metadata, with the same metadata columns."""
    rows = [picture(tmp_path, "fox", 0, metadata={"n": 1}), clip(tmp_path, "owl", 1)]

    export(rows, tmp_path / "to")

    assert [*tree(tmp_path / "to")] == [
        "README.md",
        "images/train/fox.png",
        "images/train/metadata.jsonl",
        "videos/train/metadata.jsonl",
        "videos/train/owl.mp4",
    ]


def test_outputs_of_one_item_have_names_and_rows_of_their_own(tmp_path: Path) -> None:
    """This also holds for an item named like a second output, and for ids that are not file names."""
    rows = [
        picture(tmp_path, "fox", 0),
        picture(tmp_path, "fox", 0, output=2),
        picture(tmp_path, "fox-2", 1),
        picture(tmp_path, "a/b: .c", 2),
    ]

    result = export(rows, tmp_path / "to")

    media = [name for name in tree(tmp_path / "to") if name.endswith(".png")]
    assert len(media) == result.files == 4
    assert result.items == 3
    assert {"train/images/fox.png", "train/images/fox-2.png"} < set(media)


def test_a_large_job_has_numbered_folders(tmp_path: Path) -> None:
    """No folder gets more than ten thousand items; the first of them stand as in a small job."""
    rows = [picture(tmp_path, "first", ITEMS_PER_FOLDER - 1), picture(tmp_path, "second", ITEMS_PER_FOLDER)]

    export(rows, tmp_path / "to", Format.JSONL)

    assert {"images/first.png", "images/0001/second.png"} < set(tree(tmp_path / "to"))
    assert export(rows, tmp_path / "to", Format.JSONL).unchanged == 2


@pytest.mark.parametrize("wanted", FORMATS)
def test_a_later_export_equals_a_fresh_one(tmp_path: Path, wanted: Format) -> None:
    """Items that are done later, also in the middle, come to what one export of all would have made."""
    rows = [*pictures(tmp_path, 9), clip(tmp_path, "clip", 9)]
    export(rows[::2], tmp_path / "to", wanted, of_job=rows, splits=HALVES, items_per_shard=3)

    later = export(rows, tmp_path / "to", wanted, splits=HALVES, items_per_shard=3)
    export(rows, tmp_path / "fresh", wanted, splits=HALVES, items_per_shard=3)

    assert tree(tmp_path / "to") == tree(tmp_path / "fresh")
    assert later.files == 10
    assert 0 < later.new < 10


@pytest.mark.parametrize("wanted", FORMATS)
def test_an_export_again_touches_nothing(tmp_path: Path, wanted: Format) -> None:
    """With nothing new, no file is written: not one modification time differs."""
    rows = [*pictures(tmp_path, 4), clip(tmp_path, "clip", 4)]
    export(rows, tmp_path / "to", wanted, link=Link.COPY)
    before = {path: (path.stat().st_mtime_ns, path.stat().st_ino) for path in (tmp_path / "to").rglob("*")}

    result = export(rows, tmp_path / "to", wanted, link=Link.COPY)

    assert (result.new, result.unchanged) == (0, 5)
    files = {path: marks for path, marks in before.items() if path.is_file()}
    assert {path: (path.stat().st_mtime_ns, path.stat().st_ino) for path in files} == files


@pytest.mark.parametrize("wanted", FORMATS)
@pytest.mark.parametrize("calls", [0, 1, 3, 4])
def test_an_interrupted_export_continues(tmp_path: Path, wanted: Format, calls: int) -> None:
    """Whatever stands under its final name is whole, and the same command comes to the whole dataset."""
    rows = pictures(tmp_path, 5)
    with pytest.raises(Killed):
        export(rows, tmp_path / "to", wanted, check_interrupted=killed_after(calls), items_per_shard=2)
    interrupted = tree(tmp_path / "to")

    export(rows, tmp_path / "to", wanted, items_per_shard=2)
    export(rows, tmp_path / "fresh", wanted, items_per_shard=2)

    whole = tree(tmp_path / "fresh")
    assert tree(tmp_path / "to") == whole
    assert "is not finished" in interrupted.pop("README.md").decode()
    assert interrupted.items() <= whole.items()


def test_what_a_killed_export_left_is_removed(tmp_path: Path) -> None:
    """Hidden files of a process that is gone; those of one that lives are its own."""
    rows = pictures(tmp_path, 1)
    for pid in (2**22 + 1, os.getppid()):
        left = tmp_path / "to" / f".batchkiln-export-{pid}"
        left.mkdir(parents=True)
        (left / "media").write_bytes(b"half")

    export(rows, tmp_path / "to")

    hidden = [path.name for path in (tmp_path / "to").iterdir() if path.name.startswith(".")]
    assert hidden == [f".batchkiln-export-{os.getppid()}"]


@pytest.mark.parametrize("wanted", FORMATS)
def test_damaged_outputs_are_left_out_and_named(tmp_path: Path, wanted: Format) -> None:
    """Gone, of another length, of the same length with another content; the others are exported."""
    rows = pictures(tmp_path, 4)
    Path(rows[0].path).unlink()
    with Path(rows[1].path).open("ab") as file:
        file.write(b"more")
    Path(rows[2].path).write_bytes(b"x" * rows[2].size_bytes)

    result = export(rows, tmp_path / "to", wanted)

    assert result.files == 1
    assert [(one.item, one.reason) for one in result.left_out] == [
        ("bird-0", "the file is gone"),
        ("bird-1", f"it has {rows[1].size_bytes + 4} bytes, and {rows[1].size_bytes} were recorded"),
        ("bird-2", "its content differs from the recorded hash"),
    ]
    assert result.left_out_count == 3


def test_a_whole_copy_of_an_earlier_export_serves(tmp_path: Path) -> None:
    """It may be the last one of a paid result: it is neither removed nor dropped from the table."""
    rows = pictures(tmp_path, 2)
    export(rows, tmp_path / "to", link=Link.COPY)
    before = tree(tmp_path / "to")
    Path(rows[0].path).unlink()

    result = export(rows, tmp_path / "to", link=Link.COPY)

    assert (result.unchanged, result.left_out_count) == (2, 0)
    assert tree(tmp_path / "to") == before


def test_a_damaged_copy_is_made_again(tmp_path: Path) -> None:
    """As long as the output itself is whole."""
    rows = pictures(tmp_path, 2)
    export(rows, tmp_path / "to", link=Link.COPY)
    copy = tmp_path / "to" / "train" / "images" / "bird-1.png"
    copy.write_bytes(b"x" * rows[1].size_bytes)

    result = export(rows, tmp_path / "to", link=Link.COPY)

    assert (result.new, result.unchanged) == (1, 1)
    assert copy.read_bytes() == Path(rows[1].path).read_bytes()


def test_sizes_alone_are_compared_where_that_is_asked(tmp_path: Path) -> None:
    """Without reading a million files: a damage that keeps the size goes unseen, which the option says."""
    rows = pictures(tmp_path, 1)
    Path(rows[0].path).write_bytes(b"x" * rows[0].size_bytes)

    assert export(rows, tmp_path / "to", is_thorough=False).files == 1


@pytest.mark.parametrize("link", [None, Link.HARD])
def test_media_are_hard_links(tmp_path: Path, link: Link | None) -> None:
    """The same file under a second name; the output stays where it is."""
    rows = pictures(tmp_path, 1)

    export(rows, tmp_path / "to", link=link)

    assert (tmp_path / "to/train/images/bird-0.png").samefile(rows[0].path)


def test_symbolic_links_name_no_folder_of_the_machine(tmp_path: Path) -> None:
    """They are relative, and lead to the output."""
    rows = pictures(tmp_path, 1)

    export(rows, tmp_path / "to", link=Link.SYM)

    made = tmp_path / "to/train/images/bird-0.png"
    assert made.readlink() == Path("../../../out/bird-0-1.png")
    assert made.samefile(rows[0].path)
    assert export(rows, tmp_path / "to", link=Link.SYM).unchanged == 1


@pytest.mark.parametrize("link", [Link.SYM, Link.HARD])
def test_links_become_copies_where_copies_are_asked(tmp_path: Path, link: Link) -> None:
    """A dataset that is to be sent away, or to be changed, shares nothing with the outputs."""
    rows = pictures(tmp_path, 1)
    export(rows, tmp_path / "to", link=link)

    export(rows, tmp_path / "to", link=Link.COPY)

    made = tmp_path / "to/train/images/bird-0.png"
    assert not made.is_symlink()
    assert made.stat().st_nlink == 1


def test_without_hard_links_files_are_copied_unless_links_are_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another disk is met on any machine; a person who insists is told what to do."""
    rows = pictures(tmp_path, 2)

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuse)

    assert export(rows, tmp_path / "to").new == 2
    with pytest.raises(OutputDirNotWritable, match="--link copy"):
        export(rows, tmp_path / "other", link=Link.HARD)


def test_a_full_disk_is_reported_and_leaves_nothing_half_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message names the path, the reason, and that the same command continues."""
    rows = pictures(tmp_path, 1)

    def fill(_: object, target: Path) -> None:
        target.write_bytes(b"ha")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("shutil.copyfile", fill)

    with pytest.raises(OutputDirNotWritable, match=r"bird-0\.png: No space left.*nothing was charged.*same command"):
        export(rows, tmp_path / "to", link=Link.COPY)
    assert [*tree(tmp_path / "to")] == ["README.md"]


@pytest.mark.parametrize("wanted", [*Format])
def test_a_disk_that_is_full_of_a_table_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: Format
) -> None:
    """Tables and shards are written by other hands than media, and fail alike."""
    rows = pictures(tmp_path, 1)

    def fill(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    for writer in ("tables.JsonlFile", "tables.CsvFile", "tables.ParquetFile"):
        monkeypatch.setattr(f"batchkiln.exports.{writer}.add", fill)
    monkeypatch.setattr("tarfile.TarFile.addfile", fill)

    with pytest.raises(OutputDirNotWritable, match=r"to: No space left.*same command"):
        export(rows, tmp_path / "to", wanted)
    assert {name for name in tree(tmp_path / "to") if "images" not in name} == {"README.md"}


def test_a_folder_of_others_is_refused(tmp_path: Path) -> None:
    """Nothing is written beside files that are none of ours, or over a README of another dataset."""
    rows = pictures(tmp_path, 1)
    for name in ("notes.txt", "README.md"):
        (tmp_path / name.lower()).mkdir()
        (tmp_path / name.lower() / name).write_text("mine", "utf-8")

        with pytest.raises(InputError, match="name a"):
            export(rows, tmp_path / name.lower())

        assert tree(tmp_path / name.lower()) == {name: b"mine"}


def test_a_clone_is_no_folder_of_others(tmp_path: Path) -> None:
    """An empty repository of the Hub has hidden files."""
    (tmp_path / "to").mkdir()
    (tmp_path / "to" / ".gitattributes").write_text("*.png filter=lfs", "utf-8")

    assert export(pictures(tmp_path, 1), tmp_path / "to").new == 1


@pytest.mark.parametrize(
    ("wanted", "splits", "reason"),
    [
        (Format.JSONL, Splits(), "with format imagefolder, not jsonl"),
        (Format.IMAGEFOLDER, HALVES, "with splits train=1, not train=0.5,test=0.5"),
    ],
)
def test_another_layout_is_refused(tmp_path: Path, wanted: Format, splits: Splits, reason: str) -> None:
    """Two layouts in one folder would be read as one dataset with everything twice."""
    rows = pictures(tmp_path, 1)
    export(rows, tmp_path / "to")

    with pytest.raises(InputError, match=reason):
        export(rows, tmp_path / "to", wanted, splits=splits)


def test_a_job_that_makes_clips_now_needs_another_folder(tmp_path: Path) -> None:
    """Pictures at the root and clips in a folder would be loaded together."""
    rows = [picture(tmp_path, "fox", 0), clip(tmp_path, "owl", 1)]
    export(rows[:1], tmp_path / "to")

    with pytest.raises(InputError, match="with makes images, not images and videos"):
        export(rows, tmp_path / "to")


def test_a_job_without_files_writes_nothing(tmp_path: Path) -> None:
    """Not even the folder."""
    result = export([], tmp_path / "to", of_job=[row("fox")])

    assert result.files == 0
    assert not (tmp_path / "to").exists()


@pytest.mark.parametrize("wanted", [Format.JSONL, Format.CSV, Format.PARQUET, Format.IMAGEFOLDER])
def test_a_split_that_lost_its_rows_keeps_no_table(tmp_path: Path, wanted: Format) -> None:
    """A table of an earlier export would name files that are not whole."""
    rows = pictures(tmp_path, 6)
    export(rows, tmp_path / "to", wanted, splits=HALVES)
    tests = [one for one in rows if HALVES.split_of(one.item) == "test"]
    for one in tests:
        Path(one.path).write_bytes(b"damaged")  # and its hard link with it

    result = export(rows, tmp_path / "to", wanted, splits=HALVES)

    assert result.left_out_count == len(tests) > 0
    assert not [name for name in tree(tmp_path / "to") if name.startswith("test") and not name.endswith(".png")]


def test_an_export_holds_no_path_of_the_machine(tmp_path: Path) -> None:
    """Neither in a table nor in a card, a shard, or a link. Law 8 asks the same of secrets."""
    rows = [replace(one, generation_id="gen") for one in pictures(tmp_path, 2)]

    for wanted in FORMATS:
        export(rows, tmp_path / wanted, wanted)

        assert [name for name, content in tree(tmp_path / wanted).items() if str(tmp_path).encode() in content] == []


def test_a_file_in_the_folders_place_is_refused(tmp_path: Path) -> None:
    """With its name, and before anything is written."""
    (tmp_path / "to").write_bytes(b"mine")

    with pytest.raises(InputError, match="this is a file"):
        export(pictures(tmp_path, 1), tmp_path / "to")


def test_what_a_person_wrote_into_the_card_is_kept(tmp_path: Path) -> None:
    """Below its last line; the rest is written anew."""
    rows = pictures(tmp_path, 2)
    export(rows[:1], tmp_path / "to")
    card = tmp_path / "to" / "README.md"
    card.write_text(card.read_text("utf-8") + "\n## Licence\n\nMine.\n", "utf-8")

    export(rows, tmp_path / "to")

    assert card.read_text("utf-8").endswith("\n## Licence\n\nMine.\n")
    assert "| train | 2 | 0 |" in card.read_text("utf-8")
