"""OpenTelemetry spans of one account: a root span for each attempt, with its waits and calls as children.

Without configured traces, OpenTelemetry's no-op tracer is used, and nothing is measured. No failure of a span reaches
the run. Spans contain no prompt, no text of the service, no API key, no URL and no path (Law 8).

The ids of a root span are derived from the attempt's idempotency key, so that another process continues its trace.
"""

import re
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from functools import partial
from hashlib import sha256
from typing import Any, Final, TypeVar

import structlog
from msgspec import Struct, field
from opentelemetry import trace
from opentelemetry.context import Context

from batchkiln.core.job import Attempt, AttemptState, SavedFile
from batchkiln.core.outcomes import ITEM_STATES
from batchkiln.core.queue_changes import Committed, Facts
from batchkiln.core.queue_types import ItemNames
from batchkiln.core.responses import EdgeBlocked, ErrorInfo, NoResponse, NotUnderstood, RecordRead, TicketRefused
from batchkiln.core.states import ItemState
from batchkiln.core.waits import WaitReason
from batchkiln.worker.download_state import Failure

T = TypeVar("T")
Attributes = dict[str, str | int | None]

ROOTS_KEPT: Final = 256
"""The maximum number of open root spans. Beyond it, the oldest is dropped."""

_WAITS_KEPT: Final = 64
_SHORTEST_WAIT_NS: Final = 1_000_000
_WORD: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_NO_WAIT: Final = frozenset({WaitReason.NOTHING, WaitReason.ENOUGH, WaitReason.POLL_INTERVAL})
_NO_REQUEST: Final = frozenset({"wait", "generation", "save"})

log = structlog.get_logger()

chosen_ids: ContextVar[tuple[int, int] | None] = ContextVar("batchkiln_span_ids", default=None)
"""The trace id and the span id of the root span that is being started."""


async def _no_names(_: int) -> ItemNames:
    return ItemNames("", "", "", {1: ""})


class _Root(Struct):
    """An open root span. Each span below it has the same `attributes`."""

    span: trace.Span
    start_ns: int
    attributes: Attributes
    generation: trace.Span | None = None


