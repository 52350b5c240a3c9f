"""Whether a file ends where its format says: a server that sends less than it has may announce just that.

Nothing else could tell such a file from a whole one. The check knows the ends of formats, not their contents. Programs
append line breaks, zero bytes or some KiB of their own to pictures, so that the end mark is looked for a little before
the file's end as well. Where a format does not tell its end, the file counts as whole. Not recognised as cut are:

- a WebM or Matroska file whose segment leaves its length open, as live recordings do;
- an MP4 file whose last box has length 0, which is up to the end of the file, however much of it is there;
- an MP4 file in fragments that ends just before one of them;
- a file that lost only what had been appended, such as a second picture in a JPEG.

More than 64 KiB behind the end of a JPEG, PNG or WEBP are not looked through: such a file counts as cut.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from batchkiln.outputs.file_formats import Media

ReadAt = Callable[[int, int], bytes]
"""Gives up to so many bytes from an offset."""

# So much may stand behind the end of a picture, or of zero bytes behind the last box.
_APPENDED_MAX_BYTES: Final = 64 * 1024

_PNG_END: Final = b"\0\0\0\0IEND\xae\x42\x60\x82"
_JPEG_END: Final = b"\xff\xd9"
_JPEG_FILL: Final = b"\xff\xff"
_JPEG_SCAN: Final = b"\xff\xda"
_GIF_HEAD_BYTES: Final = 13
_GIF_PIECES_MAX: Final = 10_000_000  # of up to 255 bytes
_WEBP_MIN_BYTES: Final = 20  # the container's head and one of a chunk
# More boxes than that has no file that people make; a made one shall not keep a thread busy.
_BOXES_MAX: Final = 100_000
_BOX_HEAD_BYTES: Final = 8  # length and kind; a length of one means that eight more bytes hold it
_EBML_SEGMENT: Final = b"\x18\x53\x80\x67"
_EBML_HEAD_BYTES: Final = 12  # the longest: four bytes of kind, eight of length


def is_complete(media: Media, size_bytes: int, read_at: ReadAt) -> bool:
    """Tell whether a file has the end that its format demands."""
    check = _CHECKS.get(media.extension)
    return check is None or check(size_bytes, read_at)


def _has_png_end(size_bytes: int, read_at: ReadAt) -> bool:
    return _PNG_END in _tail(0, size_bytes, read_at)


def _has_jpeg_end(size_bytes: int, read_at: ReadAt) -> bool:
    return _JPEG_END in _tail(_jpeg_scan_at(read_at), size_bytes, read_at)


def _has_svg_end(size_bytes: int, read_at: ReadAt) -> bool:
    tail = _tail(0, size_bytes, read_at).rstrip()
    return b"</svg" in tail or tail.endswith(b"/>")


def _has_webp_end(size_bytes: int, read_at: ReadAt) -> bool:
    told = int.from_bytes(read_at(4, 4), "little") + 8
    return told >= _WEBP_MIN_BYTES and 0 <= size_bytes - told <= _APPENDED_MAX_BYTES


def _tail(at: int, size_bytes: int, read_at: ReadAt) -> bytes:
    """Return the file's last bytes, from an offset at the earliest."""
    at = max(at, size_bytes - _APPENDED_MAX_BYTES)
    return read_at(at, size_bytes - at) if at < size_bytes else b""


def _jpeg_scan_at(read_at: ReadAt) -> int:
    """Return where the picture itself begins: before it a preview may stand, with an end of its own."""
    at = 2
    for _ in range(_BOXES_MAX):
        head = read_at(at, 4)
        if head[:2] == _JPEG_FILL:
            at += 1
        elif len(head) < len(b"\xff\xe0\0\0") or not head.startswith(b"\xff") or head.startswith(_JPEG_SCAN):
            break
        else:
            at += 2 + int.from_bytes(head[2:], "big")
    return at


def _has_gif_end(size_bytes: int, read_at: ReadAt) -> bool:
    """Walk over the blocks of a GIF: its end is a single byte, which stands anywhere else as well."""
    read = _in_large_pieces(read_at)
    at = _GIF_HEAD_BYTES + _gif_colours_bytes(read(10, 1))
    for _ in range(_BOXES_MAX):
        match read(at, 1):
            case b";":
                return True
            case b"!":  # an extension: its kind, then pieces
                at = _behind_gif_pieces(at + 2, read)
            case b",":  # an image: its place, its colours, the width of its codes, then pieces
                at = _behind_gif_pieces(at + 11 + _gif_colours_bytes(read(at + 9, 1)), read)
            case b"\0":
                at += 1
            case b"":
                return False
            case _:
                break
    # It is put together in an unknown way: it has its end where it ends with it.
    return _tail(0, size_bytes, read_at).rstrip(b"\0\r\n").endswith(b";")


