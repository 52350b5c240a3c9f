"""Small output files in containers that the service itself does not write, and posters."""

from fractions import Fraction
from functools import cache
from io import BytesIO
from typing import Final

from PIL import Image, features

from batchkiln_service.dialects.traits import Dialect

_PICTURES: Final = {
    "webp": "WEBP",
    "jpg": "JPEG",
    "gif": "GIF",
    "bmp": "BMP",
    "tiff": "TIFF",
    "png": "PNG",
    "avif": "AVIF",
}
_CLIPS: Final = {
    "mp4": ("mp4", "mpeg4"),
    "webm": ("webm", "libvpx"),
    "mov": ("mov", "mpeg4"),
    "mkv": ("matroska", "mpeg4"),
}
_MEDIA_TYPES: Final = {
    "png": "image/png",
    "jpg": "image/jpeg",
    "webp": "image/webp",
    "gif": "image/gif",
    "bmp": "image/bmp",
    "tiff": "image/tiff",
    "avif": "image/avif",
    "svg": "image/svg+xml",
    "heic": "image/heic",
    "jxl": "image/jxl",
    "mp4": "video/mp4",
    "webm": "video/webm",
    "mov": "video/quicktime",
    "mkv": "video/x-matroska",
}


EXTENSIONS: Final = tuple(_MEDIA_TYPES)
_SVG: Final = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="64" height="64">'
    '<rect width="64" height="64" fill="rgb(0,90,{shade})"/></svg>\n'
)


def extension_of(dialect: Dialect, own: str) -> str:
    """Return the extension of a main output. `own` is the service's; it is kept if the request asked for it."""
    other = dialect["video_file"] if own == "mp4" else dialect["image_file"]
    if other == "asked" or own == "jpg" or (other == "avif" and not features.check("avif")):
        return own
    return other


def media_type_of(extension: str) -> str:
    """Return the media type of a file."""
    return _MEDIA_TYPES[extension]


@cache
def small_file(extension: str, number: int = 0) -> bytes:
    """Return a small file with that extension; its content differs by `number`."""
    target = BytesIO()
    if extension in {"svg", "heic", "jxl"}:
        return _undrawn(extension, number)
    if extension in _CLIPS:
        _write_clip(target, *_CLIPS[extension], number)
    else:
        frames = [Image.new("RGB", (64, 64), (40 * step, 90, 30 + 60 * number % 200)) for step in range(2)]
        if extension == "gif":
            frames[0].save(target, "GIF", save_all=True, append_images=frames[1:], duration=100)
        else:
            frames[0].save(target, _PICTURES[extension])
    return target.getvalue()


def _undrawn(extension: str, number: int) -> bytes:
    """Return a file in a format that Pillow cannot write: for HEIC and JPEG XL, a container without a picture."""
    shade = 30 + 60 * number % 200
    match extension:
        case "svg":
            return _SVG.format(shade=shade).encode()
        case "heic":
            return _box(b"ftyp", b"heic\0\0\0\0mif1heic") + _box(b"meta", bytes(4)) + _box(b"mdat", bytes([shade] * 64))
        case _:
            return b"\xff\x0a" + bytes([shade] * 64)


def _box(kind: bytes, content: bytes) -> bytes:
    """Return a box of an ISO base media file."""
    return (8 + len(content)).to_bytes(4) + kind + content


def _write_clip(target: BytesIO, container: str, codec: str, number: int) -> None:
    import av  # noqa: PLC0415  takes long to load, and few dialects need it

    with av.open(target, "w", format=container, options={"fflags": "+bitexact"}) as clip:
        stream = clip.add_stream(codec, rate=8)
        assert isinstance(stream, av.VideoStream)
        stream.width = stream.height = 64
        stream.pix_fmt = "yuv420p"
        stream.codec_context.thread_count = 1
        for step in range(8):
            picture = Image.new("RGB", (64, 64), (20 * step, 90, 30 + 60 * number % 200))
            frame: av.VideoFrame = av.VideoFrame.from_image(picture)  # type: ignore[no-untyped-call]  # PyAV has no types here
            frame.pts, frame.time_base = step, Fraction(1, 8)
            clip.mux(stream.encode(frame))
        clip.mux(stream.encode(None))
