"""Detects files that end too early: a server that sends a part of a file may announce the length of that part.

The check looks for the end that a format prescribes. It does not decode the file: that would cost CPU time for every
output, and decoders accept many cut videos. A format without a prescribed end counts as complete.
These files are not detected:

- a WebM or Matroska file whose segment leaves its length open, as live recordings do;
- an MP4 file whose last box has length 0, which means up to the end of the file;
- a fragmented MP4 file that ends exactly before a fragment;
- a file that lost only data appended after its end, such as a second picture in a JPEG.

Programs append line breaks, zero bytes or some KiB of metadata to pictures, so the end of a JPEG, PNG or WEBP may be up
to 64 KiB before the end of the file. With more data after it, the file counts as cut.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from batchkiln.outputs.file_formats import FileFormat

ReadAt = Callable[[int, int], bytes]
"""Returns the bytes at an offset, up to a number of bytes."""

_MAX_APPENDED_BYTES: Final = 64 * 1024
_MAX_BLOCKS: Final = 100_000  # no real file has more boxes or segments; a crafted one must not keep a thread busy

_PNG_END: Final = b"\0\0\0\0IEND\xae\x42\x60\x82"
_JPEG_END: Final = b"\xff\xd9"
_JPEG_FILL: Final = b"\xff\xff"
_JPEG_SCAN: Final = b"\xff\xda"
_JPEG_HEAD_BYTES: Final = 4  # marker and length of a segment
_GIF_END: Final = b"\0;"  # the terminator of the last block, and the trailer
_WEBP_MIN_BYTES: Final = 20  # the headers of the container and of one chunk
_BOX_HEAD_BYTES: Final = 8  # length and kind; length 1 means that the next eight bytes are the length
_EBML_SEGMENT: Final = b"\x18\x53\x80\x67"
_EBML_MAX_HEAD_BYTES: Final = 12  # four bytes of kind and eight of length


def is_complete(file_format: FileFormat, size_bytes: int, read_at: ReadAt) -> bool:
    """Return whether a file has the end that its format prescribes. Propagate the exceptions of `read_at`."""
    check = _CHECKS.get(file_format.extension)
    return check is None or check(size_bytes, read_at)


def _has_png_end(size_bytes: int, read_at: ReadAt) -> bool:
    return _PNG_END in _tail(0, size_bytes, read_at)


def _has_jpeg_end(size_bytes: int, read_at: ReadAt) -> bool:
    return _JPEG_END in _tail(_jpeg_scan_at(read_at), size_bytes, read_at)


def _has_gif_end(size_bytes: int, read_at: ReadAt) -> bool:
    return _tail(0, size_bytes, read_at).rstrip(b"\0\r\n").endswith(_GIF_END)


def _has_svg_end(size_bytes: int, read_at: ReadAt) -> bool:
    tail = _tail(0, size_bytes, read_at).rstrip()
    return b"</svg" in tail or tail.endswith(b"/>")


def _has_webp_end(size_bytes: int, read_at: ReadAt) -> bool:
    stated_bytes = int.from_bytes(read_at(4, 4), "little") + 8
    return stated_bytes >= _WEBP_MIN_BYTES and 0 <= size_bytes - stated_bytes <= _MAX_APPENDED_BYTES


def _tail(start: int, size_bytes: int, read_at: ReadAt) -> bytes:
    """Return the last 64 KiB of a file, but nothing before `start`."""
    start = max(start, size_bytes - _MAX_APPENDED_BYTES)
    return read_at(start, size_bytes - start) if start < size_bytes else b""


def _jpeg_scan_at(read_at: ReadAt) -> int:
    """Return the offset of the image data. A segment before it may contain a preview, which has an end of its own."""
    offset = 2
    for _ in range(_MAX_BLOCKS):
        head = read_at(offset, _JPEG_HEAD_BYTES)
        if head[:2] == _JPEG_FILL:
            offset += 1
        elif len(head) < _JPEG_HEAD_BYTES or not head.startswith(b"\xff") or head.startswith(_JPEG_SCAN):
            break
        else:
            offset += 2 + int.from_bytes(head[2:], "big")
    return offset


def _has_all_boxes(size_bytes: int, read_at: ReadAt, *, required: bytes) -> bool:
    """Return whether the top-level boxes of an ISO base media file end with the file.

    Without a box of the `required` kind, the file cannot be shown. Zero bytes may follow the last box.
    """
    offset, has_required = 0, False
    for _ in range(_MAX_BLOCKS):
        head = read_at(offset, 2 * _BOX_HEAD_BYTES)
        if not head[:_BOX_HEAD_BYTES].strip(b"\0"):
            break
        if len(head) < _BOX_HEAD_BYTES:
            return False
        length, kind = int.from_bytes(head[:4], "big"), head[4:_BOX_HEAD_BYTES]
        has_required = has_required or kind == required
        if length == 0:  # the last box, up to the end of the file
            return has_required and 0 not in kind
        if length == 1:
            length = int.from_bytes(head[_BOX_HEAD_BYTES:], "big")
        if length < _BOX_HEAD_BYTES:
            return False
        offset += length
    rest_bytes = size_bytes - offset
    return has_required and 0 <= rest_bytes <= _MAX_APPENDED_BYTES and not read_at(offset, rest_bytes).strip(b"\0")


def _has_whole_segment(size_bytes: int, read_at: ReadAt) -> bool:
    """Compare the size of a Matroska file with the end of its segment; True if the segment states no length."""
    offset = 0
    for _ in range(_MAX_BLOCKS):
        head = read_at(offset, _EBML_MAX_HEAD_BYTES)
        kind_bytes = _ebml_width(head)
        length_bytes = _ebml_width(head[kind_bytes:])
        stated = head[kind_bytes : kind_bytes + length_bytes]
        if not kind_bytes or not length_bytes or len(stated) < length_bytes:
            break
        mask = (1 << 7 * length_bytes) - 1
        length = int.from_bytes(stated, "big") & mask
        if length == mask:  # left open
            break
        offset += kind_bytes + length_bytes + length
        if head[:kind_bytes] == _EBML_SEGMENT:
            return offset <= size_bytes
    return True


def _ebml_width(head: bytes) -> int:
    """Return the length in bytes of a variable-length number, from its leading zero bits; 0 if it is invalid."""
    return 9 - head[0].bit_length() if head and head[0] else 0


_CHECKS: Final[Mapping[str, Callable[[int, ReadAt], bool]]] = {
    "png": _has_png_end,
    "jpg": _has_jpeg_end,
    "gif": _has_gif_end,
    "webp": _has_webp_end,
    "svg": _has_svg_end,
    **dict.fromkeys(("avif", "heic"), partial(_has_all_boxes, required=b"meta")),
    **dict.fromkeys(("mp4", "mov", "m4a"), partial(_has_all_boxes, required=b"moov")),
    **dict.fromkeys(("webm", "mkv"), _has_whole_segment),
}
