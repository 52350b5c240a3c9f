"""The specification of an output, and the data of its file."""

import msgspec
from msgspec import Struct


class RenderSpec(Struct, frozen=True):
    """All data that determine an output. The same specification gives the same bytes.

    `variation` distinguishes the generations of equal requests. Older stored specifications have none.
    """

    kind: str
    mode: str
    model: str
    prompt: str
    width: int
    height: int
    output_format: str
    duration_seconds: int | None
    with_audio: bool
    image_mode: str | None
    asset_ids: tuple[str, ...]
    variation: str = ""
    is_blurred: bool = False

    def as_json(self) -> bytes:
        """Return the stored form, JSON."""
        return msgspec.json.encode(self)

    @classmethod
    def from_json(cls, stored: bytes) -> "RenderSpec":
        """Parse the stored form of a specification."""
        return msgspec.json.decode(stored, type=cls)


class Output(Struct, frozen=True):
    """A rendered file, as clients see it."""

    type: str
    file_name: str
    content_type: str
    size_bytes: int
    sha256: str
