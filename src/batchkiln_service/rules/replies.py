"""The models of the API's replies, used to make replies and to test `openapi.json`.

The service's description shows some of these shapes and leaves others open (docs/assumptions.md, entries 1 to 12).
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from batchkiln_service.rules.catalog import ImageMode, Kind, Mode, Model, OutputFormat
from batchkiln_service.rules.lifecycle import Status
from batchkiln_service.rules.wire import EXAMPLE_ASSET_ID, EXAMPLE_ASSET_URL, ContentType

EXAMPLE_GENERATION_ID = "gen_0a1b2c3d4e5f60718293a4b5"


class Reply(BaseModel):
    """A reply, or a part of one."""

    model_config = ConfigDict(extra="forbid", frozen=True)


Instant = Annotated[
    str,
    Field(
        description="ISO 8601, UTC, with milliseconds.",
        pattern=r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{3}Z$",
        json_schema_extra={"format": "date-time"},
        examples=["2026-09-21T14:00:00.000Z"],
    ),
]
Link = Annotated[str, Field(min_length=1, json_schema_extra={"format": "uri"})]
Credits = Annotated[int, Field(ge=0, description="Whole credits.")]
Pixels = Annotated[int, Field(ge=1)]


class ErrorDetail(Reply):
    """An error: a code for programs and a message for people."""

    code: Annotated[str, Field(description="A stable code; each status lists its codes.")]
    message: Annotated[str, Field(description="Names the field and what is allowed. May change.")]


class Error(Reply):
    """The body of every error reply of the API."""

    error: ErrorDetail


class GenerationError(Reply):
    """The reason why a generation did not succeed."""

    code: Literal["generation_failed", "generation_canceled"]
    message: str


class Cost(Reply):
    """The cost of a generation."""

    cost: Annotated[int, Field(ge=1, description="The amount charged, in credits.", examples=[50])]


class OutputLink(Reply):
    """A finished file and its link."""

    type: Kind
    url: Annotated[Link, Field(description="Signed; valid for 15 minutes at most. Keep it private.")]
    expires_at: Instant


class GenerationRecord(Reply):
    """A generation and its current status."""

    id: Annotated[str, Field(description="The id for polls.", examples=[EXAMPLE_GENERATION_ID])]
    model: Annotated[str, Field(examples=["alpha-2.5-lite"])]
    status: Annotated[Status, Field(description="`success` has outputs; `pending` and `processing` are not final.")]
    created_at: Instant
    credits: Cost
    outputs: Annotated[list[OutputLink], Field(description="Empty unless the status is `success`.")]
    error: Annotated[GenerationError | None, Field(description="Null unless `failed` or `canceled`.")]


class Quote(Reply):
    """The price of a request."""

    cost_credits: Annotated[int, Field(ge=1, description="Pass it as `max_cost_credits`.", examples=[50])]


class Balance(Reply):
    """The remaining credits of the account."""

    balance: Annotated[Credits, Field(examples=[1200])]


class UploadTicket(Reply):
    """The URL and the headers for the PUT of one file."""

    asset_id: Annotated[str, Field(examples=[EXAMPLE_ASSET_ID])]
    name: str
    upload_url: Annotated[Link, Field(description="Signed; valid for five minutes. Keep it private.")]
    upload_headers: Annotated[
        dict[str, str], Field(description="Send all of them unchanged with the PUT, including Content-Length.")
    ]
    expires_at: Annotated[Instant, Field(description="The expiry of the upload URL.")]


class UploadList(Reply):
    """One ticket per file, in the order of the request."""

    uploads: list[UploadTicket]


class ReadyAsset(Reply):
    """An image that generations can use."""

    asset_id: Annotated[str, Field(examples=[EXAMPLE_ASSET_ID])]
    status: Literal["ready"]
    url: Annotated[Link, Field(description="The URL for `inputs`.", examples=[EXAMPLE_ASSET_URL])]
    type: ContentType
    size: Annotated[int, Field(ge=1, description="Bytes.")]
    width: Pixels
    height: Pixels
    expires_at: Annotated[Instant, Field(description="The instant until which generations can use it.")]


class AssetList(Reply):
    """The assets, in the order of the request."""

    assets: list[ReadyAsset]


class Combination(Reply):
    """A resolution and the aspect ratios that go with it."""

    resolution: str
    aspect_ratios: list[str]


class ImageModeLimits(Reply):
    """The number of input images that an image mode takes."""

    image_mode: ImageMode
    min_images: Pixels
    max_images: Pixels


class Pricing(Reply):
    """The price of a generation: units times the rate of the resolution, plus extras."""

    unit: Literal["second", "image"]
    credits_by_resolution: dict[str, int]
    included_images: Annotated[int | None, Field(description="Input images that cost nothing; null: all.")]
    extra_image_credits: Annotated[Credits, Field(description="For each input image beyond those included.")]
    audio_credits_per_second: Annotated[
        Credits, Field(description="Additional credits per second with `generate_audio`.")
    ]
    google_search_credits: Annotated[Credits, Field(description="Additional credits with `google_search`.")]


class CatalogEntry(Reply):
    """A model with its options and prices."""

    id: Annotated[str, Field(examples=["alpha-2.5-lite"])]
    kind: Kind
    modes: list[Mode]
    resolutions: list[str]
    aspect_ratios: list[str]
    combinations: Annotated[list[Combination], Field(description="Which aspect ratios go with which resolution.")]
    durations_seconds: Annotated[list[int], Field(description="Empty for image models.")]
    prompt_limit_characters: Annotated[int, Field(ge=1, description="In Unicode code points.")]
    max_input_images: Annotated[int, Field(ge=0)]
    image_modes: Annotated[list[ImageMode], Field(description="Where it is empty, `image_mode` must not be sent.")]
    image_mode_limits: list[ImageModeLimits]
    output_formats: Annotated[
        list[OutputFormat], Field(description="Where it is empty, `output_format` must not be sent.")
    ]
    audio_control: Annotated[bool, Field(description="Whether `generate_audio` may be sent.")]
    google_search: Annotated[bool, Field(description="Whether `google_search` may be sent.")]
    pricing: Pricing
    typical_seconds: Annotated[float, Field(gt=0, description="How long a generation usually takes.")]


class ModelList(Reply):
    """All models on offer."""

    models: list[CatalogEntry]


def entry_of(model: Model) -> CatalogEntry:
    """Return the catalogue entry of a model."""
    return CatalogEntry(
        id=model.id,
        kind=model.kind,
        modes=list(model.modes),
        resolutions=list(model.resolutions),
        aspect_ratios=list(model.aspect_ratios),
        combinations=[
            Combination(resolution=resolution, aspect_ratios=list(model.ratios_of(resolution)))
            for resolution in model.resolutions
        ],
        durations_seconds=list(model.durations_seconds),
        prompt_limit_characters=model.prompt_limit_characters,
        max_input_images=model.most_images,
        image_modes=list(model.image_modes),
        image_mode_limits=[
            ImageModeLimits(image_mode=mode, min_images=bounds.min, max_images=bounds.max)
            for mode, bounds in model.image_modes.items()
        ],
        output_formats=list(model.output_formats),
        audio_control=model.audio_control,
        google_search=model.google_search,
        pricing=Pricing(
            unit="second" if model.kind == "video" else "image",
            credits_by_resolution=model.credits,
            included_images=model.included_images,
            extra_image_credits=model.extra_image_credits,
            audio_credits_per_second=model.audio_credits_per_second,
            google_search_credits=model.google_search_credits,
        ),
        typical_seconds=model.typical_seconds,
    )