class Spans(Struct):
    """Starts and ends the spans of one account.

    `names_of` takes an item's id. `now_ns` reads the machine's clock, and `ns_of` converts a service instant to that
    clock, both in nanoseconds since 1970. Each span has the `attributes`, each root span the `links`.
    """

    tracer: trace.Tracer = field(default_factory=trace.NoOpTracer)
    names_of: Callable[[int], Awaitable[ItemNames]] = _no_names
    now_ns: Callable[[], int] = lambda: 0
    ns_of: Callable[[datetime], int] = lambda _: 0
    attributes: Mapping[str, str] = field(default_factory=dict)
    links: tuple[trace.Link, ...] = ()
    _roots: OrderedDict[str, _Root] = field(default_factory=OrderedDict)
    _waits: deque[tuple[WaitReason, int]] = field(default_factory=partial(deque, maxlen=_WAITS_KEPT))
    _has_failed: bool = False

    async def timed(
        self, name: str, of: Attempt | int, call: Coroutine[Any, Any, T], *, output: int | None = None
    ) -> T:
        """Await a call within a span, and return its result; a cancelled call has no span.

        `of` is the call's attempt, or the id of an item whose next attempt it prepares; `output` is a file's number.
        """
        if isinstance(self.tracer, trace.NoOpTracer):
            return await call
        span: trace.Span = trace.INVALID_SPAN
        resends = of.sends - 1 if isinstance(of, Attempt) and name == "create" else 0
        try:
            with self._guarded():
                root = await self._root(of)
                if name == "create" and self._waits:
                    self._end_waits(root)
                own: Attributes = {"batchkiln.output": output, "http.request.resend_count": resends or None}
                span = self._start(root, name, self.now_ns(), own)
            with trace.use_span(span, record_exception=False, set_status_on_exception=False):
                result = await call
        except Exception as error:
            with self._guarded():
                self._end(span, {"error.type": type(error).__name__})
            raise
        finally:
            call.close()
        with self._guarded():
            self._end(span, _attributes_of(result))
        return result

    def record_wait(self, reason: WaitReason) -> None:
        """Record that the slot waits, until its next wait or the next create."""
        if isinstance(self.tracer, trace.NoOpTracer) or reason in _NO_WAIT:
            self._waits.clear()
        elif not self._waits or self._waits[-1][0] is not reason:
            self._waits.append((reason, self.now_ns()))

    async def committed(self, attempt: Attempt, facts: Facts, committed: Committed) -> None:
        """End the spans of a committed outcome: the generation's span, and the attempt's once its item has ended."""
        if isinstance(self.tracer, trace.NoOpTracer):
            return
        with self._guarded():
            root, record, state = await self._root(attempt), facts.record, committed.state
            made = (record.id, record.cost_credits) if record else (attempt.generation_id, attempt.cost_credits)
            error = _code(facts.error or (record.error if record else None)) or committed.outcome.event or state
            if record is not None and root.generation is None:
                created_at = None if attempt.state is AttemptState.SENT else attempt.generation_created_at
                start_ns = self.now_ns() if created_at is None else self.ns_of(created_at)
                root.generation = self._start(root, "generation", start_ns, {})
            if root.generation is not None and state is not ItemState.ACTIVE:
                self._end(root.generation, {"error.type": None if state is ItemState.DOWNLOADING else error})
                root.generation = None
            if state not in ITEM_STATES.values():
                figures: Attributes = {
                    "batchkiln.state": state.value,
                    "batchkiln.generation_id": made[0],
                    "batchkiln.credits": made[1],
                    "batchkiln.quote_credits": attempt.quote_credits,
                    "batchkiln.sends": attempt.sends,
                    "error.type": None if state is ItemState.DONE else error,
                }
                self._end(self._roots.pop(attempt.idempotency_key).span, figures)

    async def _root(self, of: Attempt | int) -> _Root:
        """Return the open root span of an attempt, or of an item's next attempt."""
        attempt, item_id = (of, of.item_id) if isinstance(of, Attempt) else (None, of)
        if attempt is not None and attempt.idempotency_key in self._roots:
            return self._roots[attempt.idempotency_key]
        names = await self.names_of(item_id)
        number = attempt.number if attempt else max(names.keys)
        key = attempt.idempotency_key if attempt else names.keys[number]
        if key not in self._roots:
            starts = [self.now_ns(), *(since for _, since in self._waits)]
            if attempt is not None and attempt.contact_at is not None:
                starts.append(self.ns_of(attempt.contact_at))
            own = {"batchkiln.job": names.job, "batchkiln.item": names.item, "batchkiln.model": names.model}
            attributes: Attributes = {**self.attributes, **own, "batchkiln.attempt": number}
            links = list(self.links)
            if earlier := [each for each in names.keys if each < number]:
                before = _ids_of(names.keys[max(earlier)])
                links.append(
                    trace.Link(trace.SpanContext(*before, is_remote=True), {"batchkiln.link": "previous attempt"})
                )
            token = chosen_ids.set(_ids_of(key))
            try:
                span = self.tracer.start_span(
                    "attempt", Context(), attributes=_known(attributes), links=links, start_time=min(starts)
                )
            finally:
                chosen_ids.reset(token)
            self._roots[key] = _Root(span, min(starts), attributes)
            if len(self._roots) > ROOTS_KEPT:
                self._roots.popitem(last=False)
        return self._roots[key]

    def _start(self, root: _Root, name: str, start_ns: int, attributes: Attributes) -> trace.Span:
        return self.tracer.start_span(
            name,
            trace.set_span_in_context(root.span, Context()),
            trace.SpanKind.INTERNAL if name in _NO_REQUEST else trace.SpanKind.CLIENT,
            _known(root.attributes | attributes),
            start_time=max(start_ns, root.start_ns),
        )

    def _end_waits(self, root: _Root) -> None:
        """Add spans for the slot's waits. Each lasts until the next one, and the last until now."""
        ends = [*(since for _, since in self._waits), self.now_ns()][1:]
        for (reason, since), until in zip(self._waits, ends, strict=False):
            if until - since >= _SHORTEST_WAIT_NS:
                self._start(root, "wait", since, {"batchkiln.reason": reason.value}).end(until)
        self._waits.clear()

    def _end(self, span: trace.Span, attributes: Attributes) -> None:
        if attributes.get("error.type"):
            span.set_status(trace.Status(trace.StatusCode.ERROR))
        span.set_attributes(_known(attributes))
        span.end(self.now_ns())

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """Log an error and continue; only the first is a warning. Tracing must not disturb a run that spends money."""
        try:
            yield
        except Exception as error:  # noqa: BLE001  see above
            (log.debug if self._has_failed else log.warning)("trace_incomplete", error=type(error).__name__)
            self._has_failed = True


def _ids_of(key: str) -> tuple[int, int]:
    """Return the trace id and the root span's id for an idempotency key."""
    digest = sha256(f"batchkiln trace\n{key}".encode()).digest()
    return int.from_bytes(digest[:16]), int.from_bytes(digest[16:24])


def _known(attributes: Attributes) -> dict[str, str | int]:
    return {name: value for name, value in attributes.items() if value is not None}


def _attributes_of(result: object) -> Attributes:
    """Return the attributes of a call's result; an error becomes one word."""
    match result:
        case RecordRead(record=record):
            return {"batchkiln.status": record.status.value}
        case SavedFile(size_bytes=size_bytes, media_type=media_type):
            return {"batchkiln.bytes": size_bytes, "batchkiln.media_type": media_type}
        case object(failure=Failure() as failure):
            return {"error.type": failure.name.lower()}
        case object(error=ErrorInfo() as error):
            return {"error.type": _code(error)}
        case None | EdgeBlocked() | NoResponse() | NotUnderstood() | TicketRefused():
            return {"error.type": "not_saved" if result is None else type(result).__name__}
        case _:
            return {}


def _code(error: ErrorInfo | None) -> str | None:
    """Return a service's error code if it is a single word; a longer text may contain a prompt."""
    if error is None:
        return None
    return error.code if _WORD.fullmatch(error.code) else "other"
