"""Thumbnails that are kept between reports, as long as their files do not change."""

import os
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
from PIL import Image

from batchkiln.outputs.kept_thumbnails import KeptThumbnails
from batchkiln.outputs.thumbnails import NoThumbnail, Thumbnail, make_thumbnail


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "batchkiln" / "thumbnails"


@pytest.fixture
def drawn() -> Iterator[mock.Mock]:
    """Counts what is drawn."""
    with mock.patch("batchkiln.outputs.kept_thumbnails.make_thumbnail", side_effect=make_thumbnail) as made:
        yield made


def picture(path: Path, color: str = "orange") -> Path:
    Image.new("RGB", (80, 60), color).save(path)
    return path


def small(path: Path, edge: int = 40) -> Thumbnail:
    found = KeptThumbnails().of(path, media_type="image/png", edge=edge, size_bytes=path.stat().st_size)
    assert isinstance(found, Thumbnail)
    return found


def test_a_picture_is_drawn_once(tmp_path: Path, drawn: mock.Mock) -> None:
    """What is read again is equal in every field, and only its owner can read it."""
    path = picture(tmp_path / "a.png")

    first, again = small(path), small(path)

    assert first == again == make_thumbnail(path, media_type="image/png", edge=40)
    assert drawn.call_count == 1
    assert {file.stat().st_mode & 0o777 for file in (tmp_path / "cache").rglob("*") if file.is_file()} == {0o600}


def test_another_size_and_a_changed_file_are_drawn_again(tmp_path: Path, drawn: mock.Mock) -> None:
    """A file of the same size that was written later is another picture."""
    path = picture(tmp_path / "a.png")
    first = small(path)

    assert small(path, edge=20).width == 20
    picture(path, "blue")
    os.utime(path, ns=(1, 1))

    assert small(path).content != first.content
    assert drawn.call_count == 3


def test_a_copy_of_an_object_is_known_by_its_content(tmp_path: Path, drawn: mock.Mock) -> None:
    """Each use changes the time of a copy, and another machine may have it elsewhere."""
    kept, path = KeptThumbnails(), picture(tmp_path / "a.png")
    for number in range(3):
        os.utime(path, ns=(number, number))
        kept.of(path, media_type="image/png", edge=40, size_bytes=path.stat().st_size, sha256="5a" * 32)

    assert drawn.call_count == 1


def test_what_is_gone_or_damaged_is_told_whatever_is_kept(tmp_path: Path) -> None:
    """No picture is shown for a file that no longer exists."""
    path = picture(tmp_path / "a.png")
    small(path)
    saved = path.stat().st_size

    def found() -> Thumbnail | NoThumbnail:
        return KeptThumbnails().of(path, media_type="image/png", edge=40, size_bytes=saved)

    path.unlink()
    assert found() is NoThumbnail.GONE
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(saved - 8))
    assert found() is NoThumbnail.UNREADABLE
    picture(path, "blue").write_bytes(path.read_bytes() + b"more")
    assert found() is NoThumbnail.CHANGED


@pytest.mark.parametrize("content", [b"", b"\n", b"{}\nx", b'{"media_type": "text/html"}\nx', b"\xff\nx"])
def test_a_damaged_copy_is_drawn_again(tmp_path: Path, cache: Path, content: bytes) -> None:
    """The cache may hold anything, for instance after a crash."""
    path = picture(tmp_path / "a.png")
    first = small(path)
    for kept in cache.glob("*/*"):
        kept.write_bytes(content)

    assert small(path) == first


def test_a_disk_that_cannot_be_written_keeps_nothing(tmp_path: Path, cache: Path) -> None:
    """The picture is shown nevertheless."""
    cache.parent.mkdir(parents=True)
    cache.write_text("a file in place of the folder")

    assert small(picture(tmp_path / "a.png")).width == 40


def test_the_longest_unused_are_removed(tmp_path: Path, cache: Path) -> None:
    """The folder does not grow with each report."""
    kept = KeptThumbnails(kept_bytes=4000)
    for number in range(30):
        path = picture(tmp_path / f"{number}.png")
        kept.of(path, media_type="image/png", edge=40, size_bytes=path.stat().st_size)

    sizes = [file.stat().st_size for file in cache.glob("*/*")]
    assert sum(sizes) <= 4000 * 9 / 8 + max(sizes)
    assert len(sizes) > 2
