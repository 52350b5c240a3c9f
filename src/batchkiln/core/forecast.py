"""When jobs end under all limits: days are filled one after the other, as the planner would (contract, section 7).

It is an estimate. Durations are means; a place in a minute's window is taken to cost its share of the minute;
items without a price are left out, and their job, and those behind it, have no end: no other model, mode or size says
what they cost. Failures and refusals are not foreseen, nor are uploads: what they take of the day is left out.
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
"""Days looked ahead; what takes longer than fifty years has no forecast."""


@dataclass(frozen=True, slots=True)
class ItemClass:
    """Items alike: `cost` in credits, None until quoted; `seconds` of service time each holds the account's slot.

    What `is_under_way` is paid and counted already: it takes time, and nothing else of a day.
    """

    count: int
    cost: int | None
    seconds: float
    cap: int | None = None
    is_under_way: bool = False


@dataclass(frozen=True, slots=True)
class JobLoad:
    """What is left of a job. `credits_taken` is what it took of the present day's own budget.

    `credits_left` is what its whole budget still allows; None without a budget.
    """

    name: str
    classes: tuple[ItemClass, ...]
    credits_per_day: int | None = None
    credits_taken: int = 0
    credits_left: int | None = None


@dataclass(frozen=True, slots=True)
class CalendarDay:
    """What is begun on one of the service's days: items, their credits; `busy` is how long slots are taken."""

    starts_at: datetime
    items: int
    credits: int
    busy: timedelta


@dataclass(frozen=True, slots=True)
class Unpayable:
    """Items of a job that are rejected instead of sent: `cost` is what one costs, `limit` what it exceeds."""

    job: str
    obstacle: BudgetLimit
    count: int
    cost: int
    limit: int


@dataclass(frozen=True, slots=True)
class Forecast:
    """When each job is done, in service time, and how the days fill.

    A job that cannot be foretold has no end, nor has one behind an item without a price. The days hold what has one;
    while no price at all is known there are none.
    """

    ends: Mapping[str, datetime]
    days: tuple[CalendarDay, ...]
    unpayable: tuple[Unpayable, ...]


