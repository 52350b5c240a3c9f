"""Small pictures: of stills and clips, and none of what cannot be drawn safely."""

from pathlib import Path

import av
import numpy as np
import pytest
from PIL import Image

from batchkiln.outputs import thumbnails
from batchkiln.outputs.thumbnails import NoThumbnail, Thumbnail, make_thumbnail


def clip(path: Path) -> Path:
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=10)
        stream.width, stream.height, stream.pix_fmt = 320, 180, "yuv420p"
        frame = av.VideoFrame.from_ndarray(np.full((180, 320, 3), 200, dtype=np.uint8), format="rgb24")
        for packet in [*stream.encode(frame), *stream.encode()]:
            container.mux(packet)
    return path


def tune(path: Path) -> Path:
    with av.open(str(path), "w") as container:
        stream = container.add_stream("aac", rate=8000, layout="mono")
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 1024), dtype=np.float32), format="fltp", layout="mono")
        frame.sample_rate = 8000
        for packet in [*stream.encode(frame), *stream.encode()]:
            container.mux(packet)
    return path


@pytest.mark.parametrize(
    ("ending", "media_type"),
    [("mp4", "video/mp4"), ("mov", "video/quicktime"), ("mkv", "video/x-matroska"), ("mkv", "video/webm")],
)
def test_a_clip_of_any_kind_that_is_saved_shows_its_first_frame(tmp_path: Path, ending: str, media_type: str) -> None:
    """A clip is told from its type, not from its name."""
    made = make_thumbnail(clip(tmp_path / f"a.{ending}").rename(tmp_path / "clip"), media_type=media_type, edge=160)

    assert isinstance(made, Thumbnail)
    assert (made.width, made.height) == (160, 90)


@pytest.mark.parametrize("media_type", ["image/png", "video/mp4", "video/x-unknown"])
@pytest.mark.parametrize("content", [b"", b"no picture at all", b"\x89PNG\r\n\x1a\n" + b"\0" * 64])
def test_what_cannot_be_drawn_is_said(tmp_path: Path, content: bytes, media_type: str) -> None:
    """A broken file is a gap on the page, and not an error."""
    path = tmp_path / "broken"
    path.write_bytes(content)

    assert make_thumbnail(path, media_type=media_type, edge=100) is NoThumbnail.UNREADABLE
    assert make_thumbnail(tmp_path / "gone", media_type=media_type, edge=100) is NoThumbnail.GONE


def test_a_clip_without_a_picture_is_said(tmp_path: Path) -> None:
    """A container may hold sound alone."""
    path = tune(tmp_path / "tune.mp4")

    assert make_thumbnail(path, media_type="video/mp4", edge=100) is NoThumbnail.UNREADABLE


@pytest.mark.parametrize(
    ("content", "media_type"),
    [
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n%%EOF\n", "image/png"),
        (b"#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nclip.mp4\n#EXT-X-ENDLIST\n", "video/mp4"),
        (b"ffconcat version 1.0\nfile clip.mp4\n", "video/mp4"),
    ],
)
def test_nothing_is_run_or_opened_that_a_file_names(tmp_path: Path, content: bytes, media_type: str) -> None:
    """A file may say that it is a program or a list of others; only what we know by name is decoded."""
    clip(tmp_path / "clip.mp4")
    (tmp_path / "file").write_bytes(content)

    assert make_thumbnail(tmp_path / "file", media_type=media_type, edge=100) is NoThumbnail.UNREADABLE


def test_a_bomb_is_not_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of few bytes may ask for gigabytes of memory."""
    monkeypatch.setattr(thumbnails, "MAX_PIXELS", 100)
    Image.new("RGB", (20, 20)).save(tmp_path / "large.png")
    clip(tmp_path / "large.mp4")

    for name, media_type in (("large.png", "image/png"), ("large.mp4", "video/mp4")):
        assert make_thumbnail(tmp_path / name, media_type=media_type, edge=10) is NoThumbnail.UNREADABLE
