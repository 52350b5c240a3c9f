"""WebDataset shards: what is in them, which items lie where, and what becomes of them later."""

import json
import tarfile
from pathlib import Path

import pytest

from batchkiln.core.sample_names import DatasetRow, Splits
from batchkiln.exports import Format

from .export_rows import MADE_AT, clip, export, picture, tree


def members(shard: Path) -> list[str]:
    with tarfile.open(shard) as archive:
        return archive.getnames()


def pictures(folder: Path, *indexes: int) -> list[DatasetRow]:
    return [picture(folder, f"bird.{index}", index) for index in indexes]


def test_a_sample_is_three_files_side_by_side(tmp_path: Path) -> None:
    """One key without a dot, the same extensions in every sample (contract, section 9)."""
    rows = [picture(tmp_path, "v1.2", 0), picture(tmp_path, "plain", 1, output=2, prompt="füchse")]

    export(rows, tmp_path / "to", Format.WEBDATASET)

    with tarfile.open(tmp_path / "to/train/png-000000.tar") as archive:
        names = archive.getnames()
        contents = [archive.extractfile(name).read() for name in names]  # type: ignore[union-attr]
    keys = [name.partition(".")[0] for name in names]
    assert [name.partition(".")[2] for name in names] == ["json", "png", "txt"] * 2
    assert (keys[0], keys[3]) == (keys[2], keys[5])
    assert keys[0] != keys[3]
    assert (contents[1], contents[5].decode()) == (Path(rows[0].path).read_bytes(), "füchse")
    assert (json.loads(contents[0])["item"], json.loads(contents[0])["file_name"]) == ("v1.2", names[1])


def test_headers_tell_nothing_of_the_machine(tmp_path: Path) -> None:
    """No owner, no mode of its own, and the instant at which the file was saved."""
    export(pictures(tmp_path, 0), tmp_path / "to", Format.WEBDATASET)

    with tarfile.open(tmp_path / "to/train/png-000000.tar") as archive:
        for entry in archive:
            assert (entry.uid, entry.gid, entry.uname, entry.gname, entry.mode) == (0, 0, "", "", 0o644)
            assert entry.mtime == MADE_AT.timestamp()


def test_extensions_have_shards_of_their_own(tmp_path: Path) -> None:
    """A loader takes the fields of the first sample for those of all."""
    export([*pictures(tmp_path, 0), clip(tmp_path, "owl", 1)], tmp_path / "to", Format.WEBDATASET)

    assert [*tree(tmp_path / "to")] == ["README.md", "train/mp4-000000.tar", "train/png-000000.tar"]
    assert members(tmp_path / "to/train/mp4-000000.tar") == ["owl.json", "owl.mp4", "owl.txt"]


def test_an_item_lies_where_its_index_says(tmp_path: Path) -> None:
    """Whatever else is done yet."""
    export(pictures(tmp_path, 0, 3, 7), tmp_path / "to", Format.WEBDATASET, items_per_shard=3)

    assert [len(members(tmp_path / f"to/train/png-00000{number}.tar")) for number in range(3)] == [3, 3, 3]


def test_shards_of_a_small_split_are_as_full(tmp_path: Path) -> None:
    """A split of a quarter has its shards over four times as many items."""
    splits = Splits((("train", 0.75), ("test", 0.25)))
    rows = pictures(tmp_path, *range(240))

    export(rows, tmp_path / "to", Format.WEBDATASET, items_per_shard=15, splits=splits)

    sizes = {
        split: [len(members(shard)) // 3 for shard in sorted((tmp_path / "to" / split).iterdir())]
        for split in ("train", "test")
    }
    assert (len(sizes["train"]), len(sizes["test"])) == (12, 4)
    assert sum(sizes["train"]) + sum(sizes["test"]) == 240
    assert all(8 <= size <= 22 for size in (*sizes["train"], *sizes["test"]))


def test_only_a_shard_with_something_new_is_written(tmp_path: Path) -> None:
    """The others are not even read."""
    export(pictures(tmp_path, 0, 1, 2, 3), tmp_path / "to", Format.WEBDATASET, items_per_shard=2)
    before = {path: path.stat().st_ino for path in (tmp_path / "to").rglob("*.tar")}
    rows = pictures(tmp_path, 0, 1, 2, 3, 4)
    Path(rows[0].path).unlink()

    result = export(rows, tmp_path / "to", Format.WEBDATASET, items_per_shard=2)

    assert (result.new, result.unchanged, result.left_out_count) == (1, 4, 0)
    assert {path: path.stat().st_ino for path in before} == before


def test_a_shard_is_kept_while_outputs_of_it_are_gone(tmp_path: Path) -> None:
    """It may contain their last copy, so nothing is added either; the result reports this."""
    export(pictures(tmp_path, 0), tmp_path / "to", Format.WEBDATASET)
    before = tree(tmp_path / "to")["train/png-000000.tar"]
    rows = pictures(tmp_path, 0, 1)
    Path(rows[0].path).unlink()

    result = export(rows, tmp_path / "to", Format.WEBDATASET)

    assert tree(tmp_path / "to")["train/png-000000.tar"] == before
    assert result.files == 0
    gone, kept = result.left_out
    assert gone.reason == "the file is gone"
    assert "its shard was left unchanged" in kept.reason


@pytest.mark.parametrize("content", [b"", b"no tar at all" * 100])
def test_a_file_of_others_in_a_shards_place_is_replaced(tmp_path: Path, content: bytes) -> None:
    """The folder is an export's: what is no shard of ours there was cut or overwritten."""
    rows = pictures(tmp_path, 0)
    export(rows, tmp_path / "to", Format.WEBDATASET)
    whole = tree(tmp_path / "to")
    (tmp_path / "to/train/png-000000.tar").write_bytes(content)

    export(rows, tmp_path / "to", Format.WEBDATASET)

    assert tree(tmp_path / "to") == whole
