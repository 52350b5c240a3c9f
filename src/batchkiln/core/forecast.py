"""Forecasts when jobs end under all limits, by filling the service's days in the planner's order (contract, section 7).

The forecast is an estimate. It uses mean durations, and counts a place in the minute's window as an equal share of the
minute. Failures, refusals and uploads are not included.

The price of another recipe says nothing about items without a price. They take their time, and no credits. Each costs
at most its bound: its cap, or what the budgets and the day leave. Where the bounds fit into the day, the price moves
nothing, and the ends are known. From the first day on which they do not fit, the ends are the earliest possible ones.

The days are filled once more with short and once with long durations, so that the real end is between both nine times
of ten. Only the time since the slot last waited for a new day is uncertain: the reset is not.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from math import ceil, exp, hypot, inf, log, sqrt
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from batchkiln.core.budget import BudgetLimit, exceeded_limit
from batchkiln.core.durations import Expected
from batchkiln.core.rate_limits import DayUsage, Limits, ServiceDay

MOST_DAYS: Final = 20_000
"""The number of days in a forecast. Work that takes longer than fifty years has no estimated end."""


_FAST: Final = -1.645
_SLOW: Final = 1.9
"""The range reaches from so many standard deviations before the mean to so many behind it.

1.645 on each side hold nine tenths of a normal distribution. Durations have a longer tail, whose longest ones are
probably not among the few that were seen.
"""


class ItemClass(Struct, frozen=True):
    """Items with equal cost and expected duration. `cost` is in credits, None until quoted.

    `each` is how long an item occupies the account's slot, in service time; its error is the same for all items of one
    `kind`. Items with `is_under_way` are already paid and counted: they need time only, less what has passed since they
    began, on average at `began_at`; without it, `each` is what is left.
    """

    count: int
    cost: int | None
    each: Expected
    cap: int | None = None
    is_under_way: bool = False
    kind: str = ""
    began_at: datetime | None = None
    model: str = ""


def _left(entry: ItemClass, now: datetime) -> ItemClass:
    """Return a class with what is left of its durations."""
    if not entry.is_under_way or entry.began_at is None:
        return entry
    age = max(0.0, (now - entry.began_at).total_seconds())
    return replace(entry, each=entry.each.after(age))


class JobLoad(Struct, frozen=True):
    """The remaining work of a job.

    `credits_taken` is the part of `credits_per_day` that is used today. `credits_left` is the rest of the job's budget;
    None without a budget.
    """

    name: str
    classes: tuple[ItemClass, ...]
    credits_per_day: int | None = None
    credits_taken: int = 0
    credits_left: int | None = None


class CalendarDay(Struct, frozen=True):
    """The items that start on one service day, and their credits. `busy` is how long the slots are occupied."""

    starts_at: datetime
    items: int
    credits: int
    busy: timedelta


class Unpayable(Struct, frozen=True):
    """Items of a job that will be rejected instead of sent: `cost` is that of one item, `limit` the exceeded limit."""

    job: str
    obstacle: BudgetLimit
    count: int
    cost: int
    limit: int


class Unpriced(Struct, frozen=True):
    """Queued items of a job and a model that have no price."""

    job: str
    model: str
    count: int


class EndRange(Struct, frozen=True):
    """The range in which a job ends nine times of ten while the service keeps its pace, in service time."""

    earliest_at: datetime
    latest_at: datetime


class Forecast(Struct, frozen=True):
    """The estimated end of each job, in service time, and the work of each day.

    A job whose end depends on an unknown price, its own or that of a job before it, is in `not_before` in place of
    `ends`. Work that takes longer than `MOST_DAYS` is in neither. `days` counts items and credits of items with a price
    only, and is empty if no price is known. `unpriced` is in the order of the jobs. `ranges` is empty unless it was
    asked for.
    """

    ends: Mapping[str, datetime]
    days: tuple[CalendarDay, ...]
    unpayable: tuple[Unpayable, ...]
    ranges: Mapping[str, EndRange] = field(default_factory=dict)
    not_before: Mapping[str, datetime] = field(default_factory=dict)
    unpriced: tuple[Unpriced, ...] = ()


class _Path(Struct, frozen=True):
    """One course that the work may take: durations so many standard deviations from the mean, on so many accounts."""

    deviations: float
    accounts: int

    def quantile(self, mean: float, variance: float) -> float:
        """Return a sum of durations on this course; it is assumed to have a log-normal distribution."""
        if not self.deviations or not mean:
            return mean
        square = log(1 + variance / mean**2)
        return mean * exp(self.deviations * sqrt(square) - square / 2)


class _Busy(Struct):
    """The work of all accounts since `began_at`, when they were idle last."""

    began_at: datetime
    seconds: float = 0.0
    shortest: float = 0.0  # seconds that the limit of creates per minute needs
    variance: float = 0.0  # of items that vary independently of each other
    shared: float = 0.0  # that of the averages
    errors: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))  # of all items of a kind

    def until(self, batch: "_Batch", count: int, path: _Path) -> float:
        """Return the seconds from the beginning until so many more items are over."""
        error = self.errors.get(batch.kind, 0.0)
        shared = self.shared + (error + count * batch.error) ** 2 - error**2
        variance = self.variance + count * batch.variance + shared
        seconds = path.quantile(self.seconds + count * batch.seconds, variance)
        return max(seconds, self.shortest + count * batch.shortest) / path.accounts

    def add(self, batch: "_Batch", count: int) -> None:
        error = self.errors[batch.kind]
        self.errors[batch.kind] += count * batch.error
        self.shared += self.errors[batch.kind] ** 2 - error**2
        self.variance += count * batch.variance
        self.seconds += count * batch.seconds
        self.shortest += count * batch.shortest


class _DayCapacity(Struct):
    """The remaining capacity of a day, for all accounts together, and the moment up to which it is filled.

    Work that continues from the previous day occupies the time from `begins_at` to the first `at`. `unpriced` is what
    the items without a price cost at most.
    """

    busy: _Busy
    begins_at: datetime
    at: datetime
    ends_at: datetime
    credits: int
    creates: int
    reads: int
    items: int = 0
    spent: int = 0
    unpriced: float = 0

    def day(self, day: ServiceDay, accounts: int) -> CalendarDay:
        """Return the filled day. The time after the reset belongs to the next day."""
        busy = (min(self.at, self.ends_at) - self.begins_at) * accounts
        return CalendarDay(day.start_of(self.begins_at), self.items, self.spent, busy)


class _Batch(Struct):
    """The unplaced items of equal classes. `seconds` includes the wait for a place in the minute's window.

    `shortest` is the part of a minute, in seconds, that the limit of creates leaves to each item on any course. `bound`
    is the highest price of an item without a price, None for others.
    """

    job: str
    left: int
    cost: int
    seconds: float
    shortest: float
    reads: int
    is_under_way: bool
    kind: str
    variance: float
    error: float
    bound: float | None
    is_begun: bool = False


class _JobBudget(Struct):
    """The credits that a job may still spend: in total, per day, and today. `unpriced` is as for `_DayCapacity`."""

    left: float
    per_day: float
    today: float
    unpriced: float = 0

    def renew(self) -> None:
        """Begin a new day."""
        self.today, self.unpriced = self.per_day, 0

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
    has_range: bool = False,
) -> Forecast:
    """Fill the days with `loads`, in their order.

    `usage` is today's usage, summed over the accounts. With `has_range`, the ranges of the ends are included.
    """

    def on(deviations: float) -> Forecast:
        path = _Path(deviations, accounts)
        return _on_path(loads, path, now=now, day=day, limits=limits, usage=usage)

    middle = on(0)
    if not has_range:
        return middle
    fast, slow = on(_FAST), on(_SLOW)
    known = {name: at for name, at in middle.ends.items() if name in fast.ends and name in slow.ends}
    ranges = {name: EndRange(min(at, fast.ends[name]), max(at, slow.ends[name])) for name, at in known.items()}
    earliest = {**fast.ends, **fast.not_before}
    bounded = {name: at for name, at in earliest.items() if name in slow.not_before or name in middle.not_before}
    return replace(middle, ends=known, ranges=ranges, not_before=bounded)


def _on_path(
    loads: Sequence[JobLoad], path: _Path, *, now: datetime, day: ServiceDay, limits: Limits, usage: DayUsage
) -> Forecast:
    """Fill the days on one course."""
    batches, unpayable = _batches(loads, limits, path.accounts, now)
    budgets = {load.name: _job_budget(load) for load in loads}
    capacity = _day_capacity(_Busy(now), now, day.reset_after(now), limits=limits, accounts=path.accounts, usage=usage)
    ended: dict[str, datetime] = {load.name: now for load in loads}
    days: list[CalendarDay] = []
    uncertain: set[str] = set()  # jobs whose ends depend on unknown prices
    depends = False
    for _ in range(MOST_DAYS):
        for batch in batches:
            budget = budgets[batch.job]
            _fill(capacity, batch, budget, path)
            unpayable += _reject_unpayable(batch, budget)
            depends = depends or capacity.unpriced > capacity.credits or budget.unpriced > budget.today
            if depends:
                uncertain.add(batch.job)
            if not batch.left:
                ended[batch.job] = max(ended[batch.job], _end_of_last(capacity, batch, path))
        days.append(capacity.day(day, path.accounts))
        batches = [batch for batch in batches if batch.left]
        if not batches:
            break
        at = max(capacity.at, capacity.ends_at)
        busy = capacity.busy if at == capacity.at else _Busy(at)
        capacity = _day_capacity(busy, at, day.reset_after(at), limits=limits, accounts=path.accounts, usage=DayUsage())
        capacity.begins_at = day.start_of(at)
        for budget in budgets.values():
            budget.renew()
    endless = {batch.job for batch in batches}
    known = {name: at for name, at in ended.items() if name not in endless}
    return Forecast(
        ends={name: at for name, at in known.items() if name not in uncertain},
        days=tuple(_without_idle_ends(days)) if _has_days(loads) else (),
        unpayable=tuple(unpayable),
        not_before={name: at for name, at in known.items() if name in uncertain},
        unpriced=tuple(_unpriced(loads)),
    )


def _end_of_last(capacity: _DayCapacity, batch: _Batch, path: _Path) -> datetime:
    """Return when the last items of a batch end: they do not share the other accounts.

    On the slow course, all but one account are idle during a whole item. Items that were all rejected take no time.
    """
    if path.accounts == 1 or not batch.is_begun:
        return capacity.at
    one = path.quantile(batch.seconds, batch.variance + batch.error**2)
    waits = (1 - 1 / path.accounts) * one if path.deviations > 0 else 0.0
    return max(capacity.at + timedelta(seconds=waits), capacity.busy.began_at + timedelta(seconds=one))


def _without_idle_ends(days: Sequence[CalendarDay]) -> Sequence[CalendarDay]:
    """Drop the first day if nothing can start on it, unless it is the only one."""
    return days[1:] if len(days) > 1 and not days[0].items and not days[0].busy else days


def _unpriced(loads: Sequence[JobLoad]) -> Iterable[Unpriced]:
    """Return the items without a price, by job and model."""
    counts: Counter[tuple[str, str]] = Counter()
    for load in loads:
        for entry in filter(_needs_price, load.classes):
            counts[load.name, entry.model] += entry.count
    return (Unpriced(job, model, count) for (job, model), count in counts.items())


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


def _day_capacity(
    busy: _Busy, at: datetime, ends_at: datetime, *, limits: Limits, accounts: int, usage: DayUsage
) -> _DayCapacity:
    """Return the remaining capacity of a day after `usage`."""
    return _DayCapacity(
        busy=busy,
        begins_at=at,
        at=at,
        ends_at=ends_at,
        credits=max(0, limits.credits_per_day * accounts - usage.credits),
        creates=max(0, limits.creates_per_day * accounts - usage.creates),
        reads=max(0, limits.reads_per_day * accounts - usage.reads),
    )


def _batches(
    loads: Sequence[JobLoad], limits: Limits, accounts: int, now: datetime
) -> tuple[list[_Batch], list[Unpayable]]:
    """Merge equal classes. Return them, and the items that can never be paid."""
    share_of_minute = limits.minute_seconds / limits.creates_per_minute
    merged: dict[tuple[object, ...], _Batch] = {}
    unpayable: list[Unpayable] = []
    for load in loads:
        for entry in (_left(each, now) for each in load.classes):
            if not entry.count:
                continue
            cost = entry.cost or 0  # items under way are already paid
            bound = _bound(load, entry, limits) if _needs_price(entry) else None
            if never := never_payable(load, entry, cost, limits):
                unpayable.append(never)
                continue
            shortest, each = 0.0 if entry.is_under_way else share_of_minute, entry.each
            waits = max(0.0, shortest - each.seconds)  # which hide what varies
            seconds, error = each.seconds + waits, max(0.0, _error(each, accounts) - waits)
            variance = max(0.0, each.deviation - waits) ** 2
            polls = ceil(each.seconds / limits.poll_interval_seconds) if limits.poll_interval_seconds else 1
            alike = (load.name, cost, seconds, entry.is_under_way, entry.kind, variance, error, bound)
            batch = merged.setdefault(
                alike,
                _Batch(
                    job=load.name,
                    left=0,
                    cost=cost,
                    seconds=seconds,
                    shortest=shortest,
                    reads=1 + polls,
                    is_under_way=entry.is_under_way,
                    kind=entry.kind,
                    variance=variance,
                    error=error,
                    bound=bound,
                ),
            )
            batch.left += entry.count
    return list(merged.values()), unpayable


def _bound(load: JobLoad, entry: ItemClass, limits: Limits) -> float:
    """Return the most credits that an item without a price can cost: an item above a limit is rejected."""
    known = (entry.cap, load.credits_per_day, load.credits_left, limits.credits_per_day)
    return max(0, min(limit for limit in known if limit is not None))


def _error(each: Expected, accounts: int) -> float:
    """Return the standard deviation of the average. Of several accounts, the first to end had short items.

    The error tells how many items were observed; as many as there are other accounts were still under way then.
    """
    if accounts == 1 or not each.error:
        return each.error
    seen = (each.deviation / each.error) ** 2
    return hypot(each.error, each.deviation * (accounts - 1) / (seen + accounts - 1))


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


def _fill(capacity: _DayCapacity, batch: _Batch, budget: _JobBudget, path: _Path) -> None:
    """Place as many items of a batch as fit in the day. The last one may end after the day."""
    placed = batch.left
    if not batch.is_under_way:
        budget_room = int(min(capacity.credits, budget.left, budget.today))
        affordable = budget_room // batch.cost if batch.cost else batch.left
        placed = max(0, min(placed, affordable, capacity.creates, capacity.reads // batch.reads))
    placed = _fitting(capacity, batch, placed, path)
    if not batch.is_under_way:
        capacity.items += placed if batch.bound is None else 0
        capacity.spent += placed * batch.cost
        capacity.credits -= placed * batch.cost
        capacity.creates -= placed
        budget.pay(placed * batch.cost)
        if batch.bound is not None:
            at_most = min(placed * batch.bound, budget.left)
            capacity.unpriced += at_most
            budget.unpriced += at_most
    if placed:
        batch.is_begun = True
        seconds = capacity.busy.until(batch, placed, path)
        capacity.busy.add(batch, placed)
        capacity.at = max(capacity.at, capacity.busy.began_at + timedelta(seconds=seconds))
    batch.left -= placed
    capacity.reads = max(0, capacity.reads - placed * batch.reads)


def _fitting(capacity: _DayCapacity, batch: _Batch, most: int, path: _Path) -> int:
    """Return how many items, at most `most`, begin before the day ends."""
    if capacity.at >= capacity.ends_at:
        return 0
    room = (capacity.ends_at - capacity.busy.began_at).total_seconds()
    if not most or capacity.busy.until(batch, most - 1, path) < room:
        return most
    return bisect_left(range(most), room, key=lambda placed: capacity.busy.until(batch, placed, path))


def with_poll_delay(seconds: float, limits: Limits) -> float:
    """Return how long an item occupies the slot: on average, its end is noticed half a poll interval late."""
    return seconds + limits.poll_interval_seconds / 2
