"""Forecasts when jobs end under all limits, by filling the service's days in the planner's order (contract, section 7).

The forecast is an estimate. It uses mean durations, and counts a place in the minute's window as an equal share of the
minute. Items without a price are left out; their job and the jobs behind it have no estimated end, because the price of
another recipe says nothing about theirs. Failures, refusals and uploads are not included.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import dropwhile
from math import ceil, inf
from typing import Final

from batchkiln.core.budget import BudgetLimit, exceeded_limit
from batchkiln.core.rate_limits import DayUsage, Limits, ServiceDay

MOST_DAYS: Final = 20_000
"""The number of days in a forecast. Work that takes longer than fifty years has no estimated end."""


@dataclass(frozen=True, slots=True)
class ItemClass:
    """Items with equal cost and duration. `cost` is in credits, None until quoted.

    `seconds` is how long an item occupies the account's slot, in service time. Items with `is_under_way` are already
    paid and counted: they need time only.
    """

    count: int
    cost: int | None
    seconds: float
    cap: int | None = None
    is_under_way: bool = False


@dataclass(frozen=True, slots=True)
class JobLoad:
    """The remaining work of a job.

    `credits_taken` is the part of `credits_per_day` that is used today. `credits_left` is the rest of the job's budget;
    None without a budget.
    """

    name: str
    classes: tuple[ItemClass, ...]
    credits_per_day: int | None = None
    credits_taken: int = 0
    credits_left: int | None = None


@dataclass(frozen=True, slots=True)
class CalendarDay:
    """The items that start on one service day, and their credits. `busy` is how long the slots are occupied."""

    starts_at: datetime
    items: int
    credits: int
    busy: timedelta


@dataclass(frozen=True, slots=True)
class Unpayable:
    """Items of a job that will be rejected instead of sent: `cost` is that of one item, `limit` the exceeded limit."""

    job: str
    obstacle: BudgetLimit
    count: int
    cost: int
    limit: int


@dataclass(frozen=True, slots=True)
class Forecast:
    """The estimated end of each job, in service time, and the work of each day.

    `ends` lacks jobs whose end cannot be estimated, such as those behind an item without a price. `days` includes only
    items with a price, and is empty if no price is known.
    """

    ends: Mapping[str, datetime]
    days: tuple[CalendarDay, ...]
    unpayable: tuple[Unpayable, ...]


@dataclass(slots=True)
class _DayCapacity:
    """The remaining capacity of a day, for all accounts together, and the moment up to which it is filled.

    Work that continues from the previous day occupies the time from `begins_at` to the first `at`.
    """

    begins_at: datetime
    at: datetime
    ends_at: datetime
    credits: int
    creates: int
    reads: int
    items: int = 0
    spent: int = 0

    def day(self, day: ServiceDay, accounts: int) -> CalendarDay:
        """Return the filled day. The time after the reset belongs to the next day."""
        busy = (min(self.at, self.ends_at) - self.begins_at) * accounts
        return CalendarDay(day.start_of(self.begins_at), self.items, self.spent, busy)


@dataclass(slots=True)
class _Batch:
    """The unplaced items of equal classes. `seconds` includes the wait for a place in the minute's window."""

    job: str
    left: int
    cost: int
    seconds: float
    reads: int
    is_under_way: bool


@dataclass(slots=True)
class _JobBudget:
    """The credits that a job may still spend: in total, per day, and today."""

    left: float
    per_day: float
    today: float

    def pay(self, credit_count: int) -> None:
        self.left -= credit_count
        self.today -= credit_count


def forecast(
    loads: Sequence[JobLoad],
    *,
    now: datetime,
    day: ServiceDay,
    limits: Limits,
    usage: DayUsage,
    accounts: int = 1,
) -> Forecast:
    """Fill the days with `loads`, in their order.

    `usage` is today's usage, summed over the accounts.
    """
    batches, unpayable = _batches(loads, limits)
    budgets = {load.name: _job_budget(load) for load in loads}
    capacity = _day_capacity(now, day.reset_after(now), limits, accounts, usage)
    ended: dict[str, datetime] = {load.name: now for load in loads}
    days: list[CalendarDay] = []
    for _ in range(MOST_DAYS):
        for batch in batches:
            _fill(capacity, batch, budgets[batch.job], accounts)
            unpayable += _reject_unpayable(batch, budgets[batch.job])
            if not batch.left:
                ended[batch.job] = max(ended[batch.job], capacity.at)
        days.append(capacity.day(day, accounts))
        batches = [batch for batch in batches if batch.left]
        if not batches:
            break
        at = max(capacity.at, capacity.ends_at)
        capacity = _day_capacity(at, day.reset_after(at), limits, accounts, DayUsage())
        capacity.begins_at = day.start_of(at)
        for budget in budgets.values():
            budget.today = budget.per_day
    unknown = {batch.job for batch in batches} | set(_behind_unpriced(loads))
    ends = {name: at for name, at in ended.items() if name not in unknown}
    return Forecast(ends, tuple(_without_idle_ends(days)) if _has_days(loads) else (), tuple(unpayable))


