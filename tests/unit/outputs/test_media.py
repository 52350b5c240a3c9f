"""What a file is, by its first bytes."""

import pytest

from batchkiln.outputs.media import sniff_media


def iso(major: bytes, *compatible: bytes) -> bytes:
    brands = b"".join(compatible)
    return (16 + len(brands)).to_bytes(4, "big") + b"ftyp" + major + b"\0\0\0\0" + brands + b"\0\0\0\x08free"


@pytest.mark.parametrize(
    ("head", "media_type", "extension"),
    [
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "image/png", "png"),
        (b"\xff\xd8\xff\xe0\0\x10JFIF", "image/jpeg", "jpg"),
        (b"GIF89a\1\0\1\0", "image/gif", "gif"),
        (b"RIFF\x10\0\0\0WEBPVP8 ", "image/webp", "webp"),
        (iso(b"avif", b"mif1", b"miaf"), "image/avif", "avif"),
        (iso(b"mif1", b"avif"), "image/avif", "avif"),
        (iso(b"isom", b"iso2", b"avc1", b"mp41"), "video/mp4", "mp4"),
        (iso(b"mp42"), "video/mp4", "mp4"),
        (iso(b"qt  ", b"qt  "), "video/quicktime", "mov"),
        (b"\0\0\0\x08wide\0\0\0\0mdat", "video/quicktime", "mov"),
        (b"\x1a\x45\xdf\xa3\x9f\x42\x86\x81\x01\x42\x82\x84webm\x42\x87", "video/webm", "webm"),
        (b"\x1a\x45\xdf\xa3\xa3\x42\x82\x88matroska\x42\x87", "video/x-matroska", "mkv"),
    ],
)
def test_pictures_and_clips_are_told_by_their_bytes(head: bytes, media_type: str, extension: str) -> None:
    """The extension follows the content, whatever the service called it."""
    media = sniff_media(head)

    assert media is not None
    assert (media.media_type, media.extension) == (media_type, extension)
    assert media.is_video == media_type.startswith("video/")


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"\x89PNG",
        b"<!doctype html>",
        b'{"error": "expired"}',
        b"<?xml version='1.0'?><Error><Code>AccessDenied</Code></Error>",
        b"RIFF\x10\0\0\0WAVEfmt ",
        b"\x1a\x45\xdf\xa3",
        b"\x1a\x45\xdf\xa3\x42\x82",
        b"\x1a\x45\xdf\xa3\x42\x82\x83bad",
        iso(b"heic", b"mif1"),
        iso(b"M4A "),
        b"\0\0\0\x18ftyp"[:7],
        b"ID3\x04\0\0\0\0\0\0",
    ],
)
def test_anything_else_is_no_result(head: bytes) -> None:
    """An error page saved as a picture would be found too late."""
    assert sniff_media(head) is None
