"""Reads single values in the spellings that services use. Readers return None instead of raising."""

import math
import re
from datetime import UTC, datetime
from typing import Final

# Larger numbers are errors of the reply, not prices or times.
_NUMBER_MAX: Final = 10**15
_EPOCH_SECONDS_MAX: Final = 10**11  # the year 5138; anything larger counts milliseconds
_NUMERAL: Final = re.compile(r"[+-]?\d{1,15}(\.\d{1,15})?([eE][+-]?\d{1,2})?")


def read_number(value: object) -> float | int | None:
    """Return a number or numeric text as a number; None for booleans and amounts beyond 10^15."""
    if isinstance(value, str) and _NUMERAL.fullmatch(value.strip()):
        value = float(value) if not value.strip().lstrip("+-").isdecimal() else int(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if abs(value) <= _NUMBER_MAX else None  # also false for NaN


def read_cost(value: object) -> int | None:
    """Return a price in credits; a fraction is rounded up, so that a reservation is never too small."""
    number = read_number(value)
    return None if number is None or number < 0 else math.ceil(number)


def read_text(value: object) -> str | None:
    """Return a text without surrounding blanks; None if nothing is left. A whole number is a text too (ids)."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value) if abs(value) < 10**24 else None
    if not isinstance(value, str) or not value.strip():
        return None
    return value.strip()


def read_instant(value: object) -> datetime | None:
    """Return a time from ISO 8601 (UTC if it names no zone) or from seconds or milliseconds since 1970."""
    number = read_number(value)
    try:
        if number is not None:
            return datetime.fromtimestamp(number / 1000 if abs(number) > _EPOCH_SECONDS_MAX else number, UTC)
        if isinstance(value, str):
            moment = datetime.fromisoformat(value.strip())
            return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError, OSError):
        pass
    return None


def read_url(value: object) -> str | None:
    """Return an http or https URL, or a path on the service's own host; None for anything else."""
    if not isinstance(value, str) or any(character <= " " or character == "\x7f" for character in value):
        return None
    is_path = value.startswith("/") and not value.startswith("//")
    return value if is_path or value.lower().startswith(("http://", "https://")) else None
