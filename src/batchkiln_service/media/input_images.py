"""Uploaded pictures: looked at before anybody relies on them, and opened whatever form their pixels have."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from PIL import Image, ImageOps, UnidentifiedImageError

MAX_PIXELS: Final = 64_000_000  # decoded it would be four bytes each
_TOO_LARGE: Final = f"has more than {MAX_PIXELS} pixels"
_PAPER: Final = (236, 236, 240)  # what shows through where a picture is transparent
_WIDE_MODES: Final = ("I", "F")
_REDUCIBLE_MODES: Final = ("L", "LA", "RGB", "RGBA", "CMYK")

# A picture that is too large is refused by its header; Pillow's own, higher limit must not only be talked of.
warnings.simplefilter("error", Image.DecompressionBombWarning)


class UnreadablePictureError(Exception):
    """A file is not a picture of its kind; the message says why."""


def size_by_header(path: Path, kind: str) -> tuple[int, int]:
    """Return width and height that a file of that Pillow format ("PNG") claims. Raises `UnreadablePictureError`."""
    with _opened(path, kind) as image:
        return image.size


def examine(path: Path, kind: str) -> tuple[int, int]:
    """Decode a file of that Pillow format whole; return width and height. Raises `UnreadablePictureError`."""
    with _opened(path, kind) as image:
        image.load()  # a header alone says nothing of a truncated file
        return image.size


def open_picture(path: Path, *, at_least: tuple[int, int]) -> Image.Image:
    """Return the picture upright, in RGB, where that is quicker in a smaller size that still covers `at_least`."""
    with Image.open(path) as image:
        _check_pixels(image.width, image.height)
        longest = max(at_least)
        image.draft("RGB", (longest, longest))
        _turn_upright(image)
        return _in_rgb(_reduced(image, longest))


@contextmanager
def _opened(path: Path, kind: str) -> Iterator[Image.Image]:
    """Open a file that anybody may have made; decoders raise whatever hostile bytes make them."""
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
    """Turn a picture as its EXIF says; nonsense there is no reason to refuse a picture that can be seen."""
    image.load()
    with suppress(OSError, SyntaxError, ValueError, KeyError, TypeError, AttributeError, OverflowError):
        ImageOps.exif_transpose(image, in_place=True)


def _reduced(image: Image.Image, longest: int) -> Image.Image:
    """Shrink a picture that is several times too large, before its colours are changed, which would copy all of it."""
    factor = min(image.size) // max(1, longest)
    return image.reduce(factor) if factor > 1 and image.mode in _REDUCIBLE_MODES else image


def _in_rgb(image: Image.Image) -> Image.Image:
    """Turn any mode into RGB: more than eight bits are scaled, not cut; transparency is laid on paper."""
    if image.mode.startswith("I;16") or image.mode in _WIDE_MODES:
        return _eight_bits(image).convert("RGB")
    if image.has_transparency_data:
        seen = image.convert("RGBA")
        paper = Image.new("RGBA", seen.size, _PAPER)
        return Image.alpha_composite(paper, seen).convert("RGB")
    return image.convert("RGB")


def _eight_bits(image: Image.Image) -> Image.Image:
    """Scale 16 bits of grey to eight; floating point, which no allowed type has, as Pillow does it."""
    if image.mode == "F":
        return image.convert("L")
    return image.convert("I").point(lambda value: value * (1 / 256)).convert("L")
