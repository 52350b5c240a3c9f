"""The bodies of generation requests as strict models, made from the catalogue. Service section 2.2.

A variant describes the requests of one mode of a model, for the image modes with the same number of images. Each
request is checked by exactly one variant, and `openapi.json` lists all of them, so that check and description agree.
"""

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Final, Literal, Union

from msgspec import Struct
from pydantic import BeforeValidator, Field, StringConstraints, create_model

from batchkiln_service.rules.catalog import ImageMode, Mode, Model
from batchkiln_service.rules.wire import ASSET_URL_PATTERN, EXAMPLE_ASSET_URL, MAX_COST, NOT_BLANK, Wire, whole

FIELDS: Final = ("model", "mode", "prompt", "inputs", "parameters", "max_cost_credits")
PARAMETERS: Final = (
    "resolution",
    "aspect_ratio",
    "duration_seconds",
    "generate_audio",
    "image_mode",
    "output_format",
    "google_search",
)
NO_IMAGES: Final = (0, 0)
MAX_URL_CHARACTERS: Final = 2048
_PARAMETER_TEXTS: Final = {
    "resolution": "The size of the output, or of its short or long side.",
    "aspect_ratio": "Default: the first of these.",
    "duration_seconds": "How long the clip is.",
    "generate_audio": "Whether the clip has sound. Default: no sound.",
    "image_mode": "The purpose of the input images.",
    "output_format": "Left out: png.",
    "google_search": "Whether the model may search the web.",
}
_Fields = dict[str, Any]


class Variant(Struct, frozen=True):
    """The requests that one mode of a model accepts; `image_modes` includes None if a request need not name one."""

    mode: Mode
    image_modes: tuple[ImageMode | None, ...]
    images: tuple[int, int]
    body: type[Wire]


class ImageInput(Wire):
    """An image to start from."""

    type: Literal["image"]
    url: Annotated[
        str,
        StringConstraints(min_length=1, max_length=MAX_URL_CHARACTERS),
        # Only in the schema: the check looks the URL up in the database.
        Field(
            description="A `url` from the completion of its upload.",
            json_schema_extra={"pattern": ASSET_URL_PATTERN},
            examples=[EXAMPLE_ASSET_URL],
        ),
    ]


@cache
def variants_of(model: Model) -> Mapping[tuple[Mode, ImageMode | None], Variant]:
    """Return the variants of a model by mode and by the request's image mode, or None."""
    return {
        (variant.mode, image_mode): variant
        for mode in model.modes
        for variant in _variants_of_mode(model, mode)
        for image_mode in variant.image_modes
    }


def _variants_of_mode(model: Model, mode: Mode) -> list[Variant]:
    if not mode.startswith("image-to-"):
        return [_variant(model, mode, image_modes=(None,), images=NO_IMAGES)]
    grouped: dict[tuple[int, int], tuple[ImageMode | None, ...]] = {(1, model.most_images): (None,)}
    for image_mode, bounds in model.image_modes.items():
        images = (bounds.min, bounds.max)
        grouped[images] = (*grouped.get(images, ()), image_mode)
    return [_variant(model, mode, image_modes=modes, images=images) for images, modes in grouped.items()]


def _variant(
    model: Model, mode: Mode, *, image_modes: tuple[ImageMode | None, ...], images: tuple[int, int]
) -> Variant:
    named = tuple(image_mode for image_mode in image_modes if image_mode is not None)
    least, most = images
    inputs = Field(min_length=least, max_length=most, description="The uploaded images to start from.")
    if images == NO_IMAGES:
        inputs = Field(max_length=0, default_factory=list, description="Empty: this mode takes no images.")
    prompt = StringConstraints(min_length=1, max_length=model.prompt_limit_characters, pattern=NOT_BLANK)
    fields: _Fields = {
        "model": (_one_of((model.id,)), Field(description="The model's public id.")),
        "mode": (_one_of((mode,)), ...),
        "prompt": (Annotated[str, prompt], Field(description="The prompt. Not blank; counted in code points.")),
        "inputs": (list[ImageInput], inputs),
        "parameters": (_parameters(model, named, needs_image_mode=None not in image_modes), ...),
        "max_cost_credits": _optional(
            Annotated[float, Field(ge=0, le=MAX_COST)],
            "The maximum cost: if the quote is higher, nothing is generated.",
        ),
    }
    text = f"{model.id}, {mode}" + (f", {' or '.join(named)}" if named else "")
    body = create_model(_name(model, mode, *named), __base__=Wire, __doc__=f"A request for {text}.", **fields)
    return Variant(mode, image_modes, images, body)


@cache
def _parameters(model: Model, image_modes: tuple[ImageMode, ...], *, needs_image_mode: bool) -> Any:  # noqa: ANN401 - a type that is made at run time
    """Return the type of `parameters`: a model for each set of resolutions that share their aspect ratios."""
    by_ratios: dict[tuple[str, ...], list[str]] = {}
    for resolution in model.resolutions:
        by_ratios.setdefault(model.ratios_of(resolution), []).append(resolution)
    switches = _switches(model, image_modes, needs_image_mode=needs_image_mode)
    made = [
        create_model(
            _name(model, "parameters", *image_modes, *(resolutions if len(by_ratios) > 1 else ())),
            __base__=Wire,
            __doc__=f"Parameters of {model.id} for {', '.join(resolutions)}.",
            resolution=(_one_of(tuple(resolutions)), Field(description=_PARAMETER_TEXTS["resolution"])),
            aspect_ratio=_optional(_one_of(ratios), _PARAMETER_TEXTS["aspect_ratio"]),
            **switches,
        )
        for ratios, resolutions in by_ratios.items()
    ]
    if len(made) == 1:
        return made[0]
    return Annotated[Union[tuple(made)], Field(discriminator="resolution")]  # noqa: UP007 - of a computed length


def _switches(model: Model, image_modes: tuple[ImageMode, ...], *, needs_image_mode: bool) -> _Fields:
    """Return the fields that only some models support. Service rule 2.2.3."""
    fields: _Fields = {}
    if model.durations_seconds:
        seconds: Any = Annotated[_one_of(model.durations_seconds), BeforeValidator(whole)]
        fields["duration_seconds"] = (seconds, Field(description=_PARAMETER_TEXTS["duration_seconds"]))
    if model.audio_control:
        fields["generate_audio"] = _optional(bool, _PARAMETER_TEXTS["generate_audio"])
    if needs_image_mode:
        fields["image_mode"] = (_one_of(image_modes), Field(description=_PARAMETER_TEXTS["image_mode"]))
    elif image_modes:
        fields["image_mode"] = _optional(_one_of(image_modes), _PARAMETER_TEXTS["image_mode"])
    if model.output_formats:
        fields["output_format"] = _optional(_one_of(model.output_formats), _PARAMETER_TEXTS["output_format"])
    if model.google_search:
        fields["google_search"] = _optional(bool, _PARAMETER_TEXTS["google_search"])
    return fields


def _name(model: Model, *parts: str) -> str:
    """Return the name of a model's schema, without dots, which would separate path segments."""
    return "_".join((model.id.replace(".", "_"), *parts))


def _one_of(choices: tuple[str | int, ...]) -> Any:  # noqa: ANN401 - a type that is made at run time
    return Literal[choices]


def _optional(kind: Any, description: str) -> tuple[Any, Any]:  # noqa: ANN401 - a type that is made at run time
    """Return a field that may be left out but must not be null. A factory keeps the default out of the schema."""
    return kind, Field(default_factory=_nothing, description=description)


def _nothing() -> None:
    return None