@dataclass(slots=True)
class _Room:
    """What is left of a day, for all accounts together, and the moment up to which it is filled.

    What went on from the day before takes the time from `begins_at` to the first `at`.
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
        """Give what was placed; what goes on after the reset takes time of the next day."""
        busy = (min(self.at, self.ends_at) - self.begins_at) * accounts
        return CalendarDay(day.start_of(self.begins_at), self.items, self.spent, busy)


@dataclass(slots=True)
class _Pile:
    """A class being worked off: `cost` in credits, `seconds` with the wait for a place in the minute."""

    job: str
    left: int
    cost: int
    seconds: float
    reads: int
    is_under_way: bool


@dataclass(slots=True)
class _Purse:
    """What a job may still spend: in all, and on this day."""

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
    """Fill the days with `loads`, in the order in which they are worked off.

    `usage` is what the accounts used today, in sum.
    """
    piles, unpayable = _piles(loads, limits)
    purses = {load.name: _purse(load) for load in loads}
    room = _room(now, day.reset_after(now), limits, accounts, usage)
    ended: dict[str, datetime] = {load.name: now for load in loads}
    days: list[CalendarDay] = []
    for _ in range(MOST_DAYS):
        for pile in piles:
            _fill(room, pile, purses[pile.job], accounts)
            unpayable += _give_up(pile, purses[pile.job])
            if not pile.left:
                ended[pile.job] = max(ended[pile.job], room.at)
        days.append(room.day(day, accounts))
        piles = [pile for pile in piles if pile.left]
        if not piles:
            break
        at = max(room.at, room.ends_at)
        room = _room(at, day.reset_after(at), limits, accounts, DayUsage())
        room.begins_at = day.start_of(at)
        for purse in purses.values():
            purse.today = purse.per_day
    unknown = {pile.job for pile in piles} | set(_behind_unpriced(loads))
    ends = {name: at for name, at in ended.items() if name not in unknown}
    return Forecast(ends, tuple(_without_idle_ends(days)) if _has_days(loads) else (), tuple(unpayable))


def _without_idle_ends(days: Sequence[CalendarDay]) -> Sequence[CalendarDay]:
    """Drop a first day in which nothing can begin any more, unless it is all there is."""
    return days[1:] if len(days) > 1 and not days[0].items and not days[0].busy else days


def _behind_unpriced(loads: Sequence[JobLoad]) -> Iterable[str]:
    """Give the first job that has items without a price, and all behind it."""
    return (load.name for load in dropwhile(lambda load: not any(map(_needs_price, load.classes)), loads))


def _has_days(loads: Sequence[JobLoad]) -> bool:
    """Tell whether there is anything to place: some price is known, or none is needed."""
    entries = [entry for load in loads for entry in load.classes]
    return any(entry.cost is not None for entry in entries) or not any(map(_needs_price, entries))


def _needs_price(entry: ItemClass) -> bool:
    return bool(entry.count) and entry.cost is None and not entry.is_under_way


def _purse(load: JobLoad) -> _Purse:
    per_day = inf if load.credits_per_day is None else load.credits_per_day
    left = inf if load.credits_left is None else max(0, load.credits_left)
    return _Purse(left, per_day, today=max(0, per_day - load.credits_taken))


def _room(at: datetime, ends_at: datetime, limits: Limits, accounts: int, usage: DayUsage) -> _Room:
    """Return what a day still allows after `usage`."""
    return _Room(
        begins_at=at,
        at=at,
        ends_at=ends_at,
        credits=max(0, limits.credits_per_day * accounts - usage.credits),
        creates=max(0, limits.creates_per_day * accounts - usage.creates),
        reads=max(0, limits.reads_per_day * accounts - usage.reads),
    )


def _piles(loads: Sequence[JobLoad], limits: Limits) -> tuple[list[_Pile], list[Unpayable]]:
    """Merge what is alike, set apart what is rejected at once as it can never be paid, leave out what has no price."""
    shortest = limits.minute_seconds / limits.creates_per_minute
    merged: dict[tuple[str, int, float, bool], _Pile] = {}
    unpayable: list[Unpayable] = []
    for load in loads:
        for entry in load.classes:
            if not entry.count or _needs_price(entry):
                continue
            cost = entry.cost or 0  # what is under way is paid already
            if never := never_payable(load, entry, cost, limits):
                unpayable.append(never)
                continue
            seconds = entry.seconds if entry.is_under_way else max(entry.seconds, shortest)
            polls = ceil(entry.seconds / limits.poll_interval_seconds) if limits.poll_interval_seconds else 1
            alike = (load.name, cost, seconds, entry.is_under_way)
            pile = merged.setdefault(alike, _Pile(load.name, 0, cost, seconds, 1 + polls, entry.is_under_way))
            pile.left += entry.count
    return list(merged.values()), unpayable


def never_payable(load: JobLoad, entry: ItemClass, cost: int, limits: Limits) -> Unpayable | None:
    """Return what a class exceeds even where nothing of it is used yet; the job's whole budget is `_give_up`'s."""
    if entry.is_under_way:
        return None
    found = exceeded_limit(
        cost, cap=entry.cap, per_day=limits.credits_per_day, job_per_day=load.credits_per_day, job_budget=None
    )
    return None if found is None else Unpayable(load.name, found[0], entry.count, cost, found[1])


def _give_up(pile: _Pile, purse: _Purse) -> Iterable[Unpayable]:
    """Reject what the job's budget no longer covers; refunds of failures, which may come, are not foreseen."""
    if pile.left and not pile.is_under_way and pile.cost > purse.left:
        yield Unpayable(pile.job, BudgetLimit.OVER_JOB_BUDGET, pile.left, pile.cost, int(purse.left))
        pile.left = 0


def _fill(room: _Room, pile: _Pile, purse: _Purse, accounts: int) -> None:
    """Place as many items of a pile as the day takes. The last may end after it."""
    seconds = pile.seconds / accounts
    fitting = ceil(max(0.0, (room.ends_at - room.at).total_seconds()) / seconds) if seconds else pile.left
    if pile.is_under_way:
        placed = min(pile.left, fitting)
    else:
        purse_room = int(min(room.credits, purse.left, purse.today))
        affordable = purse_room // pile.cost if pile.cost else pile.left
        placed = max(0, min(pile.left, fitting, affordable, room.creates, room.reads // pile.reads))
        room.items += placed
        room.spent += placed * pile.cost
        room.credits -= placed * pile.cost
        room.creates -= placed
        purse.pay(placed * pile.cost)
    pile.left -= placed
    room.at += timedelta(seconds=placed * seconds)
    room.reads = max(0, room.reads - placed * pile.reads)


def with_poll_delay(seconds: float, limits: Limits) -> float:
    """Return how long an item holds the slot: half a poll interval passes on average before its end is seen."""
    return seconds + limits.poll_interval_seconds / 2