def _without_idle_ends(days: Sequence[CalendarDay]) -> Sequence[CalendarDay]:
    """Drop the first day if nothing can start on it, unless it is the only one."""
    return days[1:] if len(days) > 1 and not days[0].items and not days[0].busy else days


def _behind_unpriced(loads: Sequence[JobLoad]) -> Iterable[str]:
    """Return the first job that has items without a price, and all jobs behind it."""
    return (load.name for load in dropwhile(lambda load: not any(map(_needs_price, load.classes)), loads))


def _has_days(loads: Sequence[JobLoad]) -> bool:
    """Return whether there are items to place: a price is known, or no item needs one."""
    entries = [entry for load in loads for entry in load.classes]
    return any(entry.cost is not None for entry in entries) or not any(map(_needs_price, entries))


def _needs_price(entry: ItemClass) -> bool:
    return bool(entry.count) and entry.cost is None and not entry.is_under_way


def _job_budget(load: JobLoad) -> _JobBudget:
    per_day = inf if load.credits_per_day is None else load.credits_per_day
    left = inf if load.credits_left is None else max(0, load.credits_left)
    return _JobBudget(left, per_day, today=max(0, per_day - load.credits_taken))


def _day_capacity(at: datetime, ends_at: datetime, limits: Limits, accounts: int, usage: DayUsage) -> _DayCapacity:
    """Return the remaining capacity of a day after `usage`."""
    return _DayCapacity(
        begins_at=at,
        at=at,
        ends_at=ends_at,
        credits=max(0, limits.credits_per_day * accounts - usage.credits),
        creates=max(0, limits.creates_per_day * accounts - usage.creates),
        reads=max(0, limits.reads_per_day * accounts - usage.reads),
    )


def _batches(loads: Sequence[JobLoad], limits: Limits) -> tuple[list[_Batch], list[Unpayable]]:
    """Merge equal classes. Return them, and the items that can never be paid; items without a price are left out."""
    shortest = limits.minute_seconds / limits.creates_per_minute
    merged: dict[tuple[str, int, float, bool], _Batch] = {}
    unpayable: list[Unpayable] = []
    for load in loads:
        for entry in load.classes:
            if not entry.count or _needs_price(entry):
                continue
            cost = entry.cost or 0  # items under way are already paid
            if never := never_payable(load, entry, cost, limits):
                unpayable.append(never)
                continue
            seconds = entry.seconds if entry.is_under_way else max(entry.seconds, shortest)
            polls = ceil(entry.seconds / limits.poll_interval_seconds) if limits.poll_interval_seconds else 1
            alike = (load.name, cost, seconds, entry.is_under_way)
            batch = merged.setdefault(alike, _Batch(load.name, 0, cost, seconds, 1 + polls, entry.is_under_way))
            batch.left += entry.count
    return list(merged.values()), unpayable


def never_payable(load: JobLoad, entry: ItemClass, cost: int, limits: Limits) -> Unpayable | None:
    """Return the items of a class whose cost exceeds a limit even if nothing of it is used.

    `_reject_unpayable` checks the job's whole budget.
    """
    if entry.is_under_way:
        return None
    found = exceeded_limit(
        cost, cap=entry.cap, per_day=limits.credits_per_day, job_per_day=load.credits_per_day, job_budget=None
    )
    return None if found is None else Unpayable(load.name, found[0], entry.count, cost, found[1])


def _reject_unpayable(batch: _Batch, budget: _JobBudget) -> Iterable[Unpayable]:
    """Reject the items that the job's budget no longer covers. Possible refunds of failures are not included."""
    if batch.left and not batch.is_under_way and batch.cost > budget.left:
        yield Unpayable(batch.job, BudgetLimit.OVER_JOB_BUDGET, batch.left, batch.cost, int(budget.left))
        batch.left = 0


def _fill(capacity: _DayCapacity, batch: _Batch, budget: _JobBudget, accounts: int) -> None:
    """Place as many items of a batch as fit in the day. The last one may end after the day."""
    seconds = batch.seconds / accounts
    fitting = ceil(max(0.0, (capacity.ends_at - capacity.at).total_seconds()) / seconds) if seconds else batch.left
    if batch.is_under_way:
        placed = min(batch.left, fitting)
    else:
        budget_room = int(min(capacity.credits, budget.left, budget.today))
        affordable = budget_room // batch.cost if batch.cost else batch.left
        placed = max(0, min(batch.left, fitting, affordable, capacity.creates, capacity.reads // batch.reads))
        capacity.items += placed
        capacity.spent += placed * batch.cost
        capacity.credits -= placed * batch.cost
        capacity.creates -= placed
        budget.pay(placed * batch.cost)
    batch.left -= placed
    capacity.at += timedelta(seconds=placed * seconds)
    capacity.reads = max(0, capacity.reads - placed * batch.reads)


def with_poll_delay(seconds: float, limits: Limits) -> float:
    """Return how long an item occupies the slot: on average, its end is noticed half a poll interval late."""
    return seconds + limits.poll_interval_seconds / 2
