"""A plan as JSON values: `plan --json` prints it, and the HTTP interface replies with it to a dry run."""

import json
from typing import Any, TypedDict

from msgspec.structs import asdict

from batchkiln.api.documents import redo_document
from batchkiln.core.provider import create_path
from batchkiln.core.request import request_body
from batchkiln.core.states import ItemState
from batchkiln.planning.plan import JobPlan, Plan
from batchkiln.planning.plan_warnings import warnings_of
from batchkiln.presentation.forecasts import JobForecast
from batchkiln.presentation.item_documents import iso
from batchkiln.presentation.job_documents import job_end_document
from batchkiln.store import ChangeKind, PlannedItem


class ModelCostDocument(TypedDict):
    """The cost of one model's items."""

    profile: str
    model: str
    items: int
    credits: int
    unpriced_items: int


class CostDocument(TypedDict):
    """The cost of a plan in credits. `at_most` is null if the cost has no bound."""

    credits: int
    at_most: int | None
    is_estimate: bool
    unpriced_items: int
    rejected_items: int
    models: list[ModelCostDocument]


class PlanWarningDocument(TypedDict):
    """A warning about one job, or about all jobs."""

    code: str
    job: str | None
    message: str


class PlanDocument(TypedDict):
    """The effects and the cost of a run."""

    jobs: list[dict[str, Any]]
    cost: CostDocument
    calendars: list[dict[str, Any]]
    accounts: list[dict[str, Any]]
    other_jobs_queued: list[str]
    has_work: bool
    run_refuses: list[str]
    warnings: list[PlanWarningDocument]


def plan_document(plan: Plan) -> PlanDocument:
    """Return the plan as `plan --json` prints it."""
    return {
        "jobs": [_job_document(job) for job in plan.jobs],
        "cost": {
            "credits": plan.credits,
            "at_most": plan.most,
            "is_estimate": bool(plan.unpriced),
            "unpriced_items": plan.unpriced,
            "rejected_items": plan.rejected,
            "models": [
                {
                    "profile": cost.profile,
                    "model": cost.model,
                    "items": cost.items,
                    "credits": cost.credits,
                    "unpriced_items": cost.unpriced,
                }
                for cost in plan.costs
            ],
        },
        "calendars": [_calendar_document(outlook) for outlook in plan.outlooks],
        "accounts": [
            {"profile": profile, "account": account, "balance": balance}
            for (profile, account), balance in plan.quotes.balances.items()
        ],
        "other_jobs_queued": list(plan.others),
        "has_work": plan.would_do_anything,
        "run_refuses": plan.refusals,
        "warnings": [
            {"code": warning.code, "job": warning.job, "message": warning.message} for warning in warnings_of(plan)
        ],
    }


def _job_document(job: JobPlan) -> dict[str, Any]:
    manifest, numbers, rejections = job.manifest, job.manifest.numbers, job.rejections
    return {
        "job": manifest.spec.name,
        "profile": manifest.profile,
        "manifest": manifest.spec.manifest_path,
        "paused": manifest.is_paused,
        "items": {"known": manifest.report.known} | {kind.value: number for kind, number in numbers.items()},
        "to_send": job.to_send,
        "under_way": under_way_of(job),
        "to_make": {
            "items": job.to_make,
            "unpriced": job.to_make_unpriced,
            "to_choose": manifest.chains.to_choose,
        },
        "redo": redo_document(manifest.report),
        "stale": manifest.chains.stale,
        "unpriced": job.unpriced_items,
        "unpriced_groups": [
            {
                "model": group.model,
                "mode": group.mode.value,
                "parameters": dict(group.parameters),
                "images": group.images,
                "items": group.items,
                "reason": group.reason,
                "at_most_each": group.bound,
                "bound_by": group.bound_by,
            }
            for group in job.unpriced
        ],
        "changes": [
            {
                "kind": change.kind.value,
                "item": change.item,
                "state": None if change.state is None else change.state.value,
                "fields": list(change.fields) if change.kind is not ChangeKind.NEW else [],
                "reason": change.reason,
                "rejected": rejections.get(change.item),
            }
            for change in manifest.changes
        ],
        "uploads": {"files": manifest.uploads.files, "bytes": manifest.uploads.size_bytes},
        "unpayable": [
            {
                "code": each.obstacle.value,
                "items": each.count,
                "cost_credits": each.cost,
                "limit_credits": each.limit,
                "named": [asdict(item) for item in job.named(each)],
            }
            for each in job.unpayable
        ],
        "sufficient_budget": job.sufficient_budget,
        "refused": [
            {
                "model": each.model,
                "items": each.count,
                "item": each.item,
                "code": each.error.code,
                "message": each.error.message,
                "named": [asdict(item) for item in job.named(each)],
            }
            for each in job.refused
        ],
        **job_end_document(job.end, job.end.reason if job.to_send or under_way_of(job) else None),
        "needed_sources": manifest.needed,
        "unselected": manifest.unselected,
        "requests": [{"item": item.name, "prompt": item.prompt, **planned_request(item)} for item in manifest.shown],
    }


def _calendar_document(outlook: JobForecast) -> dict[str, Any]:
    return {
        "profile": outlook.profile,
        "accounts": list(outlook.accounts),
        "jobs": list(outlook.jobs),
        "days": [
            {
                "day": iso(day.starts_at),
                "items": day.items,
                "credits": day.credits,
                "slot_hours": round(day.busy.total_seconds() / 3600, 3),
            }
            for day in outlook.forecast.days
            if day.items or day.busy
        ],
    }


def planned_request(item: PlannedItem) -> dict[str, Any]:
    """Return the request of an item. Images are named by their files or sources, as their URLs are not known yet."""
    urls = [f"the URL of {image}" for image in item.inputs]
    body = request_body(item.recipe, prompt=item.prompt, input_urls=urls, max_cost_credits=item.cost_credits)
    return {"path": create_path(is_video=item.recipe.mode.makes_video), "body": json.loads(body)}


def under_way_of(job: JobPlan) -> int:
    """Return the number of a job's items that are neither queued nor ended."""
    return sum(entry.count for entry in job.manifest.counts if entry.state is not ItemState.QUEUED)
