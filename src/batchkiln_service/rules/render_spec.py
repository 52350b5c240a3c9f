"""What decides how an output looks, and what is told of the file."""

from dataclasses import dataclass

import orjson


@dataclass(frozen=True, slots=True)
class RenderSpec:
    """All that decides how an output looks: the same drawing gives the same bytes."""

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

    def as_json(self) -> bytes:
        """Return the stored form."""
        return orjson.dumps(self)

    @classmethod
    def from_json(cls, stored: bytes) -> "RenderSpec":
        """Read the stored form."""
        fields = orjson.loads(stored)
        fields["asset_ids"] = tuple(fields["asset_ids"])
        return cls(**fields)


@dataclass(frozen=True, slots=True)
class Output:
    """A rendered file and what a client is told of it."""

    type: str
    file_name: str
    content_type: str
    size_bytes: int
    sha256: str
