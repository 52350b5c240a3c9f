"""The fields of a manifest and their limits, as pydantic models.

The models validate the header and the settings of items, and produce the JSON Schema for editors. `validation.py`
checks prompts and ids, of which there may be a million.
"""

import math
from importlib.resources import files
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Discriminator, Field, JsonValue, Tag

MAX_PROMPT_LENGTH: Final = 20_000
MAX_ID_LENGTH: Final = 200
MAX_INPUTS: Final = 16
MAX_OUTPUT: Final = 1_000
MAX_REPEAT: Final = 10_000
MAX_VARIANTS: Final = 100
MAX_ROWS: Final = 1_000_000_000
MAX_CREDITS: Final = 1_000_000_000
_NO_CONTROL: Final = r"^[^\x00-\x1f\x7f-\x9f]*$"

Text = Annotated[str, Field(min_length=1, max_length=1000, pattern=_NO_CONTROL)]
Credits = Annotated[int, Field(ge=1, le=MAX_CREDITS)]
Prompt = Annotated[str, Field(min_length=1, max_length=MAX_PROMPT_LENGTH)]
ItemId = Annotated[str, Field(min_length=1, max_length=MAX_ID_LENGTH, pattern=_NO_CONTROL)]
Template = Annotated[str, Field(pattern=r"\{[{%#]", description="A Jinja template over the columns or variables")]


