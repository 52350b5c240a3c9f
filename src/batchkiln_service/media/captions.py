"""The prompt, written on a dark panel at the foot of a picture: as large as it can be, shortened where it must be."""

import threading
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from PIL import Image, ImageDraw, ImageFont

from batchkiln_service.media.legible_text import legible

_SHADE: Final = (16, 16, 24)
_INK: Final = (255, 255, 255)
_CAPTION_INK: Final = (190, 192, 206)
_LARGEST, _SMALLEST = 13, 26  # letters are the short side's 13th part high at most, its 26th part at least
_STEPS: Final = 6
_MIN_LETTER_PIXELS: Final = 11
_MAX_SHARE: Final = 0.4  # of the picture's height
_LINE_HEIGHT: Final = 1.28  # times the size of the letters
_OPACITY: Final = 0.84
_MOST_CHARACTERS: Final = 1500  # more than fit into any panel in the smallest letters; the rest is not even measured


def write_panel(size: tuple[int, int], prompt: str, caption: str) -> Image.Image:
    """Draw the panel for a picture of that size; it is as wide, and less than half as high."""
    width, height = size
    short = min(size)
    margin = max(4, width // 32)
    small, caption_line = _caption(caption, short, width - 2 * margin)
    foot = round(small.size * _LINE_HEIGHT) + margin // 2
    font, lines = _fitted(
        legible(prompt[:_MOST_CHARACTERS])[:_MOST_CHARACTERS],
        short,
        (width - 2 * margin, round(height * _MAX_SHARE) - foot - margin // 2),
    )
    line_height = round(font.size * _LINE_HEIGHT)
    panel = Image.new("RGB", (width, line_height * len(lines) + foot + margin), _SHADE)
    draw = ImageDraw.Draw(panel)
    for number, line in enumerate(lines):
        draw.text((margin, margin // 2 + number * line_height), line, font=font, fill=_INK)
    draw.text((margin, panel.height - foot), caption_line, font=small, fill=_CAPTION_INK)
    return panel


def lay_panel(picture: Image.Image, panel: Image.Image, opacity: float = 1.0) -> None:
    """Put a panel at the foot of a picture; at opacity 0 nothing is changed."""
    if opacity <= 0:
        return
    box = (0, picture.height - panel.height, picture.width, picture.height)
    picture.paste(Image.blend(picture.crop(box), panel, _OPACITY * opacity), box)


def _caption(caption: str, short: int, width: int) -> tuple[ImageFont.FreeTypeFont, str]:
    """Write the caption small; smaller still where the picture is narrow, and at last without its end."""
    for part in range(30, 60, 6):
        font = _font(max(_MIN_LETTER_PIXELS, short // part))
        if font.getlength(caption) <= width:
            return font, caption
    return font, _cut(caption, font, width)


def _fitted(text: str, short: int, room: tuple[int, int]) -> tuple[ImageFont.FreeTypeFont, list[str]]:
    """Break a text into lines, in the largest letters in which it fits into that width and height."""
    width, height = room
    sizes = [
        short // _LARGEST + (short // _SMALLEST - short // _LARGEST) * step // _STEPS for step in range(_STEPS + 1)
    ]
    for size in sizes:
        font = _font(max(_MIN_LETTER_PIXELS, size))
        most = max(1, int(height / (font.size * _LINE_HEIGHT)))
        lines = _wrapped(text, font, width, most + 1)
        if len(lines) <= most:
            return font, lines
    return font, [*lines[: most - 1], _cut(f"{lines[most - 1]} …", font, width)]


def _wrapped(text: str, font: ImageFont.FreeTypeFont, width: int, most: int) -> list[str]:
    """Break a text into lines that fit, and stop after so many."""
    lines = [""]
    for word in _words(text, font, width):
        longer = f"{lines[-1]} {word}".strip()
        if font.getlength(longer) <= width or not lines[-1]:
            lines[-1] = longer
        elif len(lines) == most:
            break
        else:
            lines.append(word)
    return lines


def _words(text: str, font: ImageFont.FreeTypeFont, width: int) -> Iterator[str]:
    """Split a text where lines may break; a word that is longer than a line comes in pieces."""
    for word in text.split():
        rest = word
        while len(rest) > 1 and font.getlength(rest) > width:
            piece = _beginning(rest, font, width)
            yield piece
            rest = rest[len(piece) :]
        yield rest


def _beginning(word: str, font: ImageFont.FreeTypeFont, width: int) -> str:
    """Return as much of a word as fits, one letter at least."""
    short, long = 1, len(word)
    while long - short > 1:
        middle = (short + long) // 2
        if font.getlength(word[:middle]) <= width:
            short = middle
        else:
            long = middle
    return word[:short]


def _cut(line: str, font: ImageFont.FreeTypeFont, width: int) -> str:
    """Shorten a line until it fits, ellipsis included."""
    kept = line.removesuffix("…").rstrip()
    while kept and font.getlength(f"{kept} …") > width:
        kept = kept[:-1].rstrip()
    return f"{kept} …".strip()


def _font(size: int) -> ImageFont.FreeTypeFont:
    """Return the font that comes with Pillow; one per thread, since a face may not be shared."""
    return _font_of_thread(size, threading.get_ident())


@lru_cache(maxsize=64)
def _font_of_thread(size: int, thread: int) -> ImageFont.FreeTypeFont:  # noqa: ARG001 - part of the cache's key
    font = ImageFont.load_default(size)
    assert isinstance(font, ImageFont.FreeTypeFont), "Pillow was built without FreeType"
    return font
