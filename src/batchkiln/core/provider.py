"""The provider of the service: its paths, its header, its documented models, and the words of its replies.

For a provider with other paths and words, change this module and `client/refusal_words.py`, whose patterns read
refusals. If names of reply fields are not recognised, `replies:` in the profile gives their paths (docs/replies.md).
"""

from enum import Enum, auto
from typing import Final
from urllib.parse import quote as percent_encoded

VIDEOS: Final = "/videos"
IMAGES: Final = "/images"
GENERATIONS: Final = "/generations"
QUOTES: Final = "/quotes"
UPLOADS: Final = "/uploads"
UPLOADS_COMPLETE: Final = "/uploads/complete"
MODELS: Final = "/models"
BALANCE: Final = "/credits/balance"
DESCRIPTION: Final = "/openapi.json"

IDEMPOTENCY_HEADER: Final = "Idempotency-Key"

UPLOAD_LINK_SECONDS: Final = 300.0
"""Validity of an upload link in service time (Service section 4)."""

UPLOADS_MAX_FILES: Final = 5
"""Files per upload request (Service section 8)."""

UPLOADED_TYPES: Final = {"image/jpeg": "jpg", "image/png": "png", "image/webp": "webp"}
"""The media types that an upload may have, with their extensions (Service section 8)."""

UPLOAD_MAX_BYTES: Final = 30 << 20
"""Size of one uploaded file (Service section 4, image upload flow, step 1)."""

DOCUMENTED_MODELS: Final = frozenset(
    {
        *("alpha-2.5", "alpha-2.5-lite", "alpha-2.0-pro", "alpha-2.0-fast", "alpha-2.0-mini", "alpha-1.5-pro"),
        *("beta-3.0", "gamma-3.1-fast", "delta-image-2", "epsilon-2", "epsilon-pro"),
    }
)
"""The public model ids that the service's document lists (Service section 1)."""

SUCCESS_WORDS: Final = frozenset({"succeeded", "successful", "completed", "complete", "done", "finished"})
"""Status words that mean `success`, besides the documented one."""

UPGRADE_CODE: Final = "api_key_upgrade_required"
"""The error code for an API key that was issued before the API's launch (Service rule 5.4)."""

_GENERATION_WORDS: Final = ("active", "concurren", "in progress", "running", "another generation")
_CREDIT_WORDS: Final = ("credit", "budget")
_DAY_WORDS: Final = ("daily", "per day", "day limit")
_MINUTE_WORDS: Final = ("per_minute", "per minute", "rate", "quota", "too many")
_UPLOAD_WORDS: Final = ("upload", "file", "byte", "mib")


class NamedLimit(Enum):
    """A limit that the text of a refusal names."""

    ACTIVE_GENERATIONS = auto()
    CREDITS_PER_DAY = auto()
    REQUESTS_PER_DAY = auto()
    REQUESTS_PER_MINUTE = auto()


def create_path(*, is_video: bool) -> str:
    """Return the path that creates a generation of this kind."""
    return VIDEOS if is_video else IMAGES


def generation_path(generation_id: str) -> str:
    """Return the path of a generation, its id percent-encoded as one segment; a dot segment would be another path."""
    segment = percent_encoded(generation_id, safe="")
    return f"{GENERATIONS}/{segment.replace('.', '%2E') if segment in {'.', '..'} else segment}"


def named_limit(code: str, message: str) -> NamedLimit | None:
    """Return the limit that an error's code and message name; None if they name none."""
    text = f"{code} {message}".lower()
    for limit, words in (
        (NamedLimit.ACTIVE_GENERATIONS, _GENERATION_WORDS),
        (NamedLimit.CREDITS_PER_DAY, _CREDIT_WORDS),
        (NamedLimit.REQUESTS_PER_DAY, _DAY_WORDS),
        (NamedLimit.REQUESTS_PER_MINUTE, _MINUTE_WORDS),
    ):
        if any(word in text for word in words):
            return limit
    return None


def names_upload_limit(code: str, message: str) -> bool:
    """Return whether an error names a limit of uploads alone, not the one shared with creates (Service section 8)."""
    text = f"{code} {message}".lower()
    return any(word in text for word in _UPLOAD_WORDS)
