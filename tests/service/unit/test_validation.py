"""Generation requests against the catalogue: what passes, and what every refusal says."""

import pytest
from pydantic import ValidationError

from batchkiln_service.errors import ApiError
from batchkiln_service.rules.catalog import load_catalog
from batchkiln_service.rules.validation import IDEMPOTENCY_KEY, check_request

IMAGE: dict[str, object] = {
    "model": "epsilon-2",
    "mode": "text-to-image",
    "prompt": "A red fox",
    "parameters": {"resolution": "1024x1024", "aspect_ratio": "1:1"},
}
CLIP: dict[str, object] = {
    "model": "alpha-2.5-lite",
    "mode": "image-to-video",
    "prompt": "The owl turns its head",
    "inputs": [{"type": "image", "url": "u"}],
    "parameters": {
        "resolution": "720p",
        "duration_seconds": 5,
        "aspect_ratio": "16:9",
        "image_mode": "first-frame",
    },
}
CATALOG = load_catalog()
MANY: dict[str, object] = {f"field_{number}": 1 for number in range(10_000)}


def with_parameters(body: dict[str, object], **changes: object) -> dict[str, object]:
    parameters = body["parameters"]
    assert isinstance(parameters, dict)
    return {**body, "parameters": {**parameters, **changes}}


def inputs(count: int) -> list[dict[str, str]]:
    return [{"type": "image", "url": f"u{number}"} for number in range(count)]


def refusal(body: object) -> ApiError:
    with pytest.raises(ApiError) as refused:
        check_request(body, CATALOG)
    return refused.value


def test_image_of_the_manifest_example_passes() -> None:
    """A plain image request is understood whole. Service section 2.2."""
    asked = check_request(IMAGE, CATALOG, kind="image")

    assert (asked.size_pixels, asked.cost_credits, asked.output_format) == ((1024, 1024), 5, "png")


def test_clip_of_the_manifest_example_passes() -> None:
    """A clip from a first frame is understood whole. Service section 2.2."""
    asked = check_request(CLIP, CATALOG, kind="video")

    assert (asked.size_pixels, asked.cost_credits, asked.image_mode) == ((1280, 720), 50, "first-frame")
    assert asked.input_urls == ("u",)


@pytest.mark.parametrize("body", [None, [], "text", 1, True])
def test_body_has_to_be_an_object(body: object) -> None:
    """Anything but an object is malformed."""
    assert refusal(body).code == "invalid_request"


@pytest.mark.parametrize(
    "body",
    [
        {**IMAGE, "seed": 1},
        with_parameters(IMAGE, seed=1),
        {**CLIP, "inputs": [{"type": "image", "url": "u", "weight": 1}]},
    ],
)
def test_unknown_field_is_refused(body: dict[str, object]) -> None:
    """Unknown fields are refused at every level, by name. Service rule 2.2.1."""
    error = refusal(body)

    assert (error.status, error.code) == (422, "invalid_request")
    assert "'seed'" in error.message or "'weight'" in error.message


@pytest.mark.parametrize("field", ["model", "mode", "prompt"])
def test_required_field_is_asked_for(field: str) -> None:
    """A missing field is named. Service section 2.2."""
    error = refusal({name: value for name, value in IMAGE.items() if name != field})

    assert error.code == "invalid_request"
    assert error.message.startswith(field)


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({**IMAGE, "model": "omega-1"}, "model 'omega-1' is not offered here; allowed: "),
        ({**IMAGE, "model": "epsilon2"}, "is not offered here; did you mean `epsilon-2`? allowed: "),
        ({**IMAGE, "mode": "text-to-video"}, "text-to-image, image-to-image"),
        (with_parameters(IMAGE, resolution="720p"), "512x512"),
        (
            with_parameters(IMAGE, aspect_ratio="16:9"),
            "not supported by epsilon-2 with the resolution 1024x1024; allowed: 1:1",
        ),
        (with_parameters(IMAGE, duration_seconds=5), "duration_seconds"),
        (with_parameters(IMAGE, generate_audio=False), "generate_audio"),
        (with_parameters(IMAGE, google_search=True), "google_search"),
        (with_parameters(IMAGE, image_mode="first-frame"), "image_mode"),
        (with_parameters(IMAGE, output_format="gif"), "png, jpg"),
        (with_parameters(CLIP, output_format="png"), "output_format"),
        (with_parameters(CLIP, duration_seconds=7), "2, 3, 4, 5"),
        (with_parameters(CLIP, image_mode="first-last-frame"), "needs 2 input images"),
        (with_parameters(CLIP, image_mode="last-frame"), "first-frame, reference-image, first-last-frame"),
        ({**CLIP, "inputs": inputs(10)}, "needs 1 input images, 10 given"),
        (with_parameters({**CLIP, "inputs": inputs(10)}, image_mode="reference-image"), "allows 9"),
        ({**IMAGE, "inputs": inputs(1)}, "image modes only"),
    ],
)
def test_unsupported_option_says_what_is_allowed(body: dict[str, object], named: str) -> None:
    """What the model does not advertise is refused. Service rules 2.2.2 and 2.2.3."""
    error = refusal(body)

    assert (error.status, error.code) == (422, "unsupported_option")
    assert named in error.message


