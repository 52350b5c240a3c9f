"""Builders for what the displays are given."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from batchkiln.core.forecast import EndRange
from batchkiln.core.lease_types import Driver, WorkerState
from batchkiln.core.states import ItemState
from batchkiln.presentation.ends import JobEnd
from batchkiln.presentation.overview import JobView
from batchkiln.presentation.shared_by import SharedBy, Undriven
from batchkiln.store.jobs import Credits, JobSummary, ProblemGroup, UnderWay

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)


def job_view(
    items: Mapping[ItemState, int],
    *,
    name: str = "birds",
    is_paused: bool = False,
    under_way: Sequence[UnderWay] = (),
    problems: Sequence[ProblemGroup] = (),
    ends_at: datetime | None = None,
    end_range: EndRange | None = None,
    earliest_at: datetime | None = None,
    end_reason: str | None = None,
    money: Credits | None = None,
    to_review: int = 0,
    beyond_budget: int = 0,
) -> JobView:
    summary = JobSummary(
        name=name,
        description="",
        profile="local",
        manifest_path="birds.yaml",
        output_dir="out",
        is_paused=is_paused,
        created_at=NOW,
        items={state: items.get(state, 0) for state in ItemState},
        credits=money or Credits(0, 0, 0),
        budget_credits=None,
        budget_credits_per_day=None,
        queued_cost=0,
        queued_unquoted=0,
        under_way=tuple(under_way),
        problems=tuple(problems),
        to_review=to_review,
    )
    return JobView(summary, NOW, JobEnd(ends_at, end_range, earliest_at, end_reason, beyond_budget), {})


def under_way(
    state: ItemState, *, since: datetime = NOW, retention_ends_at: datetime | None = None, status: str = "processing"
) -> UnderWay:
    return UnderWay(
        item="red-fox",
        state=state,
        account="main",
        since=since,
        sends=1,
        generation_id="gen_1",
        status=status,
        retention_ends_at=retention_ends_at,
    )


def shared_by(*, silent_seconds: float = 1.0, undriven: tuple[Undriven, ...] = ()) -> SharedBy:
    """One worker that drives one account of a shared queue, taken for the second time."""
    worker = WorkerState(
        name="fra-1/4711-9c2e",
        egress="fra-1",
        host="one",
        pid=4711,
        version="0.1.0",
        started_at=NOW,
        seen_at=NOW,
        is_draining=False,
        sender="fra-1/4711-9c2e",
        driven=1,
        silent_seconds=silent_seconds,
        able=frozenset({1}),
    )
    driver = Driver("studio", "anna", worker.name, 3, NOW)
    return SharedBy((worker,), (driver,), undriven, {("studio", "anna"): 2}, {("studio", "anna"): 1})
