"""Metrics in the text format of Prometheus. Their number does not depend on the number of items."""

from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Final

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from batchkiln.client.http_session import BOUNDS_SECONDS, RequestMeter
from batchkiln.core.states import ItemState
from batchkiln.dashboard.context import context_of
from batchkiln.dashboard.snapshot import Level, PageSnapshot, Slot, headline
from batchkiln.presentation.shared_by import SharedBy

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


async def metrics(request: web.Request) -> web.Response:
    """Return all metrics."""
    context = context_of(request)
    now = await context.snapshot()
    meter = context.engine.meter if context.engine is not None else None
    text = exposition([*queue_metrics(now), *request_metrics(meter)])
    return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE})


def queue_metrics(now: PageSnapshot) -> Iterator[Metric]:
    """Yield the metrics of the queue."""
    # Prometheus sets a label `job` itself, and would rename ours.
    items = GaugeMetricFamily("batchkiln_items", "Items of a job by state.", labels=("job_name", "state"))
    problems = GaugeMetricFamily(
        "batchkiln_problems",
        "Items that failed, were rejected, expired or are held, by state and error code.",
        labels=("job_name", "state", "code"),
    )
    money = GaugeMetricFamily(
        "batchkiln_job_credits", "Credits of a job: reserved, charged and refunded.", labels=("job_name", "kind")
    )
    paused = GaugeMetricFamily("batchkiln_job_paused", "Whether a job is paused.", labels=("job_name",))
    ends = GaugeMetricFamily(
        "batchkiln_job_end_timestamp_seconds", "Estimated end of a job, in service time.", labels=("job_name",)
    )
    for view in now.overview.jobs:
        job, summary = view.summary.name, view.summary
        for state in ItemState:
            items.add_metric((job, state), summary.items[state])
        for problem in summary.problems:
            problems.add_metric((job, problem.state, problem.code), problem.count)
        money.add_metric((job, "reserved"), summary.credits.reserved)
        money.add_metric((job, "charged"), summary.credits.charged)
        money.add_metric((job, "refunded"), summary.credits.refunded)
        paused.add_metric((job,), summary.is_paused)
        if view.estimated_end_at is not None:
            ends.add_metric((job,), view.estimated_end_at.timestamp())
    yield from (items, problems, money, paused, ends)
    yield from _slot_metrics(now.slots, is_driven=now.overview.is_driven)
    yield GaugeMetricFamily("batchkiln_driven", "Whether a process runs the queue.", now.overview.is_driven)
    is_help_needed = headline(now).level is Level.HELP
    yield GaugeMetricFamily("batchkiln_needs_person", "Whether something waits for a person.", is_help_needed)
    if now.overview.shared_by is not None:
        yield from _lease_metrics(now.overview.shared_by)


def _lease_metrics(shared: SharedBy) -> Iterator[Metric]:
    """Yield the metrics of a queue that several workers share."""
    account = ("profile", "account")
    held = GaugeMetricFamily(
        "batchkiln_lease_held", "The worker that drives an account: 1 for the current one.", labels=(*account, "worker")
    )
    taken = CounterMetricFamily(
        "batchkiln_lease_takeovers_total", "How often a worker has taken an account.", labels=account
    )
    fenced = CounterMetricFamily(
        "batchkiln_fenced_writes_total",
        "Refused writes of a worker that had lost the account's lease.",
        labels=account,
    )
    undriven = GaugeMetricFamily(
        "batchkiln_account_undriven", "1 for an account with work that no worker drives.", labels=account
    )
    alive = GaugeMetricFamily(
        "batchkiln_worker_alive",
        "Whether a worker was seen within the time that a lease holds.",
        labels=("worker", "egress"),
    )
    for driver in shared.drivers:
        held.add_metric((driver.profile, driver.account, driver.worker), 1)
    for whose, count in sorted(shared.takeovers.items()):
        taken.add_metric(whose, count)
    for whose, count in sorted(shared.fenced_writes.items()):
        fenced.add_metric(whose, count)
    for each in shared.undriven:
        undriven.add_metric((each.profile, each.account), 1)
    for state in shared.workers:
        alive.add_metric((state.name, state.egress), state.is_alive)
    yield from (held, taken, fenced, undriven, alive)


def _slot_metrics(slots: Iterable[Slot], *, is_driven: bool) -> Iterator[Metric]:
    account = ("profile", "account")
    used = GaugeMetricFamily(
        "batchkiln_window_used", "Usage of an account's limit in its current window.", labels=(*account, "window")
    )
    limit = GaugeMetricFamily("batchkiln_window_limit", "An account's limit per window.", labels=(*account, "window"))
    busy = GaugeMetricFamily(
        "batchkiln_slot_busy", "Whether an account's slot has an active generation.", labels=account
    )
    waits = GaugeMetricFamily(
        "batchkiln_slot_waits",
        "The wait of an account's slot: 1 for the current reason.",
        labels=(*account, "reason"),
    )
    outage = GaugeMetricFamily(
        "batchkiln_outage", "Whether the service has not answered an account for 15 seconds or longer.", labels=account
    )
    for slot in slots:
        whose = (slot.view.summary.profile, slot.view.summary.name)
        for gauge in (*((slot.credits,) if slot.credits else ()), *slot.gauges):
            used.add_metric((*whose, gauge.window), gauge.used)
            limit.add_metric((*whose, gauge.window), gauge.limit)
        busy.add_metric(whose, slot.is_busy)
        outage.add_metric(whose, is_driven and slot.view.summary.outage is not None)
        if slot.wait is not None:
            waits.add_metric((*whose, slot.wait.reason), 1)
    yield from (used, limit, busy, waits, outage)


def request_metrics(meter: RequestMeter | None) -> Iterator[Metric]:
    """Yield the metrics of the requests of this process, if it runs the queue."""
    if meter is None:
        return
    durations = HistogramMetricFamily(
        "batchkiln_request_duration_seconds",
        "Durations of requests until the reply, in service time.",
        labels=("endpoint",),
    )
    bounds = (*(f"{bound:g}" for bound in BOUNDS_SECONDS), "+Inf")
    for endpoint, latencies in sorted(meter.latencies.items()):
        buckets = list(zip(bounds, accumulate(latencies.counts), strict=True))
        durations.add_metric((endpoint,), buckets, latencies.total_seconds)
    replies = CounterMetricFamily(
        "batchkiln_requests_total",
        "Requests to the service by status, or no_reply.",
        labels=("endpoint", "status"),
    )
    for key, number in sorted(meter.replies.items()):
        replies.add_metric(key, number)
    yield from (durations, replies)


class _Collected(Collector):
    """Metrics that were read before, because reading the queue is asynchronous."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def exposition(families: Iterable[Metric]) -> bytes:
    """Return metrics in the text format of Prometheus."""
    registry = CollectorRegistry()
    registry.register(_Collected(families))
    return generate_latest(registry)