@pytest.mark.parametrize(
    "body",
    [
        {**IMAGE, "prompt": " \n"},
        {**IMAGE, "prompt": "x" * 4001},
        {**IMAGE, "parameters": []},
        {**IMAGE, "parameters": {}},
        {**CLIP, "inputs": []},
        {**CLIP, "inputs": "u"},
        {**CLIP, "inputs": [{"type": "video", "url": "u"}]},
        {**CLIP, "inputs": [{"type": "image"}]},
        with_parameters(CLIP, duration_seconds=True),
        with_parameters(CLIP, duration_seconds=5.5),
        with_parameters(CLIP, duration_seconds="5"),
        with_parameters(CLIP, image_mode=1),
        with_parameters(CLIP, generate_audio=None),
        {**IMAGE, "inputs": None},
        {**IMAGE, "max_cost_credits": None},
        {**IMAGE, "max_cost_credits": 1e300},
        with_parameters(CLIP, generate_audio="yes"),
        {**IMAGE, "max_cost_credits": -1},
        {**IMAGE, "max_cost_credits": True},
        {**IMAGE, "max_cost_credits": "5"},
    ],
)
def test_malformed_field_is_refused(body: dict[str, object]) -> None:
    """Types and bounds of Service section 2.2."""
    assert refusal(body).code == "invalid_request"


def test_whole_number_may_be_written_with_a_fraction_of_nothing() -> None:
    """JSON has one kind of numbers, and JSON Schema calls 5.0 an integer."""
    assert check_request(with_parameters(CLIP, duration_seconds=5.0), CATALOG).duration_seconds == 5


@pytest.mark.parametrize(
    ("body", "place"),
    [
        ({**CLIP, "inputs": [{"type": "video", "url": "u"}]}, "inputs[0].type"),
        (with_parameters(CLIP, duration_seconds="x" * 500), "parameters.duration_seconds"),
        (with_parameters(IMAGE, resolution="x" * 500), "parameters.resolution"),
        ({**IMAGE, "model": "x" * 500}, "model"),
        ({**IMAGE, "x" * 500: 1}, "unknown field"),
        ({**IMAGE, "max_cost_credits": {"x" * 500: 1}}, "max_cost_credits"),
    ],
)
def test_refusal_names_the_place_and_repeats_little(body: dict[str, object], place: str) -> None:
    """A message names the field as people write it, and never echoes much of what was sent."""
    message = refusal(body).message

    assert place in message
    assert len(message) < 300


@pytest.mark.parametrize("prompt", [" \t\n", "\u00a0", "\u2003", "\u0085", "\u001c", "\ufeff"])
def test_blank_prompt_is_refused_whatever_the_blanks(prompt: str) -> None:
    """Nonempty means that there is something to read. Service section 2.2."""
    assert refusal({**IMAGE, "prompt": prompt}).message.startswith("prompt")


def test_sound_and_searches_are_in_the_quote() -> None:
    """What a switch costs is part of the one price that is quoted and charged. Service section 4, pricing."""
    clip = with_parameters({**CLIP, "model": "gamma-3.1-fast"}, duration_seconds=4)
    image = {**IMAGE, "model": "epsilon-pro"}

    silent, sounding = (check_request(with_parameters(clip, generate_audio=on), CATALOG) for on in (False, True))
    plain, searched = (check_request(with_parameters(image, google_search=on), CATALOG) for on in (False, True))

    assert (silent.cost_credits, sounding.cost_credits) == (60, 80)
    assert (plain.cost_credits, searched.cost_credits) == (12, 14)


def test_prompt_may_be_as_long_as_the_model_says() -> None:
    """The limit is in characters. Service section 2.2."""
    assert check_request({**IMAGE, "prompt": "ß" * 4000}, CATALOG).prompt == "ß" * 4000


@pytest.mark.parametrize(("count", "mode"), [(1, "first-frame"), (2, "reference-image"), (9, "reference-image")])
def test_image_mode_follows_the_count_when_left_out(count: int, mode: str) -> None:
    """image_mode is optional. Service section 2.2."""
    body = {**CLIP, "inputs": inputs(count), "parameters": {"resolution": "720p", "duration_seconds": 5}}

    assert check_request(body, CATALOG).image_mode == mode


def test_video_model_is_no_image_model() -> None:
    """POST /images takes image models only. Service section 1."""
    with pytest.raises(ApiError) as refused:
        check_request(CLIP, CATALOG, kind="image")

    assert refused.value.code == "unsupported_option"


@pytest.mark.parametrize(
    ("key", "is_valid"),
    [
        ("a" * 16, True),
        ("A-z_0" * 25, True),
        ("a" * 15, False),
        ("a" * 129, False),
        ("a" * 15 + "ä", False),
        ("a" * 16 + "\n", False),
    ],
)
def test_idempotency_key_has_a_form(key: str, is_valid: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """16 to 128 ASCII letters, digits, underscores, hyphens. Service rule 4.1."""
    assert (IDEMPOTENCY_KEY.fullmatch(key) is not None) == is_valid


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({**MANY, **IMAGE}, "unknown field 'field_0' in the body"),
        ({**IMAGE, **MANY}, "unknown field 'field_0' in the body"),
        (with_parameters(IMAGE, **MANY), "unknown field 'field_0' in parameters"),
        ({**CLIP, "inputs": [{"type": "image", "url": "u", **MANY}]}, "unknown field 'field_0' in inputs[0]"),
    ],
)
def test_many_unknown_fields_cost_no_more_than_one(body: object, told: str) -> None:
    """The first is told; the others are not even collected."""
    refused = refusal(body)

    assert told in refused.message
    assert isinstance(refused.__cause__, ValidationError)
    assert refused.__cause__.error_count() <= 3
