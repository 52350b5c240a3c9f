"""Metrics in the text format of Prometheus. Their number does not depend on the number of items."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from aiohttp import web

from batchkiln.client.http_session import BOUNDS_SECONDS, RequestMeter
from batchkiln.core.states import ItemState
from batchkiln.dashboard.context import context_of
from batchkiln.dashboard.snapshot import Level, PageSnapshot, Slot, headline
from batchkiln.presentation.worker_views import SharedBy

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

Labels = Mapping[str, str]
Sample = tuple[str, Labels, float]

_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric with its samples, each a name suffix, labels and a value."""

    name: str
    kind: str
    help: str
    samples: list[Sample] = field(default_factory=list)

    def add(self, value: float, *, suffix: str = "", **labels: str) -> None:
        """Add a sample."""
        self.samples.append((suffix, labels, value))


async def metrics(request: web.Request) -> web.Response:
    """Return all metrics."""
    context = context_of(request)
    now = await context.snapshot()
    meter = context.engine.meter if context.engine is not None else None
    text = exposition([*queue_metrics(now), *request_metrics(meter)])
    return web.Response(body=text.encode(), headers={"Content-Type": CONTENT_TYPE})


def queue_metrics(now: PageSnapshot) -> Iterator[Metric]:
    """Yield the metrics of the queue."""
    # Prometheus sets a label `job` itself, and would rename ours.
    items = Metric("batchkiln_items", "gauge", "Items of a job by state.")
    problems = Metric(
        "batchkiln_problems", "gauge", "Items that failed, were rejected, expired or are held, by state and error code."
    )
    money = Metric("batchkiln_job_credits", "gauge", "Credits of a job: reserved, charged and refunded.")
    paused = Metric("batchkiln_job_paused", "gauge", "Whether a job is paused.")
    ends = Metric("batchkiln_job_end_timestamp_seconds", "gauge", "Estimated end of a job, in service time.")
    for view in now.overview.jobs:
        job, summary = view.summary.name, view.summary
        for state in ItemState:
            items.add(summary.items[state], job_name=job, state=state)
        for problem in summary.problems:
            problems.add(problem.count, job_name=job, state=problem.state, code=problem.code)
        money.add(summary.credits.reserved, job_name=job, kind="reserved")
        money.add(summary.credits.charged, job_name=job, kind="charged")
        money.add(summary.credits.refunded, job_name=job, kind="refunded")
        paused.add(summary.is_paused, job_name=job)
        if view.estimated_end_at is not None:
            ends.add(view.estimated_end_at.timestamp(), job_name=job)
    yield from (items, problems, money, paused, ends)
    yield from _slot_metrics(now.slots)
    driven = Metric("batchkiln_driven", "gauge", "Whether a process runs the queue.")
    driven.add(now.overview.is_driven)
    help_needed = Metric("batchkiln_needs_person", "gauge", "Whether something waits for a person.")
    help_needed.add(headline(now).level is Level.HELP)
    yield from (driven, help_needed)
    if now.overview.shared_by is not None:
        yield from _lease_metrics(now.overview.shared_by)


def _lease_metrics(shared: SharedBy) -> Iterator[Metric]:
    """Yield the metrics of a queue that several workers share."""
    held = Metric("batchkiln_lease_held", "gauge", "The worker that drives an account: 1 for the current one.")
    taken = Metric("batchkiln_lease_takeovers_total", "counter", "How often a worker has taken an account.")
    fenced = Metric(
        "batchkiln_fenced_writes_total", "counter", "Refused writes of a worker that had lost the account's lease."
    )
    undriven = Metric("batchkiln_account_undriven", "gauge", "1 for an account with work that no worker drives.")
    alive = Metric("batchkiln_worker_alive", "gauge", "Whether a worker was seen within the time that a lease holds.")
    for driver in shared.drivers:
        held.add(1, profile=driver.profile, account=driver.account, worker=driver.worker)
    for (profile, account), count in sorted(shared.takeovers.items()):
        taken.add(count, profile=profile, account=account)
    for (profile, account), count in sorted(shared.fenced_writes.items()):
        fenced.add(count, profile=profile, account=account)
    for each in shared.undriven:
        undriven.add(1, profile=each.profile, account=each.account)
    for state in shared.workers:
        alive.add(state.is_alive, worker=state.name, egress=state.egress)
    yield from (held, taken, fenced, undriven, alive)


def _slot_metrics(slots: Iterable[Slot]) -> Iterator[Metric]:
    used = Metric("batchkiln_window_used", "gauge", "Usage of an account's limit in its current window.")
    limit = Metric("batchkiln_window_limit", "gauge", "An account's limit per window.")
    busy = Metric("batchkiln_slot_busy", "gauge", "Whether an account's slot has an active generation.")
    waits = Metric("batchkiln_slot_waits", "gauge", "The wait of an account's slot: 1 for the current reason.")
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
    """Yield the metrics of the requests of this process, if it runs the queue."""
    if meter is None:
        return
    durations = Metric(
        "batchkiln_request_duration_seconds", "histogram", "Durations of requests until the reply, in service time."
    )
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
    """Return metrics in the text format of Prometheus."""
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
