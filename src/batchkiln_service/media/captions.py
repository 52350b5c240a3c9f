"""The caption panel: the prompt on a dark strip at the bottom of a picture, in the largest font size that fits."""

import textwrap
import threading
from functools import lru_cache
from typing import Final

from PIL import Image, ImageDraw, ImageFont

from batchkiln_service.media.legible_text import legible

_BACKGROUND: Final = (16, 16, 24)
_PROMPT_COLOR: Final = (255, 255, 255)
_FACTS_COLOR: Final = (190, 192, 206)
_SIZE_DIVISORS: Final = (13, 15, 18, 21, 26)  # of the picture's shorter side; the quotient is the font size
_FACTS_DIVISOR: Final = 36
_MIN_FONT_PIXELS: Final = 11
_MAX_SHARE: Final = 0.4  # of the picture's height
_LINE_HEIGHT: Final = 1.28  # times the font size
_OPACITY: Final = 0.84
_MAX_CHARACTERS: Final = 1500  # more than any panel holds at the smallest size; the rest is not measured
_ELLIPSIS: Final = " …"


def caption_panel(size: tuple[int, int], prompt: str, facts: str) -> Image.Image:
    """Return the panel for a picture of that size: as wide as the picture and less than half as high.

    The prompt is shortened if it does not fit. `facts` is one line in small letters below it.
    """
    width, height = size
    short, margin = min(size), max(4, width // 32)
    room = width - 2 * margin
    small = _font(short // _FACTS_DIVISOR)
    foot = round(small.size * _LINE_HEIGHT) + margin // 2
    text = legible(prompt[:_MAX_CHARACTERS])[:_MAX_CHARACTERS]
    font, lines = _fitted(text, short, (room, round(height * _MAX_SHARE) - foot - margin // 2))
    line_height = round(font.size * _LINE_HEIGHT)
    panel = Image.new("RGB", (width, line_height * len(lines) + foot + margin), _BACKGROUND)
    draw = ImageDraw.Draw(panel)
    for number, line in enumerate(lines):
        draw.text((margin, margin // 2 + number * line_height), line, font=font, fill=_PROMPT_COLOR)
    draw.text((margin, panel.height - foot), _wrapped(facts, small, room, 1)[0], font=small, fill=_FACTS_COLOR)
    return panel


def paste_panel(picture: Image.Image, panel: Image.Image, opacity: float = 1.0) -> None:
    """Blend a panel into the bottom of a picture; opacity 0 changes nothing."""
    box = (0, picture.height - panel.height, picture.width, picture.height)
    picture.paste(Image.blend(picture.crop(box), panel, _OPACITY * opacity), box)


def _fitted(text: str, short: int, room: tuple[int, int]) -> tuple[ImageFont.FreeTypeFont, list[str]]:
    """Return the largest font in which the text fits into that width and height, and the text's lines in it."""
    width, height = room
    for divisor in _SIZE_DIVISORS:
        font = _font(short // divisor)
        max_lines = max(1, int(height / (font.size * _LINE_HEIGHT)))
        lines = _wrapped(text, font, width, max_lines)
        if not lines[-1].endswith(_ELLIPSIS):
            break
    return font, lines


def _wrapped(text: str, font: ImageFont.FreeTypeFont, width: int, max_lines: int) -> list[str]:
    """Break a text into lines of at most `width` pixels; shorten it to `max_lines`."""
    characters = max(1, int(2 * width / font.size))
    while True:
        lines = textwrap.wrap(text, characters, max_lines=max_lines, placeholder=_ELLIPSIS) or [""]
        if characters == 1 or max(map(font.getlength, lines)) <= width:
            return lines
        characters = characters * 9 // 10


def _font(size: int) -> ImageFont.FreeTypeFont:
    """Return Pillow's own font. Each thread has its own object, because FreeType faces may not be shared."""
    return _font_of_thread(max(_MIN_FONT_PIXELS, size), threading.get_ident())


@lru_cache(maxsize=64)
def _font_of_thread(size: int, thread: int) -> ImageFont.FreeTypeFont:  # noqa: ARG001 - part of the cache's key
    font = ImageFont.load_default(size)
    assert isinstance(font, ImageFont.FreeTypeFont), "Pillow was built without FreeType"
    return font
