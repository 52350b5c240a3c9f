"""Determines the format of a file from its first bytes, because file names and content types may be wrong.

Any file that is not text counts as an output, even in an unknown format, because it was paid for. Text other than SVG
is an error message of the storage.
"""

import codecs
import re
from typing import Final

from msgspec import Struct

SNIFFED_BYTES: Final = 4096  # enough for the brands of an ISO file and the document type of a Matroska file


class FileFormat(Struct, frozen=True):
    """A media type, and the extension of its files (without a dot)."""

    media_type: str
    extension: str

    @property
    def is_video(self) -> bool:
        """Whether the format is a video."""
        return self.media_type.startswith("video/")


_AVIF: Final = FileFormat("image/avif", "avif")
_HEIC: Final = FileFormat("image/heic", "heic")
_MP4: Final = FileFormat("video/mp4", "mp4")
_MOV: Final = FileFormat("video/quicktime", "mov")
_M4A: Final = FileFormat("audio/mp4", "m4a")
_WEBM: Final = FileFormat("video/webm", "webm")
_MATROSKA: Final = FileFormat("video/x-matroska", "mkv")
_SVG: Final = FileFormat("image/svg+xml", "svg")
_UNKNOWN: Final = FileFormat("application/octet-stream", "bin")

_SIGNATURES: Final = (
    (b"\x89PNG\r\n\x1a\n", FileFormat("image/png", "png")),
    (b"\xff\xd8\xff", FileFormat("image/jpeg", "jpg")),
    (b"GIF87a", FileFormat("image/gif", "gif")),
    (b"GIF89a", FileFormat("image/gif", "gif")),
    (b"II*\0", FileFormat("image/tiff", "tiff")),
    (b"MM\0*", FileFormat("image/tiff", "tiff")),
    (b"II+\0\x08\0\0\0", FileFormat("image/tiff", "tiff")),
    (b"MM\0+\0\x08\0\0", FileFormat("image/tiff", "tiff")),
    (b"\xff\x0a", FileFormat("image/jxl", "jxl")),
    (b"\0\0\0\x0cJXL \r\n\x87\n", FileFormat("image/jxl", "jxl")),
    (b"\0\0\0\x0cjP  \r\n\x87\n", FileFormat("image/jp2", "jp2")),
    (b"\x76\x2f\x31\x01", FileFormat("image/x-exr", "exr")),
    (b"8BPS\0\x01", FileFormat("image/vnd.adobe.photoshop", "psd")),
    (b"ID3", FileFormat("audio/mpeg", "mp3")),
    (b"\xff\xfb", FileFormat("audio/mpeg", "mp3")),
    (b"\xff\xf3", FileFormat("audio/mpeg", "mp3")),
    (b"\xff\xf2", FileFormat("audio/mpeg", "mp3")),
    (b"\xff\xf1", FileFormat("audio/aac", "aac")),
    (b"fLaC", FileFormat("audio/flac", "flac")),
    (b"OggS", FileFormat("audio/ogg", "ogg")),
    (b"FLV\x01", FileFormat("video/x-flv", "flv")),
    (b"\0\0\x01\xba", FileFormat("video/mpeg", "mpg")),
    (b"PK\x03\x04", FileFormat("application/zip", "zip")),
    (b"PK\x05\x06", FileFormat("application/zip", "zip")),
    (b"\x1f\x8b\x08", FileFormat("application/gzip", "gz")),
    (b"7z\xbc\xaf\x27\x1c", FileFormat("application/x-7z-compressed", "7z")),
    (b"%PDF-", FileFormat("application/pdf", "pdf")),
    (b"glTF", FileFormat("model/gltf-binary", "glb")),
)
_RIFF: Final = {
    b"WEBP": FileFormat("image/webp", "webp"),
    b"WAVE": FileFormat("audio/wav", "wav"),
    b"AVI ": FileFormat("video/x-msvideo", "avi"),
}
_BMP: Final = FileFormat("image/bmp", "bmp")
_BMP_HEADS: Final = frozenset({12, 40, 52, 56, 64, 108, 124})  # lengths of the second header

_AVIF_BRANDS: Final = frozenset({b"avif", b"avis"})
_HEIC_BRANDS: Final = frozenset({b"heic", b"heix", b"heim", b"heis", b"hevc", b"mif1", b"msf1"})
_AUDIO_BRANDS: Final = frozenset({b"M4A ", b"M4B "})
# Old QuickTime files begin with one of these boxes instead of `ftyp`.
_QUICKTIME_BOXES: Final = frozenset({b"moov", b"mdat", b"wide", b"skip"})

