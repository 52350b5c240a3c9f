"""A generation request against the catalogue. Pure: raises `ApiError` 422, or returns what was asked."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from batchkiln.service.errors import ApiError
from batchkiln.service.rules.catalog import Kind, Model, size_pixels

Json = object
IDEMPOTENCY_KEY = re.compile(r"[A-Za-z0-9_-]{16,128}")
_FIELDS = ("model", "mode", "prompt", "inputs", "parameters", "max_cost_credits")
_PARAMETERS = (
    "resolution",
    "aspect_ratio",
    "duration_seconds",
    "generate_audio",
    "image_mode",
    "output_format",
    "google_search",
)


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """A request that its model supports. `input_urls` still have to be looked up."""

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
    max_cost_credits: float | None

    @property
    def size_pixels(self) -> tuple[int, int]:
        """Width and height of the output."""
        return size_pixels(self.resolution, self.aspect_ratio)

    @property
    def cost_credits(self) -> int:
        """The price: what a quote says and what a create charges."""
        return self.model.price_credits(
            resolution=self.resolution, duration_seconds=self.duration_seconds, images=len(self.input_urls)
        )


def check_request(body: Json, catalog: Mapping[str, Model], *, kind: Kind | None = None) -> GenerationRequest:
    """Check a body of POST /videos, /images (then `kind` is given) or /quotes. Service section 2.2."""
    fields = _object(body, "the body", _FIELDS)
    model = _model(fields.get("model"), catalog, kind)
    mode = _choice("mode", fields.get("mode"), model.modes, model)
    urls = _inputs(fields.get("inputs"), model, needs_images=mode.startswith("image-to-"))
    parameters = _object(fields.get("parameters", {}), "parameters", _PARAMETERS)
    resolution = _choice("parameters.resolution", parameters.get("resolution"), model.resolutions, model)
    _switch("google_search", parameters, model, supported=model.google_search)  # changes no price and no picture
    return GenerationRequest(
        model=model,
        mode=mode,
        prompt=_prompt(fields.get("prompt"), model),
        input_urls=urls,
        resolution=resolution,
        aspect_ratio=_aspect_ratio(parameters.get("aspect_ratio"), resolution, model),
        duration_seconds=_duration(parameters.get("duration_seconds"), model),
        generate_audio=_switch("generate_audio", parameters, model, supported=model.audio_control),
        image_mode=_image_mode(parameters.get("image_mode"), len(urls), model),
        output_format=_output_format(parameters.get("output_format"), model),
        max_cost_credits=_max_cost(fields.get("max_cost_credits")),
    )


def invalid(message: str) -> ApiError:
    """Make the refusal of a malformed field."""
    return ApiError(422, "invalid_request", message)


def unsupported(message: str) -> ApiError:
    """Make the refusal of an option that the model does not have."""
    return ApiError(422, "unsupported_option", message)


def _object(value: Json, name: str, allowed: tuple[str, ...]) -> dict[str, Json]:
    """Service rule 2.2.1: unknown fields are refused."""
    if not isinstance(value, dict):
        raise invalid(f"{name} must be a JSON object")
    if unknown := sorted(set(value) - set(allowed)):
        raise invalid(f"unknown field {unknown[0]!r} in {name}; allowed: {', '.join(allowed)}")
    return value


def _model(value: Json, catalog: Mapping[str, Model], kind: Kind | None) -> Model:
    offered = [model.id for model in catalog.values() if kind in (None, model.kind)]
    if not isinstance(value, str):
        raise invalid(f"model is required; allowed: {', '.join(offered)}")
    if value not in offered:
        raise unsupported(f"model {value!r} is not offered here; allowed: {', '.join(offered)}")
    return catalog[value]


def _choice(name: str, value: Json, allowed: Iterable[str], model: Model) -> str:
    listed = ", ".join(allowed)
    if not isinstance(value, str):
        raise invalid(f"{name} is required and must be text; {model.id} allows: {listed}")
    if value not in allowed:
        raise unsupported(f"{name} {value!r} is not supported by {model.id}; allowed: {listed}")
    return value


def _prompt(value: Json, model: Model) -> str:
    if not isinstance(value, str) or not value.strip():
        raise invalid("prompt is required and must not be empty")
    if len(value) > model.prompt_limit_characters:
        raise invalid(f"prompt has {len(value)} characters; {model.id} allows {model.prompt_limit_characters}")
    return value


def _inputs(value: Json, model: Model, *, needs_images: bool) -> tuple[str, ...]:
    if value is None:
        value = []
    if not isinstance(value, list):
        raise invalid("inputs must be an array of {type, url}")
    if needs_images and not value:
        raise invalid("inputs is required for this mode: at least one {type: image, url}")
    if value and not needs_images:
        raise unsupported("inputs are allowed in image modes only")
    if len(value) > model.max_input_images:
        raise unsupported(f"{len(value)} inputs given; {model.id} allows {model.max_input_images}")
    return tuple(_input(entry, f"inputs[{index}]") for index, entry in enumerate(value))


def _input(entry: Json, name: str) -> str:
    fields = _object(entry, name, ("type", "url"))
    if fields.get("type") != "image":
        raise invalid(f"{name}.type must be 'image'")
    url = fields.get("url")
    if not isinstance(url, str) or not url:
        raise invalid(f"{name}.url must be a URL returned by the upload flow")
    return url


def _aspect_ratio(value: Json, resolution: str, model: Model) -> str:
    allowed = model.ratios_of(resolution)
    if value is None:
        return allowed[0]
    return _choice(f"parameters.aspect_ratio with resolution {resolution}", value, allowed, model)


def _duration(value: Json, model: Model) -> int | None:
    allowed = ", ".join(str(seconds) for seconds in model.durations_seconds)
    if model.kind == "image":
        if value is not None:
            raise unsupported(f"parameters.duration_seconds is not supported by {model.id}, an image model")
        return None
    if not isinstance(value, int) or isinstance(value, bool):
        raise invalid(f"parameters.duration_seconds is required, an integer; {model.id} allows: {allowed}")
    if value not in model.durations_seconds:
        raise unsupported(f"parameters.duration_seconds {value} is not supported by {model.id}; allowed: {allowed}")
    return value


def _switch(name: str, parameters: Mapping[str, Json], model: Model, *, supported: bool) -> bool:
    """Service rule 2.2.3: a switch may be sent only where the model advertises it."""
    value = parameters.get(name)
    if value is None:
        return False
    if not isinstance(value, bool):
        raise invalid(f"parameters.{name} must be true or false")
    if not supported:
        raise unsupported(f"parameters.{name} is not supported by {model.id}")
    return value


def _image_mode(value: Json, images: int, model: Model) -> str | None:
    """Service section 2.2: according to what the model supports and how many images there are."""
    if value is None:
        return _default_image_mode(images, model)
    if not model.image_modes or not images:
        raise unsupported(f"parameters.image_mode is not supported by {model.id} in this mode")
    mode = _choice("parameters.image_mode", value, model.image_modes, model)
    needed = {"first-frame": 1, "first-last-frame": 2}.get(mode, images)
    if images != needed:
        raise unsupported(f"parameters.image_mode {mode} needs {needed} input images, {images} given")
    return mode


def _default_image_mode(images: int, model: Model) -> str | None:
    if not model.image_modes or not images:
        return None
    wanted = ("first-frame", "reference-image") if images == 1 else ("reference-image", "first-last-frame")
    for mode in wanted:
        if mode in model.image_modes and (mode != "first-last-frame" or images == 2):  # noqa: PLR2004 - two frames
            return mode
    raise unsupported(f"{images} input images fit no image mode of {model.id}: {', '.join(model.image_modes)}")


def _output_format(value: Json, model: Model) -> str:
    if value is None:
        return "mp4" if model.kind == "video" else "png"
    if not model.output_formats:
        raise unsupported(f"parameters.output_format is not supported by {model.id}")
    return _choice("parameters.output_format", value, model.output_formats, model)


def _max_cost(value: Json) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        raise invalid("max_cost_credits must be a number, zero or more")
    return value
