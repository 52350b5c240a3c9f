"""The one place that knows OpenTelemetry; imported only where traces are wanted.

Spans are made when they have ended, with ids that were chosen beforehand for the roots: a child can be sent long
before its root, and by another process. Sending is the SDK's batch processor's, in a thread of its own.
"""

import asyncio
import os
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import structlog
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

import batchkiln
from batchkiln.config import Traces
from batchkiln.tracing.span_data import Draft

_PATH: Final = "/v1/traces"

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Root:
    """The ids of a trace and of its root span."""

    trace_id: int
    span_id: int


def new_exporter(traces: Traces) -> SpanExporter:
    """Make what sends. What the configuration does not say, OpenTelemetry's variables do: headers, timeout, TLS."""
    if traces.endpoint is None:
        return OTLPSpanExporter()
    has_path = traces.endpoint.endswith(_PATH)
    return OTLPSpanExporter(endpoint=traces.endpoint if has_path else traces.endpoint + _PATH)


class _ChosenIds(RandomIdGenerator):
    """Gives the ids of the next root where they are chosen, else random ones."""

    def __init__(self) -> None:
        self.next: Root | None = None

    def generate_trace_id(self) -> int:
        return self.next.trace_id if self.next else super().generate_trace_id()

    def generate_span_id(self) -> int:
        return self.next.span_id if self.next else super().generate_span_id()


class _SaidOnce(SpanExporter):
    """Says in one line that nothing arrives, and not again before something did."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter
        self._is_down = False

    def tell(self) -> None:
        """Say it, unless it was said."""
        if not self._is_down:
            reason = "the collector does not take them; the run goes on without, and what it does not take is lost"
            log.warning("traces_not_delivered", reason=reason)
        self._is_down = True

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        try:
            result = self._exporter.export(spans)
        except Exception:  # noqa: BLE001  the thread has to live, whatever an exporter raises
            result = SpanExportResult.FAILURE
        if result is SpanExportResult.SUCCESS:
            self._is_down = False
        else:
            self.tell()
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._exporter.force_flush(timeout_millis)


class Emitter:
    """Gives spans to the SDK. Not one of its methods waits for the network, but for `close`, within its seconds."""

    def __init__(self, exporter: SpanExporter, *, environ: Mapping[str, str] = os.environ) -> None:
        """Send by `exporter`. `TRACEPARENT` in the environment makes the run a part of a pipeline's trace."""
        self._exporter = _SaidOnce(exporter)
        self._ids = _ChosenIds()
        self._provider = TracerProvider(id_generator=self._ids, resource=_resource(), shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(self._exporter))
        self._tracer = self._provider.get_tracer("batchkiln", batchkiln.__version__)
        self._environ = environ
        self._run: Span | None = None
        self._attempt_count = 0

    def begin_run(self, at_ns: int, jobs: Sequence[str] | None) -> None:
        """Begin the span of the run, to which those of attempts are linked."""
        carrier = {name.lower(): self._environ[name] for name in ("TRACEPARENT", "TRACESTATE") if name in self._environ}
        above = TraceContextTextMapPropagator().extract(carrier, context=Context())
        self._run = self._tracer.start_span("run", context=above, start_time=at_ns)
        if jobs is not None:
            self._run.set_attribute("batchkiln.jobs", list(jobs))

    def end_run(self, at_ns: int, error: str | None) -> None:
        """End the span of the run."""
        if self._run is not None:
            self._run.set_attribute("batchkiln.attempts_ended", self._attempt_count)
            _set_error(self._run, error)
            self._run.end(at_ns)

    def part(self, root: Root, draft: Draft) -> None:
        """Give a span below a root that is still to come, or was sent by another process."""
        self._give(draft, set_span_in_context(NonRecordingSpan(self._context(root)), Context()), ())

    def root(self, root: Root, draft: Draft, *, before: Root | None) -> None:
        """Give a root, linked to this run, and to the root of the attempt before."""
        links = [] if self._run is None else [Link(self._run.get_span_context(), {"batchkiln.link": "run"})]
        if before is not None:
            links.append(Link(self._context(before), {"batchkiln.link": "previous attempt"}))
        self._ids.next = root
        try:
            self._give(draft, Context(), links)
        finally:
            self._ids.next = None
        self._attempt_count += 1

    async def close(self, seconds: float) -> None:
        """Send what is left, and wait for that so many real seconds at most; not at all for 0.

        In a thread of its own, which the end of the process does not wait for, as it would for a pool's.
        """
        loop, is_done = asyncio.get_running_loop(), asyncio.Event()

        def shut_down() -> None:
            self._provider.shutdown()
            with suppress(RuntimeError):  # the loop has been closed meanwhile
                loop.call_soon_threadsafe(is_done.set)

        threading.Thread(target=shut_down, name="batchkiln-traces", daemon=True).start()
        if not seconds:
            return
        try:
            async with asyncio.timeout(seconds):
                await is_done.wait()
        except TimeoutError:
            self._exporter.tell()
            self._exporter.shutdown()  # ends its pauses between tries

    def _give(self, draft: Draft, above: Context, links: Sequence[Link]) -> None:
        span = self._tracer.start_span(
            draft.name,
            context=above,
            kind=SpanKind.CLIENT if draft.is_request else SpanKind.INTERNAL,
            attributes=draft.attributes,
            links=links,
            start_time=draft.start_ns,
        )
        for moment in draft.moments:
            span.add_event(moment.name, moment.attributes, moment.at_ns)
        _set_error(span, draft.error)
        span.end(draft.end_ns)

    def _context(self, root: Root) -> SpanContext:
        """Describe a root, sampled or not: a sampler that goes by the trace's id says the same in every process."""
        decision = self._provider.sampler.should_sample(Context(), root.trace_id, "attempt").decision
        is_sampled = decision is Decision.RECORD_AND_SAMPLE
        flags = TraceFlags(TraceFlags.SAMPLED if is_sampled else TraceFlags.DEFAULT)
        return SpanContext(root.trace_id, root.span_id, is_remote=True, trace_flags=flags)


def _set_error(span: Span, error: str | None) -> None:
    if error is not None:
        span.set_attribute("error.type", error)
        span.set_status(Status(StatusCode.ERROR))


def _resource() -> Resource:
    """Say who sends; `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES` win."""
    made = Resource.create({"service.name": "batchkiln", "service.version": batchkiln.__version__})
    return made.merge(OTELResourceDetector().detect())
