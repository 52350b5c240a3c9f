"""The planner's view of the queue, read at once: what is unresolved, what comes next, what is to be fetched."""

import json
from collections.abc import Sequence, Set as AbstractSet
from datetime import datetime

from batchkiln.core.budget import JobCredits
from batchkiln.core.duration_model import Observation
from batchkiln.core.job import Attempt, AttemptState
from batchkiln.core.queue_types import Candidate, Kind, Outstanding, QueueView, Scope, Snapshot, Viewpoint
from batchkiln.core.states import ItemState
from batchkiln.store.misunderstood import misunderstood
from batchkiln.store.row_types import attempt_of, held_of, input_ids_of, instant, is_for, order_of
from batchkiln.store.session import Row, Session
from batchkiln.store.sql import query
from batchkiln.store.usage import job_credits, usages

UPLOAD_LOOKAHEAD = 5
"""How many items of a class are looked at for images to upload: one request takes five files (Service section 4)."""

ATTEMPTS_LOOKED_AT = 1000
"""How many of the newest attempts are looked at for durations: what is older tells little of today's service."""


def snapshot(connection: Session, viewpoint: Viewpoint, days: Sequence[datetime]) -> Snapshot:
    """Read all that the planner has to know. Its time depends on the number of classes, not of items."""
    account_id = viewpoint.account_id
    holds = connection.execute(query("account_holds"), {"account_id": account_id}).fetchone()
    all_unresolved = connection.execute(query("unresolved_attempts")).fetchall()
    row = next((row for row in all_unresolved if row["account_id"] == account_id), None)
    is_held = row is not None and row["item_state"] == ItemState.HELD
    unresolved = attempt_of(row) if row is not None and not is_held else None
    downloads = connection.execute(query("downloads"), {"account_id": account_id})
    return Snapshot(
        queue=QueueView(
            unresolved=unresolved,
            candidates=_candidates(connection, viewpoint, days, {row["job_id"] for row in all_unresolved}),
            downloads=tuple(attempt_id for (attempt_id,) in downloads),
            is_unwanted=unresolved is not None and _is_unwanted(connection, viewpoint, unresolved, days),
            is_slot_held=is_held,
            has_lost=bool(holds["has_lost"]),
        ),
        usages=usages(connection, account_id, days),
        creates_held=held_of(holds["creates_held_until"], holds["creates_held_reason"]),
        reads_held=held_of(holds["reads_held_until"], holds["reads_held_reason"]),
        last_read_at=instant(row["last_read_at"]) if row else None,
        outstanding=outstanding(connection, viewpoint.scope),
        active_kind=Kind(row["price_key"], bool(row["is_video"])) if row else None,
        misunderstood=misunderstood(connection, account_id),
    )


def _is_unwanted(connection: Session, viewpoint: Viewpoint, attempt: Attempt, days: Sequence[datetime]) -> bool:
    """Tell whether an attempt that created nothing would not be begun any more: by its job, its cap or its budgets."""
    if attempt.state is not AttemptState.SENT or attempt.is_in_doubt:
        return False
    job = connection.execute(query("job_of_item"), {"item_id": attempt.item_id}).fetchone()
    if job["is_paused"] or not is_for(viewpoint, job):
        return True
    money = _money(connection, job, days)
    return (
        (job["max_cost_credits"] is not None and attempt.quote_credits > job["max_cost_credits"])
        or (money.budget is not None and money.committed > money.budget)
        or (money.budget_per_day is not None and money.today > money.budget_per_day)
    )


def durations(connection: Session, profile: str) -> list[tuple[Kind, Observation]]:
    """Return what was seen of the durations of a profile's newest successes, the oldest first."""
    rows = connection.execute(query("durations"), {"profile": profile, "newest": ATTEMPTS_LOOKED_AT})
    return [
        (
            Kind(row["price_key"], bool(row["is_video"])),
            Observation(row["seen_going_ms"] / 1000, row["seen_ended_ms"] / 1000),
        )
        for row in rows
    ]


