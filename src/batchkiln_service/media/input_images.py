"""Uploaded pictures: verified before use, and opened as upright RGB pictures whatever their format."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from PIL import Image, ImageOps, UnidentifiedImageError

MAX_PIXELS: Final = 100_000_000  # up to four bytes each when decoded; docs/assumptions.md has this limit
_TOO_LARGE: Final = f"has more than {MAX_PIXELS} pixels"
_PAPER: Final = (236, 236, 240)  # the background of transparent pictures
_WIDE_MODES: Final = ("I", "F")
_REDUCIBLE_MODES: Final = ("L", "LA", "RGB", "RGBA", "CMYK")

# Too large pictures are refused by their header. Pillow's own limit is lower, and only warns below twice its value.
if Image.MAX_IMAGE_PIXELS is not None:
    Image.MAX_IMAGE_PIXELS = max(Image.MAX_IMAGE_PIXELS, MAX_PIXELS)


class UnreadablePictureError(Exception):
    """Raised for a file that is not a valid picture of its type. The message has the reason."""


def size_by_header(path: Path, kind: str) -> tuple[int, int]:
    """Return the width and height in the header of a file in a given Pillow format, such as "PNG".

    Raise `UnreadablePictureError`.
    """
    with _opened(path, kind) as image:
        return image.size


def examine(path: Path, kind: str) -> tuple[int, int]:
    """Decode a whole file in a given Pillow format; return width and height. Raise `UnreadablePictureError`."""
    with _opened(path, kind) as image:
        image.load()  # a truncated file has a valid header
        return image.size


def open_picture(path: Path, *, at_least: tuple[int, int]) -> Image.Image:
    """Return the picture upright and in RGB; a much larger one may be reduced, but still covers `at_least`."""
    with Image.open(path) as image:
        _check_pixels(image.width, image.height)
        longest = max(at_least)
        image.draft("RGB", (longest, longest))
        _turn_upright(image)
        return _in_rgb(_reduced(image, longest))


@contextmanager
def _opened(path: Path, kind: str) -> Iterator[Image.Image]:
    """Open an untrusted file. Raise `UnreadablePictureError` for any exception of the decoder."""
    try:
        with Image.open(path, formats=[kind]) as image:
            _check_pixels(image.width, image.height)
            yield image
    except UnreadablePictureError:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise UnreadablePictureError(_TOO_LARGE) from error
    except UnidentifiedImageError as error:
        raise UnreadablePictureError(f"is not a {kind} picture") from error
    except Exception as error:
        raise UnreadablePictureError(f"is a damaged {kind} picture") from error


def _check_pixels(width: int, height: int) -> None:
    if width * height > MAX_PIXELS:
        raise UnreadablePictureError(_TOO_LARGE)


def _turn_upright(image: Image.Image) -> None:
    """Rotate a picture according to its EXIF data; invalid EXIF data is ignored."""
    image.load()
    with suppress(OSError, SyntaxError, ValueError, KeyError, TypeError, AttributeError, OverflowError):
        ImageOps.exif_transpose(image, in_place=True)


def _reduced(image: Image.Image, longest: int) -> Image.Image:
    """Reduce a picture that is several times too large, because the conversion to RGB would copy all of it."""
    factor = min(image.size) // max(1, longest)
    return image.reduce(factor) if factor > 1 and image.mode in _REDUCIBLE_MODES else image


def _in_rgb(image: Image.Image) -> Image.Image:
    """Return the picture in RGB. More than eight bits a channel are scaled; transparency gets a background."""
    if image.mode.startswith("I;16") or image.mode in _WIDE_MODES:
        return _eight_bits(image).convert("RGB")
    if image.has_transparency_data:
        seen = image.convert("RGBA")
        paper = Image.new("RGBA", seen.size, _PAPER)
        return Image.alpha_composite(paper, seen).convert("RGB")
    return image.convert("RGB")


def _eight_bits(image: Image.Image) -> Image.Image:
    """Return a greyscale picture with 8 bits per pixel. No allowed type has floating-point pixels."""
    if image.mode == "F":
        return image.convert("L")
    return image.convert("I").point(lambda value: value * (1 / 256)).convert("L")
