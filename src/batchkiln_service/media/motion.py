"""What moves in a clip: its frames, from the first to the last, as pictures."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from PIL import Image, ImageDraw, ImageOps

from batchkiln_service.media.captions import lay_panel
from batchkiln_service.media.input_images import open_picture
from batchkiln_service.media.pictures import digest_of, draw_scene, panel_of, tiles_of
from batchkiln_service.rules.render_spec import RenderSpec

Painter = Callable[[float], Image.Image]  # from the share of the time that has passed, 0 to 1
_WIDER: Final = 1.25  # how much wider than a frame a scene is that the view wanders over
_ZOOM: Final = 0.3
_FADE: Final = 0.12  # the share of a clip in which a panel appears, or goes
_BAR_INK: Final = (255, 210, 90)


def painter_of(drawing: RenderSpec, inputs: Sequence[Path]) -> Painter:
    """Return what paints the frame of any instant of a clip.

    The first frame of `first-frame`, and the first and the last of `first-last-frame`, are the inputs and nothing else.
    """
    size = (drawing.width, drawing.height)
    panel, digest = panel_of(drawing), digest_of(drawing)
    match drawing.image_mode:
        case "first-last-frame" if len(inputs) > 1:
            paint = _from_to(_covering(inputs[0], size), _covering(inputs[-1], size), digest)
            return _written(paint, panel, lambda passed: _risen(min(passed, 1 - passed)))
        case "reference-image":
            tiles = tiles_of(inputs, (size[0], size[1] - panel.height))
            return _written(_wandering(size, digest, tiles), panel, lambda _: 1.0)
        case _ if inputs:
            paint = _approaching(_covering(inputs[0], size), digest)
            return _written(paint, panel, _risen)
        case _:
            return _written(_wandering(size, digest, []), panel, lambda _: 1.0)


def _written(paint: Painter, panel: Image.Image, opacity_at: Callable[[float], float]) -> Painter:
    """Add the panel, and a bar above that shows the time passing."""

    def painted(passed: float) -> Image.Image:
        frame = paint(passed)
        if (opacity := opacity_at(passed)) > 0:
            lay_panel(frame, panel, opacity)
            bar = max(3, frame.height // 90)
            ImageDraw.Draw(frame).rectangle((0, 0, round(frame.width * passed), bar), fill=_BAR_INK)
        return frame

    return painted


def _risen(passed: float) -> float:
    return min(1.0, max(0.0, passed / _FADE))


def _wandering(size: tuple[int, int], digest: bytes, tiles: Sequence[tuple[Image.Image, tuple[int, int]]]) -> Painter:
    """Let the view wander over a scene, to the left or to the right, behind tiles that stay."""
    width, height = size
    scene = draw_scene((round(width * _WIDER), height), digest)
    way = scene.width - width
    is_leftward = digest[12] % 2 == 0

    def painted(passed: float) -> Image.Image:
        left = round(way * (1 - passed if is_leftward else passed))
        frame = scene.crop((left, 0, left + width, height))
        for tile, place in tiles:
            frame.paste(tile, place)
        return frame

    return painted


def _approaching(picture: Image.Image, digest: bytes) -> Painter:
    """Go nearer to a place of the picture; at first all of it is seen."""
    toward = 0.2 + 0.6 * digest[13] / 255, 0.2 + 0.6 * digest[14] / 255

    def painted(passed: float) -> Image.Image:
        return _nearer(picture, passed, toward)

    return painted


def _from_to(first: Image.Image, last: Image.Image, digest: bytes) -> Painter:
    """Go nearer to the first picture while the last appears, which itself comes to rest."""
    toward = 0.2 + 0.6 * digest[13] / 255, 0.2 + 0.6 * digest[14] / 255

    def painted(passed: float) -> Image.Image:
        shown = min(1.0, max(0.0, (passed - 0.25) / 0.5))
        if shown <= 0:
            return _nearer(first, passed, toward)
        if shown >= 1:
            return _nearer(last, 1 - passed, toward)
        return Image.blend(_nearer(first, passed, toward), _nearer(last, 1 - passed, toward), shown)

    return painted


def _nearer(picture: Image.Image, passed: float, toward: tuple[float, float]) -> Image.Image:
    """Return a picture seen from nearer; 0 is all of it."""
    if passed <= 0:
        return picture.copy()
    width, height = picture.size
    seen = 1 / (1 + _ZOOM * passed)
    left, top = width * (1 - seen) * toward[0], height * (1 - seen) * toward[1]
    box = (left, top, left + width * seen, top + height * seen)
    return picture.resize(picture.size, Image.Resampling.BILINEAR, box=box)


def _covering(path: Path, size: tuple[int, int]) -> Image.Image:
    """Return an input that fills the frame; what does not fit is cut off at the sides."""
    return ImageOps.fit(open_picture(path, at_least=size), size, Image.Resampling.BICUBIC)
