"""The queue of a modelled rehearsal: items, credits and states in memory, as the planner reads them."""

from collections import Counter
from collections.abc import Collection, Sequence
from datetime import datetime
from heapq import heapify, heappop, heappush

from msgspec import Struct, field
from msgspec.structs import replace

from batchkiln.core.account_view import KEPT_FOR_POLLS
from batchkiln.core.budget import JobCredits
from batchkiln.core.job import AttemptState, Recipe
from batchkiln.core.polling import Kind
from batchkiln.core.queue_types import Candidate
from batchkiln.core.rate_limits import Limits
from batchkiln.core.request import request_body
from batchkiln.core.responses import ErrorInfo
from batchkiln.core.states import FINAL_STATES, NOT_DELIVERED, Event, ItemState, apply
from batchkiln.store import Credits, JobSummary, Paid, ProblemGroup, QueuedJob, QueuedRequest


class JobState(Struct):
    """A job and its credits; `today` counts them by the day that charges them."""

    job: QueuedJob
    reserved: int = 0
    charged: int = 0
    refunded: int = 0
    by_day: Counter[datetime] = field(default_factory=Counter)
    unresolved: int = 0  # items that the service has not decided
    sent: list[tuple[datetime, int]] = field(default_factory=list)  # day and quote of creates without a reply
    states: Counter[ItemState] = field(default_factory=Counter)
    problems: dict[tuple[ItemState, str], ProblemGroup] = field(default_factory=dict)

    @property
    def is_limited(self) -> bool:
        """Whether the job has a budget, so that others of its items decide whether one may begin."""
        return self.job.budget_credits is not None or self.job.budget_credits_per_day is not None

    def money(self, days: Sequence[datetime]) -> JobCredits:
        """Return the credits as of some days, of which the fullest counts. Sends without a reply count on each day."""
        today = 0
        if self.job.budget_credits_per_day is not None:
            today = max(self.by_day[day] + sum(cost for other, cost in self.sent if other != day) for day in days)
        return JobCredits(
            self.reserved,
            self.charged,
            self.refunded,
            today,
            sum(cost for _, cost in self.sent),
            self.job.budget_credits,
            self.job.budget_credits_per_day,
        )


class _Class(Struct):
    """The queued items of a job and recipe, the next one first, and the planner's view of them."""

    state: JobState
    recipe_id: int
    recipe: Recipe
    kind: Kind
    heads: list[tuple[int, int]] = field(default_factory=list)  # a heap of priority, negated, and id
    candidate: Candidate | None = None

    def view(self, cost: int | None, days: Sequence[datetime]) -> Candidate:
        """Return the next item with what is known about it."""
        if self.candidate is None:
            negated, item_id = self.heads[0]
            job = self.state.job
            self.candidate = Candidate(
                item_id=item_id,
                job_id=job.id,
                recipe_id=self.recipe_id,
                priority=-negated,
                index=item_id,
                order=job.order,
                cost=cost,
                cap=self.recipe.max_cost_credits,
                money=self.state.money(days),
                job_is_working=self.state.unresolved > 0,
                queued=len(self.heads),
            )
        found = self.candidate
        if self.state.is_limited:
            self.candidate = None  # the credits change with other items, and with the day
        return found


class ModelledItem(Struct, eq=False):
    """An item of the model: its request, its job, and the properties that decide how long it takes.

    `attempt` is how its last one ended.
    """

    request: QueuedRequest
    state: JobState
    recipe: Recipe
    kind: Kind
    attempt: AttemptState | None = None

    def body(self, max_cost_credits: int | None) -> bytes:
        """Return the body of its create, or of its quote if there is no price."""
        return request_body(self.recipe, prompt=self.request.prompt, input_urls=(), max_cost_credits=max_cost_credits)


