"""What a run gives to OpenTelemetry: its place in a pipeline's trace, whole traces, and an end within bounds."""

import logging
import threading
from collections.abc import Sequence

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from structlog.testing import capture_logs

from batchkiln.clock import ServiceClock
from batchkiln.config import Traces
from batchkiln.core.outcomes import DOWNLOADS, Download
from batchkiln.core.queue_changes import Committed, Facts
from batchkiln.core.queue_types import ItemNames, Scope, Viewpoint
from batchkiln.core.states import ItemState
from batchkiln.tracing import Tracing, new_exporter
from support.builders import NOON, attempt

VIEWPOINT = Viewpoint(1, "local", "main", is_first=True, scope=Scope())


async def names_of(item_id: int) -> ItemNames:
    return ItemNames("foxes", f"item-{item_id}", "epsilon-2", {1: f"bk-{item_id}"})


def tracing_to(exporter: SpanExporter, **environ: str) -> Tracing:
    return Tracing(exporter, names_of=names_of, wall=lambda: NOON, jobs=["foxes"], environ=environ)


async def answer() -> str:
    return "here"


async def test_a_run_joins_the_trace_of_its_pipeline() -> None:
    """`TRACEPARENT` names the span that started this process."""
    exporter = InMemorySpanExporter()
    traced = tracing_to(exporter, TRACEPARENT="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
    await traced.close(None, seconds=5)

    (run,) = exporter.get_finished_spans()

    assert run.parent is not None
    assert run.parent.trace_id == 0x0AF7651916CD43DD8448EB211C80319C
    assert run.parent.span_id == 0xB7AD6B7169203331
    assert dict(run.attributes or {}) == {"batchkiln.jobs": ("foxes",)}


@pytest.mark.parametrize(("ratio", "names"), [("0", []), ("1", ["attempt", "create", "run"])])
async def test_a_sampler_keeps_or_drops_a_trace_as_a_whole(
    ratio: str, names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The standard variables choose one; it goes by the trace's id, which is the same in every process."""
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", ratio)
    exporter = InMemorySpanExporter()
    traced = tracing_to(exporter)
    spans = traced.spans(VIEWPOINT, ServiceClock())
    await spans.timed("create", attempt(), answer())
    await spans.committed(attempt(), Facts(), Committed(DOWNLOADS[Download.ALL_SAVED], ItemState.DONE))
    await traced.close(None, seconds=5)

    assert sorted(span.name for span in exporter.get_finished_spans()) == names


@pytest.mark.parametrize("endpoint", ["http://collector:4318", "http://collector:4318/v1/traces"])
def test_endpoint_may_be_with_its_path_or_without(endpoint: str) -> None:
    """As `OTEL_EXPORTER_OTLP_ENDPOINT`, or as `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`."""
    exporter = new_exporter(Traces(endpoint))

    assert exporter._endpoint == "http://collector:4318/v1/traces"  # type: ignore[attr-defined]


async def test_a_token_for_the_collector_stays_out_of_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The SDK's own log is heard as well, with all that it says of a collector that cannot be reached."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer canary-token")
    monkeypatch.setattr(logging.root, "handlers", [caplog.handler])  # without those that a command has set up
    caplog.set_level(logging.DEBUG)
    with capture_logs() as lines:
        await tracing_to(new_exporter(Traces("http://127.0.0.1:9"))).close(None, seconds=0.2)

    assert [line["event"] for line in lines] == ["traces_not_delivered"]
    assert "canary" not in f"{lines}{caplog.text}"


class HungExporter(SpanExporter):
    """A collector that takes the spans and never answers."""

    def __init__(self) -> None:
        self.release = threading.Event()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.release.wait(30)
        return SpanExportResult.SUCCESS if spans else SpanExportResult.FAILURE


async def test_a_collector_that_never_answers_holds_up_an_end_for_a_limited_time() -> None:
    """The thread is left to itself, and the log says so."""
    exporter = HungExporter()
    with capture_logs() as lines:
        await tracing_to(exporter).close(None, seconds=0.05)
    is_still_sending = not exporter.release.is_set()
    exporter.release.set()

    assert is_still_sending
    assert [line["event"] for line in lines] == ["traces_not_delivered"]


class BrokenExporter(HungExporter):
    """A collector's client with a bug."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        raise RuntimeError(len(spans))


async def test_an_exporter_that_raises_costs_a_line() -> None:
    """Its spans are lost, and its thread goes on."""
    with capture_logs() as lines:
        await tracing_to(BrokenExporter()).close("CancelledError", seconds=5)

    assert [line["event"] for line in lines] == ["traces_not_delivered"]
