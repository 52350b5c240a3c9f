"""Past and coming service days of each profile, with their requests, items and credits."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct

from batchkiln.config import Config
from batchkiln.presentation.overview import AccountView, coming_days
from batchkiln.store import PastDay, Reader

DAYS_BACK: Final = 28
DAYS_AHEAD: Final = 60
DAYS_SHOWN: Final = 14
"""The minimum number of days that are shown, so that a new queue has more than one bar."""


class Day(Struct, frozen=True):
    """One service day of a profile, summed over its accounts.

    `creates` and `reads` count the requests that were sent, `credits` the credits that were used. The forecast adds
    `items_ahead` and `credits_ahead`.
    """

    starts_at: datetime
    creates: int = 0
    reads: int = 0
    credits: int = 0
    items_ahead: int = 0
    credits_ahead: int = 0
    is_today: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether the day has no requests, no used credits and no expected items."""
        return not (self.creates or self.reads or self.credits or self.items_ahead)


class Calendar(Struct, frozen=True):
    """A profile's days, from the first with activity to the last with activity or expected items."""

    profile: str
    credits_per_day: int
    days: tuple[Day, ...]
    is_cut: bool  # more days follow than are shown


def read_calendars(
    reader: Reader,
    config: Config,
    times: Mapping[str, datetime],
    accounts: Sequence[AccountView],
) -> list[Calendar]:
    """Return the calendars of the configured profiles that have any days."""
    ahead = coming_days(reader, config, times, accounts, most=DAYS_AHEAD + 1)
    calendars = []
    for name, profile in config.profiles.items():
        ours = [view for view in accounts if view.summary.profile == name]
        length = timedelta(seconds=profile.day.seconds)
        today = profile.day.start_of(times[name])
        days: dict[datetime, Day] = {}
        for view in ours:
            for past in reader.accounts.past_days(view.summary.id, today - DAYS_BACK * length):
                days[past.starts_at] = _plus(days.get(past.starts_at, Day(past.starts_at)), past)
        expected = ahead.get(name, [])
        for one in expected[:DAYS_AHEAD]:
            day = days.get(one.starts_at, Day(one.starts_at))
            days[one.starts_at] = Day(
                day.starts_at, day.creates, day.reads, day.credits, one.items, one.credits, day.is_today
            )
        if days:
            shown = _filled(days, today, length)
            limit = profile.limits.credits_per_day * max(1, len(ours))
            calendars.append(Calendar(name, limit, shown, is_cut=len(expected) > DAYS_AHEAD))
    return calendars


def _plus(day: Day, past: PastDay) -> Day:
    return Day(day.starts_at, day.creates + past.creates, day.reads + past.reads, day.credits + past.credits)


def _filled(days: Mapping[datetime, Day], today: datetime, length: timedelta) -> tuple[Day, ...]:
    """Return the days in order, with empty days in the gaps, and today marked."""
    first, last = min(*days, today), max(*days, today)
    if any(day.items_ahead for day in days.values()):
        last = max(last, first + (DAYS_SHOWN - 1) * length)
    else:  # nothing is to come: more of the past
        first = min(first, last - (DAYS_SHOWN - 1) * length)
    found: list[Day] = []
    at = first
    while at <= last and len(found) < DAYS_BACK + DAYS_AHEAD + 1:
        day = days.get(at, Day(at))
        found.append(
            Day(at, day.creates, day.reads, day.credits, day.items_ahead, day.credits_ahead, is_today=at == today)
        )
        at += length
    return tuple(found)
