"""Checks request bodies against the catalogue and the request models. Pure; errors are `ApiError` 422."""

import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Final, TypeVar

from msgspec import Struct
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from batchkiln_service.errors import ApiError
from batchkiln_service.rules.catalog import Kind, Mode, Model, size_pixels
from batchkiln_service.rules.error_messages import (
    EXCERPT_CHARACTERS,
    choices_of,
    excerpt,
    first_of,
    general_refusal,
    invalid,
    listed,
    place_of,
    unsupported,
    without_excess_fields,
)
from batchkiln_service.rules.request_models import FIELDS, NO_IMAGES, PARAMETERS, Variant, variants_of
from batchkiln_service.rules.wire import CONTENT_TYPES, CompletionRequest, FileDescription, UploadRequest, Wire

Json = object
Body = TypeVar("Body", bound=Wire)
INPUT_FIELDS: Final = ("type", "url")
IDEMPOTENCY_KEY: Final = re.compile(r"[A-Za-z0-9_-]{16,128}")

_BODIES: Final[tuple[type[Wire], ...]] = (UploadRequest, FileDescription, CompletionRequest)
_KNOWN: Final = frozenset((*FIELDS, *PARAMETERS, *INPUT_FIELDS)).union(*(body.model_fields for body in _BODIES))


class GenerationRequest(Struct, frozen=True):
    """A valid generation request. The assets of `input_urls` are still to be looked up."""

    model: Model
    mode: str
    prompt: str
    input_urls: tuple[str, ...]
    resolution: str
    aspect_ratio: str
    duration_seconds: int | None
    generate_audio: bool
    image_mode: str | None
    output_format: str
    google_search: bool
    max_cost_credits: float | None

    @property
    def size_pixels(self) -> tuple[int, int]:
        """Width and height of the output in pixels."""
        return size_pixels(self.resolution, self.aspect_ratio)

    @property
    def cost_credits(self) -> int:
        """The price in credits, for quotes and charges."""
        return self.model.price_credits(
            resolution=self.resolution,
            duration_seconds=self.duration_seconds,
            images=len(self.input_urls),
            generate_audio=self.generate_audio,
            google_search=self.google_search,
        )


def check_request(body: Json, catalog: Mapping[str, Model], *, kind: Kind | None = None) -> GenerationRequest:
    """Return the checked body of POST /videos or /images, with `kind`, or of /quotes. Service section 2.2."""
    fields = _object(body)
    model = _model(fields.get("model"), catalog, kind)
    mode = _mode(fields.get("mode"), model)
    variant = _variant(fields.get("parameters"), mode, model)
    try:
        asked = variant.body.model_validate(fields).model_dump()
    except ValidationError as error:
        raise _refusal(first_of(error), variant, model) from error
    return _understood(model, asked)


def check_uploads(body: Json) -> Sequence[FileDescription]:
    """Return the files in a body of POST /uploads. Raise ApiError 422."""
    return _checked(body, UploadRequest, fields=("files",), entry_fields=tuple(FileDescription.model_fields)).files


def check_completion(body: Json) -> Sequence[str]:
    """Return the asset ids in a body of POST /uploads/complete. Raise ApiError 422."""
    return _checked(body, CompletionRequest, fields=("asset_ids",)).asset_ids


def _understood(model: Model, asked: Mapping[str, object]) -> GenerationRequest:
    """Return the request with the defaults of the model filled in."""
    chosen, inputs = asked["parameters"], asked["inputs"]
    assert isinstance(chosen, dict)
    assert isinstance(inputs, list)
    resolution = chosen["resolution"]
    return GenerationRequest(
        model=model,
        mode=str(asked["mode"]),
        prompt=str(asked["prompt"]),
        input_urls=tuple(image["url"] for image in inputs),
        resolution=resolution,
        aspect_ratio=chosen["aspect_ratio"] or model.ratios_of(resolution)[0],
        duration_seconds=chosen.get("duration_seconds"),
        generate_audio=bool(chosen.get("generate_audio")),
        image_mode=chosen.get("image_mode") or (model.image_mode_for(len(inputs)) if inputs else None),
        output_format=chosen.get("output_format") or ("mp4" if model.kind == "video" else "png"),
        google_search=bool(chosen.get("google_search")),
        max_cost_credits=asked["max_cost_credits"],  # type: ignore[arg-type]  # checked by the variant's model
    )


def _object(body: Json) -> dict[str, Json]:
    body = without_excess_fields(body, _KNOWN)
    if not isinstance(body, dict):
        raise invalid("the body must be a JSON object")
    return body


def _model(value: Json, catalog: Mapping[str, Model], kind: Kind | None) -> Model:
    offered = [model.id for model in catalog.values() if kind in (None, model.kind)]
    if not isinstance(value, str):
        raise invalid(f"model is required and must be text; allowed: {listed(offered)}")
    if value not in offered:
        close = get_close_matches(value[:EXCERPT_CHARACTERS], offered, n=1)
        meant = f"did you mean `{close[0]}`? " if close else ""  # before the list, which a client may cut
        raise unsupported(f"model {excerpt(value)} is not offered here; {meant}allowed: {listed(offered)}")
    return catalog[value]


