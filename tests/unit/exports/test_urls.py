"""Exports to a URL, by the memory file system of fsspec."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from batchkiln.core.errors import InputError, OutputDirNotWritable
from batchkiln.core.urls import redacted
from batchkiln.exports import Format, Link

from .export_rows import clip, export, picture, tree


@pytest.fixture(autouse=True)
def store() -> Iterator[dict[str, bytes]]:
    """Empty the memory, which all tests of a process share."""
    MemoryFileSystem.store.clear()
    MemoryFileSystem.pseudo_dirs[:] = [""]
    yield MemoryFileSystem.store
    MemoryFileSystem.store.clear()


def remote(prefix: str) -> dict[str, bytes]:
    files = MemoryFileSystem.store.items()
    return {path.removeprefix(f"{prefix}/"): file.getvalue() for path, file in sorted(files) if path.startswith(prefix)}


@pytest.mark.parametrize("wanted", [*Format])
def test_a_dataset_at_a_url_is_that_of_a_folder(tmp_path: Path, wanted: Format) -> None:
    """Every file the same, in as many steps."""
    rows = [*(picture(tmp_path, f"bird-{index}", index) for index in range(5)), clip(tmp_path, "owl", 5)]
    export(rows[:3], "memory://bucket/birds", wanted, of_job=rows, items_per_shard=2)

    result = export(rows, "memory://bucket/birds", wanted, items_per_shard=2)
    export(rows, tmp_path / "to", wanted, items_per_shard=2)

    assert remote("/bucket/birds") == tree(tmp_path / "to")
    assert (result.files, result.left_out_count) == (6, 0)
    assert result.unchanged >= 2


def test_nothing_is_sent_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is there with its size is not read back and not sent."""
    rows = [picture(tmp_path, f"bird-{index}", index) for index in range(3)]
    export(rows, "memory://birds")
    sent: list[str] = []
    put = MemoryFileSystem.put

    def noting(self: MemoryFileSystem, sources: list[str], targets: list[str]) -> object:
        sent.extend(targets)
        return put(self, sources, targets)

    monkeypatch.setattr(MemoryFileSystem, "put", noting)

    result = export(rows, "memory://birds")

    assert result.unchanged == 3
    assert [target for target in sent if target.endswith(".png")] == []


def test_a_file_that_was_sent_in_part_never_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that breaks leaves no half of a file under its name, and the same command goes on."""
    rows = [picture(tmp_path, f"bird-{index}", index) for index in range(3)]
    put_file = MemoryFileSystem.put_file

    def breaking(self: MemoryFileSystem, source: str, target: str, **fields: object) -> None:
        if target.endswith("bird-1.png"):
            with self.open(target, "wb") as file:
                file.write(b"half")
            raise ConnectionResetError("Connection to https://key:canary@host/x?signature=canary lost")
        put_file(self, source, target, **fields)

    monkeypatch.setattr(MemoryFileSystem, "put_file", breaking)
    with pytest.raises(OutputDirNotWritable, match=r"ConnectionResetError.*same command again") as raised:
        export(rows, "memory://birds")
    monkeypatch.undo()

    assert "canary" not in str(raised.value)
    assert not [name for name in remote("/birds") if name.endswith("bird-1.png")]
    assert export(rows, "memory://birds").files == 3
    assert len(remote("/birds")) == 5


def test_links_are_refused(tmp_path: Path) -> None:
    """A person who asks for one would wait for nothing."""
    with pytest.raises(InputError, match="only be made in a folder"):
        export([picture(tmp_path, "fox", 0)], "memory://birds", link=Link.SYM)


def test_a_file_url_is_a_folder(tmp_path: Path) -> None:
    """With links and all."""
    rows = [picture(tmp_path, "fox one", 0)]

    export(rows, (tmp_path / "a b").as_uri())

    assert (tmp_path / "a b/train/images/fox one.png").samefile(rows[0].path)


def test_an_unknown_protocol_is_a_mistake(tmp_path: Path) -> None:
    """The error includes the message of fsspec."""
    with pytest.raises(InputError, match=r"--to nowhere://x: .*nowhere"):
        export([picture(tmp_path, "fox", 0)], "nowhere://x")


def test_what_is_not_installed_is_reported_with_its_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The optional part has a name; the other formats work without it."""
    for name in ("fsspec", "fsspec.core", "pyarrow", "pyarrow.parquet"):
        monkeypatch.setitem(sys.modules, name, None)
    rows = [picture(tmp_path, "fox", 0)]

    with pytest.raises(InputError, match=r"--format parquet needs .*pip install 'batchkiln\[datasets\]'"):
        export(rows, tmp_path / "to", Format.PARQUET)
    with pytest.raises(InputError, match=r"--to with a URL needs .*pip install 'batchkiln\[datasets\]'"):
        export(rows, "memory://birds")
    for wanted in (Format.JSONL, Format.CSV, Format.IMAGEFOLDER, Format.WEBDATASET):
        assert export(rows, tmp_path / wanted, wanted).files == 1


@pytest.mark.parametrize(
    "url",
    [
        "ftp://me:canary@host/x",
        "ftp://me:p@canary@host/x",
        "https://host/x?X-Amz-Signature=canary",
        "failed: s3://canary@b/k?canary=1.",
    ],
)
def test_secrets_in_urls_are_not_repeated(url: str) -> None:
    """Neither in a message nor in the result. Law 8."""
    assert "canary" not in redacted(url)
