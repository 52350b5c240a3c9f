"""Small pictures are drawn once, and kept within a bound."""

from pathlib import Path

from PIL import Image

from batchkiln.dashboard.context import Thumbnails
from batchkiln.outputs.thumbnails import NoThumbnail, Thumbnail


def still(path: Path) -> Path:
    Image.new("RGB", (1600, 900), 90).save(path)
    return path


async def test_the_memory_has_a_bound(tmp_path: Path) -> None:
    """The oldest goes first; what was shown just now is kept."""
    path = still(tmp_path / "a.png")
    drawn = await Thumbnails().of(path, "hash", "image/png")
    assert isinstance(drawn, Thumbnail)
    one = len(drawn.content)
    kept = Thumbnails(kept_bytes=3 * one)

    for number in range(5):
        await kept.of(path, f"hash-{number}", "image/png")

    assert kept.size_bytes == 3 * one


async def test_a_picture_is_drawn_once(tmp_path: Path) -> None:
    """A file never changes under its hash, so that a second look costs nothing."""
    path = still(tmp_path / "a.png")
    kept = Thumbnails()
    first = await kept.of(path, "hash", "image/png")
    path.unlink()

    assert isinstance(first, Thumbnail)
    assert await kept.of(path, "hash", "image/png") == first


async def test_a_picture_that_has_come_back_is_drawn(tmp_path: Path) -> None:
    """Its disk was away for a while; nothing of that is kept."""
    kept = Thumbnails()
    missed = await kept.of(tmp_path / "a.png", "hash", "image/png")
    still(tmp_path / "a.png")

    assert missed is NoThumbnail.GONE
    assert isinstance(await kept.of(tmp_path / "a.png", "hash", "image/png"), Thumbnail)
    assert kept.size_bytes > 0