def _mode(value: Json, model: Model) -> Mode:
    if not isinstance(value, str):
        raise invalid(f"mode is required and must be text; {model.id} allows: {listed(model.modes)}")
    for mode in model.modes:
        if mode == value:
            return mode
    raise unsupported(f"mode {excerpt(value)} is not supported by {model.id}; allowed: {listed(model.modes)}")


def _variant(parameters: Json, mode: Mode, model: Model) -> Variant:
    """Return the variant that the request must fit, by the mode and image mode that it names."""
    variants = variants_of(model)
    named = parameters.get("image_mode") if isinstance(parameters, dict) else None
    for (offered, image_mode), variant in variants.items():
        if offered == mode and image_mode is not None and image_mode == named:
            return variant
    return variants[mode, None]


def _refusal(error: ErrorDetails, variant: Variant, model: Model) -> ApiError:
    """Return the ApiError for an invalid generation request. The message names the options that the model allows."""
    steps, condition = list(error["loc"]), ""
    if len(steps) > 1 and steps[0] == "parameters" and steps[1] in model.resolutions:
        condition = f" with the resolution {steps.pop(1)}"  # pydantic's tag of the chosen set of aspect ratios
    if error["type"].startswith("union_tag"):
        steps.append("resolution")
    place = place_of(steps)
    return (
        _unsupported(error, place, condition, variant, model)
        or _wrong_prompt(error, place, model)
        or general_refusal(error, place, fields=_fields_around(steps), allowed=_choices(variant, model))
    )


def _unsupported(error: ErrorDetails, place: str, condition: str, variant: Variant, model: Model) -> ApiError | None:
    """Return the error if the field is well formed but not supported by the model. Service rules 2.2.2 and 2.2.3."""
    kind, context = error["type"], error.get("ctx", {})
    if kind in {"missing", "too_long", "too_short"} and place == "inputs":
        return _wrong_count(int(context.get("actual_length", 0)), variant, model)
    around, _, name = place.rpartition(".")
    if around == "parameters" and name in PARAMETERS:
        return _unsupported_parameter(error, name, condition, variant, model)
    return None


def _unsupported_parameter(
    error: ErrorDetails, name: str, condition: str, variant: Variant, model: Model
) -> ApiError | None:
    kind, context, place = error["type"], error.get("ctx", {}), f"parameters.{name}"
    if name == "image_mode" and model.image_modes and variant.images != NO_IMAGES:
        return _wrong_choice(place, error["input"], listed(model.image_modes), model.id)
    if kind == "extra_forbidden":
        return unsupported(f"{place} is not supported by {model.id}, mode {variant.mode}")
    if kind == "union_tag_invalid":
        return _wrong_choice(place, error["input"]["resolution"], listed(model.resolutions), model.id)
    if kind == "literal_error":
        return _wrong_choice(place, error["input"], choices_of(context), f"{model.id}{condition}")
    return None


def _wrong_choice(place: str, given: Json, allowed: str, by: str) -> ApiError:
    is_number = place == "parameters.duration_seconds"
    if not isinstance(given, int if is_number else str) or isinstance(given, bool):
        return invalid(f"{place} must be {'an integer' if is_number else 'text'}; {by} allows: {allowed}")
    return unsupported(f"{place} {excerpt(given)} is not supported by {by}; allowed: {allowed}")


def _wrong_count(given: int, variant: Variant, model: Model) -> ApiError:
    """Return the error for a wrong number of images, with the numbers that the model supports. Service section 2.2."""
    if variant.images == NO_IMAGES:
        return unsupported("inputs are allowed in image modes only")
    if not given:
        return invalid("inputs is required for this mode: at least one {type: image, url}")
    least, most = variant.images
    if None in variant.image_modes:
        return unsupported(f"inputs has {given} images; {model.id} allows {most}")
    needed = str(least) if least == most else f"{least} to {most}"
    named = listed(variant.image_modes)
    return unsupported(f"parameters.image_mode {named} needs {needed} input images, {given} given")


def _wrong_prompt(error: ErrorDetails, place: str, model: Model) -> ApiError | None:
    if place != "prompt":
        return None
    if error["type"] == "string_too_long":
        return invalid(
            f"prompt has {len(error['input'])} characters; {model.id} allows {model.prompt_limit_characters}"
        )
    if error["type"] in {"string_too_short", "string_pattern_mismatch"}:
        return invalid("prompt must not be empty or blank")
    return None


def _fields_around(steps: Sequence[str | int]) -> tuple[str, ...]:
    match steps[:-1]:
        case []:
            return FIELDS
        case ["parameters"]:
            return PARAMETERS
        case _:
            return INPUT_FIELDS


def _choices(variant: Variant, model: Model) -> Mapping[str, Iterable[object]]:
    return {
        "parameters.resolution": model.resolutions,
        "parameters.duration_seconds": model.durations_seconds,
        "parameters.image_mode": [mode for mode in variant.image_modes if mode],
        "parameters.output_format": model.output_formats,
    }


def _checked(body: Json, kind: type[Body], *, fields: Sequence[str], entry_fields: Sequence[str] = ()) -> Body:
    """Return the checked body of an upload call."""
    try:
        return kind.model_validate(_object(body))
    except ValidationError as raised:
        error = first_of(raised)
        steps = error["loc"]
        around = entry_fields if len(steps) > 1 else fields
        entry = place_of(steps[:-1])
        raise general_refusal(
            error, place_of(steps), fields=around, allowed={f"{entry}.type": CONTENT_TYPES}
        ) from raised
