"""The probe's requests: small recipes from the catalogue, and a tiny image created in memory."""

import re
from collections.abc import AsyncIterator, Sequence
from io import BytesIO
from typing import Final

from batchkiln.core.job import Mode, Recipe
from batchkiln.core.responses import ModelEntry

PROMPT: Final = "A red fox in fresh snow, morning light"
FILE_NAME: Final = "batchkiln-probe.png"
MEDIA_TYPE: Final = "image/png"
_SIDE_PIXELS: Final = 256  # small, but not below a service's likely minimum
_IMAGE_MODELS: Final = ("epsilon-2", "delta-image-2", "epsilon-pro")  # Service section 1
_USUAL: Final = (("aspect_ratio", "1:1"), ("resolution", "1024x1024"))
_CLASS: Final = re.compile(r"(\d{1,2})k", re.IGNORECASE)  # as in "2K"
_SIZE: Final = re.compile(r"(\d{2,5})\s*[x*]\s*(\d{2,5})", re.IGNORECASE)
_LINES: Final = re.compile(r"(\d{2,5})p?", re.IGNORECASE)

Parameters = tuple[tuple[str, str | int | bool], ...]


def tiny_image() -> bytes:
    """Return a PNG of one colour, smaller than a kilobyte."""
    from PIL import Image  # noqa: PLC0415  slow to import, and only the probe needs it here

    buffer = BytesIO()
    Image.new("RGB", (_SIDE_PIXELS, _SIDE_PIXELS), (90, 120, 160)).save(buffer, "PNG")
    return buffer.getvalue()


async def chunks(content: bytes) -> AsyncIterator[bytes]:
    """Yield bytes as an upload reads them: in chunks."""
    yield content


def text_recipes(models: Sequence[ModelEntry]) -> list[Recipe]:
    """Return text-to-image recipes, one for each model at its smallest size, the most likely to be accepted first.

    Without a usable catalogue, return the documented models without parameters, then with common parameters.
    """
    fitting = [entry for entry in models if Mode.TEXT_TO_IMAGE in entry.modes]
    if fitting:
        return [_recipe(entry.id, Mode.TEXT_TO_IMAGE, smallest(entry), 0) for entry in _known_first(fitting)]
    forms: tuple[Parameters, ...] = ((), _USUAL)
    return [_recipe(model, Mode.TEXT_TO_IMAGE, form, 0) for form in forms for model in _IMAGE_MODELS]


def image_recipes(models: Sequence[ModelEntry], text: Recipe | None) -> list[Recipe]:
    """Return recipes with one image, pictures before videos; without a catalogue, based on the `text` recipe."""
    found = [
        _recipe(entry.id, mode, smallest(entry, has_duration=mode.makes_video), 1)
        for mode in (Mode.IMAGE_TO_IMAGE, Mode.IMAGE_TO_VIDEO)
        for entry in _known_first([entry for entry in models if mode in entry.modes])
    ]
    if not found and text is not None:
        found = [_recipe(text.model, Mode.IMAGE_TO_IMAGE, text.parameters, 1)]
    return found


def smallest(entry: ModelEntry, *, has_duration: bool = False) -> Parameters:
    """Return the parameters of a model's smallest output according to its catalogue entry, sorted by name."""
    found: dict[str, str | int | bool] = {}
    if entry.resolutions:
        found["resolution"] = min(sorted(entry.resolutions), key=pixels)
    if entry.aspect_ratios:
        found["aspect_ratio"] = "1:1" if "1:1" in entry.aspect_ratios else min(entry.aspect_ratios)
    if has_duration and entry.durations_seconds:
        found["duration_seconds"] = min(entry.durations_seconds)
    return tuple(sorted(found.items()))


def pixels(resolution: str) -> int:
    """Return the approximate pixel count of `512x512`, `720p` or `2K`; an unknown form counts as large."""
    if size := _SIZE.fullmatch(resolution.strip()):
        return int(size[1]) * int(size[2])
    if thousands := _CLASS.fullmatch(resolution.strip()):
        return int(thousands[1]) ** 2 * 1_000_000
    if lines := _LINES.fullmatch(resolution.strip()):
        return int(lines[1]) ** 2
    return 10**9


def _known_first(entries: Sequence[ModelEntry]) -> list[ModelEntry]:
    def rank(entry: ModelEntry) -> tuple[int, str]:
        return (_IMAGE_MODELS.index(entry.id) if entry.id in _IMAGE_MODELS else len(_IMAGE_MODELS), entry.id)

    return sorted(entries, key=rank)


def _recipe(model: str, mode: Mode, parameters: Parameters, images: int) -> Recipe:
    return Recipe(model, mode, parameters, inputs_count=images, max_cost_credits=None, attempts=1)
