"""Traces of whole runs on the embedded local service: what they tell, what they never tell, and that no run notices."""

import asyncio
import sys
import threading
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanContext, StatusCode
from PIL import Image
from structlog.testing import capture_logs

import batchkiln
from batchkiln import tracing
from batchkiln.client import ServiceClient
from batchkiln.config import Traces
from batchkiln.core.responses import CreateReply, ErrorInfo, OutputLink, Unavailable, UploadTicket
from batchkiln.worker.spans import Spans

SMALL: Final[batchkiln.Defaults] = {
    "model": "epsilon-2",
    "mode": "text-to-image",
    "parameters": {"resolution": "512x512"},
}
SECOND_NS: Final = 1_000_000_000
NOWHERE: Final = "http://127.0.0.1:9"


class SentSpans:
    """What every run of a test has sent."""

    def __init__(self) -> None:
        self.exporters: list[InMemorySpanExporter] = []

    def exporter(self, traces: Traces) -> SpanExporter:
        assert traces.endpoint == NOWHERE
        self.exporters.append(InMemorySpanExporter())
        return self.exporters[-1]

    @property
    def all(self) -> list[ReadableSpan]:
        return [span for exporter in self.exporters for span in exporter.get_finished_spans()]

    def named(self, name: str, **attributes: object) -> list[ReadableSpan]:
        wanted = {f"batchkiln.{key}": value for key, value in attributes.items()}
        return [
            span for span in self.all if span.name == name and wanted.items() <= dict(span.attributes or {}).items()
        ]

    def one(self, name: str, **attributes: object) -> ReadableSpan:
        (found,) = self.named(name, **attributes)
        return found

    def below(self, root: ReadableSpan) -> list[ReadableSpan]:
        found = [span for span in self.all if span.parent and span.parent.span_id == context_of(root).span_id]
        return sorted(found, key=lambda span: span.start_time or 0)


def context_of(span: ReadableSpan) -> SpanContext:
    context: SpanContext = span.context
    return context


def times_of(span: ReadableSpan) -> tuple[int, int]:
    assert span.start_time is not None
    assert span.end_time is not None
    return span.start_time, span.end_time


def told(span: ReadableSpan, name: str) -> object:
    return (span.attributes or {}).get(name if "." in name else f"batchkiln.{name}")


@pytest.fixture(autouse=True)
async def patience() -> AsyncIterator[None]:
    async with asyncio.timeout(60):
        yield


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> SentSpans:
    made = SentSpans()
    monkeypatch.setattr(tracing, "new_exporter", made.exporter)
    return made


def config_of(endpoint: str = NOWHERE, **limits: object) -> dict[str, object]:
    return {"profiles": {"local": {"time_scale": 600, "limits": limits}}, "traces": {"endpoint": endpoint}}


async def drive(folder: Path, config: dict[str, object], *items: object, **defaults: object) -> batchkiln.RunResult:
    async with batchkiln.open_queue(folder / "q.db", config=config, working_dir=folder) as queue:
        await queue.enqueue({"version": 1, "job": "foxes", "defaults": {**SMALL, **defaults}, "items": list(items)})
        return await queue.run()


async def test_an_attempt_is_a_trace_of_what_its_item_waited_for(spans: SentSpans, tmp_path: Path) -> None:
    """From the first quote to the last file, each step a span, within the root's times and the machine's."""
    before_ns = time.time_ns()
    await drive(tmp_path, config_of(), {"id": "red", "prompt": "A fox"})
    after_ns = time.time_ns()

    root = spans.one("attempt", item="red")
    steps = [span for span in spans.below(root) if span.name not in {"wait", "poll"}]
    start_ns, end_ns = times_of(root)
    assert [span.name for span in steps] == ["quote", "create", "generation", "download", "save"]
    assert [told(span, "http.response.status_code") for span in steps] == [200, 202, None, 200, None]
    assert before_ns < start_ns < end_ns < after_ns
    assert all(start_ns <= times_of(span)[0] <= times_of(span)[1] <= end_ns for span in spans.below(root))
    assert 0 <= times_of(steps[2])[0] - times_of(steps[1])[1] < SECOND_NS / 10  # it is generated from the reply on
    assert {told(span, name) for span in steps for name in ("job", "item", "account", "model")} == {
        "foxes", "red", "main", "epsilon-2",
    }  # fmt: skip
    assert (told(root, "attempt"), told(root, "credits"), told(root, "state")) == (1, 2, "done")
    assert str(told(root, "generation_id")).startswith("gen_")


async def test_polls_say_how_far_the_generation_was(spans: SentSpans, tmp_path: Path) -> None:
    """Each with its status; the last one is the success, and ends the generation's span."""
    await drive(tmp_path, config_of(), "A fox")

    polls = [span for span in spans.below(spans.one("attempt")) if span.name == "poll"]
    assert told(polls[-1], "status") == "success"
    assert times_of(polls[-1])[1] <= times_of(spans.one("generation"))[1]


