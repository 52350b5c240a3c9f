"""The status of a generation at an instant, and the expiry of links. Pure; `now_ms` is passed in."""

from typing import Literal

from msgspec import Struct

Outcome = Literal["success", "failed", "canceled"]
Status = Literal["pending", "processing", "success", "failed", "canceled", "expired"]


class Generation(Struct, frozen=True):
    """A generation as it is stored; its status depends on the instant."""

    id: str
    account: str
    key_sha256: str
    model: str
    cost_credits: int
    created_at_ms: int
    processing_at_ms: int | None
    finish_at_ms: int | None
    outcome: Outcome
    rendered_at_ms: int | None
    ended_at_ms: int | None
    last_polled_at_ms: int | None


def end_of(generation: Generation) -> int | None:
    """Return the instant in milliseconds at which a generation ends; None while it is unknown.

    A success must be rendered; other outcomes need no file. The instant may be in the future.
    """
    if generation.finish_at_ms is None:
        return None
    if generation.outcome != "success":
        return generation.finish_at_ms
    if generation.rendered_at_ms is None:
        return None
    return max(generation.finish_at_ms, generation.rendered_at_ms)


def status_at(generation: Generation, now_ms: int, *, retention_ms: int) -> Status:
    """Return the status that a client sees at an instant. Service section 3."""
    end_ms = end_of(generation)
    if end_ms is not None and now_ms >= end_ms:
        if generation.outcome == "success" and now_ms >= end_ms + retention_ms:
            return "expired"
        return generation.outcome
    if generation.processing_at_ms is None or now_ms < generation.processing_at_ms:
        return "pending"
    return "processing"


def link_expiry_ms(now_ms: int, *, link_ms: int, ended_at_ms: int, retention_ms: int) -> int:
    """Return the expiry of a link created now, within the retention. Service section 2.1."""
    return min(now_ms + link_ms, ended_at_ms + retention_ms)