def _candidates(
    connection: Session, viewpoint: Viewpoint, days: Sequence[datetime], working_jobs: AbstractSet[int]
) -> tuple[Candidate, ...]:
    found = []
    for row in connection.execute(query("queued_classes"), {"profile": viewpoint.profile}).fetchall():
        if is_for(viewpoint, row):
            money = _money(connection, row, days)
            candidate = _candidate(connection, viewpoint, row, money, job_is_working=row["job_id"] in working_jobs)
            if candidate is not None:
                found.append(candidate)
    return tuple(found)


def _candidate(
    connection: Session,
    viewpoint: Viewpoint,
    row: Row,
    money: JobCredits,
    job_is_working: bool,  # noqa: FBT001
) -> Candidate | None:
    limit = UPLOAD_LOOKAHEAD if row["inputs_count"] else 1
    heads = queued_heads(connection, row["job_id"], row["recipe_id"], limit)
    if not heads:
        return None
    missing = _missing_inputs(connection, viewpoint.account_id, heads) if row["inputs_count"] else ()
    avoided = viewpoint.avoided_inputs.intersection(missing)
    head = next((each for each in heads if not avoided.intersection(input_ids_of(each["inputs"]))), heads[0])
    return Candidate(
        item_id=head["id"],
        job_id=row["job_id"],
        recipe_id=row["recipe_id"],
        priority=head["priority"],
        index=head["id"],
        order=order_of(row["item_order"]),
        cost=row["cost_credits"],
        cap=row["max_cost_credits"],
        money=money,
        job_is_working=job_is_working,
        is_ready=not set(input_ids_of(head["inputs"])) & set(missing),
        missing_inputs=missing,
        queued=row["queued"],
    )


def queued_heads(connection: Session, job_id: int | None, recipe_id: int, limit: int) -> list[Row]:
    """Return the next queued items of a job that share a recipe, in their order."""
    parameters = {"job_id": job_id, "recipe_id": recipe_id, "limit": limit}
    return connection.execute(query("queued_heads"), parameters).fetchall()


def ready_inputs(connection: Session, account_id: int, input_ids: Sequence[int]) -> set[int]:
    """Return those of the inputs that are uploaded to an account."""
    parameters = {"account_id": account_id, "input_ids": json.dumps(list(input_ids))}
    return {input_id for (input_id,) in connection.execute(query("ready_inputs"), parameters)}


def _missing_inputs(connection: Session, account_id: int, heads: list[Row]) -> tuple[int, ...]:
    """Return the inputs of the next items that are no assets yet, in the order in which they are needed."""
    wanted = dict.fromkeys(input_id for head in heads for input_id in input_ids_of(head["inputs"]))
    ready = ready_inputs(connection, account_id, list(wanted))
    return tuple(input_id for input_id in wanted if input_id not in ready)


def _money(connection: Session, row: Row, days: Sequence[datetime]) -> JobCredits:
    has_day_budget = row["budget_credits_per_day"] is not None
    return JobCredits(
        reserved=row["reserved"],
        charged=row["charged"],
        refunded=row["refunded"],
        today=job_credits(connection, row["job_id"], days) if has_day_budget else 0,
        budget=row["budget_credits"],
        budget_per_day=row["budget_credits_per_day"],
    )


def outstanding(connection: Session, scope: Scope) -> Outstanding:
    """Count the items of the scope that the program may still move, whatever account they belong to."""
    by_state: dict[str, int] = {}
    paused = 0
    for row in connection.execute(query("outstanding")):
        if scope.holds(row["job_id"]):
            by_state[row["state"]] = by_state.get(row["state"], 0) + row["n"]
            paused += row["n"] if row["is_paused"] and row["state"] == ItemState.QUEUED else 0
    return Outstanding(by_state, paused)
