"""Draws pictures: a landscape or the input pictures before a background in two colours, and a caption panel.

The panel is a dark strip at the bottom with the prompt, in the largest font size that fits.
"""

import hashlib
import io
import math
import textwrap
import threading
from collections.abc import Iterator, Sequence
from colorsys import hsv_to_rgb
from functools import lru_cache
from pathlib import Path
from typing import Final

from PIL import Image, ImageDraw, ImageFilter, ImageFont, ImageOps

from batchkiln_service.media.input_images import open_picture
from batchkiln_service.media.legible_text import legible
from batchkiln_service.rules.render_spec import RenderSpec

_FRAME_COLOR: Final = (250, 250, 250)
_SUN_COLOR: Final = (255, 246, 224)
_RIDGES: Final = 3
_RIDGE_POINTS: Final = 96  # along the width; more give smoother ridges
_BLUR_DIVISOR: Final = 24  # of the picture's shorter side; the quotient is the radius of the blur


def draw_picture(spec: RenderSpec, inputs: Sequence[Path]) -> Image.Image:
    """Return the picture in RGB. The same specification and inputs give the same pixels."""
    panel = panel_of(spec)
    picture = draw_scene(spec, inputs, height_above_panel=spec.height - panel.height)
    paste_panel(picture, panel)
    return blurred(picture) if spec.is_blurred else picture


def blurred(picture: Image.Image) -> Image.Image:
    """Return the picture blurred, with its caption: the colours remain, but no edges."""
    return picture.filter(ImageFilter.BoxBlur(max(3, min(picture.size) // _BLUR_DIVISOR)))


def save_picture(picture: Image.Image, path: Path, output_format: str) -> None:
    """Save as PNG or JPEG. Raise OSError.

    The file is encoded in memory first, because Pillow does not notice a partial write to a full disk.
    """
    content = io.BytesIO()
    if output_format == "jpg":
        picture.save(content, "JPEG", quality=88)
    else:
        picture.save(content, "PNG", compress_level=1)
    path.write_bytes(content.getbuffer())


def panel_of(spec: RenderSpec) -> Image.Image:
    """Return the caption panel: the prompt, the parameters, and a mark that differs if any parameter does."""
    mark = f"#{_digest_of(spec).hex()[:6]}"
    facts = [mark, spec.model, spec.mode, spec.image_mode, f"{spec.width}x{spec.height}"]
    facts.append(f"{spec.duration_seconds} s" if spec.kind == "video" else None)
    facts.append("with sound" if spec.with_audio else None)
    return caption_panel((spec.width, spec.height), spec.prompt, " · ".join(fact for fact in facts if fact))


def draw_scene(spec: RenderSpec, inputs: Sequence[Path], *, height_above_panel: int) -> Image.Image:
    """Return a gradient with the inputs in a grid, or with a landscape. Both depend on all of the specification."""
    digest = _digest_of(spec)
    top, bottom = _color(digest[0], 130), _color(digest[0] + 32 + digest[1] // 2, 235)
    ramp = Image.linear_gradient("L").resize((1, spec.height))
    scene = ImageOps.colorize(ramp, black=top, white=bottom).resize((spec.width, spec.height))
    if inputs:
        _paste_grid(scene, inputs, (spec.width, height_above_panel))
    else:
        _draw_landscape(scene, digest, height_above_panel)
    return scene


def _draw_landscape(scene: Image.Image, digest: bytes, height: int) -> None:
    """Draw a sun and ridges of hills into the upper part of a scene, so that pictures differ in more than colour."""
    draw = ImageDraw.Draw(scene)
    radius = min(scene.width, height) * (0.07 + 0.10 * digest[2] / 255)
    sun = scene.width * (0.15 + 0.7 * digest[3] / 255), height * (0.18 + 0.27 * digest[4] / 255)
    draw.circle(sun, radius, fill=_SUN_COLOR)
    for ridge in range(_RIDGES):
        color = _color(digest[0] + 20 * ridge + 100, 150 - 38 * ridge)
        draw.polygon(
            [
                (0, scene.height),
                *_ridge(digest[5 + 3 * ridge :], ridge, (scene.width, height)),
                (scene.width, scene.height),
            ],
            fill=color,
        )


def _ridge(digest: bytes, ridge: int, size: tuple[int, int]) -> Iterator[tuple[float, float]]:
    """Yield the points of a ridge from left to right: two waves whose lengths and phases three bytes determine."""
    width, height = size
    middle, swing = height * (0.5 + 0.17 * ridge), height * (0.05 + 0.08 * digest[0] / 255)
    for number in range(_RIDGE_POINTS + 1):
        turn = 2 * math.pi * number / _RIDGE_POINTS
        long = math.sin(turn * (0.6 + digest[1] / 255) + digest[2] / 40)
        short = math.sin(turn * (2.2 + digest[2] / 128) + digest[1] / 40)
        yield width * number / _RIDGE_POINTS, middle + swing * (long + 0.35 * short)


def _digest_of(spec: RenderSpec) -> bytes:
    return hashlib.sha256(spec.as_json()).digest()


def _color(hue: int, brightness: int) -> tuple[int, int, int]:
    """Return an RGB colour; the hue is modulo 256."""
    red, green, blue = hsv_to_rgb(hue % 256 / 256, 0.5, brightness / 255)
    return round(red * 255), round(green * 255), round(blue * 255)


def _paste_grid(scene: Image.Image, inputs: Sequence[Path], room: tuple[int, int]) -> None:
    """Paste each input in a frame, as large as a grid in the given room allows."""
    columns = _columns(len(inputs), room)
    cell = room[0] // columns, room[1] // math.ceil(len(inputs) / columns)
    border = max(2, min(room) // 120)
    inner = max(1, cell[0] - 6 * border), max(1, cell[1] - 6 * border)
    for index, path in enumerate(inputs):
        picture = ImageOps.contain(open_picture(path, at_least=inner), inner, Image.Resampling.BICUBIC)
        tile = ImageOps.expand(picture, border, fill=_FRAME_COLOR)
        row, column = divmod(index, columns)
        left, top = column * cell[0] + (cell[0] - tile.width) // 2, row * cell[1] + (cell[1] - tile.height) // 2
        scene.paste(tile, (left, top))


def _columns(count: int, room: tuple[int, int]) -> int:
    """Return the number of columns that gives the largest squares."""

    def side(columns: int) -> float:
        return min(room[0] / columns, room[1] / math.ceil(count / columns))

    return max(range(1, count + 1), key=side)


_BACKGROUND: Final = (16, 16, 24)
_PROMPT_COLOR: Final = (255, 255, 255)
_FACTS_COLOR: Final = (190, 192, 206)
_SIZE_DIVISORS: Final = (13, 15, 18, 21, 26)  # of the picture's shorter side; the quotient is the font size
_FACTS_DIVISOR: Final = 36
_MIN_FONT_PIXELS: Final = 11
_MAX_SHARE: Final = 0.4  # of the picture's height
_LINE_HEIGHT: Final = 1.28  # times the font size
_OPACITY: Final = 0.84
_MAX_CHARACTERS: Final = 1500  # more than fits into any panel at the smallest size; the rest is not measured
_ELLIPSIS: Final = " …"


def caption_panel(size: tuple[int, int], prompt: str, facts: str) -> Image.Image:
    """Return the panel for a picture of a given size: as wide as the picture, and less than half as high.

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
    """Return the largest font in which the text fits into the given width and height, and the text's lines in it."""
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
