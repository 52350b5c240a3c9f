"""Whether a file ends where its format says: a server that sends less than it has may announce just that.

Nothing else could tell such a file from a whole one. The check knows the ends of formats, not their contents, and where
a format does not tell its end, the file counts as whole.
"""

from collections.abc import Callable
from typing import Final

from batchkiln.outputs.media import Media

ReadAt = Callable[[int, int], bytes]
"""Gives up to so many bytes from an offset."""

_PNG_END: Final = b"\0\0\0\0IEND\xae\x42\x60\x82"
_JPEG_END: Final = b"\xff\xd9"
_GIF_END: Final = b";"
# More boxes than that has no file that people make; a made one shall not keep a thread busy.
_BOXES_MAX: Final = 100_000
_BOX_HEAD_BYTES: Final = 8  # length and kind; a length of one means that eight more bytes hold it
# Without these, in whatever place, there is nothing to show.
_NEEDED_BOXES: Final = {"mp4": b"moov", "mov": b"moov", "avif": b"meta"}


def is_whole(media: Media, size_bytes: int, read_at: ReadAt) -> bool:
    """Tell whether a file has the end that its format demands."""
    match media.extension:
        case "png":
            return _ends_with(_PNG_END, size_bytes, read_at)
        case "jpg":
            return _ends_with(_JPEG_END, size_bytes, read_at)
        case "gif":
            return _ends_with(_GIF_END, size_bytes, read_at)
        case "webp":
            told = int.from_bytes(read_at(4, 4), "little") + 8
            return size_bytes in {told, told + told % 2}
        case "mp4" | "mov" | "avif":
            return _holds_boxes(_NEEDED_BOXES[media.extension], size_bytes, read_at)
        case _:
            return True


def _ends_with(end: bytes, size_bytes: int, read_at: ReadAt) -> bool:
    return size_bytes >= len(end) and read_at(size_bytes - len(end), len(end)) == end


def _holds_boxes(needed: bytes, size_bytes: int, read_at: ReadAt) -> bool:
    """Walk over the outermost boxes of an ISO base media file: each tells its length, and the last ends the file."""
    at, found = 0, False
    for _ in range(_BOXES_MAX):
        head = read_at(at, 2 * _BOX_HEAD_BYTES)
        if len(head) < _BOX_HEAD_BYTES:
            break
        length, kind = int.from_bytes(head[:4], "big"), head[4:_BOX_HEAD_BYTES]
        found = found or kind == needed
        if length == 0:  # the last box, to the end of the file
            return found
        if length == 1:
            length = int.from_bytes(head[_BOX_HEAD_BYTES:], "big")
        if length < _BOX_HEAD_BYTES:
            return False
        at += length
    return found and at == size_bytes
