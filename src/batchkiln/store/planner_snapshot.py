"""The planner's input, read in one snapshot: the unresolved attempt, the next items, and pending downloads."""

import json
from collections.abc import Mapping, Sequence, Set as AbstractSet
from datetime import datetime

from msgspec import Struct

from batchkiln.core.job import Attempt, AttemptState
from batchkiln.core.polling import Kind, Observation
from batchkiln.core.queue_types import Candidate, Outstanding, QueueView, Scope, Snapshot, Viewpoint
from batchkiln.core.rate_limits import DayUsage
from batchkiln.core.states import ItemState
from batchkiln.core.timestamps import to_milliseconds
from batchkiln.store.jobs import WAITING
from batchkiln.store.misunderstood import ask_misunderstood, entry_of
from batchkiln.store.row_types import (
    attempt_of,
    held_of,
    input_ids_of,
    instant,
    is_for,
    kind_of,
    order_of,
    outage_of,
)
from batchkiln.store.selected_items import ask_selected, selected_heads, selected_queued, selected_ready_inputs
from batchkiln.store.session import Cursor, Row, Session
from batchkiln.store.sql import query
from batchkiln.store.usage import JobDay, ask_job_credits, has_budget, money_of, most_credits

ITEMS_LOOKED_AT = 5
"""Of each class, this many items are read for images to upload: one request takes five files (Service section 4)."""

ATTEMPTS_LOOKED_AT = 1000
"""Durations are read from this many of the newest attempts, because the service may have changed since earlier ones."""


def snapshot(connection: Session, viewpoint: Viewpoint, days: Sequence[datetime]) -> Snapshot:
    """Return the planner's input. The time depends on the number of classes of items, not on the number of items.

    A driver that pipelines needs two round trips: one for independent queries, one for the queries that depend on them.
    Downloads and misunderstood calls are rare, and are queried only if there are any.
    """
    own = {"account_id": viewpoint.account_id, "first": to_milliseconds(days[0]), "last": to_milliseconds(days[-1])}
    standing = connection.execute(query("account_standing"), own)
    unresolved = connection.execute(query("unresolved_attempts"))
    classes = connection.execute(query("queued_classes"), {"profile": viewpoint.profile})

    holds = standing.fetchall()
    all_unresolved = unresolved.fetchall()
    queued = [row for row in classes.fetchall() if is_for(viewpoint, row)]
    row = next((row for row in all_unresolved if row["account_id"] == viewpoint.account_id), None)
    is_held = row is not None and row["item_state"] == ItemState.HELD
    attempt = attempt_of(row) if row is not None and not is_held else None
    wanted = _Unwanted.ask(connection, viewpoint, attempt, row["job_id"] if row else 0, days)
    limited = dict.fromkeys(row["job_id"] for row in queued if has_budget(row))
    used = {job_id: ask_job_credits(connection, job_id, days) for job_id in limited}
    candidates = [_Class.ask(connection, viewpoint, row) for row in queued]
    not_understood = ask_misunderstood(connection, viewpoint.account_id) if holds[0]["has_misunderstood"] else ()
    downloads = connection.execute(query("downloads"), own) if holds[0]["has_downloads"] else ()
    working_jobs = {row["job_id"] for row in all_unresolved}
    taken = {job_id: most_credits(today) for job_id, today in used.items()}
    return Snapshot(
        queue=QueueView(
            unresolved=attempt,
            candidates=tuple(found for each in candidates if (found := each.candidate(viewpoint, working_jobs, taken))),
            downloads=tuple(attempt_id for (attempt_id,) in downloads),
            is_unwanted=wanted is not None and wanted.is_so(viewpoint),
            is_slot_held=is_held,
            has_lost=bool(holds[0]["has_lost"]),
        ),
        usages=tuple(_usage(holds, day) for day in days),
        creates_held=held_of(holds[0]["creates_held_until"], holds[0]["creates_held_reason"]),
        reads_held=held_of(holds[0]["reads_held_until"], holds[0]["reads_held_reason"]),
        last_read_at=instant(row["last_read_at"]) if row else None,
        active_kind=kind_of(row) if row else None,
        misunderstood=tuple(entry_of(entry) for entry in not_understood),
        outage=outage_of(holds[0]),
    )


def _usage(rows: Sequence[Row], day: datetime) -> DayUsage:
    start = to_milliseconds(day)
    found = next((row for row in rows if row["day_start_at"] == start), None)
    if found is None:
        return DayUsage()
    return DayUsage(
        creates=found["creates"],
        reads=found["reads"],
        credits=found["credits"],
        upload_files=found["upload_files"],
        upload_bytes=found["upload_bytes"],
    )


class _Unwanted(Struct, frozen=True):
    """Pending queries that decide whether an attempt that created nothing is still wanted."""

    attempt: Attempt
    job: Cursor
    today: tuple[Cursor, ...]
    selected: Cursor | None

    @classmethod
    def ask(
        cls,
        connection: Session,
        viewpoint: Viewpoint,
        attempt: Attempt | None,
        job_id: int,
        days: Sequence[datetime],
    ) -> "_Unwanted | None":
        """Send the queries. Return None for an attempt that is not resent, and for one that is always resent.

        An attempt is always resent if it may have created a generation.
        """
        if attempt is None or attempt.state is not AttemptState.SENT or attempt.is_in_doubt:
            return None
        job = connection.execute(query("job_of_item"), {"item_id": attempt.item_id})
        selected = None
        if viewpoint.scope.is_selected:
            selected = ask_selected(connection, attempt.item_id)
        return cls(attempt, job, ask_job_credits(connection, job_id, days), selected)

    def is_so(self, viewpoint: Viewpoint) -> bool:
        """Return whether job, selection, cap or budgets would prevent the attempt from being begun now."""
        job = self.job.fetchone()
        if self.selected is not None and not self.selected.fetchone()[0]:
            return True
        if job["is_paused"] or not is_for(viewpoint, job):
            return True
        money = money_of(job, most_credits(self.today))
        return (
            (job["max_cost_credits"] is not None and self.attempt.quote_credits > job["max_cost_credits"])
            or (money.budget is not None and money.committed > money.budget)
            or (money.budget_per_day is not None and money.today > money.budget_per_day)
        )


