"""What OpenTelemetry gets: the run within a pipeline's trace, and ids that two processes agree on."""

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from batchkiln.config import Traces
from batchkiln.tracing.exporter import Emitter, Root, new_exporter
from batchkiln.tracing.recorder import word_of
from batchkiln.tracing.span_data import Draft

ROOT = Root(0x4BF92F3577B34DA6A3CE929D0E0E4736, 0x00F067AA0BA902B7)


async def closed(emitter: Emitter, exporter: InMemorySpanExporter) -> list[ReadableSpan]:
    await emitter.close(5)
    return list(exporter.get_finished_spans())


async def test_a_run_joins_the_trace_of_its_pipeline() -> None:
    """`TRACEPARENT` names the span that started this process."""
    exporter = InMemorySpanExporter()
    emitter = Emitter(exporter, environ={"TRACEPARENT": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"})
    emitter.begin_run(1_000, ["foxes"])
    emitter.end_run(2_000, None)

    (run,) = await closed(emitter, exporter)

    assert run.parent is not None
    assert run.parent.trace_id == 0x0AF7651916CD43DD8448EB211C80319C
    assert run.parent.span_id == 0xB7AD6B7169203331
    assert (run.start_time, run.end_time) == (1_000, 2_000)


@pytest.mark.parametrize(("ratio", "names"), [("0", []), ("1", ["attempt", "create"])])
async def test_a_sampler_keeps_or_drops_a_trace_as_a_whole(
    ratio: str, names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The standard variables choose one; it goes by the trace's id, which is the same in every process."""
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", ratio)
    exporter = InMemorySpanExporter()
    emitter = Emitter(exporter, environ={})
    emitter.part(ROOT, Draft("create", 2, 3, is_request=True))
    emitter.root(ROOT, Draft("attempt", 1, 4), before=None)

    spans = await closed(emitter, exporter)

    assert sorted(span.name for span in spans) == names


@pytest.mark.parametrize("endpoint", ["http://collector:4318", "http://collector:4318/v1/traces"])
def test_endpoint_may_be_with_its_path_or_without(endpoint: str) -> None:
    """As `OTEL_EXPORTER_OTLP_ENDPOINT`, or as `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`."""
    exporter = new_exporter(Traces(endpoint))

    assert exporter._endpoint == "http://collector:4318/v1/traces"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("code", "word"), [("http_429", "http_429"), ("rate-limited", "rate-limited"), ("a fox in the snow", "other")]
)
def test_only_words_are_taken_for_codes(code: str, word: str) -> None:
    """A service may put its whole sentence there, and a person's prompt into it."""
    assert word_of(code) == word
