"""Turns the recorders' data into spans beside the run, with names and figures from the queue."""

import asyncio
import hashlib
from typing import Final

import structlog

from batchkiln.core.job import AttemptState
from batchkiln.core.states import ItemState
from batchkiln.store import Store, TracedAttempt, TracedItem
from batchkiln.tracing.exporter import Emitter, Root
from batchkiln.tracing.span_data import AttemptMayBeOver, Attributes, Draft, ItemTurnedAway, Note, PartOfAttempt

NOTES_WAITING: Final = 10_000
"""Maximum number of waiting notes, more than minutes of a run; further notes are dropped and counted."""

_KNOWN: Final = 1000

log = structlog.get_logger()


class Writer:
    """Accepts notes, and writes them in order."""

    def __init__(self, reader: Store, emitter: Emitter, *, uid: str) -> None:
        """Read from the queue with the id `uid`."""
        self._reader = reader
        self._emitter = emitter
        self._uid = uid
        self._notes: asyncio.Queue[Note | None] = asyncio.Queue()
        self._known: dict[int, TracedAttempt] = {}
        self._dropped_count = 0

    def put(self, note: Note) -> None:
        """Accept a note without waiting."""
        if self._notes.qsize() < NOTES_WAITING:
            self._notes.put_nowait(note)
            return
        if not self._dropped_count:
            log.warning("trace_incomplete", reason="spans arrive faster than they can be written; some are dropped")
        self._dropped_count += 1

    def end(self) -> None:
        """Let `run` return after all notes are written."""
        self._notes.put_nowait(None)

    async def run(self) -> None:
        """Write notes until `end`. An error affects only its own note and is logged."""
        while (note := await self._notes.get()) is not None:
            try:
                await self._write(note)
            except Exception as error:  # noqa: BLE001  a trace is only looked at
                log.warning("trace_incomplete", error=type(error).__name__)

    async def _write(self, note: Note) -> None:
        match note:
            case PartOfAttempt(attempt_id=attempt_id, draft=draft):
                attempt = self._known.get(attempt_id) or await self._look(attempt_id)
                self._emitter.part(_root_of(attempt.idempotency_key), _named(draft, _names(attempt)))
            case AttemptMayBeOver():
                await self._end_attempt(note)
            case ItemTurnedAway():
                await self._turn_away(note)

    async def _look(self, attempt_id: int) -> TracedAttempt:
        if len(self._known) >= _KNOWN:
            self._known.clear()
        self._known[attempt_id] = attempt = await self._reader.read(
            lambda reader: reader.generations.traced_attempt(attempt_id)
        )
        return attempt

    async def _end_attempt(self, note: AttemptMayBeOver) -> None:
        attempt = await self._look(note.attempt_id)
        if not attempt.is_over:
            return
        del self._known[note.attempt_id]
        start_ns = note.began_ns or note.wall_of(attempt.recorded_at)
        is_good = attempt.state is AttemptState.SUCCEEDED and attempt.item.state is ItemState.DONE
        draft = Draft(
            "attempt",
            min(start_ns, note.ended_ns),
            note.ended_ns,
            _names(attempt) | _figures(attempt),
            error=None if is_good else note.error or attempt.state.value,
        )
        before = None if attempt.key_before is None else _root_of(attempt.key_before)
        self._emitter.root(_root_of(attempt.idempotency_key), draft, before=before)

    async def _turn_away(self, note: ItemTurnedAway) -> None:
        item = await self._reader.read(lambda reader: reader.generations.traced_item(note.item_id))
        root = _root_of(f"{self._uid}\n{item.id}\nno attempt at {note.at_ns}")
        names = _item_names(item) | {"batchkiln.account": note.account}
        for part in note.parts:
            self._emitter.part(root, _named(part, names))
        start_ns = min([note.at_ns, *(part.start_ns for part in note.parts)])
        attributes = names | {"batchkiln.state": item.state.value}
        self._emitter.root(root, Draft("turned away", start_ns, note.at_ns, attributes, error=note.error), before=None)


def _root_of(key: str) -> Root:
    """Return the ids of an attempt's trace and root span, derived so that every process gets the same."""
    digest = hashlib.sha256(f"batchkiln trace\n{key}".encode()).digest()
    return Root(int.from_bytes(digest[:16]), int.from_bytes(digest[16:24]))


def _item_names(item: TracedItem) -> Attributes:
    return {"batchkiln.job": item.job, "batchkiln.item": item.name, "batchkiln.model": item.model}


def _names(attempt: TracedAttempt) -> Attributes:
    """Return the attributes of every span of an attempt, for searches."""
    return _item_names(attempt.item) | {"batchkiln.account": attempt.account, "batchkiln.attempt": attempt.number}


def _figures(attempt: TracedAttempt) -> Attributes:
    """Return an attempt's figures; credits are the charge, or the maximum if nothing was created."""
    figures: Attributes = {
        "batchkiln.profile": attempt.profile,
        "batchkiln.mode": attempt.item.mode,
        "batchkiln.state": attempt.state.value,
        "batchkiln.credits": attempt.cost_credits or 0,
        "batchkiln.quote_credits": attempt.quote_credits,
        "batchkiln.is_refunded": attempt.is_refunded,
        "batchkiln.sends": attempt.sends,
    }
    if attempt.generation_id is not None:
        figures["batchkiln.generation_id"] = attempt.generation_id
    return figures


def _named(draft: Draft, names: Attributes) -> Draft:
    draft.attributes = names | draft.attributes
    return draft