async def test_a_wait_for_the_slot_says_why(spans: SentSpans, tmp_path: Path) -> None:
    """One create a minute, which is a second here."""
    await drive(
        tmp_path, config_of(creates_per_minute=1, minute_seconds=600), "A fox", {"id": "owl", "prompt": "An owl"}
    )

    wait = spans.one("wait", item="owl", reason="minute_window")
    root = spans.one("attempt", item="owl")
    assert times_of(root)[0] == times_of(wait)[0]
    assert times_of(wait)[1] - times_of(wait)[0] > SECOND_NS / 10


async def test_a_second_attempt_names_the_first_and_the_run(spans: SentSpans, tmp_path: Path) -> None:
    """Two traces, since two purchases; links lead from one to the other, and to the run."""
    await drive(tmp_path, config_of(), "An owl [fail-once]")

    first, second = spans.one("attempt", attempt=1), spans.one("attempt", attempt=2)
    run = spans.one("run")
    assert context_of(first).trace_id != context_of(second).trace_id
    assert [link.context.span_id for link in second.links] == [context_of(run).span_id, context_of(first).span_id]
    assert [link.context.trace_id for link in second.links][1] == context_of(first).trace_id
    assert first.status.status_code is StatusCode.ERROR
    assert (told(first, "state"), told(second, "state")) == ("queued", "done")


