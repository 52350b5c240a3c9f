"""The spans of one account: their ids, their times, and what they say of a call."""

import asyncio
from itertools import count

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from batchkiln.core.outcomes import DOWNLOADS, FACTS, READS, Download, Fact
from batchkiln.core.queue_changes import Committed, Facts
from batchkiln.core.queue_types import ItemNames
from batchkiln.core.responses import ErrorInfo, GenerationStatus, NoResponse, RecordRead, RefusalKind, Refused
from batchkiln.core.states import ItemState
from batchkiln.core.waits import WaitReason
from batchkiln.tracing import ChosenIds
from batchkiln.worker.spans import ROOTS_KEPT, Spans
from support.builders import attempt, record

SECOND = 1_000_000_000
KEYS = {1: "bk-first", 2: "bk-second"}
DONE = Committed(DOWNLOADS[Download.ALL_SAVED], ItemState.DONE)


class Process:
    """The spans of one process, and what it has sent. Its clock advances by a second with each reading."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        provider = TracerProvider(id_generator=ChosenIds(), shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self._seconds = count(100)
        self.asked: list[int] = []
        self.spans = Spans(
            provider.get_tracer("test"),
            names_of=self.names_of,
            now_ns=self.now_ns,
            ns_of=lambda _: SECOND,
        )

    async def names_of(self, item_id: int) -> ItemNames:
        self.asked.append(item_id)
        return ItemNames("foxes", "red", "epsilon-2", KEYS)

    def now_ns(self) -> int:
        return next(self._seconds) * SECOND

    def one(self, name: str) -> ReadableSpan:
        (found,) = [span for span in self.exporter.get_finished_spans() if span.name == name]
        return found

    def seconds(self, name: str) -> list[tuple[int, int]]:
        spans = [span for span in self.exporter.get_finished_spans() if span.name == name]
        return [((span.start_time or 0) // SECOND, (span.end_time or 0) // SECOND) for span in spans]


@pytest.fixture
def process() -> Process:
    return Process()


async def returning(value: object) -> object:
    return value


async def raising() -> None:
    raise RuntimeError("canary")


def ids(span: ReadableSpan) -> tuple[int, int]:
    assert span.context is not None
    return span.context.trace_id, span.context.span_id


async def test_another_process_continues_the_trace_of_an_attempt() -> None:
    """The root's ids follow from the idempotency key, and the first's child is below the other's root."""
    first, second = Process(), Process()
    await first.spans.timed("create", attempt(), returning(NoResponse("lost")))
    await second.spans.committed(attempt(), Facts(), DONE)

    create, root = first.one("create"), second.one("attempt")
    assert create.parent is not None
    assert (create.parent.trace_id, create.parent.span_id) == ids(root)
    assert root.parent is None


async def test_what_prepares_an_item_belongs_to_its_next_attempt(process: Process) -> None:
    """A quote is asked before the attempt has a key; the store knows which one it will be."""
    begun = attempt(number=2, idempotency_key=KEYS[2])
    await process.spans.timed("quote", 1, returning("a price"))
    await process.spans.committed(begun, Facts(), DONE)

    assert ids(process.one("quote"))[0] == ids(process.one("attempt"))[0]
    (before,) = process.one("attempt").links
    assert before.attributes == {"batchkiln.link": "previous attempt"}


async def test_times_are_those_of_the_clock_that_is_given(process: Process) -> None:
    """A rehearsal repeats exactly: no span reads a clock of its own."""
    await process.spans.timed("create", attempt(), returning("here"))
    await process.spans.committed(attempt(), Facts(), DONE)

    assert process.seconds("create") == [(101, 102)]
    assert process.seconds("attempt") == [(100, 103)]


async def test_waits_of_the_slot_end_with_the_next_create(process: Process) -> None:
    """One span for each reason in turn; what the slot waited for before it had nothing to do is forgotten."""
    for reason in (WaitReason.THROTTLED, WaitReason.NOTHING, WaitReason.MINUTE_WINDOW, WaitReason.MINUTE_WINDOW,
                   WaitReason.DAY_CREDITS):  # fmt: skip
        process.spans.record_wait(reason)
    await process.spans.timed("create", attempt(), returning("here"))

    waits = [span for span in process.exporter.get_finished_spans() if span.name == "wait"]
    assert [(span.attributes or {})["batchkiln.reason"] for span in waits] == ["minute_window", "day_credits"]
    assert process.seconds("wait") == [(101, 102), (102, 104)]


async def test_a_generation_lasts_from_its_reply_to_its_last_poll(process: Process) -> None:
    """In another process it begins when the service says that it was created."""
    sent, other = attempt(), Process()
    going = Committed(FACTS[Fact.WITHDRAWN], ItemState.ACTIVE)
    ended = Committed(READS[GenerationStatus.SUCCESS], ItemState.DOWNLOADING)
    await process.spans.committed(sent, Facts(record=record()), going)
    await process.spans.committed(sent, Facts(record=record(GenerationStatus.SUCCESS)), ended)
    created = attempt(state="active", generation_created_at=record().created_at, contact_at=record().created_at)
    await other.spans.committed(created, Facts(record=record(GenerationStatus.SUCCESS)), ended)

    assert process.seconds("generation") == [(101, 102)]
    assert other.seconds("generation") == [(1, 101)]


@pytest.mark.parametrize(
    ("result", "error"),
    [
        (Refused(RefusalKind.INVALID, ErrorInfo("rate-limited", "canary")), "rate-limited"),
        (Refused(RefusalKind.INVALID, ErrorInfo("a canary in the snow", "canary")), "other"),
        (NoResponse("canary"), "NoResponse"),
        (None, "not_saved"),
        (RecordRead(record()), None),
    ],
)
async def test_an_error_is_one_word(process: Process, result: object, error: str | None) -> None:
    """A service may put its whole sentence there, and a person's prompt into it."""
    await process.spans.timed("create", attempt(), returning(result))

    span = process.one("create")
    assert (span.attributes or {}).get("error.type") == error
    assert span.status.is_ok is (error is None)
    assert "canary" not in span.to_json()


async def test_a_call_that_raises_is_a_span_and_still_raises(process: Process) -> None:
    """Its text is not sent."""
    with pytest.raises(RuntimeError, match="canary"):
        await process.spans.timed("save", attempt(), raising())

    assert (process.one("save").attributes or {})["error.type"] == "RuntimeError"
    assert "canary" not in process.one("save").to_json()


async def test_a_call_that_is_cancelled_leaves_no_span(process: Process) -> None:
    """A cancelled call has no span, whether it was waiting or had not begun."""
    task = asyncio.create_task(process.spans.timed("create", attempt(), asyncio.Event().wait()))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task})

    assert task.cancelled()
    assert process.exporter.get_finished_spans() == ()


async def test_without_traces_nothing_is_measured() -> None:
    """No clock is read, no name is looked up, and nothing is kept."""
    spans, never = Spans(), Process()
    spans.names_of, spans.now_ns = never.names_of, raising  # type: ignore[assignment]
    spans.record_wait(WaitReason.MINUTE_WINDOW)

    assert await spans.timed("create", attempt(), returning("here")) == "here"
    await spans.committed(attempt(), Facts(), DONE)
    assert (never.asked, list(spans._roots), list(spans._waits)) == ([], [], [])


async def test_attempts_that_never_end_do_not_pile_up(process: Process) -> None:
    """A person may end one by hand; the oldest roots are given up."""
    for number in range(ROOTS_KEPT + 5):
        await process.spans.timed("poll", attempt(idempotency_key=f"bk-{number}"), returning("here"))

    assert len(process.spans._roots) == ROOTS_KEPT
