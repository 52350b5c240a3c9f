"""Pictures: a background in colours of their own, the input pictures, and the prompt."""

import hashlib
import io
import math
from collections.abc import Sequence
from colorsys import hsv_to_rgb
from pathlib import Path
from typing import Final

from PIL import Image, ImageOps

from batchkiln_service.media.captions import caption_panel, paste_panel
from batchkiln_service.media.input_images import open_picture
from batchkiln_service.rules.render_spec import RenderSpec

_FRAME_COLOR: Final = (250, 250, 250)


def draw_picture(spec: RenderSpec, inputs: Sequence[Path]) -> Image.Image:
    """Return the picture in RGB. The same specification and inputs give the same pixels."""
    panel = panel_of(spec)
    picture = draw_scene(spec, inputs, height_above_panel=spec.height - panel.height)
    paste_panel(picture, panel)
    return picture


def save_picture(picture: Image.Image, path: Path, output_format: str) -> None:
    """Save as PNG or JPEG. Raises OSError.

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
    """Return a gradient with the inputs in a grid; the gradient's two colours depend on all of the specification."""
    digest = _digest_of(spec)
    top, bottom = _color(digest[0], 130), _color(digest[0] + 32 + digest[1] // 2, 235)
    ramp = Image.linear_gradient("L").resize((1, spec.height))
    scene = ImageOps.colorize(ramp, black=top, white=bottom).resize((spec.width, spec.height))
    _paste_grid(scene, inputs, (spec.width, height_above_panel))
    return scene


def _digest_of(spec: RenderSpec) -> bytes:
    return hashlib.sha256(spec.as_json()).digest()


def _color(hue: int, brightness: int) -> tuple[int, int, int]:
    """Return an RGB colour; the hue is modulo 256."""
    red, green, blue = hsv_to_rgb(hue % 256 / 256, 0.5, brightness / 255)
    return round(red * 255), round(green * 255), round(blue * 255)


def _paste_grid(scene: Image.Image, inputs: Sequence[Path], room: tuple[int, int]) -> None:
    """Paste each input in a frame, as large as a grid in that room allows."""
    if not inputs:
        return
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