_SVG_START: Final = re.compile(
    rb"\s*(?:<\?xml[^>]*>\s*)?(?:<!--.*?-->\s*|<!DOCTYPE\s+svg[^>]*>\s*)*<svg[\s>/]", re.DOTALL | re.IGNORECASE
)
_MARKUP: Final = (b"<!doctype", b"<html", b"<?xml", b"<head", b"<error")
_UTF_16: Final = (b"\xff\xfe", b"\xfe\xff")
_CONTROLS: Final = re.compile(rb"[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f\x7f]")

# A server's content type for a file of unknown format; the group is the extension.
_CONTENT_TYPE: Final = re.compile(r"(?:image|audio|video|model|font)/(?:x-|vnd\.)?([a-z0-9][a-z0-9.+-]{0,40})")
_EXTENSION: Final = re.compile(r"[a-z0-9]{1,8}")
# Extensions of files that a machine would run, or a browser would show as a page.
_UNSAFE: Final = frozenset(
    {"exe", "com", "bat", "cmd", "msi", "dll", "scr", "pif", "lnk", "url", "app", "jar", "sh", "ps1", "py", "pl", "rb"}
    | {"js", "mjs", "vbs", "wsf", "hta", "htm", "html", "xhtml", "shtml", "php", "asp", "aspx", "jsp", "cgi", "part"}
)


def sniff_format(head: bytes) -> FileFormat | None:
    """Return the format of a file that starts with these bytes (`SNIFFED_BYTES` suffice); None if it is unknown."""
    for signature, file_format in _SIGNATURES:
        if head.startswith(signature):
            return file_format
    if head[:4] == b"RIFF":
        return _RIFF.get(head[8:12])
    if head.startswith(b"\x1a\x45\xdf\xa3"):
        return _ebml(head)
    if head.startswith(b"BM") and int.from_bytes(head[14:18], "little") in _BMP_HEADS:
        return _BMP
    if _SVG_START.match(head.removeprefix(codecs.BOM_UTF8)):
        return _SVG
    return _iso(head)


def format_of(head: bytes, *, content_type: str | None, link_extension: str | None) -> FileFormat | None:
    """Return the format from the bytes, or else from the server's type; None for text and for an empty file."""
    if (sniffed := sniff_format(head)) is not None:
        return sniffed
    if not head or is_text(head):
        return None
    stated = (content_type or "").partition(";")[0].strip().lower()
    extension = link_extension if link_extension and _is_safe(link_extension) else None
    if _CONTENT_TYPE.fullmatch(stated):
        known = extension_of(stated)
        return FileFormat(stated, extension if known == _UNKNOWN.extension and extension else known)
    return FileFormat(_UNKNOWN.media_type, extension or _UNKNOWN.extension)


def is_text(head: bytes) -> bool:
    """Return whether the first bytes are those of a text: a web page, XML, JSON or plain words."""
    if head.startswith(_UTF_16) or head.removeprefix(codecs.BOM_UTF8).lstrip()[:10].lower().startswith(_MARKUP):
        return True
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)  # the last character may be incomplete
    except UnicodeDecodeError:
        return False
    return _CONTROLS.search(head) is None


def _is_safe(extension: str) -> bool:
    return _EXTENSION.fullmatch(extension) is not None and extension not in _UNSAFE


def _ebml(head: bytes) -> FileFormat | None:
    """Distinguish WebM from Matroska by the `DocType` element of the header."""
    at = head.find(b"\x42\x82")
    # The length is one byte, of which the high bit is a marker.
    size = head[at + 2] & 0x7F if 0 <= at < len(head) - 2 else 0
    return {b"webm": _WEBM, b"matroska": _MATROSKA}.get(head[at + 3 : at + 3 + size].rstrip(b"\0"))


def _iso(head: bytes) -> FileFormat | None:
    """Return the format of an ISO base media file, by its major brand. AVIF may also be a compatible brand."""
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
    if major in _AUDIO_BRANDS:
        return _M4A
    return _MOV if major == b"qt  " else _MP4


_EXTENSIONS: Final = {
    one.media_type: one.extension
    for one in (*_RIFF.values(), _AVIF, _HEIC, _MP4, _MOV, _M4A, _WEBM, _MATROSKA, _SVG, _BMP, _UNKNOWN)
} | {one.media_type: one.extension for _, one in _SIGNATURES}


def extension_of(media_type: str) -> str:
    """Return the extension for a recorded media type, without a dot; `bin` if it is unknown."""
    if (known := _EXTENSIONS.get(media_type)) is not None:
        return known
    match = _CONTENT_TYPE.fullmatch(media_type)
    return match[1] if match and _is_safe(match[1]) else _UNKNOWN.extension
