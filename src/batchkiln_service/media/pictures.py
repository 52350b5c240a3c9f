"""Scenes in colours of their own, with input pictures in them, and the prompt written below."""

import hashlib
import io
import math
from collections.abc import Sequence
from colorsys import hsv_to_rgb
from pathlib import Path
from typing import Final

from PIL import Image, ImageDraw, ImageOps

from batchkiln_service.media.captions import lay_panel, write_panel
from batchkiln_service.media.input_images import open_picture
from batchkiln_service.rules.render_spec import RenderSpec

Color = tuple[int, int, int]
_RIDGE_STEPS: Final = 64
_FRAME_INK: Final = (250, 250, 250)


def draw_picture(drawing: RenderSpec, inputs: Sequence[Path]) -> Image.Image:
    """Draw an image, in RGB; the same drawing and inputs give the same pixels."""
    size = (drawing.width, drawing.height)
    panel = panel_of(drawing)
    picture = draw_scene(size, digest_of(drawing))
    for tile, place in tiles_of(inputs, (size[0], size[1] - panel.height)):
        picture.paste(tile, place)
    lay_panel(picture, panel)
    return picture


def save_picture(picture: Image.Image, path: Path, output_format: str) -> None:
    """Save as PNG or JPEG. Raises OSError.

    By way of memory: Pillow does not notice that a disk took only a part of what it writes.
    """
    content = io.BytesIO()
    if output_format == "jpg":
        picture.save(content, "JPEG", quality=88)
    else:
        picture.save(content, "PNG", compress_level=1)
    path.write_bytes(content.getbuffer())


def digest_of(drawing: RenderSpec) -> bytes:
    """Return what colours, places and the mark in the caption come from."""
    return hashlib.sha256(drawing.as_json()).digest()


def panel_of(drawing: RenderSpec) -> Image.Image:
    """Return the panel with the prompt, what was asked for, and a mark that tells even equal prompts apart."""
    facts = [drawing.model, drawing.mode, drawing.image_mode, f"{drawing.width}x{drawing.height}"]
    facts.append(f"{drawing.duration_seconds} s" if drawing.kind == "video" else None)
    facts.append("with sound" if drawing.with_audio else None)
    facts.append(f"#{digest_of(drawing).hex()[:6]}")
    caption = " · ".join(fact for fact in facts if fact)
    return write_panel((drawing.width, drawing.height), drawing.prompt, caption)


def draw_scene(size: tuple[int, int], digest: bytes) -> Image.Image:
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


def tiles_of(inputs: Sequence[Path], room: tuple[int, int]) -> list[tuple[Image.Image, tuple[int, int]]]:
    """Return each input in a frame, as large as a grid of them allows, and where it goes in that room."""
    if not inputs:
        return []
    columns = _columns(len(inputs), room)
    rows = math.ceil(len(inputs) / columns)
    cell = room[0] // columns, room[1] // rows
    edge = max(2, min(room) // 120)
    inner = max(1, cell[0] - 6 * edge), max(1, cell[1] - 6 * edge)
    tiles = []
    for index, path in enumerate(inputs):
        picture = ImageOps.contain(open_picture(path, at_least=inner), inner, Image.Resampling.BICUBIC)
        tile = ImageOps.expand(picture, edge, fill=_FRAME_INK)
        row, column = divmod(index, columns)
        in_row = min(columns, len(inputs) - row * columns)  # the last row stands in the middle
        left = (room[0] - in_row * cell[0]) // 2 + column * cell[0]
        place = left + (cell[0] - tile.width) // 2, row * cell[1] + (cell[1] - tile.height) // 2
        tiles.append((tile, place))
    return tiles


def _columns(count: int, room: tuple[int, int]) -> int:
    """Return how many columns give the largest squares."""

    def square(columns: int) -> float:
        return min(room[0] / columns, room[1] / math.ceil(count / columns))

    return max(range(1, count + 1), key=square)


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