def _check_json(value: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Refuse values that JSON cannot represent exactly."""
    pending: list[Any] = [value]
    while pending:
        one = pending.pop()
        pending.extend(one.values() if isinstance(one, dict) else one if isinstance(one, list) else ())
        if isinstance(one, float) and not math.isfinite(one):
            raise ValueError("JSON has no infinite numbers and no NaN; quote it to make it text")
        if isinstance(one, int) and not -(2**63) <= one < 2**63:
            raise ValueError("a whole number of more than 64 bits; quote it to make it text")
    return value


Metadata = Annotated[dict[Text, JsonValue], Field(max_length=200), AfterValidator(_check_json)]


class Fields(BaseModel):
    """The base of all models. Unknown fields are errors, and no type is converted: 5 is not "5"."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Parameters(Fields):  # Service section 2.2
    """The service's `parameters`. Null removes a default."""

    resolution: Text | None = Field(None, examples=["1024x1024", "720p"])
    aspect_ratio: Text | None = Field(None, examples=["16:9", "1:1"])
    duration_seconds: Annotated[int, Field(ge=1, le=86_400)] | None = None
    generate_audio: bool | None = None
    image_mode: Literal["first-frame", "first-last-frame", "reference-image"] | None = None
    output_format: Literal["png", "jpg"] | None = None
    google_search: bool | None = None


class SourceInput(Fields):
    """An input that another item makes. The item waits until that source item is done."""

    item: ItemId = Field(description="The id of an item that makes images, or of a group of variants")
    output: Annotated[int, Field(ge=1, le=MAX_OUTPUT)] | None = Field(None, description="Which output; default 1")
    job: Annotated[str, Field(min_length=1, max_length=MAX_ID_LENGTH, pattern=_NO_CONTROL)] | None = Field(
        None, description="The job of that item; default: this job"
    )
    choice: Annotated[int, Field(ge=1, le=MAX_REPEAT)] | None = Field(
        None, description="Which kept item of a group; default 1"
    )


def _input_kind(value: object) -> str:
    return "mapping" if isinstance(value, (dict, BaseModel)) else "text"


ModeName = Literal["text-to-video", "image-to-video", "text-to-image", "image-to-image"]
Input = Annotated[Annotated[Text, Tag("text")] | Annotated[SourceInput, Tag("mapping")], Discriminator(_input_kind)]
Inputs = Annotated[list[Input], Field(max_length=MAX_INPUTS)]
Attempts = Annotated[int, Field(ge=1, le=20)]
Priority = Annotated[int, Field(ge=-1000, le=1000)]
Repeat = Annotated[int, Field(ge=1, le=MAX_REPEAT)]
Variants = Annotated[int, Field(ge=1, le=MAX_VARIANTS)]


class Settings(Fields):
    """The fields of an item that may also be in `defaults`: all but id and prompt."""

    model: Text | None = None
    mode: ModeName | None = None
    parameters: Parameters | None = None
    inputs: Inputs | None = Field(
        None, description="Local image files, relative to the manifest, or what other items make: `{item: ID}`"
    )
    max_cost_credits: Credits | None = Field(None, description="Maximum cost of the item in credits")
    attempts: Attempts | None = Field(
        None, description="Maximum number of attempts; a new one follows a failure that the service verified; default 3"
    )
    priority: Priority | None = Field(None, description="Items with a higher priority run first; default 0")
    metadata: Metadata | None = None
    variants: Variants | None = Field(
        None, description="Number of items to make of the prompt, as a group to choose from; their ids end in -1, -2, …"
    )
    choose: Variants | None = Field(
        None, description="How many of the variants to keep; what uses the group waits for them"
    )
    review: bool | None = Field(None, description="Items that are made from this one wait until a person keeps it")


class InlineItem(Settings):
    """One prompt, written in the manifest."""

    id: ItemId | None = Field(None, description="Unique in the job; default: `item` and the position")
    prompt: Prompt
    repeat: Repeat | None = Field(None, description="Number of items to make; their ids end in -1, -2, …")


class _TemplatedParameters(Fields):
    resolution: Text | None = None
    aspect_ratio: Text | None = None
    duration_seconds: Annotated[int, Field(ge=1, le=86_400)] | Template | None = None
    generate_audio: bool | Template | None = None
    image_mode: Literal["first-frame", "first-last-frame", "reference-image"] | Template | None = None
    output_format: Literal["png", "jpg"] | Template | None = None
    google_search: bool | Template | None = None


class _Templated(Fields):
    model: Text | None = None
    mode: ModeName | Template | None = None
    parameters: _TemplatedParameters | None = None
    inputs: Inputs | None = None
    max_cost_credits: Credits | Template | None = None
    attempts: Attempts | Template | None = None
    priority: Priority | Template | None = None
    variants: Variants | Template | None = None
    choose: Variants | Template | None = None
    review: bool | Template | None = None
    id: Text | None = None
    metadata: list[Text] | Metadata | None = Field(None, description="Columns to keep, or names with templates")


class SourceFields(Fields):
    """The fields of a `from` entry that are not templates."""

    from_: Text = Field(
        alias="from",
        description="A file or URL: csv, tsv, jsonl, json, txt, or .gz of these, or parquet",
    )
    offset: Annotated[int, Field(ge=0, le=MAX_ROWS)] | None = Field(None, description="Rows to skip, after `where`")
    limit: Annotated[int, Field(ge=0, le=MAX_ROWS)] | None = Field(None, description="Maximum number of rows")
    where: Text | None = Field(None, description="A Jinja expression; rows for which it is false are skipped")
    repeat: Repeat | None = None


class SourceItem(SourceFields, _Templated):
    """One item for each row of a file."""

    prompt: Prompt | None = Field(None, description="A template; default: the column `prompt`")


class MatrixFields(Fields):
    """The fields of a `matrix` entry that are not templates."""

    matrix: dict[Text, Annotated[list[str | int | float | bool], Field(min_length=1)]] = Field(min_length=1)
    where: Text | None = Field(None, description="A Jinja expression; combinations for which it is false are skipped")
    repeat: Repeat | None = None


class MatrixItem(MatrixFields, _Templated):
    """One item for each combination of the variables' values; the last variable changes fastest."""

    prompt: Prompt


class Budget(Fields):
    """Limits of the credits that the job may reserve."""

    credits: Credits | None = Field(None, description="For the whole job")
    credits_per_day: Credits | None = Field(None, description="Per UTC day")


class Output(Fields):
    """The place and names of output files."""

    dir: Text | None = Field(
        None,
        description="Relative to the working directory, or a URL such as s3://bucket/folder; default `out`",
    )
    filename: Text | None = Field(
        None,
        description="Default {job}/{item}.{ext}; other fields: index, output, model, any variable or metadata key",
    )
    versions: Text | None = Field(
        None, description="What stands before the extension in the names of later versions; default .v{version}"
    )
    sidecar: Literal["json", "txt"] | None = Field(
        None, description="Write beside each file what it was made from (json), or its prompt as a caption (txt)"
    )


class Header(Fields):
    """A manifest without its items."""

    version: Literal[1]
    job: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")] = Field(description="Unique in the queue")
    description: Annotated[str, Field(max_length=10_000)] | None = None
    profile: Text | None = Field(None, description="The name of a service in the configuration")
    account: Text | None = Field(None, description="One of the profile's accounts")
    accounts: Annotated[list[Text], Field(min_length=1, max_length=100)] | None = Field(
        None, description="Accounts to share the items"
    )
    order: Literal["manifest", "pack"] | None = None
    budget: Budget | None = None
    notify: Annotated[list[Text], Field(max_length=20)] | None = Field(
        None, description="Names of the configuration's notifiers; default all, [] for none"
    )
    defaults: Settings | None = None
    output: Output | None = None


class ManifestFile(Header):
    """A whole manifest."""

    items: list[Prompt | InlineItem | SourceItem | MatrixItem]


def example_manifest() -> str:
    """Return the manifest that `batchkiln init` writes."""
    return files("batchkiln.manifest").joinpath("example.yaml").read_text("utf-8")


def json_schema() -> dict[str, object]:
    """Return the JSON Schema (draft 2020-12) of a manifest, for editors."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **ManifestFile.model_json_schema(by_alias=True),
        "title": "batchkiln manifest",
    }
