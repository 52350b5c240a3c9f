"""What a file is, by its first bytes: names and content types are only what somebody says."""

from dataclasses import dataclass
from typing import Final

# Enough for the brands of an ISO file and the document type of a Matroska one.
SNIFFED_BYTES: Final = 4096


@dataclass(frozen=True, slots=True)
class Media:
    """A media type, with the extension that files of it get (without a dot)."""

    media_type: str
    extension: str

    @property
    def is_video(self) -> bool:
        """Whether it is a clip; the only other kind is a picture."""
        return self.media_type.startswith("video/")


_PNG: Final = Media("image/png", "png")
_JPEG: Final = Media("image/jpeg", "jpg")
_GIF: Final = Media("image/gif", "gif")
_WEBP: Final = Media("image/webp", "webp")
_AVIF: Final = Media("image/avif", "avif")
_MP4: Final = Media("video/mp4", "mp4")
_MOV: Final = Media("video/quicktime", "mov")
_WEBM: Final = Media("video/webm", "webm")
_MATROSKA: Final = Media("video/x-matroska", "mkv")

_AVIF_BRANDS: Final = frozenset({b"avif", b"avis"})
# Pictures and sound in the same container, which are no output of this service.
_OTHER_BRANDS: Final = frozenset({b"heic", b"heix", b"heim", b"heis", b"hevc", b"mif1", b"msf1", b"M4A ", b"M4B "})
# Old QuickTime files begin with one of these boxes instead of `ftyp`.
_QUICKTIME_BOXES: Final = frozenset({b"moov", b"mdat", b"wide", b"skip"})


def sniff_media(head: bytes) -> Media | None:
    """Tell the kind of picture or clip from the first `SNIFFED_BYTES`; None for anything else."""
    match head:
        case _ if head.startswith(b"\x89PNG\r\n\x1a\n"):
            return _PNG
        case _ if head.startswith(b"\xff\xd8\xff"):
            return _JPEG
        case _ if head.startswith((b"GIF87a", b"GIF89a")):
            return _GIF
        case _ if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
            return _WEBP
        case _ if head.startswith(b"\x1a\x45\xdf\xa3"):
            return _ebml(head)
        case _:
            return _iso(head)


def _ebml(head: bytes) -> Media | None:
    """WebM is the Matroska file that says so in the `DocType` element of its header."""
    at = head.find(b"\x42\x82")
    # The element's length is one byte with the high bit as a mark; no document type is longer than 127.
    size = head[at + 2] & 0x7F if 0 <= at < len(head) - 2 else 0
    return {b"webm": _WEBM, b"matroska": _MATROSKA}.get(head[at + 3 : at + 3 + size].rstrip(b"\0"))


def _iso(head: bytes) -> Media | None:
    """Read the brands of an ISO base media file; the major one decides where several are named."""
    if head[4:8] in _QUICKTIME_BOXES:
        return _MOV
    if head[4:8] != b"ftyp":
        return None
    end = min(int.from_bytes(head[:4], "big"), len(head))
    major, compatible = head[8:12], {head[at : at + 4] for at in range(16, end - 3, 4)}
    if major in _AVIF_BRANDS or (major in _OTHER_BRANDS and compatible & _AVIF_BRANDS):
        return _AVIF
    if major in _OTHER_BRANDS:
        return None
    return _MOV if major == b"qt  " else _MP4


_EXTENSIONS: Final = {
    media.media_type: media.extension for media in (_PNG, _JPEG, _GIF, _WEBP, _AVIF, _MP4, _MOV, _WEBM, _MATROSKA)
}


def extension_of(media_type: str) -> str:
    """Return the extension of files of a recorded media type, without a dot."""
    return _EXTENSIONS[media_type]
