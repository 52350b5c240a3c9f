"""Small pictures: of stills and clips, within a bound, and none of what cannot be drawn."""

import io
from pathlib import Path

import av
import numpy as np
import pytest
from PIL import Image

from batchkiln.dashboard import thumbnails
from batchkiln.dashboard.thumbnails import EDGE_PIXELS, Thumbnails, draw


def still(path: Path, size: tuple[int, int] = (1600, 900), mode: str = "RGB") -> Path:
    Image.new(mode, size, 90).save(path)
    return path


def clip(path: Path) -> Path:
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=10)
        stream.width, stream.height, stream.pix_fmt = 320, 180, "yuv420p"
        frame = av.VideoFrame.from_ndarray(np.full((180, 320, 3), 200, dtype=np.uint8), format="rgb24")
        for packet in [*stream.encode(frame), *stream.encode()]:
            container.mux(packet)
    return path


def size_of(picture: bytes | None) -> tuple[int, int]:
    assert picture is not None
    with Image.open(io.BytesIO(picture)) as image:
        return image.size


@pytest.mark.parametrize(("name", "mode"), [("a.png", "RGB"), ("a.png", "P"), ("a.png", "RGBA"), ("a.jpg", "L")])
def test_a_still_becomes_small_and_keeps_its_shape(tmp_path: Path, name: str, mode: str) -> None:
    """Whatever its colours are kept as."""
    assert size_of(draw(still(tmp_path / name, mode=mode), "image/png")) == (EDGE_PIXELS, EDGE_PIXELS * 9 // 16)


def test_a_clip_shows_its_first_frame(tmp_path: Path) -> None:
    """A clip is told from its type, not from its name."""
    assert size_of(draw(clip(tmp_path / "clip.mp4"), "video/mp4")) == (320, 180)


@pytest.mark.parametrize("media_type", ["image/png", "video/mp4"])
@pytest.mark.parametrize("content", [b"", b"no picture at all", b"\x89PNG\r\n\x1a\n" + b"\0" * 64])
def test_what_cannot_be_drawn_is_none(tmp_path: Path, content: bytes, media_type: str) -> None:
    """A broken file is a gap on the page, and not an error."""
    path = tmp_path / "broken"
    path.write_bytes(content)

    assert draw(path, media_type) is None
    assert draw(tmp_path / "gone", media_type) is None


@pytest.mark.parametrize(
    ("content", "media_type"),
    [
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n%%EOF\n", "image/png"),
        (b"#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nclip.mp4\n#EXT-X-ENDLIST\n", "video/mp4"),
        (b"ffconcat version 1.0\nfile clip.mp4\n", "video/mp4"),
        (b"whatever", "video/x-unknown"),
    ],
)
def test_nothing_is_run_or_opened_that_a_file_names(tmp_path: Path, content: bytes, media_type: str) -> None:
    """A file may say that it is a program or a list of others; only what we know by name is decoded."""
    clip(tmp_path / "clip.mp4")
    (tmp_path / "file").write_bytes(content)

    assert draw(tmp_path / "file", media_type) is None


def test_a_bomb_is_not_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of few bytes may ask for gigabytes of memory."""
    monkeypatch.setattr(thumbnails, "PIXELS_MAX", 100)

    assert draw(still(tmp_path / "large.png"), "image/png") is None


async def test_the_memory_has_a_bound(tmp_path: Path) -> None:
    """The oldest goes first; what was shown just now is kept."""
    path = still(tmp_path / "a.png")
    one = len(draw(path, "image/png") or b"")
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

    assert await kept.of(path, "hash", "image/png") == first
