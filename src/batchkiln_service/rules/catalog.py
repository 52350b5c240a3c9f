"""The models on offer and their prices; `models.toml` is the table."""

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from math import gcd
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Kind = Literal["image", "video"]
Mode = Literal["text-to-video", "image-to-video", "text-to-image", "image-to-image"]
ImageMode = Literal["first-frame", "first-last-frame", "reference-image"]
OutputFormat = Literal["png", "jpg"]
Count = Annotated[int, Field(ge=1)]
_EXACT_SIZE = re.compile(r"([0-9]+)x([0-9]+)")
_SHORT_SIDE = {"480p": 480, "720p": 720, "1080p": 1080}
_LONG_SIDE = {"1K": 1024, "2K": 2048, "4K": 4096}


class _Row(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Bounds(_Row):
    """The number of input images that an image mode takes."""

    min: Count
    max: Count


class Model(_Row):
    """A model with its options and prices. `models.toml` explains the fields."""

    id: str
    kind: Kind
    modes: tuple[Mode, ...]
    aspect_ratios: tuple[str, ...]
    credits: dict[str, Count]
    durations_seconds: tuple[int, ...] = ()
    prompt_limit_characters: int
    image_modes: dict[ImageMode, Bounds] = {}
    max_input_images: int = 0  # of models without image modes
    output_formats: tuple[OutputFormat, ...] = ()
    audio_control: bool = False
    google_search: bool = False
    included_images: int | None = None
    extra_image_credits: int = 0
    audio_credits_per_second: int = 0
    google_search_credits: int = 0
    typical_seconds: float
    spread_seconds: float

    @model_validator(mode="after")
    def _every_count_of_images_fits_a_mode(self) -> Self:
        """Check that every number of images fits an image mode, since requests need not name one."""
        if self.image_modes and any(self.image_mode_for(count) is None for count in range(1, self.most_images + 1)):
            raise ValueError(f"{self.id}: some count of input images fits no image mode")
        return self

    def __hash__(self) -> int:
        """Hash by id, so that values made from a model can be cached."""
        return hash(self.id)

    @property
    def resolutions(self) -> tuple[str, ...]:
        """The model's resolutions, in the order of the table."""
        return tuple(self.credits)

    @property
    def most_images(self) -> int:
        """The maximum number of input images in any image mode."""
        return max((bounds.max for bounds in self.image_modes.values()), default=self.max_input_images)

    def ratios_of(self, resolution: str) -> tuple[str, ...]:
        """Return the aspect ratios of a resolution."""
        if exact := _EXACT_SIZE.fullmatch(resolution):
            width, height = int(exact[1]), int(exact[2])
            divisor = gcd(width, height)
            return (f"{width // divisor}:{height // divisor}",)
        return self.aspect_ratios

    def image_mode_for(self, images: int) -> ImageMode | None:
        """Return the image mode of a request that names none, by its number of images; None if none fits."""
        return next((mode for mode, bounds in self.image_modes.items() if bounds.min <= images <= bounds.max), None)

    def price_credits(
        self,
        *,
        resolution: str,
        duration_seconds: int | None,
        images: int,
        generate_audio: bool = False,
        google_search: bool = False,
    ) -> int:
        """Return the price of a generation in credits, for quotes and charges. Service section 4, pricing.

        The price is the rate times the seconds, or times one image, plus the price of extra input images, sound and
        search.
        """
        seconds = duration_seconds or 0
        price = self.credits[resolution] * (1 if duration_seconds is None else seconds)
        if self.included_images is not None:
            price += max(0, images - self.included_images) * self.extra_image_credits
        if generate_audio:
            price += seconds * self.audio_credits_per_second
        if google_search:
            price += self.google_search_credits
        return price


def size_pixels(resolution: str, aspect_ratio: str) -> tuple[int, int]:
    """Return width and height of an output in pixels, both even.

    "720p" is the short side, "2K" the long side, "1024x768" is exact.
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
    """Return the models by id, in the order of the table."""
    text = resources.files(__package__).joinpath("models.toml").read_text(encoding="utf-8")
    models = [Model.model_validate(row) for row in tomllib.loads(text)["model"]]
    return {model.id: model for model in models}
