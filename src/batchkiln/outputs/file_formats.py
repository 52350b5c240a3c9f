"""What a file is, by its first bytes: names and content types are only what somebody says.

Whatever is no text is taken for an output, also where its kind is not known: it was paid for. A text is not, but for an
SVG: it is what a storage says in place of the file.
"""

import codecs
import re
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
        """Whether it is a clip."""
        return self.media_type.startswith("video/")


_AVIF: Final = Media("image/avif", "avif")
_HEIC: Final = Media("image/heic", "heic")
_MP4: Final = Media("video/mp4", "mp4")
_MOV: Final = Media("video/quicktime", "mov")
_M4A: Final = Media("audio/mp4", "m4a")
_WEBM: Final = Media("video/webm", "webm")
_MATROSKA: Final = Media("video/x-matroska", "mkv")
_SVG: Final = Media("image/svg+xml", "svg")
_UNKNOWN: Final = Media("application/octet-stream", "bin")

_BEGINNINGS: Final = (
    (b"\x89PNG\r\n\x1a\n", Media("image/png", "png")),
    (b"\xff\xd8\xff", Media("image/jpeg", "jpg")),
    (b"GIF87a", Media("image/gif", "gif")),
    (b"GIF89a", Media("image/gif", "gif")),
    (b"II*\0", Media("image/tiff", "tiff")),
    (b"MM\0*", Media("image/tiff", "tiff")),
    (b"II+\0\x08\0\0\0", Media("image/tiff", "tiff")),
    (b"MM\0+\0\x08\0\0", Media("image/tiff", "tiff")),
    (b"\xff\x0a", Media("image/jxl", "jxl")),
    (b"\0\0\0\x0cJXL \r\n\x87\n", Media("image/jxl", "jxl")),
    (b"\0\0\0\x0cjP  \r\n\x87\n", Media("image/jp2", "jp2")),
    (b"\x76\x2f\x31\x01", Media("image/x-exr", "exr")),
    (b"8BPS\0\x01", Media("image/vnd.adobe.photoshop", "psd")),
    (b"ID3", Media("audio/mpeg", "mp3")),
    (b"\xff\xfb", Media("audio/mpeg", "mp3")),
    (b"\xff\xf3", Media("audio/mpeg", "mp3")),
    (b"\xff\xf2", Media("audio/mpeg", "mp3")),
    (b"\xff\xf1", Media("audio/aac", "aac")),
    (b"fLaC", Media("audio/flac", "flac")),
    (b"OggS", Media("audio/ogg", "ogg")),
    (b"FLV\x01", Media("video/x-flv", "flv")),
    (b"\0\0\x01\xba", Media("video/mpeg", "mpg")),
    (b"PK\x03\x04", Media("application/zip", "zip")),
    (b"PK\x05\x06", Media("application/zip", "zip")),
    (b"\x1f\x8b\x08", Media("application/gzip", "gz")),
    (b"7z\xbc\xaf\x27\x1c", Media("application/x-7z-compressed", "7z")),
    (b"%PDF-", Media("application/pdf", "pdf")),
    (b"glTF", Media("model/gltf-binary", "glb")),
)
_RIFF: Final = {
    b"WEBP": Media("image/webp", "webp"),
    b"WAVE": Media("audio/wav", "wav"),
    b"AVI ": Media("video/x-msvideo", "avi"),
}
_BMP: Final = Media("image/bmp", "bmp")
_BMP_HEADS: Final = frozenset({12, 40, 52, 56, 64, 108, 124})  # lengths of the header behind the file's own

_AVIF_BRANDS: Final = frozenset({b"avif", b"avis"})
_HEIC_BRANDS: Final = frozenset({b"heic", b"heix", b"heim", b"heis", b"hevc", b"mif1", b"msf1"})
_SOUND_BRANDS: Final = frozenset({b"M4A ", b"M4B "})
# Old QuickTime files begin with one of these boxes instead of `ftyp`.
_QUICKTIME_BOXES: Final = frozenset({b"moov", b"mdat", b"wide", b"skip"})

