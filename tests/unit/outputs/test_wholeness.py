"""Checks that a file ends where its format requires."""

import io
import tempfile
from pathlib import Path

import av
import pytest
from PIL import Image

from batchkiln.outputs.completeness import is_complete
from batchkiln.outputs.file_formats import SNIFFED_BYTES, sniff_format


def picture(form: str) -> bytes:
    file = io.BytesIO()
    Image.effect_noise((64, 48), 40).convert("RGB").save(file, form)
    return file.getvalue()


def animation() -> bytes:
    """Several images, each with a table of colours, and a comment that holds the byte that ends a file."""
    frames = [Image.effect_noise((64, 48), 40 + n).convert("RGB").quantize(16 << n) for n in range(4)]
    file = io.BytesIO()
    frames[0].save(file, "gif", save_all=True, append_images=frames[1:], comment=b";" * 300)
    return file.getvalue()


def clip(form: str = "mp4", **options: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:  # a start that is fast is written by opening the file again
        path = Path(folder) / "clip"
        _film(path, form, options)
        return path.read_bytes()


def _film(path: Path, form: str, options: dict[str, str]) -> None:
    with av.open(str(path), "w", format=form, options=options) as container:
        stream = container.add_stream("libvpx" if form == "webm" else "libx264", rate=10)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for number in range(5):
            shade = Image.new("RGB", (64, 48), (40 * number, 0, 0))
            frame = av.VideoFrame.from_image(shade)  # type: ignore[no-untyped-call]
            container.mux(stream.encode(frame))
        container.mux(stream.encode())


def is_taken(content: bytes) -> bool:
    media = sniff_format(content[:SNIFFED_BYTES])
    assert media is not None
    return is_complete(media, len(content), lambda offset, size: content[offset : offset + size])


WHOLE = {
    "png": picture("png"),
    "jpeg": picture("jpeg"),
    "gif": picture("gif"),
    "webp": picture("webp"),
    "avif": picture("avif"),
    "mp4": clip(),
    "mp4 that starts fast": clip(movflags="faststart"),
    "mp4 in fragments": clip(movflags="frag_keyframe+empty_moov"),
    "mov": clip("mov"),
    "webm": clip("webm"),
    "mkv": clip("matroska"),
    "webm without length": clip("webm", live="1"),
    "gif in colours of its own": animation(),
}
TELLING = WHOLE.keys() - {"webm without length"}
PICTURES = ("png", "jpeg", "webp")


@pytest.mark.parametrize("form", WHOLE)
def test_what_real_programs_write_is_whole(form: str) -> None:
    """A file that was paid for must never be refused."""
    assert is_taken(WHOLE[form])


@pytest.mark.parametrize("lost_bytes", [1, 2, 7, 100])
@pytest.mark.parametrize("form", sorted(TELLING))
def test_a_file_without_its_end_is_not(form: str, lost_bytes: int) -> None:
    """Also where the server announced just as many bytes as it sent."""
    assert not is_taken(WHOLE[form][:-lost_bytes])


@pytest.mark.parametrize("appended", [b"\n", b"\r\n", b"\0" * 5, b"\0" * 4096, b'{"prompt": "a fox"}' * 300])
@pytest.mark.parametrize("form", PICTURES)
def test_a_picture_may_have_something_behind_its_end(form: str, appended: bytes) -> None:
    """Line breaks, padding and a program's own notes harm no picture."""
    assert is_taken(WHOLE[form] + appended)


@pytest.mark.parametrize("appended", [b"\n", b"\r\n", b"\0" * 4096])
@pytest.mark.parametrize("form", ["gif", "gif in colours of its own"])
def test_a_gif_may_have_padding_after_its_end(form: str, appended: bytes) -> None:
    """Its end is too short to be looked for among other data."""
    assert is_taken(WHOLE[form] + appended)
    assert not is_taken(WHOLE[form][:-1] + appended)


@pytest.mark.parametrize("size_bytes", [1, 3, 7, 8, 15, 16, 500])
@pytest.mark.parametrize("form", ["mp4", "mp4 that starts fast", "mov", "avif"])
def test_zero_bytes_may_stand_behind_the_last_box(form: str, size_bytes: int) -> None:
    """They are padding; anything else in their place is a box that was cut."""
    assert is_taken(WHOLE[form] + b"\0" * size_bytes)
    assert not is_taken(WHOLE[form] + b"\0" * size_bytes + b"x")


@pytest.mark.parametrize("form", sorted(TELLING - {"mp4 in fragments"}))  # between two of which nothing tells
def test_no_beginning_of_a_file_is_whole(form: str) -> None:
    """Wherever it was cut: no byte of the content is taken for the end."""
    content = WHOLE[form]
    sizes = range(64, len(content), 97)

    assert [size for size in sizes if is_taken(content[:size])] == []


def test_a_preview_does_not_end_its_picture() -> None:
    """A JPEG's metadata may hold a small JPEG, with an end of its own."""
    jpeg, preview = WHOLE["jpeg"], b"Exif\0\0" + picture("jpeg")
    segment = b"\xff\xe1" + (len(preview) + 2).to_bytes(2, "big") + preview

    content = jpeg[:2] + segment + b"\xff" + jpeg[2:]  # markers may be filled up

    assert is_taken(content)
    assert not is_taken(content[:-100])
    assert not is_taken(content[: 2 + len(segment)])


def test_a_webp_of_no_length_is_not_whole() -> None:
    """A writer that was cut has not yet told it."""
    content = WHOLE["webp"]

    assert not is_taken(content[:4] + b"\0\0\0\0" + content[8:])


def test_a_clip_that_was_cut_between_boxes_is_not() -> None:
    """Without its index, a clip cannot be played."""
    content = WHOLE["mp4"]
    index = content.rindex(b"moov") - 4

    assert not is_taken(content[:index])


@pytest.mark.parametrize("length", [2, 7])
def test_a_box_that_is_shorter_than_its_own_head_ends_the_walk(length: int) -> None:
    """Made lengths do not keep a thread busy for ever."""
    content = WHOLE["mp4"]
    first = int.from_bytes(content[:4], "big")

    assert not is_taken(content[:first] + length.to_bytes(4, "big") + content[first + 4 :])


def test_a_last_box_may_leave_its_length_open() -> None:
    """Length zero means: to the end of the file."""
    head = b"\0\0\0\x10ftypisom\0\0\0\0"

    assert is_taken(head + b"\0\0\0\x08moov" + b"\0\0\0\0mdat" + b"x" * 100)


def test_a_long_box_tells_its_length_in_eight_bytes() -> None:
    """As boxes beyond 4 GiB do."""
    head = b"\0\0\0\x10ftypisom\0\0\0\0" + b"\0\0\0\x08moov"
    long = b"\0\0\0\1mdat" + (16 + 100).to_bytes(8, "big")

    assert is_taken(head + long + b"x" * 100)
    assert not is_taken(head + long + b"x" * 99)