def durations(connection: Session, profile: str) -> list[tuple[Kind, Observation]]:
    """Return the observed durations of a profile's newest successes, the oldest first."""
    rows = connection.execute(query("durations"), {"profile": profile, "newest": ATTEMPTS_LOOKED_AT})
    return [
        (
            kind_of(row),
            Observation(row["seen_going_ms"] / 1000, row["seen_ended_ms"] / 1000),
        )
        for row in rows
    ]


class _Class(Struct, frozen=True):
    """Pending queries about the next items of one job that share a recipe."""

    row: Row
    heads: Cursor
    ready: Cursor | None  # which of their images are uploaded; None where they have none

    @classmethod
    def ask(cls, connection: Session, viewpoint: Viewpoint, row: Row) -> "_Class":
        """Send the queries for a row of `queued_classes`."""
        place = {"job_id": row["job_id"], "recipe_id": row["recipe_id"], "limit": ITEMS_LOOKED_AT}
        is_selected = viewpoint.scope.is_selected
        heads = _heads(connection, is_selected=is_selected, **place)
        ready = None
        if row["inputs_count"]:
            account = {"account_id": viewpoint.account_id}
            if is_selected:
                ready = selected_ready_inputs(connection, **place, **account)
            else:
                ready = connection.execute(query("ready_inputs_of_heads"), place | account)
        return cls(row, heads, ready)

    def candidate(
        self, viewpoint: Viewpoint, working_jobs: AbstractSet[int], taken: Mapping[int, JobDay]
    ) -> Candidate | None:
        """Return the first item that may begin, with the facts about the items after it.

        `taken` has the usage of each job with a budget.
        """
        row, heads = self.row, self.heads.fetchall()
        if not heads:
            return None
        missing = self._missing(heads)
        avoided = viewpoint.avoided_inputs.intersection(missing)
        head = next((each for each in heads if not avoided.intersection(input_ids_of(each["inputs"]))), heads[0])
        is_ready = not set(input_ids_of(head["inputs"])) & set(missing)
        return Candidate(
            item_id=head["id"],
            job_id=row["job_id"],
            recipe_id=row["recipe_id"],
            priority=head["priority"],
            index=head["id"],
            order=order_of(row["item_order"]),
            cost=row["cost_credits"],
            cap=row["max_cost_credits"],
            money=money_of(row, taken.get(row["job_id"], JobDay())),
            job_is_working=row["job_id"] in working_jobs,
            is_ready=is_ready,
            missing_inputs=missing,
            queued=row["queued"],
            has_images=self.ready is not None,
            is_source=bool(head["is_source"]),
            next_item_ids=tuple(
                each["id"]
                for each in heads[heads.index(head) + 1 :]
                if (each["priority"], each["is_source"]) == (head["priority"], head["is_source"])
                and not set(input_ids_of(each["inputs"])) & set(missing)
            ),
            is_of_selection=viewpoint.scope.is_selected,
        )

    def _missing(self, heads: Sequence[Row]) -> tuple[int, ...]:
        """Return the inputs of the next items that are not uploaded yet, the first ones needed first."""
        if self.ready is None:
            return ()
        ready = {input_id for (input_id,) in self.ready}
        wanted = dict.fromkeys(input_id for head in heads for input_id in input_ids_of(head["inputs"]))
        return tuple(input_id for input_id in wanted if input_id not in ready)


def queued_heads(
    connection: Session, job_id: int | None, recipe_id: int, limit: int, *, is_selected: bool = False
) -> list[Row]:
    """Return the next queued items of a job that share a recipe, in their order; or the next selected ones."""
    return _heads(connection, job_id=job_id, recipe_id=recipe_id, limit=limit, is_selected=is_selected).fetchall()


def _heads(connection: Session, *, job_id: int | None, recipe_id: int, limit: int, is_selected: bool) -> Cursor:
    if is_selected and job_id is not None:
        return selected_heads(connection, job_id, recipe_id, limit)
    return connection.execute(query("queued_heads"), {"job_id": job_id, "recipe_id": recipe_id, "limit": limit})


def ready_inputs(connection: Session, account_id: int, input_ids: Sequence[int]) -> set[int]:
    """Return the inputs among `input_ids` that are uploaded to an account."""
    parameters = {"account_id": account_id, "input_ids": json.dumps(list(input_ids))}
    return {input_id for (input_id,) in connection.execute(query("ready_inputs"), parameters)}


def outstanding(connection: Session, scope: Scope) -> Outstanding:
    """Count the items of the scope that can still change without a person, for all accounts."""
    by_state: dict[str, int] = {}
    paused, paused_jobs = 0, set[int]()
    for row in connection.execute(query("outstanding")):
        if scope.holds(row["job_id"]):
            by_state[row["state"]] = by_state.get(row["state"], 0) + row["n"]
            if row["is_paused"] and row["state"] == ItemState.QUEUED:
                paused += row["n"]
                paused_jobs.add(row["job_id"])
    waiting = by_state.pop(WAITING, 0)
    if scope.is_selected:
        by_state[ItemState.QUEUED], paused = selected_queued(connection)
    return Outstanding(by_state, paused, waiting, frozenset(paused_jobs))
