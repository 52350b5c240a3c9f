"""Sources that are JSON arrays, parquet files, or at URLs."""

import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from typing import Any, Self

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from batchkiln.manifest import open_manifest
from batchkiln.manifest.json_arrays import ArrayReader, InvalidJson
from batchkiln.manifest.remote_sources import RemoteSources, SourceNotFetched, file_name_of

from .manifest_texts import HEADER, mistakes, places, specs

ROWS = [{"prompt": 'a, "fox"', "kind": "x", "n": 1}, {"prompt": "owl", "kind": "y", "n": 2}]


@pytest.fixture
def memory() -> Iterator[Callable[[str, bytes], None]]:
    """Put files into fsspec's memory."""
    fs = fsspec.filesystem("memory")

    def put(path: str, content: bytes) -> None:
        fs.pipe_file(path, content)

    yield put
    fs.store.clear()


def parquet(rows: list[dict[str, Any]]) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows), sink)
    return bytes(sink.getvalue())


CONTENTS = {
    "p.json": json.dumps(ROWS, indent=1).encode(),
    "p.json.gz": gzip.compress(json.dumps(ROWS).encode()),
    "p.parquet": parquet(ROWS),
    "p.csv": b'prompt,kind\n"a, ""fox""",x\nowl,y\n',
    "p.tsv.gz": gzip.compress(b'prompt\tkind\na, "fox"\tx\nowl\ty\n'),
}


@pytest.mark.parametrize("name", CONTENTS)
@pytest.mark.parametrize("place", ["file", "url"])
def test_each_kind_of_source_is_read_from_files_and_urls(
    tmp_path: Path, memory: Callable[[str, bytes], None], name: str, place: str
) -> None:
    """The rows are the same everywhere, with ids from stem and row (contract, section 3)."""
    (tmp_path / name).write_bytes(CONTENTS[name])
    memory(f"/rows/{name}", CONTENTS[name])
    source = name if place == "file" else f"memory://rows/{name}"

    items = specs(tmp_path, f"- {{from: '{source}', metadata: [kind]}}\n")

    assert [(one.name, one.prompt) for one in items] == [("p-1", 'a, "fox"'), ("p-2", "owl")]
    assert items[0].metadata == '{"kind":"x"}'


def test_an_array_of_texts_is_prompts(tmp_path: Path) -> None:
    """As the lines of a txt file are."""
    (tmp_path / "p.json").write_text('["a fox",\n "an owl"]\n')

    assert [one.prompt for one in specs(tmp_path, "- from: p.json\n")] == ["a fox", "an owl"]


@pytest.mark.parametrize(
    ("name", "content", "place", "part"),
    [
        ("p.json", b'[\n {"prompt": "a"},\n {"prompt": }\n]', (3, 13), "not valid JSON"),
        ("p.json", b'[\n {"prompt": "a"},\n 5\n]', (3, 2), "element 2 is no object"),
        ("p.json", b'{"prompt": "a"}', (1, 1), "not a JSON array"),
        ("p.json", b'[{"prompt": "a"}', (1, 17), "no end"),
        ("p.json", b'[{"prompt": "a"}\n {"prompt": "b"}]', (2, 2), "a comma or `]` is missing"),
        ("p.json", b'[{"prompt": "a"}] 1', (1, 19), "after the end"),
        ("p.json", b'[{"prompt": "a", "n": NaN}]', (1, 2), "NaN is no number"),
        ("p.json", b'[{"prompt": "\\ud800"}]', (1, 14), "surrogate"),
        ("p.json", b'["a\nb"]', (1, 4), "control character"),
        ("p.json", b'["\xff"]', (1, 1), "0xFF is not UTF-8"),
        ("p.json", b"[" * 100_000, (1, 2), "too deep"),
        ("p.json", b"", (1, 1), "not a JSON array"),
        ("p.parquet", b"prompt\nfox\n", (None, None), "not a parquet file"),
        ("p.parquet", parquet([{"prompt": "a"}, {"prompt": "b\x07"}]), (2, 1), "U+0007"),
        ("p.parquet", parquet([{"Prompt": "a"}]), (5, 3), "no column `prompt`"),
    ],
)
def test_bad_sources_are_told_where_they_stand(
    tmp_path: Path, name: str, content: bytes, place: tuple[int | None, int | None], part: str
) -> None:
    """In a file with lines, at line and column; in parquet, at the row."""
    (tmp_path / name).write_bytes(content)

    (found, *_) = mistakes(tmp_path, HEADER + f"- from: {name}\n")

    assert (found.line, found.column) == place
    assert part in found.reason


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64])
def test_an_array_may_come_in_pieces_of_any_length(size: int) -> None:
    """What a piece cuts off is read with the next one: numbers, escapes and texts."""
    text = json.dumps([{"a": 'x"\\ é', "n": 12345}, [1.5e10, True], 123456, "tail", []], indent=1, ensure_ascii=False)
    pieces = (text[start : start + size] for start in range(0, len(text), size))

    found = list(ArrayReader(pieces).elements())

    assert [value for _, value in found] == json.loads(text)
    assert [line for line, _ in found] == [2, 6, 10, 11, 12]


def test_an_element_has_a_bound() -> None:
    """An array with one endless text is not read to its end."""
    read = 0

    def endless() -> Iterator[str]:
        nonlocal read
        yield '["'
        while True:
            read += 1
            yield "x" * (1 << 20)

    with pytest.raises(InvalidJson, match="an element of more than 8 MiB"):
        list(ArrayReader(endless()).elements())

    assert read < 64


