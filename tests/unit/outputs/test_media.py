"""What a file is, by its first bytes."""

import pytest

from batchkiln.outputs.file_formats import extension_of, format_of, sniff_format


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
        (b"II*\0\x08\0\0\0", "image/tiff", "tiff"),
        (b"MM\0*\0\0\0\x08", "image/tiff", "tiff"),
        (iso(b"heic", b"mif1"), "image/heic", "heic"),
        (b"\0\0\0\x0cJXL \r\n\x87\n", "image/jxl", "jxl"),
        (b"\xff\x0a\x12\x34", "image/jxl", "jxl"),
        (b"BM\x46\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0", "image/bmp", "bmp"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "image/svg+xml", "svg"),
        (b"\xef\xbb\xbf<?xml version='1.0'?>\n<!-- made -->\n<svg>", "image/svg+xml", "svg"),
        (b"RIFF\x10\0\0\0WAVEfmt ", "audio/wav", "wav"),
        (b"RIFF\x10\0\0\0AVI LIST", "video/x-msvideo", "avi"),
        (iso(b"M4A "), "audio/mp4", "m4a"),
        (b"ID3\x04\0\0\0\0\0\0", "audio/mpeg", "mp3"),
        (b"PK\x03\x04\x14\0", "application/zip", "zip"),
    ],
)
def test_pictures_and_clips_are_recognized_by_their_bytes(head: bytes, media_type: str, extension: str) -> None:
    """The extension follows the content, whatever the service called it."""
    media = sniff_format(head)

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
        b"RIFF\x10\0\0\0????",
        b"BM is no picture by these two letters alone",
        b"<p>an <svg> in a page</p>",
        b"\x1a\x45\xdf\xa3",
        b"\x1a\x45\xdf\xa3\x42\x82",
        b"\x1a\x45\xdf\xa3\x42\x82\x83bad",
        b"\0\0\0\x18ftyp"[:7],
    ],
)
def test_other_bytes_tell_nothing(head: bytes) -> None:
    """What is not known by its bytes is not guessed from them."""
    assert sniff_format(head) is None


@pytest.mark.parametrize(
    "head",
    [
        b"not found",
        b"<!doctype html>",
        b"  <HTML><body>caf\xe9",
        b'{"error": "expired"}',
        b"<?xml version='1.0'?><Error><Code>AccessDenied</Code></Error>",
        "störung".encode()[:-5],
        "an error".encode("utf-16"),
    ],
)
def test_texts_are_no_result(head: bytes) -> None:
    """An error page saved as a picture would be found too late."""
    assert format_of(head, content_type="image/png", link_extension="png") is None


@pytest.mark.parametrize("extension", ["bin", "png", "a-b", "part"])
def test_every_media_type_has_an_extension(extension: str) -> None:
    """An export names a file of any recorded type."""
    assert extension_of("application/x-unheard-of") == "bin"
    assert extension_of(f"image/{extension}") == {"bin": "bin", "png": "png", "a-b": "bin", "part": "bin"}[extension]
