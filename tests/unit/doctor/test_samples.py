"""What the probe asks with: small, likely to be taken, and the same each time."""

from io import BytesIO

import pytest
from PIL import Image

from batchkiln.core.job import Mode
from batchkiln.core.responses import ModelEntry
from batchkiln.doctor.samples import image_recipes, pixels, smallest, text_recipes, tiny_image


def entry(model: str, *modes: Mode, resolutions: tuple[str, ...] = ()) -> ModelEntry:
    return ModelEntry(
        id=model,
        modes=frozenset(mode.value for mode in modes),
        resolutions=frozenset(resolutions),
        aspect_ratios=frozenset({"16:9", "1:1"}),
        durations_seconds=frozenset({8, 5}),
        prompt_max_characters=None,
        images_max=None,
    )


@pytest.mark.parametrize(
    ("fewer", "more"), [("512x512", "1024x1024"), ("480p", "720p"), ("1K", "2K"), ("720p", "1024x1024"), ("4K", "huge")]
)
def test_sizes_are_compared_by_their_pixels(fewer: str, more: str) -> None:
    """In each form that a catalogue may have; an unknown one is never taken for small."""
    assert pixels(fewer) < pixels(more)


def test_a_model_is_asked_with_its_smallest_size() -> None:
    """Sorted by name, as a recipe has them."""
    model = entry("epsilon-2", Mode.TEXT_TO_IMAGE, resolutions=("2K", "1K"))

    assert smallest(model) == (("aspect_ratio", "1:1"), ("resolution", "1K"))
    assert smallest(model, has_duration=True)[1] == ("duration_seconds", 5)


def test_without_a_catalogue_the_documented_models_are_asked() -> None:
    """Service section 1; the request with a picture is then like the one of text."""
    recipes = text_recipes(())

    assert {recipe.model for recipe in recipes} == {"epsilon-2", "delta-image-2", "epsilon-pro"}
    assert [recipe.inputs_count for recipe in image_recipes((), recipes[0])] == [1]


def test_pictures_are_asked_before_clips() -> None:
    """Of the models that take an image."""
    models = [entry("alpha-2.5", Mode.IMAGE_TO_VIDEO), entry("epsilon-2", Mode.IMAGE_TO_IMAGE)]

    assert [recipe.model for recipe in image_recipes(models, None)] == ["epsilon-2", "alpha-2.5"]


def test_the_image_is_a_small_png() -> None:
    """Of an allowed type (Service section 4), and under a kilobyte."""
    content = tiny_image()

    assert len(content) < 1024
    assert Image.open(BytesIO(content)).format == "PNG"