class ModelledQueue:
    """All items of some jobs, which one account starts."""

    def __init__(self, jobs: Sequence[QueuedJob]) -> None:
        """Take jobs of which each is plain."""
        self._jobs = [JobState(job) for job in jobs]
        self._prices: dict[str, int] = {}
        self._classes: dict[tuple[int, int], _Class] = {}
        self._items: dict[int, ModelledItem] = {}
        self._failures = Counter[int]()
        self._paid = Counter[int]()  # generations by item that were not refunded
        self._generations = self._paid_credits = 0
        self.left = 0
        """The number of items that have not ended."""
        for state in self._jobs:
            self._fill(state)
        self._ordered = [self._classes[key] for key in sorted(self._classes)]

    def _fill(self, state: JobState) -> None:
        job = state.job
        for request in job.items:
            key = job.id, request.recipe_id
            if key not in self._classes:
                recipe, kind = job.recipes[request.recipe_id], job.kinds[request.recipe_id]
                self._classes[key] = _Class(state, request.recipe_id, recipe, kind)
            group = self._classes[key]
            group.heads.append((-request.priority, request.item_id))
            self._items[request.item_id] = ModelledItem(request, state, group.recipe, group.kind)
        state.states[ItemState.QUEUED] = len(job.items)
        self.left += len(job.items)
        for group in self._classes.values():
            heapify(group.heads)

    # --- what the planner reads ---

    @property
    def account(self) -> str | None:
        """The account that all jobs name; None for the profile's first one."""
        return next((name for state in self._jobs for name in state.job.accounts), None)

    def candidates(self, days: Sequence[datetime]) -> tuple[Candidate, ...]:
        """Return the next item of each job and recipe."""
        return tuple(group.view(self._prices.get(group.kind.price_key), days) for group in self._ordered if group.heads)

    def is_last(self, candidate: Candidate) -> bool:
        """Return whether no item of its job and recipe is queued behind a candidate."""
        return len(self._classes[candidate.job_id, candidate.recipe_id].heads) == 1

    def item(self, item_id: int) -> ModelledItem:
        """Return an item."""
        return self._items[item_id]

    # --- what happens to items ---

    def priced(self, candidate: Candidate, cost: int) -> None:
        """Keep the price of all items that share a candidate's price."""
        key = self._classes[candidate.job_id, candidate.recipe_id].kind.price_key
        self._prices[key] = cost
        for group in self._ordered:
            if group.kind.price_key == key:
                group.candidate = None

    def reject(self, candidate: Candidate, error: ErrorInfo) -> None:
        """End all queued items of a candidate's job and recipe."""
        group = self._classes[candidate.job_id, candidate.recipe_id]
        group.candidate = None
        for _, item_id in sorted(group.heads):
            self._move(self._items[item_id], ItemState.QUEUED, Event.NEVER_FITS, error)
        group.heads.clear()

    def begin(self, candidate: Candidate, cost: int, day: datetime) -> ModelledItem:
        """Reserve the price of a candidate, and return its item."""
        group = self._classes[candidate.job_id, candidate.recipe_id]
        group.candidate = None
        _, item_id = heappop(group.heads)
        item, state = self._items[item_id], group.state
        state.reserved += cost
        state.by_day[day] += cost
        state.sent.append((day, cost))
        state.unresolved += 1
        self._move(item, ItemState.QUEUED, Event.ATTEMPT_RECORDED)
        return item

    def accepted(self, item: ModelledItem, cost: int, *, reserved_on: datetime, charged_on: datetime) -> None:
        """Charge the price of an item on the day of its generation."""
        state = item.state
        state.sent.remove((reserved_on, cost))
        state.by_day[reserved_on] -= cost
        state.by_day[charged_on] += cost
        state.reserved -= cost
        state.charged += cost
        self._generations += 1
        self._paid[item.request.item_id] += 1
        self._paid_credits += cost
        self._move(item, ItemState.SUBMITTING, Event.ACCEPTED)

    def failures(self, item: ModelledItem) -> int:
        """Return how many generations of an item have failed."""
        return self._failures[item.request.item_id]

    def refunded(self, item: ModelledItem, cost: int) -> None:
        """Take back the price of a generation that failed."""
        item.state.refunded += cost
        self._failures[item.request.item_id] += 1
        self._paid[item.request.item_id] -= 1
        self._paid_credits -= cost

    def ended(
        self, item: ModelledItem, event: Event, attempt: AttemptState | None, error: ErrorInfo | None
    ) -> ItemState:
        """Record the end of an item's generation, and of its `attempt`; return the item's state."""
        item.state.unresolved -= 1
        item.attempt = attempt
        state = self._move(item, ItemState.ACTIVE, event, error)
        if state is ItemState.QUEUED:
            group = self._classes[item.state.job.id, item.request.recipe_id]
            group.candidate = None
            heappush(group.heads, (-item.request.priority, item.request.item_id))
        return state

    def saved(self, item: ModelledItem) -> None:
        """Record that an item's files are saved."""
        self._move(item, ItemState.DOWNLOADING, Event.FILES_SAVED)

    def _move(self, item: ModelledItem, start: ItemState, event: Event, error: ErrorInfo | None = None) -> ItemState:
        job, state = item.state, apply(start, event)
        job.states[start] -= 1
        job.states[state] += 1
        if state in FINAL_STATES:
            self.left -= 1
        if error is not None and state in NOT_DELIVERED:
            group = job.problems.get((state, error.code), ProblemGroup(state, error.code, 0, None))
            job.problems[state, error.code] = replace(
                group, count=group.count + 1, example=error.message, attempt=item.attempt
            )
        return state

    # --- the end ---

    def summary(self, job_id: int, before: JobSummary) -> JobSummary:
        """Return the progress of a job, whose progress was `before` when the model began."""
        job = next(state for state in self._jobs if state.job.id == job_id)
        problems = sorted(job.problems.values(), key=lambda each: (-each.count, each.state, each.code))
        return replace(
            before,
            items={state: job.states[state] for state in ItemState},
            credits=Credits(reserved=job.reserved, charged=job.charged, refunded=job.refunded),
            queued_cost=0,
            queued_unquoted=0,
            problems=tuple(problems),
        )

    def paid(self) -> Paid:
        """Count the generations."""
        kept = self._paid.total()
        items = sum(1 for number in self._paid.values() if number)
        return Paid(generations=self._generations, kept=kept, items=items, credits=self._paid_credits)


def is_covered(jobs: Collection[QueuedJob], limits: Limits) -> bool:
    """Return whether a model gives the result of the whole program, because nothing depends on the order of its tasks.

    Prompts alone become results, nothing awaits a person, and only one account takes part. Its minute of reads holds a
    quote beside a poll with all places that quotes leave free, so that no request awaits the end of another one.
    """
    accounts = {account for job in jobs for account in job.accounts or ("",)}
    is_alone = len(accounts) == 1 and limits.reads_per_minute >= KEPT_FOR_POLLS + 2
    return is_alone and all(job.is_plain for job in jobs)