def _items(folder: Path, body: str) -> Iterator[Any]:
    (folder / "m.yaml").write_text(HEADER + body)
    return open_manifest("m.yaml", working_dir=folder).items()


# --- URLs ---


def test_a_row_of_a_url_is_told_by_its_line(tmp_path: Path, memory: Callable[[str, bytes], None]) -> None:
    """The line is shown as that of a local file is."""
    memory("/rows/p.csv", b"prompt,kind\nfox,x\nowl\n")

    (found,) = mistakes(tmp_path, HEADER + "- from: memory://rows/p.csv\n")

    assert (found.file, found.line, found.source_line) == ("memory://rows/p.csv", 3, "owl")


@pytest.mark.parametrize(
    ("url", "part"),
    [
        ("memory://rows/gone.csv", "there is no such file"),
        ("nonsense://rows/p.csv", "Protocol not known: nonsense"),
        ("memory://rows/p.png", "none of the known endings"),
    ],
)
def test_a_url_that_cannot_be_read_is_told_at_its_place(tmp_path: Path, url: str, part: str) -> None:
    """In the manifest, which names it; nothing is enqueued."""
    found = mistakes(tmp_path, HEADER + f"- from: {url}\n")

    assert places(found) == [(5, 9)]
    assert part in found[0].reason


def test_secrets_of_a_url_are_not_shown(tmp_path: Path) -> None:
    """Law 8: neither password nor signature reach a message or the line beside it."""
    (found,) = mistakes(tmp_path, HEADER + "- from: nonsense://me:secret@host/p.csv?sig=abc\n")

    said = f"{found.reason} {found.source_line} {found.remedy}"
    assert "nonsense://…@host/p.csv?…" in said
    assert "secret" not in said
    assert "abc" not in said


def test_a_url_is_copied_once(memory: Callable[[str, bytes], None]) -> None:
    """Two entries of one manifest read the same content, and nothing is left behind."""
    memory("/rows/p.txt", b"fox\n")
    remote = RemoteSources()
    first = remote.path_of("memory://rows/p.txt")
    memory("/rows/p.txt", b"owl\n")

    second = remote.path_of("memory://rows/p.txt")

    assert (first, second.read_bytes()) == (second, b"fox\n")
    remote.close()
    assert not first.exists()


def test_a_url_that_is_too_large_is_refused_before_it_is_read(memory: Callable[[str, bytes], None]) -> None:
    """Its size is asked for first."""
    memory("/rows/p.txt", b"x" * 100)

    with pytest.raises(SourceNotFetched, match="more than 99 bytes"):
        RemoteSources(max_size_bytes=99).path_of("memory://rows/p.txt")


class _Endless:
    """A file system that knows no sizes, and whose files end never or say nothing."""

    def __init__(self, *, is_silent: bool) -> None:
        self.asked_for_nothing = Event()
        self._is_silent = is_silent

    def info(self, path: str) -> dict[str, Any]:
        return {"name": path, "size": None}

    def open(self, path: str, mode: str) -> "_Endless":
        del path, mode
        return self

    def invalidate_cache(self) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def read(self, size_bytes: int) -> bytes:
        if self._is_silent:
            self.asked_for_nothing.wait()
        return b"x" * size_bytes


@pytest.mark.parametrize(
    ("is_silent", "part"), [(True, "nothing came for 0 seconds"), (False, "more than 3,000,000 bytes")]
)
def test_a_slow_or_endless_url_is_given_up(monkeypatch: pytest.MonkeyPatch, *, is_silent: bool, part: str) -> None:
    """No read waits for ever, and none fills the disk."""
    endless = _Endless(is_silent=is_silent)
    monkeypatch.setattr("fsspec.core.url_to_fs", lambda url: (endless, url))
    remote = RemoteSources(silence_seconds=0.05 if is_silent else 30, max_size_bytes=3_000_000)

    with pytest.raises(SourceNotFetched, match=part):
        remote.path_of("memory://rows/p.txt")

    endless.asked_for_nothing.set()


def test_the_name_of_a_url_has_no_query() -> None:
    """Stem and ending are those of its path."""
    urls = ["https://host/a/p.csv?sig=x/y.txt", "memory://p.json", "hf://datasets/a/b@main/p.parquet#x", "s3://b/"]

    assert [file_name_of(url) for url in urls] == ["p.csv", "p.json", "p.parquet", "b"]


@pytest.mark.parametrize(
    ("url", "lacking", "extra"),
    [("memory://rows/p.txt", "fsspec", "datasets"), ("s3://b/p.txt", "fsspec", "s3"), ("s3://b/p.txt", "s3fs", "s3")],
)
def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch, url: str, lacking: str, extra: str) -> None:
    """With the command that installs it."""

    def missing(_: str) -> None:
        raise ModuleNotFoundError(f"No module named '{lacking}'", name=lacking)

    monkeypatch.setattr("fsspec.core.url_to_fs", missing)

    with pytest.raises(SourceNotFetched) as caught:
        RemoteSources().path_of(url)

    assert (caught.value.reason, caught.value.remedy) == (
        "a URL needs packages that are not installed",
        f"pip install 'batchkiln[{extra}]'",
    )
