"""Cards with the prompt written on them, in colours of their own; input images appear on the card."""

import hashlib
import math
import threading
from collections.abc import Iterator, Sequence
from colorsys import hsv_to_rgb
from functools import lru_cache
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont, ImageOps

Color = tuple[int, int, int]
_MAX_LINES = 12
_RIDGE_STEPS = 48
_WORD_CHARACTERS = 32  # a longer word may be broken anywhere
_INK: Color = (255, 255, 255)
_SHADE: Color = (16, 16, 24)


def draw_card(*, size: tuple[int, int], prompt: str, caption: str, inputs: Sequence[Path]) -> Image.Image:
    """Draw an RGB card of that size in pixels; the same arguments give the same pixels."""
    digest = hashlib.sha256(f"{caption}\n{prompt}".encode()).digest()
    card = _background(size, digest)
    for index, path in enumerate(inputs):
        _paste_input(card, path, index=index, count=len(inputs))
    _write(card, prompt, caption)
    return card


def save_picture(card: Image.Image, path: Path, output_format: str) -> None:
    """Save as PNG or JPEG."""
    if output_format == "jpg":
        card.save(path, "JPEG", quality=88)
    else:
        card.save(path, "PNG", compress_level=1)


def _background(size: tuple[int, int], digest: bytes) -> Image.Image:
    """Paint a sky that grows lighter, a disc and three ridges; colours and places come from the digest."""
    width, height = size
    hue = digest[0]
    ramp = Image.linear_gradient("L").resize((1, height))
    sky = ImageOps.colorize(ramp, black=_color(hue, 150, 110), white=_color(hue + digest[1] // 4, 90, 235))
    scene = sky.resize(size)
    draw = ImageDraw.Draw(scene)
    radius = min(size) // (6 + digest[2] % 6)
    center = (width * (40 + digest[3] % 170) // 250, height * (30 + digest[4] % 60) // 250)
    draw.circle(center, radius, fill=_color(hue + 128, 60, 250))
    for ridge in range(3):
        draw.polygon(_ridge(size, digest, ridge), fill=_color(hue + 20 * ridge, 140, 150 - 40 * ridge))
    return scene


def _color(hue: int, saturation: int, brightness: int) -> Color:
    """Turn hue, saturation and value, each of 256 steps, into a colour."""
    red, green, blue = hsv_to_rgb(hue % 256 / 256, saturation / 255, brightness / 255)
    return round(red * 255), round(green * 255), round(blue * 255)


def _ridge(size: tuple[int, int], digest: bytes, ridge: int) -> list[tuple[int, int]]:
    """Return the outline of a chain of hills; nearer ones stand lower."""
    width, height = size
    base = height * (38 + 12 * ridge) // 100
    wave = 2 * math.pi * (2 + digest[5 + ridge] % 3) / _RIDGE_STEPS
    tops = [
        (
            width * step // _RIDGE_STEPS,
            base + int(height * 0.06 * math.sin(wave * step + digest[8 + ridge])),
        )
        for step in range(_RIDGE_STEPS + 1)
    ]
    return [*tops, (width, height), (0, height)]


def _paste_input(card: Image.Image, path: Path, *, index: int, count: int) -> None:
    """Put an input image into its share of the upper two thirds."""
    width, height = card.size
    share, tall = width // count, height * 2 // 3
    with Image.open(path) as image:
        fitted = ImageOps.contain(ImageOps.exif_transpose(image).convert("RGB"), (share, tall))
    card.paste(fitted, (index * share + (share - fitted.width) // 2, (tall - fitted.height) // 2))


def _write(card: Image.Image, prompt: str, caption: str) -> None:
    width, height = card.size
    margin = width // 20
    font = _font(max(12, min(width, height) // 26))
    lines = _wrapped(prompt, font, width - 2 * margin)
    line_height = int(font.size * 1.3)
    draw = ImageDraw.Draw(card)
    top = height - margin - line_height * (len(lines) + 1)
    draw.rectangle((0, top - margin // 2, width, height), fill=_SHADE)
    for number, line in enumerate(lines):
        draw.text((margin, top + number * line_height), line, font=font, fill=_INK)
    small = _font(max(10, min(width, height) // 34))
    draw.text((margin, height - margin - line_height // 2), caption, font=small, fill=(170, 170, 180))


def _wrapped(text: str, font: ImageFont.FreeTypeFont, width: int) -> list[str]:
    """Break a text into lines that fit; what is too long ends in an ellipsis."""
    lines = [""]
    for word in _words(text):
        longer = f"{lines[-1]} {word}".strip()
        if font.getlength(longer) <= width or not lines[-1]:
            lines[-1] = longer
        elif len(lines) == _MAX_LINES:
            lines[-1] += " …"
            break
        else:
            lines.append(word)
    return lines


def _words(text: str) -> Iterator[str]:
    """Split a text where lines may break; scripts without blanks, too, come in pieces."""
    for word in text.split():
        for start in range(0, len(word), _WORD_CHARACTERS):
            yield word[start : start + _WORD_CHARACTERS]


def _font(size: int) -> ImageFont.FreeTypeFont:
    """Return the font that comes with Pillow; one per thread, since a face may not be shared."""
    return _font_of_thread(size, threading.get_ident())


@lru_cache(maxsize=32)
def _font_of_thread(size: int, thread: int) -> ImageFont.FreeTypeFont:  # noqa: ARG001 - part of the cache's key
    font = ImageFont.load_default(size)
    assert isinstance(font, ImageFont.FreeTypeFont), "Pillow was built without FreeType"
    return font
