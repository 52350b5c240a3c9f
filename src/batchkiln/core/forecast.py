"""When jobs end under all limits: days are filled one after the other, as the planner would (contract, section 7).

It is an estimate. Durations are means; a place in a minute's window is taken to cost its share of the minute;
items without a price count with the mean of those that have one. Failures and refusals are not foreseen.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from math import ceil, inf
from typing import Final

from batchkiln.core.windows import DayUsage, Limits, ServiceDay

MOST_DAYS: Final = 20_000
"""Days looked ahead; what takes longer than fifty years has no forecast."""


@dataclass(frozen=True, slots=True)
class ItemClass:
    """Items alike: `cost` in credits, None until quoted; `seconds` of service time each holds the account's slot."""

    count: int
    cost: int | None
    seconds: float


@dataclass(frozen=True, slots=True)
class JobLoad:
    """What is left of a job. `credits_taken` is what it took of the present day's own budget."""

    name: str
    classes: tuple[ItemClass, ...]
    credits_per_day: int | None = None
    credits_taken: int = 0


@dataclass(frozen=True, slots=True)
class DayAhead:
    """What a coming day, or the rest of the present one, is expected to take: items begun, and their credits."""

    starts_at: datetime
    items: int
    credits: int


@dataclass(slots=True)
class _Room:
    """What is left of a day, for all accounts together, and the moment up to which it is filled."""

    at: datetime
    ends_at: datetime
    credits: int
    creates: int
    reads: int


@dataclass(slots=True)
class _Pile:
    """A class being worked off: `cost` in credits, `seconds` with the wait for a place in the minute."""

    job: str
    left: int
    cost: int
    seconds: float
    reads: int


def finishing_times(
    loads: Sequence[JobLoad],
    *,
    now: datetime,
    day: ServiceDay,
    limits: Limits,
    usage: DayUsage,
    accounts: int = 1,
) -> Mapping[str, datetime]:
    """Return when each job is done, in service time; a job that cannot be foretold is left out.

    `loads` are in the order in which they are worked off; `usage` is what the accounts used today, in sum.
    """
    ended: dict[str, datetime] = {load.name: now for load in loads if not load.classes}
    unknown = {load.name for load in loads if _is_unknown(load, loads)}
    for filled in _filled_days(loads, now=now, day=day, limits=limits, usage=usage, accounts=accounts):
        ended |= filled.ended
        unknown = unknown | filled.left
    return {name: at for name, at in ended.items() if name not in unknown}


def days_ahead(
    loads: Sequence[JobLoad],
    *,
    now: datetime,
    day: ServiceDay,
    limits: Limits,
    usage: DayUsage,
    accounts: int = 1,
    most: int,
) -> list[DayAhead]:
    """Return what the present day and those after it will take on top of what was used, `most` days at most."""
    filled = _filled_days(loads, now=now, day=day, limits=limits, usage=usage, accounts=accounts)
    return [one.day for one in islice(filled, most) if one.day.items]


@dataclass(slots=True)
class _Filled:
    """A day as it was filled; `left` are the jobs that no further day is looked at for, though they go on."""

    day: DayAhead
    ended: dict[str, datetime]
    left: frozenset[str] = frozenset()


def _filled_days(
    loads: Sequence[JobLoad], *, now: datetime, day: ServiceDay, limits: Limits, usage: DayUsage, accounts: int
) -> Iterator[_Filled]:
    """Fill one day after the other until nothing is left, or nobody wants to look further."""
    piles = _piles(loads, limits)
    budgets = {load.name: load.credits_per_day for load in loads}
    job_room = {load.name: _job_room(load.credits_per_day, load.credits_taken) for load in loads}
    room = _room(now, day, limits, usage, accounts)
    for number in range(MOST_DAYS):
        before = sum(pile.left for pile in piles), room.credits
        starts_at, ended = day.start_of(room.at), dict[str, datetime]()
        for pile in piles:
            job_room[pile.job] -= _fill(room, pile, job_room[pile.job], accounts)
            if not pile.left:
                ended[pile.job] = room.at
        piles = [pile for pile in piles if pile.left]
        ahead = DayAhead(starts_at, before[0] - sum(pile.left for pile in piles), before[1] - room.credits)
        is_last = not piles or number == MOST_DAYS - 1
        yield _Filled(ahead, ended, frozenset(pile.job for pile in piles) if is_last else frozenset())
        if is_last:
            return
        room = _room(max(room.at, room.ends_at), day, limits, DayUsage(), accounts)
        job_room = {name: _job_room(budget, 0) for name, budget in budgets.items()}


def _is_unknown(load: JobLoad, loads: Sequence[JobLoad]) -> bool:
    """Tell whether a job has items without a price while no price at all is known."""
    is_priced = any(entry.cost is not None for other in loads for entry in other.classes)
    return not is_priced and any(entry.count and entry.cost is None for entry in load.classes)


def _job_room(budget: int | None, taken: int) -> float:
    return inf if budget is None else max(0, budget - taken)


def _room(at: datetime, day: ServiceDay, limits: Limits, usage: DayUsage, accounts: int) -> _Room:
    return _Room(
        at=at,
        ends_at=day.reset_after(at),
        credits=max(0, limits.credits_per_day * accounts - usage.credits),
        creates=max(0, limits.creates_per_day * accounts - usage.creates),
        reads=max(0, limits.reads_per_day * accounts - usage.reads),
    )


def _piles(loads: Sequence[JobLoad], limits: Limits) -> list[_Pile]:
    """Merge what is alike and drop what can never be paid, since it is rejected at once."""
    mean = _mean_cost(loads)
    shortest = limits.minute_seconds / limits.creates_per_minute
    merged: dict[tuple[str, int, float], _Pile] = {}
    for load in loads:
        most = min(
            limits.credits_per_day, limits.credits_per_day if load.credits_per_day is None else load.credits_per_day
        )
        for entry in load.classes:
            cost = mean if entry.cost is None else entry.cost
            if cost > most or not entry.count:
                continue
            seconds = max(entry.seconds, shortest)
            polls = ceil(entry.seconds / limits.poll_interval_seconds) if limits.poll_interval_seconds else 1
            pile = merged.setdefault((load.name, cost, seconds), _Pile(load.name, 0, cost, seconds, 1 + polls))
            pile.left += entry.count
    return list(merged.values())


def _mean_cost(loads: Sequence[JobLoad]) -> int:
    known = [entry for load in loads for entry in load.classes if entry.cost is not None]
    count = sum(entry.count for entry in known)
    return ceil(sum(entry.count * (entry.cost or 0) for entry in known) / count) if count else 0


def _fill(room: _Room, pile: _Pile, job_credits: float, accounts: int) -> int:
    """Place as many items of a pile as the day takes; return the credits they cost. The last may end after it."""
    seconds = pile.seconds / accounts
    fitting = ceil(max(0.0, (room.ends_at - room.at).total_seconds()) / seconds) if seconds else pile.left
    affordable = int(min(room.credits, job_credits) // pile.cost) if pile.cost else pile.left
    placed = max(0, min(pile.left, fitting, affordable, room.creates, room.reads // pile.reads))
    cost = placed * pile.cost
    pile.left -= placed
    room.at += timedelta(seconds=placed * seconds)
    room.credits -= cost
    room.creates -= placed
    room.reads -= placed * pile.reads
    return cost


def with_poll_delay(seconds: float, limits: Limits) -> float:
    """Return how long an item holds the slot: half a poll interval passes on average before its end is seen."""
    return seconds + limits.poll_interval_seconds / 2
