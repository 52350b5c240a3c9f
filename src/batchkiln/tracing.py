"""Sends the spans of a run to an OpenTelemetry collector; imported only if traces are configured.

The SDK's batch processor sends spans in a separate thread. Only the end of a run waits for it, for a limited time.
"""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta
from functools import partial
from types import SimpleNamespace
from typing import Final

import aiohttp
import structlog
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace import Link, Status, StatusCode, get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

import batchkiln
from batchkiln.clock import ServiceClock
from batchkiln.config import Traces
from batchkiln.core.queue_types import ItemNames, Viewpoint
from batchkiln.core.timestamps import EPOCH
from batchkiln.store import Store
from batchkiln.worker.spans import Spans, chosen_ids

END_SECONDS: Final = 3.0
"""Time that the end of a run waits for the last spans, in seconds of real time; later spans are lost."""

_PATH: Final = "/v1/traces"
_MICROSECOND: Final = timedelta(microseconds=1)

log = structlog.get_logger()


class Tracing:
    """The spans of one run. `TRACEPARENT` in the environment makes the run's span part of the trace of a pipeline."""

    def __init__(
        self,
        exporter: SpanExporter,
        *,
        names_of: Callable[[int], Awaitable[ItemNames]],
        wall: Callable[[], datetime],
        jobs: Sequence[str] | None = None,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        """Start the span of the run. `wall` is the machine's clock."""
        self._exporter = _QuietExporter(exporter)
        self._provider = TracerProvider(id_generator=ChosenIds(), resource=_resource(), shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(self._exporter))
        self._tracer = self._provider.get_tracer("batchkiln", batchkiln.__version__)
        self._names_of, self._wall = names_of, wall
        carrier = {name.lower(): environ[name] for name in ("TRACEPARENT", "TRACESTATE") if name in environ}
        above = TraceContextTextMapPropagator().extract(carrier, context=Context())
        self._run = self._tracer.start_span("run", above, start_time=self._now_ns())
        if jobs is not None:
            self._run.set_attribute("batchkiln.jobs", list(jobs))

    def spans(self, viewpoint: Viewpoint, clock: ServiceClock) -> Spans:
        """Return the spans of an account's worker."""

        def ns_of(instant: datetime) -> int:
            return _nanoseconds(self._wall() - (clock.now().instant - instant) / clock.time_scale)

        return Spans(
            self._tracer,
            names_of=self._names_of,
            now_ns=self._now_ns,
            ns_of=ns_of,
            attributes={"batchkiln.profile": viewpoint.profile, "batchkiln.account": viewpoint.account},
            links=(Link(self._run.get_span_context(), {"batchkiln.link": "run"}),),
        )

    @staticmethod
    def statuses() -> aiohttp.TraceConfig:
        """Return a trace configuration that adds each HTTP reply's status to the span of its call."""

        async def add(_: aiohttp.ClientSession, __: SimpleNamespace, params: aiohttp.TraceRequestEndParams) -> None:
            get_current_span().set_attribute("http.response.status_code", params.response.status)

        config = aiohttp.TraceConfig()
        config.on_request_end.append(add)
        return config

    async def close(self, error: str | None, *, seconds: float) -> None:
        """End the run's span, and send the remaining spans. Wait at most `seconds` of real time; with 0, do not wait.

        The shutdown has its own thread, because the process would wait at exit for a thread of a pool.
        """
        if error is not None:
            self._run.set_status(Status(StatusCode.ERROR))
            self._run.set_attribute("error.type", error)
        self._run.end(self._now_ns())
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
            self._exporter.log_failure()
            self._exporter.shutdown()  # ends the exporter's pauses between retries

    def _now_ns(self) -> int:
        return _nanoseconds(self._wall())


@asynccontextmanager
async def tracing(
    store: Store, traces: Traces, *, wall: Callable[[], datetime], jobs: Sequence[str] | None
) -> AsyncIterator[Tracing | None]:
    """Trace a run. A failure of tracing never affects the run."""
    run: Tracing | None = None
    try:
        run = Tracing(new_exporter(traces), names_of=partial(_names_of, store), wall=wall, jobs=jobs)
    except Exception as problem:  # noqa: BLE001  a run that spends money does not depend on being traced
        log.warning("traces_unusable", error=type(problem).__name__)
    error, seconds = None, END_SECONDS
    try:
        yield run
    except BaseException as raised:
        error = type(raised).__name__
        if isinstance(raised, asyncio.CancelledError):
            seconds = 0.0
        raise
    finally:
        try:
            if run is not None:
                await run.close(error, seconds=seconds)
        except Exception as problem:  # noqa: BLE001  the run has ended well or badly by itself
            log.warning("traces_not_delivered", error=type(problem).__name__)


def new_exporter(traces: Traces) -> SpanExporter:
    """Return the exporter. OpenTelemetry's variables supply settings that are not configured: headers, timeout, TLS."""
    if traces.endpoint is None:
        return OTLPSpanExporter()
    has_path = traces.endpoint.endswith(_PATH)
    return OTLPSpanExporter(endpoint=traces.endpoint if has_path else traces.endpoint + _PATH)


class ChosenIds(RandomIdGenerator):
    """Generates random ids, unless those of the root span that is being started are chosen."""

    def generate_trace_id(self) -> int:
        """Return the id of a new trace."""
        ids = chosen_ids.get()
        return super().generate_trace_id() if ids is None else ids[0]

    def generate_span_id(self) -> int:
        """Return the id of a new span."""
        ids = chosen_ids.get()
        return super().generate_span_id() if ids is None else ids[1]


class _QuietExporter(SpanExporter):
    """Logs one line when spans cannot be delivered, and logs again only after a delivery succeeded."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter
        self._is_down = False

    def log_failure(self) -> None:
        """Log the failure, unless it has been logged already."""
        if not self._is_down:
            reason = "the collector rejects them; the run continues, and rejected spans are lost"
            log.warning("traces_not_delivered", reason=reason)
        self._is_down = True

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = SpanExportResult.FAILURE
        with suppress(Exception):  # the thread has to live, whatever an exporter raises
            result = self._exporter.export(spans)
        if result is SpanExportResult.SUCCESS:
            self._is_down = False
        else:
            self.log_failure()
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._exporter.force_flush(timeout_millis)


async def _names_of(store: Store, item_id: int) -> ItemNames:
    return await store.read(lambda reader: reader.generations.item_names(item_id))


def _nanoseconds(instant: datetime) -> int:
    return (instant - EPOCH) // _MICROSECOND * 1000


def _resource() -> Resource:
    """Return the sender's attributes; `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES` take precedence."""
    made = Resource.create({"service.name": "batchkiln", "service.version": batchkiln.__version__})
    return made.merge(OTELResourceDetector().detect())