_SVG_BEGINS: Final = re.compile(
    rb"\s*(?:<\?xml[^>]*>\s*)?(?:<!--.*?-->\s*|<!DOCTYPE\s+svg[^>]*>\s*)*<svg[\s>/]", re.DOTALL | re.IGNORECASE
)
_MARKUP: Final = (b"<!doctype", b"<html", b"<?xml", b"<head", b"<error")
_UTF_16: Final = (b"\xff\xfe", b"\xfe\xff")
_CONTROLS: Final = re.compile(rb"[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f\x7f]")

# What a server may call a file of which the bytes tell nothing, with the extension that goes with it.
_TOLD: Final = re.compile(r"(?:image|audio|video|model|font)/(?:x-|vnd\.)?([a-z0-9][a-z0-9.+-]{0,40})")
_EXTENSION: Final = re.compile(r"[a-z0-9]{1,8}")
# A file is opened by its extension: none that a machine would run, or a browser would take for a page.
_UNSAFE: Final = frozenset(
    {"exe", "com", "bat", "cmd", "msi", "dll", "scr", "pif", "lnk", "url", "app", "jar", "sh", "ps1", "py", "pl", "rb"}
    | {"js", "mjs", "vbs", "wsf", "hta", "htm", "html", "xhtml", "shtml", "php", "asp", "aspx", "jsp", "cgi", "part"}
)


def sniff_media(head: bytes) -> Media | None:
    """Tell what a file is from its first `SNIFFED_BYTES`; None where they do not say."""
    for beginning, media in _BEGINNINGS:
        if head.startswith(beginning):
            return media
    if head[:4] == b"RIFF":
        return _RIFF.get(head[8:12])
    if head.startswith(b"\x1a\x45\xdf\xa3"):
        return _ebml(head)
    if head.startswith(b"BM") and int.from_bytes(head[14:18], "little") in _BMP_HEADS:
        return _BMP
    if _SVG_BEGINS.match(head.removeprefix(codecs.BOM_UTF8)):
        return _SVG
    return _iso(head)


def media_of(head: bytes, *, content_type: str | None, link_extension: str | None) -> Media | None:
    """Tell what a file is saved as: by its bytes, else by what was said of it. None for what is no output."""
    if (media := sniff_media(head)) is not None:
        return media
    if not head or is_text(head):
        return None
    told = (content_type or "").partition(";")[0].strip().lower()
    extension = link_extension if link_extension and _is_safe(link_extension) else None
    if _TOLD.fullmatch(told):
        return Media(told, extension if extension_of(told) == _UNKNOWN.extension and extension else extension_of(told))
    return Media(_UNKNOWN.media_type, extension or _UNKNOWN.extension)


def is_text(head: bytes) -> bool:
    """Tell whether a file begins as a text does: a page, a document of XML or JSON, or words."""
    if head.startswith(_UTF_16) or head.removeprefix(codecs.BOM_UTF8).lstrip()[:10].lower().startswith(_MARKUP):
        return True
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)  # a character may be cut at the end of what was read
    except UnicodeDecodeError:
        return False
    return _CONTROLS.search(head) is None


def _is_safe(extension: str) -> bool:
    return _EXTENSION.fullmatch(extension) is not None and extension not in _UNSAFE


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
    if major in _AVIF_BRANDS or (major in _HEIC_BRANDS and compatible & _AVIF_BRANDS):
        return _AVIF
    if major in _HEIC_BRANDS:
        return _HEIC
    if major in _SOUND_BRANDS:
        return _M4A
    return _MOV if major == b"qt  " else _MP4


_EXTENSIONS: Final = {
    media.media_type: media.extension
    for media in (*_RIFF.values(), _AVIF, _HEIC, _MP4, _MOV, _M4A, _WEBM, _MATROSKA, _SVG, _BMP, _UNKNOWN)
} | {media.media_type: media.extension for _, media in _BEGINNINGS}


def extension_of(media_type: str) -> str:
    """Return the extension of files of a recorded media type, without a dot; `bin` where it has none."""
    if (known := _EXTENSIONS.get(media_type)) is not None:
        return known
    told = _TOLD.fullmatch(media_type)
    return told[1] if told and _is_safe(told[1]) else _UNKNOWN.extension
