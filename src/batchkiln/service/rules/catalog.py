"""The models that can be asked for, and what a request costs. The table itself is `models.toml`."""

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from math import gcd
from typing import Literal

from pydantic import BaseModel, ConfigDict

Kind = Literal["image", "video"]
_EXACT_SIZE = re.compile(r"([0-9]+)x([0-9]+)")
_SHORT_SIDE = {"480p": 480, "720p": 720, "1080p": 1080}
_LONG_SIDE = {"1K": 1024, "2K": 2048, "4K": 4096}


class Model(BaseModel):
    """One row of the catalogue: what a model accepts and how it is priced."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    kind: Kind
    modes: tuple[str, ...]
    aspect_ratios: tuple[str, ...]
    credits: dict[str, int]  # by resolution: per image, or per second of a video
    durations_seconds: tuple[int, ...] = ()
    prompt_limit_characters: int
    max_input_images: int
    image_modes: tuple[str, ...] = ()
    output_formats: tuple[str, ...] = ()
    audio_control: bool = False
    google_search: bool = False
    included_images: int | None = None  # None: input images cost nothing
    extra_image_credits: int = 0
    typical_seconds: float
    spread_seconds: float

    @property
    def resolutions(self) -> tuple[str, ...]:
        """The resolutions on offer, in the order of the table."""
        return tuple(self.credits)

    def ratios_of(self, resolution: str) -> tuple[str, ...]:
        """Return the aspect ratios that go with a resolution."""
        if exact := _EXACT_SIZE.fullmatch(resolution):
            width, height = int(exact[1]), int(exact[2])
            divisor = gcd(width, height)
            return (f"{width // divisor}:{height // divisor}",)
        return self.aspect_ratios

    def price_credits(self, *, resolution: str, duration_seconds: int | None, images: int) -> int:
        """Return the price of one generation; quote and charge both come from here.

        Service section 4, pricing: seconds times the rate, and images beyond those included.
        """
        units = 1 if duration_seconds is None else duration_seconds
        extra_images = 0 if self.included_images is None else max(0, images - self.included_images)
        return units * self.credits[resolution] + extra_images * self.extra_image_credits

    def as_json(self) -> dict[str, object]:
        """Return the entry of GET /models."""
        return {
            "id": self.id,
            "kind": self.kind,
            "modes": self.modes,
            "resolutions": self.resolutions,
            "aspect_ratios": self.aspect_ratios,
            "combinations": [{"resolution": r, "aspect_ratios": self.ratios_of(r)} for r in self.resolutions],
            "durations_seconds": self.durations_seconds,
            "prompt_limit_characters": self.prompt_limit_characters,
            "max_input_images": self.max_input_images,
            "image_modes": self.image_modes,
            "output_formats": self.output_formats,
            "audio_control": self.audio_control,
            "google_search": self.google_search,
            "pricing": {
                "unit": "second" if self.kind == "video" else "image",
                "credits_by_resolution": self.credits,
                "included_images": self.included_images,
                "extra_image_credits": self.extra_image_credits,
            },
        }


def size_pixels(resolution: str, aspect_ratio: str) -> tuple[int, int]:
    """Return width and height of an output, both even.

    "720p" names the short side, "2K" the long side, "1024x768" is exact.
    """
    if exact := _EXACT_SIZE.fullmatch(resolution):
        return int(exact[1]), int(exact[2])
    across, down = (int(part) for part in aspect_ratio.split(":"))
    if resolution in _SHORT_SIDE:
        unit = _SHORT_SIDE[resolution] / min(across, down)
    else:
        unit = _LONG_SIDE[resolution] / max(across, down)
    return 2 * round(across * unit / 2), 2 * round(down * unit / 2)


@cache
def load_catalog() -> Mapping[str, Model]:
    """Read the table that comes with the package; models by id, in its order."""
    text = resources.files(__package__).joinpath("models.toml").read_text(encoding="utf-8")
    models = [Model.model_validate(row) for row in tomllib.loads(text)["model"]]
    return {model.id: model for model in models}
