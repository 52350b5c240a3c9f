"""What Prometheus reads, in its text format: few metrics, of which none grows with the number of items."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from aiohttp import web

from batchkiln.client.request_metrics import BOUNDS_SECONDS, RequestMeter
from batchkiln.core.states import ItemState
from batchkiln.dashboard.context import context_of
from batchkiln.dashboard.snapshot import Level, PageSnapshot, Slot, headline

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

Labels = Mapping[str, str]
Sample = tuple[str, Labels, float]

_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric with its samples; a sample's name is the metric's with a suffix."""

    name: str
    kind: str
    help: str
    samples: list[Sample] = field(default_factory=list)

    def add(self, value: float, *, suffix: str = "", **labels: str) -> None:
        """Add a sample."""
        self.samples.append((suffix, labels, value))


async def metrics(request: web.Request) -> web.Response:
    """Give all metrics."""
    context = context_of(request)
    now = await context.snapshot()
    meter = context.driver.meter if context.driver is not None else None
    text = exposition([*queue_metrics(now), *request_metrics(meter)])
    return web.Response(body=text.encode(), headers={"Content-Type": CONTENT_TYPE})


def queue_metrics(now: PageSnapshot) -> Iterator[Metric]:
    """Give what the queue tells."""
    # A label `job` would be Prometheus' own, which renames ours unless it is told not to.
    items = Metric("batchkiln_items", "gauge", "Items of a job by state.")
    problems = Metric("batchkiln_problems", "gauge", "Items that ended badly or are held, by state and error code.")
    money = Metric("batchkiln_job_credits", "gauge", "Credits of a job: reserved, charged and refunded.")
    paused = Metric("batchkiln_job_paused", "gauge", "Whether a job is paused.")
    ends = Metric("batchkiln_job_end_timestamp_seconds", "gauge", "When a job is expected to end, in service time.")
    for view in now.overview.jobs:
        job, summary = view.summary.name, view.summary
        for state in ItemState:
            items.add(summary.items[state], job_name=job, state=state)
        for trouble in summary.troubles:
            problems.add(trouble.count, job_name=job, state=trouble.state, code=trouble.code)
        money.add(summary.credits.reserved, job_name=job, kind="reserved")
        money.add(summary.credits.charged, job_name=job, kind="charged")
        money.add(summary.credits.refunded, job_name=job, kind="refunded")
        paused.add(summary.is_paused, job_name=job)
        if view.estimated_end_at is not None:
            ends.add(view.estimated_end_at.timestamp(), job_name=job)
    yield from (items, problems, money, paused, ends)
    yield from _slot_metrics(now.slots)
    driven = Metric("batchkiln_driven", "gauge", "Whether a process drives the queue.")
    driven.add(now.overview.lease is not None)
    help_needed = Metric("batchkiln_needs_person", "gauge", "Whether something stays as it is until a person acts.")
    help_needed.add(headline(now).level is Level.HELP)
    yield from (driven, help_needed)


def _slot_metrics(slots: Iterable[Slot]) -> Iterator[Metric]:
    used = Metric("batchkiln_window_used", "gauge", "What is used of an account's window.")
    limit = Metric("batchkiln_window_limit", "gauge", "What an account's window holds.")
    busy = Metric(
        "batchkiln_slot_busy", "gauge", "Whether an account's one generation is under way; idle is 1 less it."
    )
    waits = Metric("batchkiln_slot_waits", "gauge", "What an account's slot waits for: 1 for the present reason.")
    for slot in slots:
        whose = {"profile": slot.view.summary.profile, "account": slot.view.summary.name}
        for gauge in (*((slot.credits,) if slot.credits else ()), *slot.gauges):
            used.add(gauge.used, **whose, window=gauge.window)
            limit.add(gauge.limit, **whose, window=gauge.window)
        busy.add(slot.is_busy, **whose)
        if slot.wait is not None:
            waits.add(1, **whose, reason=slot.wait.reason)
    yield from (used, limit, busy, waits)


def request_metrics(meter: RequestMeter | None) -> Iterator[Metric]:
    """Give what this process saw of the service, where it is the one that drives."""
    if meter is None:
        return
    durations = Metric("batchkiln_request_duration_seconds", "histogram", "How long replies took, in service time.")
    for endpoint, latencies in sorted(meter.latencies.items()):
        below = 0
        for bound, number in zip((*BOUNDS_SECONDS, None), latencies.counts, strict=True):
            below += number
            durations.add(below, suffix="_bucket", endpoint=endpoint, le="+Inf" if bound is None else f"{bound:g}")
        durations.add(latencies.total_seconds, suffix="_sum", endpoint=endpoint)
        durations.add(below, suffix="_count", endpoint=endpoint)
    replies = Metric("batchkiln_requests_total", "counter", "Requests to the service by status, or no_reply.")
    for (endpoint, status), number in sorted(meter.replies.items()):
        replies.add(number, endpoint=endpoint, status=status)
    yield from (durations, replies)


def exposition(found: Iterable[Metric]) -> str:
    """Write metrics as Prometheus reads them."""
    lines = []
    for metric in found:
        lines += [f"# HELP {metric.name} {metric.help}", f"# TYPE {metric.name} {metric.kind}"]
        lines += [
            f"{metric.name}{suffix}{_labels(labels)} {float(value):.15g}" for suffix, labels, value in metric.samples
        ]
    return "\n".join(lines) + "\n"


def _labels(labels: Labels) -> str:
    inner = ",".join(f'{name}="{str(value).translate(_ESCAPES)}"' for name, value in labels.items())
    return f"{{{inner}}}" if inner else ""
