"""Sets the outcome, duration and sharpness of a generation by a fault, or by markers in its prompt.

Markers reach the service with the prompts of a manifest, without any other configuration.
"""

from collections.abc import Callable
from hashlib import sha256
from typing import Final

from msgspec.structs import replace

from batchkiln_service.db.creates import NewGeneration
from batchkiln_service.faults.fault_rules import FaultRule

FAILS: Final = "[fail]"
FAILS_ONCE: Final = "[fail-once]"
IS_CANCELED: Final = "[cancel]"
STAYS_PENDING: Final = "[stay-pending]"
IS_SLOW: Final = "[slow]"
IS_BLURRED: Final = "[blurred]"
SLOW_FACTOR: Final = 10.0
MARKERS: Final = {
    FAILS: "The generation fails, and is refunded.",
    FAILS_ONCE: "The account's first generation of exactly this prompt fails; later ones succeed.",
    IS_CANCELED: "The service cancels the generation. It stays charged.",
    STAYS_PENDING: "The generation stays pending until the operator ends it.",
    IS_SLOW: "The generation takes ten times as long.",
    IS_BLURRED: "The picture or clip is out of focus.",
}


def with_outcome_fault(new: NewGeneration, fault: FaultRule | None) -> NewGeneration:
    """Return the generation with the outcome or duration that a fault sets."""
    if fault is None:
        return new
    match fault.kind:
        case "fail_generation":
            return replace(new, outcome="failed")
        case "cancel_generation":
            return replace(new, outcome="canceled")
        case "stay_pending":
            return _pending(new, fault.seconds)
        case "slow_generation":
            return _slowed(new, more_seconds=fault.seconds, factor=fault.factor or SLOW_FACTOR)
        case _:
            return new


def with_prompt_directives(has_failed_before: Callable[[str], bool], new: NewGeneration, prompt: str) -> NewGeneration:
    """Return the generation with the outcome, duration and sharpness that its prompt asks for.

    `has_failed_before` takes the SHA-256 of a prompt with `[fail-once]`; it tells of the generation's account.
    """
    if IS_BLURRED in prompt:
        new = replace(new, render_spec=replace(new.render_spec, is_blurred=True))
    if IS_SLOW in prompt:
        new = _slowed(new, more_seconds=None, factor=SLOW_FACTOR)
    if STAYS_PENDING in prompt:
        new = _pending(new, None)
    if FAILS_ONCE in prompt:
        digest = sha256(prompt.encode()).hexdigest()
        outcome = new.outcome if has_failed_before(digest) else "failed"
        return replace(new, rehearsed_prompt=digest, outcome=outcome)
    if FAILS in prompt:
        return replace(new, outcome="failed")
    return replace(new, outcome="canceled") if IS_CANCELED in prompt else new


def _pending(new: NewGeneration, seconds: float | None) -> NewGeneration:
    """Return the generation with its processing delayed by that many seconds; None delays it forever."""
    if seconds is None or new.finish_at_ms is None or new.processing_at_ms is None:
        return replace(new, processing_at_ms=None, finish_at_ms=None)
    begin_ms = new.created_at_ms + round(seconds * 1000)
    return replace(new, processing_at_ms=begin_ms, finish_at_ms=begin_ms + new.finish_at_ms - new.processing_at_ms)


def _slowed(new: NewGeneration, *, more_seconds: float | None, factor: float) -> NewGeneration:
    """Return the generation with `more_seconds` of processing added, or its processing multiplied by `factor`."""
    if new.finish_at_ms is None or new.processing_at_ms is None:
        return new
    work_ms = new.finish_at_ms - new.processing_at_ms
    work_ms = round(work_ms * factor) if more_seconds is None else work_ms + round(more_seconds * 1000)
    return replace(new, finish_at_ms=new.processing_at_ms + work_ms)
