"""Definitions shared by requests and replies, and the bodies of the upload calls. Service section 2.3."""

from typing import Annotated, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

# A made-up host, so that stored request bodies stay valid when the port changes.
ASSET_URL: Final = "https://assets.batchkiln.invalid/"
ASSET_URL_PATTERN: Final = r"^https://assets\.batchkiln\.invalid/[A-Za-z0-9_-]{1,64}/[A-Za-z0-9_-]{1,64}$"
EXAMPLE_ASSET_ID: Final = "ast_1f2e3d4c5b6a79881f2e3d4c"
EXAMPLE_ASSET_URL: Final = f"{ASSET_URL}main/{EXAMPLE_ASSET_ID}"
# Everything that counts as blank in regular expressions of Python, Rust or JavaScript.
NOT_BLANK: Final = r"[^\s\u001c-\u001f\u0085\ufeff]"
CONTENT_TYPES: Final = ("image/jpeg", "image/png", "image/webp")
MAX_FILES: Final = 5
MAX_FILE_BYTES: Final = 30 * 1024 * 1024
MAX_NAME_CHARACTERS: Final = 255
MAX_ID_CHARACTERS: Final = 64
MAX_COST: Final = 2**53 - 1  # the largest integer that every JSON parser keeps exact

ContentType = Literal["image/jpeg", "image/png", "image/webp"]


class Wire(BaseModel):
    """A strict model without unknown fields. Service rule 2.2.1."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


def whole(value: object) -> object:
    """Return an integral float as int, because JSON Schema calls both 5 and 5.0 an integer."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


class FileDescription(Wire):
    """A file to be uploaded."""

    name: Annotated[
        str,
        StringConstraints(min_length=1, max_length=MAX_NAME_CHARACTERS),
        Field(description="The name of the file.", examples=["owl.png"]),
    ]
    type: Annotated[ContentType, Field(description="Its media type.", examples=["image/png"])]
    size: Annotated[
        int,
        Field(ge=1, le=MAX_FILE_BYTES, description="Its exact length in bytes.", examples=[204_800]),
        BeforeValidator(whole),
    ]


class UploadRequest(Wire):
    """The body of POST /uploads: the files to be uploaded."""

    files: Annotated[list[FileDescription], Field(min_length=1, max_length=MAX_FILES)]


AssetId = Annotated[
    str,
    StringConstraints(min_length=1, max_length=MAX_ID_CHARACTERS),
    Field(description="An `asset_id` from the preparation.", examples=[EXAMPLE_ASSET_ID]),
]


class CompletionRequest(Wire):
    """The body of POST /uploads/complete: the assets whose files have been PUT."""

    asset_ids: Annotated[list[AssetId], Field(min_length=1, max_length=MAX_FILES)]
