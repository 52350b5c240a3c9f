"""Exports are what their users' libraries load as they are: Hugging Face `datasets`, `webdataset`, `pyarrow`."""

import csv
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import av
import numpy as np
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from batchkiln.core.job import Mode
from batchkiln.core.sample_names import DatasetRow, Splits
from batchkiln.exports import Format
from unit.exports.export_rows import clip, export, picture

os.environ["HF_HUB_OFFLINE"] = "1"  # read as it is imported: nothing here asks the network

import huggingface_hub
import webdataset

pytestmark = [
    pytest.mark.filterwarnings("default::DeprecationWarning"),  # of libraries among themselves
    pytest.mark.filterwarnings("default::FutureWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # webdataset leaves closing to the collector
]

THIRDS: Final = Splits((("train", 0.6), ("validation", 0.2), ("test", 0.2)))
METADATA: Final[list[dict[str, Any]]] = [
    {"species": "fox", "count": 1, "mixed": 1},
    {"species": "owl", "count": 2, "mixed": "two", "rare": 2.5},
    {"species": None, "count": 3, "mixed": [3]},
]


def a_clip() -> bytes:
    """Draw a clip of four frames."""
    from io import BytesIO  # noqa: PLC0415  only for this

    made = BytesIO()
    with av.open(made, "w", format="mp4") as container:
        stream = container.add_stream("h264", rate=4)
        stream.width = stream.height = 64
        for shade in range(4):
            frame = av.VideoFrame.from_ndarray(np.full((64, 64, 3), shade * 60, np.uint8), format="rgb24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return made.getvalue()


@pytest.fixture
def pictures(tmp_path: Path) -> list[DatasetRow]:
    """Give pictures whose metadata differ in types, with a key that a single one has."""
    once = [{"once": 1.5}] + [{}] * 23
    return [picture(tmp_path, f"bird.{at}", at, metadata=METADATA[at % 3] | once[at]) for at in range(24)]


@pytest.fixture
def clips(tmp_path: Path) -> list[DatasetRow]:
    content = a_clip()
    return [clip(tmp_path, f"owl-{index}", index, content) for index in range(4)]


@pytest.fixture
def load(tmp_path: Path) -> Callable[..., Any]:
    import datasets  # noqa: PLC0415  it takes a second, and each process of a run reads this module

    datasets.disable_progress_bars()

    def load_it(*names: str, **fields: Any) -> Any:  # noqa: ANN401  the library has no types
        return datasets.load_dataset(*names, cache_dir=str(tmp_path / "cache"), **fields)

    return load_it


@pytest.mark.parametrize("by_name", [True, False], ids=["imagefolder", "card"])
def test_pictures_load_as_an_image_folder(
    tmp_path: Path, pictures: list[DatasetRow], load: Callable[..., Any], *, by_name: bool
) -> None:
    """Splits, pictures, prompts and metadata of one type each, although no split has all of them."""
    export(pictures, tmp_path / "to", splits=THIRDS)

    found = load("imagefolder", data_dir=str(tmp_path / "to")) if by_name else load(str(tmp_path / "to"))

    assert {split: len(rows) for split, rows in found.items()} == {"train": 13, "validation": 4, "test": 7}
    rows = sorted((row for split in found.values() for row in split), key=lambda row: int(row["index"]))
    for row, made in zip(rows, pictures, strict=True):
        assert (row["text"], row["item"], row["count"]) == (made.prompt, made.item, made.metadata["count"])
        assert row["image"].getpixel((0, 0)) == (made.index, 100, 100)
    assert [row["mixed"] for row in rows[:3]] == ["1", "two", "[3]"]
    assert [row["rare"] for row in rows[:3]] == ["", "2.5", ""]


def test_clips_load_as_a_video_folder(tmp_path: Path, clips: list[DatasetRow], load: Callable[..., Any]) -> None:
    """As the pictures do; what is loaded are the clips themselves."""
    from datasets import Video  # noqa: PLC0415  as above

    export(clips, tmp_path / "to")

    for found in (load("videofolder", data_dir=str(tmp_path / "to")), load(str(tmp_path / "to"))):
        rows = found["train"].cast_column("video", Video(decode=False))
        assert [row["text"] for row in rows] == [made.prompt for made in clips]
        assert [Path(row["video"]["path"]).read_bytes() for row in rows] == [a_clip()] * 4
        assert found["train"].features["duration_seconds"].dtype == "int64"


def test_a_job_of_both_loads_as_two(
    tmp_path: Path, pictures: list[DatasetRow], clips: list[DatasetRow], load: Callable[..., Any]
) -> None:
    """Each folder by the loader of its kind; the card alone gives the pictures."""
    export([*pictures, *clips], tmp_path / "to")

    images = load("imagefolder", data_dir=str(tmp_path / "to/images"))
    videos = load("videofolder", data_dir=str(tmp_path / "to/videos"))

    assert (len(images["train"]), len(videos["train"])) == (24, 4)
    assert len(load(str(tmp_path / "to"))["train"]) == 24
    assert images["train"][0]["image"].size == (8, 8)


def test_card_loads_only_what_is_there(tmp_path: Path, pictures: list[DatasetRow], clips: list[DatasetRow]) -> None:
    """The clips of the job have failed."""
    export(pictures, tmp_path / "to", of_job=[*pictures, *clips])

    card = (tmp_path / "to" / "README.md").read_text("utf-8")
    assert 'images = load_dataset("imagefolder", data_dir="path/to/this/folder/images")' in card
    assert "videofolder" not in card


@pytest.mark.parametrize("wanted", [Format.JSONL, Format.CSV, Format.PARQUET])
def test_tables_load_by_their_card(
    tmp_path: Path, pictures: list[DatasetRow], load: Callable[..., Any], wanted: Format
) -> None:
    """One row per output, each with the file that it names."""
    export(pictures, tmp_path / "to", wanted, splits=THIRDS)

    found = load(str(tmp_path / "to"))

    rows = [row for split in found.values() for row in split]
    assert len(rows) == 24
    assert {(tmp_path / "to" / row["file_name"]).is_file() for row in rows} == {True}


def test_parquet_has_types_nulls_and_row_groups(
    tmp_path: Path, pictures: list[DatasetRow], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A column is of its type also where it is null."""
    monkeypatch.setattr("batchkiln.exports.tables.ROWS_PER_GROUP", 10)

    export(pictures, tmp_path / "to", Format.PARQUET)

    file = pq.ParquetFile(tmp_path / "to/train.parquet")
    types = {field.name: str(field.type) for field in file.schema_arrow}
    assert file.num_row_groups == 3
    assert [types[name] for name in ("text", "count", "mixed", "rare", "bytes")] == [
        "string",
        "int64",
        "string",
        "double",
        "int64",
    ]
    assert file.read().column("rare").to_pylist()[:3] == [None, 2.5, None]


def test_csv_reads_back(tmp_path: Path) -> None:
    """Prompts with commas, quotes and line breaks; null is empty."""
    prompt = 'a "fox",\nred; größe'
    rows = [picture(tmp_path, "fox", 0, prompt=prompt, metadata={"n": 1, "b": True}), picture(tmp_path, "owl", 1)]

    export(rows, tmp_path / "to", Format.CSV)

    with (tmp_path / "to/train.csv").open(encoding="utf-8", newline="") as file:
        first, second = csv.DictReader(file)
    assert (first["text"], first["n"], first["b"]) == (prompt, "1", "true")
    assert (second["n"], second["b"]) == ("", "")


def test_shards_load_by_webdataset(tmp_path: Path, pictures: list[DatasetRow]) -> None:
    """Every sample whole, in order, with its picture decoded."""
    export(pictures, tmp_path / "to", Format.WEBDATASET, items_per_shard=10)
    shards = sorted(str(path) for path in (tmp_path / "to").rglob("*.tar"))

    samples = [*webdataset.WebDataset(shards, shardshuffle=False).decode("pil")]

    assert len(shards) == 3
    assert [sample["txt"] for sample in samples] == [made.prompt for made in pictures]
    assert [sample["json"]["item"] for sample in samples] == [made.item for made in pictures]
    assert samples[5]["png"].getpixel((0, 0)) == (5, 100, 100)


def test_shards_load_by_datasets(
    tmp_path: Path, pictures: list[DatasetRow], clips: list[DatasetRow], load: Callable[..., Any]
) -> None:
    """By the card: a configuration for each extension."""
    rows = [*pictures, *(clip(tmp_path, f"clip-{index}", 24 + index, a_clip()) for index in range(2))]
    export(rows, tmp_path / "to", Format.WEBDATASET, items_per_shard=10)
    del clips

    images, videos = load(str(tmp_path / "to"), "png"), load(str(tmp_path / "to"), "mp4")

    assert (len(images["train"]), len(videos["train"])) == (24, 2)
    assert images["train"][7]["png"].getpixel((0, 0)) == (7, 100, 100)
    assert images["train"][7]["json"]["text"] == pictures[7].prompt


@pytest.mark.parametrize("wanted", [*Format])
def test_the_card_is_one_that_the_hub_reads(tmp_path: Path, pictures: list[DatasetRow], wanted: Format) -> None:
    """Front matter with the fields of a dataset, and what a person wants to know below."""
    rows = [replace(pictures[0], mode=Mode.IMAGE_TO_IMAGE), *pictures[1:]]
    export(rows, tmp_path / "to", wanted)

    card = huggingface_hub.DatasetCard.load(tmp_path / "to" / "README.md", ignore_metadata_errors=False)

    assert card.data.pretty_name == "birds"
    assert card.data.task_categories == ["image-to-image", "text-to-image"]
    assert card.data.size_categories == ["n<1K"]
    assert [config["config_name"] for config in card.data.configs] == ["default"]
    for piece in ("Birds of the garden", "epsilon-2 (24)", "1024x1024", "| 50 |", "2027-01-15", "| train | 24 | 0 |"):
        assert piece in card.content


def test_a_card_of_no_file_has_no_empty_list(tmp_path: Path, pictures: list[DatasetRow]) -> None:
    """Where every output is gone, the card says so, and stays one that can be read."""
    for made in pictures:
        Path(made.path).unlink()

    export(pictures, tmp_path / "to")

    card = huggingface_hub.DatasetCard.load(tmp_path / "to" / "README.md", ignore_metadata_errors=False)
    assert "configs" not in card.data.to_dict()
    assert "| Left out | 24 files that are gone or changed |" in card.content
