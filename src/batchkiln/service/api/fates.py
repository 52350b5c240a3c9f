"""How a generation ends when it is not to succeed: by a fault, or because its prompt asks for it."""

import sqlite3
from dataclasses import replace
from hashlib import sha256
from typing import Final

from batchkiln.service.books.creating import NewGeneration
from batchkiln.service.books.generations import was_rehearsed
from batchkiln.service.faults import FaultRule

FAILS: Final = "[fail]"  # in a prompt, for rehearsals; so are the next two
FAILS_ONCE: Final = "[fail-once]"
IS_CANCELED: Final = "[cancel]"


def fated(new: NewGeneration, fate: FaultRule | None) -> NewGeneration:
    """Apply what tests have switched on."""
    match fate.kind if fate else None:
        case "fail_generation":
            return replace(new, outcome="failed")
        case "cancel_generation":
            return replace(new, outcome="canceled")
        case "stay_pending" if fate is not None and fate.seconds is not None:
            begin_ms = new.created_at_ms + round(fate.seconds * 1000)
            assert new.finish_at_ms is not None
            assert new.processing_at_ms is not None
            work_ms = new.finish_at_ms - new.processing_at_ms
            return replace(new, processing_at_ms=begin_ms, finish_at_ms=begin_ms + work_ms)
        case "stay_pending":
            return replace(new, processing_at_ms=None, finish_at_ms=None)
        case _:
            return new


def as_asked(connection: sqlite3.Connection, new: NewGeneration, prompt: str) -> NewGeneration:
    """Return the generation with the end that its prompt asks for."""
    if FAILS_ONCE in prompt:
        digest = sha256(prompt.encode()).hexdigest()
        has_failed = was_rehearsed(connection, new.account, digest)
        return replace(new, rehearsed_prompt=digest, outcome=new.outcome if has_failed else "failed")
    if FAILS in prompt:
        return replace(new, outcome="failed")
    return replace(new, outcome="canceled") if IS_CANCELED in prompt else new