async def test_a_send_in_doubt_shows_as_two(spans: SentSpans, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One attempt: the send that was answered by a 503, the pause, and the send of the same bytes."""
    create, lost = ServiceClient.create, [Unavailable(timedelta(seconds=20), ErrorInfo("http_503", ""))]

    async def lose_one(self: ServiceClient, **request: Any) -> CreateReply:  # noqa: ANN401
        reply = await create(self, **request)
        return lost.pop() if lost else reply

    monkeypatch.setattr(ServiceClient, "create", lose_one)
    await drive(tmp_path, config_of() | {"profiles": {"local": {"time_scale": 100}}}, "A fox")

    root = spans.one("attempt")
    first, pause, second = [
        span for span in spans.below(root) if span.name == "create" or told(span, "reason") == "service_unavailable"
    ]
    assert told(first, "error.type") == "http_503"
    assert (pause.name, told(second, "http.request.resend_count")) == ("wait", 1)
    assert times_of(first)[1] <= times_of(pause)[0] < times_of(pause)[1] <= times_of(second)[0]
    assert (told(root, "sends"), told(root, "state")) == (2, "done")


async def test_the_quote_of_an_item_that_is_rejected_is_found_by_its_name(spans: SentSpans, tmp_path: Path) -> None:
    """Its price is over its cap: there is no attempt, and no root span."""
    await drive(tmp_path, config_of(), {"id": "red", "prompt": "A fox"}, max_cost_credits=1)

    assert spans.one("quote", item="red").parent is not None
    assert spans.named("attempt") == []


async def test_an_attempt_that_another_process_finishes_is_one_trace(spans: SentSpans, tmp_path: Path) -> None:
    """What the first has sent hangs below the root that the second sends, at the right time of the day."""
    config = config_of() | {"profiles": {"local": {"time_scale": 100}}}
    before_ns = time.time_ns()
    async with batchkiln.open_queue(tmp_path / "q.db", config=config, working_dir=tmp_path) as queue:
        await queue.enqueue_items(["A fox"], job="foxes", defaults=SMALL)
        await queue.start()
        async for event in queue.events(after=0):
            if event.state == "active":
                await queue.stop()
                break
    first = list(spans.all)
    async with batchkiln.open_queue(tmp_path / "q.db", config=config, working_dir=tmp_path) as queue:
        await queue.run()

    root, create = spans.one("attempt"), spans.one("create")
    names = {span.name for span in spans.below(root)} - {"wait", "read"}  # links may have ended meanwhile
    assert create in first
    assert root not in first
    assert context_of(create).trace_id == context_of(root).trace_id
    assert names == {"quote", "create", "poll", "generation", "download", "save"}
    assert before_ns - SECOND_NS < times_of(root)[0]
    assert abs(times_of(root)[0] - times_of(create)[0]) < SECOND_NS
    assert abs(times_of(spans.one("generation"))[0] - times_of(create)[1]) < SECOND_NS


class Collector:
    """Takes what OTLP brings over HTTP, as bytes."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.url = ""

    async def receive(self, request: web.Request) -> web.Response:
        self.bodies.append(await request.read())
        return web.Response(content_type="application/x-protobuf")


@pytest.fixture
async def collector() -> AsyncIterator[Collector]:
    made = Collector()
    app = web.Application()
    app.router.add_post("/v1/traces", made.receive)
    async with TestServer(app) as server:
        made.url = f"http://127.0.0.1:{server.port}"
        yield made


async def test_no_secret_and_no_prompt_is_sent(
    collector: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law 8, on the wire: keys, signed links, upload tickets, prompts, also of what fails."""
    secrets = _overheard(monkeypatch)
    Image.new("RGB", (512, 512), "red").save(tmp_path / "canary-image.png")
    picture = {"mode": "image-to-image", "prompt": "canary-prompt", "inputs": [str(tmp_path / "canary-image.png")]}

    ending = await drive(
        tmp_path, config_of(collector.url), {"model": "epsilon-2", **picture}, "canary-prompt [fail]", attempts=1
    )

    sent = b"".join(collector.bodies)
    requests = [ExportTraceServiceRequest.FromString(body) for body in collector.bodies]
    found = [
        span for one in requests for part in one.resource_spans for scope in part.scope_spans for span in scope.spans
    ]
    assert ending.exit_status is batchkiln.ExitStatus.ITEMS_NOT_DONE
    assert {"attempt", "upload.put", "download", "run"} <= {span.name for span in found}
    assert len(secrets) > 4
    for secret in (*secrets, "canary", str(tmp_path), "://"):
        assert secret.encode() not in sent, secret


def _overheard(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Gather the secrets that pass through the client."""
    secrets: set[str] = set()
    download, put = ServiceClient.download, ServiceClient.put_upload

    def hear_download(self: ServiceClient, link: OutputLink, **options: Any) -> Any:  # noqa: ANN401
        secrets.update({link.url, link.url.partition("?")[2], *self._keys.secrets})
        return download(self, link, **options)

    def hear_put(self: ServiceClient, ticket: UploadTicket, *options: Any) -> Any:  # noqa: ANN401
        secrets.update({ticket.url, ticket.url.partition("?")[2]})
        return put(self, ticket, *options)

    monkeypatch.setattr(ServiceClient, "download", hear_download)
    monkeypatch.setattr(ServiceClient, "put_upload", hear_put)
    return secrets


async def test_a_dead_collector_costs_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run ends as it would have, soon, and the log says once that nothing arrived."""
    monkeypatch.setattr(tracing, "END_SECONDS", 0.2)
    with capture_logs() as lines:
        ending = await drive(tmp_path, config_of(NOWHERE), "A fox", "An owl")

    assert ending.exit_status is batchkiln.ExitStatus.OK
    assert [line["event"] for line in lines if line["log_level"] == "warning"] == ["traces_not_delivered"]


async def test_a_drive_that_is_cut_off_waits_for_no_collector(
    spans: SentSpans, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second Ctrl-C, or a cancelled task, ends at once; what the thread still sends is welcome."""
    release = threading.Event()
    monkeypatch.setattr(InMemorySpanExporter, "export", lambda *_: release.wait(30))
    async with batchkiln.open_queue(tmp_path / "q.db", config=config_of(), working_dir=tmp_path) as queue:
        await queue.enqueue_items(["A fox [stay-pending]"], job="foxes", defaults=SMALL)
        await queue.start()
        async for event in queue.events(after=0):
            if event.state == "active":
                break
        began = time.monotonic()
        await queue._abandon()
        took_seconds = time.monotonic() - began
    release.set()

    assert took_seconds < tracing.END_SECONDS
    assert len(spans.exporters) == 1


def broken(*_: object, **__: object) -> None:
    raise RuntimeError("a bug")


@pytest.mark.parametrize("place", ["_names_of", "_root", "_start", "_end", "_end_waits"])
async def test_a_bug_in_the_spans_does_not_reach_the_run(
    place: str, spans: SentSpans, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Money is spent by the run, not by who looks at it."""
    owner = tracing if place == "_names_of" else Spans
    monkeypatch.setattr(owner, place, broken)

    ending = await drive(tmp_path, config_of(), "A fox")

    assert ending.exit_status is batchkiln.ExitStatus.OK
    assert len(spans.named("run")) == 1


@pytest.mark.parametrize("config", [config_of(), config_of() | {"traces": None}], ids=["missing", "not wanted"])
async def test_a_run_needs_no_sdk(config: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without configured traces, the SDK is not imported; with them, a missing SDK is reported."""
    for name in [name for name in sys.modules if name.startswith(("opentelemetry.sdk", "batchkiln.tracing"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk", None)
    with capture_logs() as lines:
        ending = await drive(tmp_path, config, "A fox")

    warnings = [line["event"] for line in lines if line["log_level"] == "warning"]
    assert ending.exit_status is batchkiln.ExitStatus.OK
    assert warnings == (["traces_unusable"] if config["traces"] else [])
