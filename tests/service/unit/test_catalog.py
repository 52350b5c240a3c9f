"""The catalogue: sizes and prices."""

import pytest
from pydantic import ValidationError

from batchkiln_service.rules.catalog import Model, load_catalog, size_pixels
from batchkiln_service.rules.replies import entry_of


@pytest.mark.parametrize(
    ("resolution", "aspect_ratio", "size"),
    [
        ("1024x768", "4:3", (1024, 768)),
        ("720p", "16:9", (1280, 720)),
        ("720p", "9:16", (720, 1280)),
        ("480p", "16:9", (854, 480)),
        ("480p", "1:1", (480, 480)),
        ("2K", "16:9", (2048, 1152)),
    ],
)
def test_resolution_names_a_size(resolution: str, aspect_ratio: str, size: tuple[int, int]) -> None:
    """An exact size, a short side or a long side; always even numbers."""
    assert size_pixels(resolution, aspect_ratio) == size


def test_every_combination_on_offer_has_an_even_size() -> None:
    """The encoder takes no odd sizes, and every ratio has to be near to what it says."""
    for model in load_catalog().values():
        for resolution in model.resolutions:
            for ratio in model.ratios_of(resolution):
                width, height = size_pixels(resolution, ratio)
                across, down = (int(part) for part in ratio.split(":"))
                assert width % 2 == height % 2 == 0
                assert abs(width / height - across / down) < 0.01


@pytest.mark.parametrize(("seconds", "images", "credits"), [(5, 0, 50), (5, 1, 50), (5, 5, 50), (5, 6, 57), (2, 9, 48)])
def test_lite_clip_is_priced_by_seconds_and_extra_images(seconds: int, images: int, credits: int) -> None:  # noqa: A002 - the field's word
    """Ten credits a second, five images included, seven for each more. Service section 4, pricing."""
    lite = load_catalog()["alpha-2.5-lite"]

    assert lite.price_credits(resolution="720p", duration_seconds=seconds, images=images) == credits


def test_image_has_a_price_by_resolution() -> None:
    """An image is one unit, and its input images cost nothing."""
    model = load_catalog()["epsilon-2"]

    assert model.price_credits(resolution="1024x1024", duration_seconds=None, images=4) == 5


@pytest.mark.parametrize(
    ("model", "images", "mode"),
    [
        ("alpha-2.5-lite", 1, "first-frame"),
        ("alpha-2.5-lite", 2, "reference-image"),
        ("alpha-2.5-lite", 10, None),
        ("alpha-2.0-pro", 2, "first-last-frame"),
        ("alpha-2.0-mini", 2, None),
        ("epsilon-2", 1, None),
    ],
)
def test_count_of_images_chooses_the_mode(model: str, images: int, mode: str | None) -> None:
    """Without a named image mode, the first mode of the table that takes that many images applies."""
    assert load_catalog()[model].image_mode_for(images) == mode


def test_table_without_a_mode_for_some_count_is_refused() -> None:
    """A gap would make a count of images that is advertised and yet refused."""
    fields = load_catalog()["alpha-2.5-lite"].model_dump() | {"image_modes": {"first-last-frame": {"min": 2, "max": 2}}}

    with pytest.raises(ValidationError, match="fits no image mode"):
        Model.model_validate(fields)


@pytest.mark.parametrize("model", load_catalog().values(), ids=lambda model: model.id)
def test_everything_that_decides_a_price_is_advertised(model: Model) -> None:
    """GET /models suffices to compute the price of the most expensive request. Service section 4, pricing."""
    entry = entry_of(model)
    pricing = entry.pricing
    seconds = max(entry.durations_seconds, default=0)
    extra = 0 if pricing.included_images is None else max(0, entry.max_input_images - pricing.included_images)

    price = max(pricing.credits_by_resolution.values()) * (seconds or 1) + extra * pricing.extra_image_credits
    price += seconds * pricing.audio_credits_per_second * entry.audio_control
    price += pricing.google_search_credits * entry.google_search

    dearest = max(
        model.price_credits(
            resolution=resolution,
            duration_seconds=seconds or None,
            images=model.most_images,
            generate_audio=model.audio_control,
            google_search=model.google_search,
        )
        for resolution in model.resolutions
    )
    assert price == dearest
