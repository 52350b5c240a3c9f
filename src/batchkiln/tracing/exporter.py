"""The only module that uses OpenTelemetry; imported only if traces are configured.

A span is created when it has ended. The ids of root spans are chosen in advance, because a child can be sent long
before its root and by another process. The SDK's batch processor sends the spans in its own thread.
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
    """Return the exporter. OpenTelemetry's variables supply what the configuration omits: headers, timeout and TLS."""
    if traces.endpoint is None:
        return OTLPSpanExporter()
    has_path = traces.endpoint.endswith(_PATH)
    return OTLPSpanExporter(endpoint=traces.endpoint if has_path else traces.endpoint + _PATH)


class _ChosenIds(RandomIdGenerator):
    """Generates random ids, unless the next root's ids have been chosen."""

    def __init__(self) -> None:
        self.next: Root | None = None

    def generate_trace_id(self) -> int:
        return self.next.trace_id if self.next else super().generate_trace_id()

    def generate_span_id(self) -> int:
        return self.next.span_id if self.next else super().generate_span_id()


class _SaidOnce(SpanExporter):
    """Logs one line when spans cannot be delivered, and logs again only after a delivery succeeded."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter
        self._is_down = False

    def tell(self) -> None:
        """Log the failure unless it has been logged."""
        if not self._is_down:
            reason = "the collector rejects them; the run continues, and rejected spans are lost"
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
    """Passes spans to the SDK. Only `close` waits for the network, for a limited time."""

    def __init__(self, exporter: SpanExporter, *, environ: Mapping[str, str] = os.environ) -> None:
        """Send through `exporter`. `TRACEPARENT` in the environment makes the run a part of a pipeline's trace."""
        self._exporter = _SaidOnce(exporter)
        self._ids = _ChosenIds()
        self._provider = TracerProvider(id_generator=self._ids, resource=_resource(), shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(self._exporter))
        self._tracer = self._provider.get_tracer("batchkiln", batchkiln.__version__)
        self._environ = environ
        self._run: Span | None = None
        self._attempt_count = 0

    def begin_run(self, at_ns: int, jobs: Sequence[str] | None) -> None:
        """Start the run's span, to which the spans of attempts are linked."""
        carrier = {name.lower(): self._environ[name] for name in ("TRACEPARENT", "TRACESTATE") if name in self._environ}
        above = TraceContextTextMapPropagator().extract(carrier, context=Context())
        self._run = self._tracer.start_span("run", context=above, start_time=at_ns)
        if jobs is not None:
            self._run.set_attribute("batchkiln.jobs", list(jobs))

    def end_run(self, at_ns: int, error: str | None) -> None:
        """End the run's span."""
        if self._run is not None:
            self._run.set_attribute("batchkiln.attempts_ended", self._attempt_count)
            _set_error(self._run, error)
            self._run.end(at_ns)

    def part(self, root: Root, draft: Draft) -> None:
        """Send a span whose root will be sent later or was sent by another process."""
        self._give(draft, set_span_in_context(NonRecordingSpan(self._context(root)), Context()), ())

    def root(self, root: Root, draft: Draft, *, before: Root | None) -> None:
        """Send a root span, linked to this run and to the root of the previous attempt."""
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
        """Send the remaining spans, and wait at most `seconds` of real time; 0 does not wait.

        This runs in its own thread because the process would wait for a pool's thread at exit.
        """
        loop, is_done = asyncio.get_running_loop(), asyncio.Event()

        def shut_down() -> None:
            self._provider.shutdown()
            with suppress(RuntimeError):  # the loop may have been closed
                loop.call_soon_threadsafe(is_done.set)

        threading.Thread(target=shut_down, name="batchkiln-traces", daemon=True).start()
        if not seconds:
            return
        try:
            async with asyncio.timeout(seconds):
                await is_done.wait()
        except TimeoutError:
            self._exporter.tell()
            self._exporter.shutdown()  # ends the exporter's pauses between retries

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
        """Return a root's context, sampled or not; a sampler based on the trace id decides alike in every process."""
        decision = self._provider.sampler.should_sample(Context(), root.trace_id, "attempt").decision
        is_sampled = decision is Decision.RECORD_AND_SAMPLE
        flags = TraceFlags(TraceFlags.SAMPLED if is_sampled else TraceFlags.DEFAULT)
        return SpanContext(root.trace_id, root.span_id, is_remote=True, trace_flags=flags)


def _set_error(span: Span, error: str | None) -> None:
    if error is not None:
        span.set_attribute("error.type", error)
        span.set_status(Status(StatusCode.ERROR))


def _resource() -> Resource:
    """Return the sender's attributes; `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES` take precedence."""
    made = Resource.create({"service.name": "batchkiln", "service.version": batchkiln.__version__})
    return made.merge(OTELResourceDetector().detect())