def _gif_colours_bytes(flags: bytes) -> int:
    """Return the length of the table of colours that a byte of flags announces."""
    return 3 << ((flags[0] & 7) + 1) if flags and flags[0] & 0x80 else 0


def _behind_gif_pieces(at: int, read: ReadAt) -> int:
    """Return what follows pieces that each begin with their length; an empty one is the last."""
    for _ in range(_GIF_PIECES_MAX):
        length = read(at, 1)
        at += 1 + sum(length)
        if length in {b"", b"\0"}:
            break
    return at


def _in_large_pieces(read_at: ReadAt) -> ReadAt:
    """Read what is asked for in small steps forward in few large ones."""
    begin, held = 0, b""

    def read(offset_bytes: int, wanted_bytes: int) -> bytes:
        nonlocal begin, held
        if not begin <= offset_bytes <= begin + len(held) - wanted_bytes:
            begin, held = offset_bytes, read_at(offset_bytes, max(wanted_bytes, _APPENDED_MAX_BYTES))
        return held[offset_bytes - begin : offset_bytes - begin + wanted_bytes]

    return read


def _holds_boxes(size_bytes: int, read_at: ReadAt, *, needed: bytes) -> bool:
    """Walk over the outermost boxes of an ISO base media file: each tells its length, and the last ends the file.

    Without the `needed` one, in whatever place, there is nothing to show.
    """
    at, found = 0, False
    for _ in range(_BOXES_MAX):
        head = read_at(at, 2 * _BOX_HEAD_BYTES)
        if not head[:_BOX_HEAD_BYTES].strip(b"\0"):
            break
        if len(head) < _BOX_HEAD_BYTES:
            return False
        length, kind = int.from_bytes(head[:4], "big"), head[4:_BOX_HEAD_BYTES]
        found = found or kind == needed
        if length == 0:  # the last box, to the end of the file
            return found and 0 not in kind
        if length == 1:
            length = int.from_bytes(head[_BOX_HEAD_BYTES:], "big")
        if length < _BOX_HEAD_BYTES:
            return False
        at += length
    return found and 0 <= size_bytes - at <= _APPENDED_MAX_BYTES and not read_at(at, size_bytes - at).strip(b"\0")


def _holds_segment(size_bytes: int, read_at: ReadAt) -> bool:
    """Compare a Matroska file with the length of its segment, which is all but its head, if it tells one."""
    at = 0
    for _ in range(_BOXES_MAX):
        head = read_at(at, _EBML_HEAD_BYTES)
        kind_bytes = _ebml_width(head)
        width = _ebml_width(head[kind_bytes:])
        length_bytes = head[kind_bytes : kind_bytes + width]
        if not kind_bytes or not width or len(length_bytes) < width:
            break
        mask = (1 << 7 * width) - 1
        length = int.from_bytes(length_bytes, "big") & mask
        is_segment = head[:kind_bytes] == _EBML_SEGMENT
        if length == mask:  # left open
            break
        at += kind_bytes + width + length
        if is_segment:
            return at <= size_bytes
    return True


def _ebml_width(head: bytes) -> int:
    """Return how many bytes a number takes, by the zero bits that it begins with; 0 for none."""
    return 9 - head[0].bit_length() if head and head[0] else 0


_CHECKS: Final[Mapping[str, Callable[[int, ReadAt], bool]]] = {
    "png": _has_png_end,
    "jpg": _has_jpeg_end,
    "gif": _has_gif_end,
    "webp": _has_webp_end,
    "avif": partial(_holds_boxes, needed=b"meta"),
    "heic": partial(_holds_boxes, needed=b"meta"),
    "m4a": partial(_holds_boxes, needed=b"moov"),
    "svg": _has_svg_end,
    "mp4": partial(_holds_boxes, needed=b"moov"),
    "mov": partial(_holds_boxes, needed=b"moov"),
    "webm": _holds_segment,
    "mkv": _holds_segment,
}
