"""Plots as inline SVG. The shapes have CSS classes, so that the style sheet sets their colors.

A plot is stretched to its container. It therefore contains no text, which would be stretched too.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, tzinfo
from typing import Final

from markupsafe import Markup
from msgspec import Struct

from batchkiln.api import Hour
from batchkiln.core.states import ItemState
from batchkiln.dashboard.rendering import moment
from batchkiln.presentation.calendar import Calendar, Day
from batchkiln.presentation.formatting import STYLES, plural

HEIGHT: Final = 100.0
_MARKS: Final = 7
_GAP: Final = 0.16
_MIN_SHARE: Final = 0.6  # so that one item in a million is visible


class Chart(Struct, frozen=True):
    """A plot, its totals, and the labels of its axes: the maximum, the first and the last time."""

    svg: Markup
    total: str
    highest: str
    first: str
    last: str


class DayChart(Struct, frozen=True):
    """A plot of days. `scale` has the labels of the vertical axis from above; `marks` those of all days, most empty."""

    svg: Markup
    scale: tuple[str, ...]
    marks: tuple[str, ...]


def state_bar(items: Mapping[ItemState, int]) -> Markup:
    """Draw the shares of the states among the items of a job."""
    total = sum(items.values())
    pieces, at = [], 0.0
    shares = (
        {state: max(_MIN_SHARE, 100 * items[state] / total) if items[state] else 0.0 for state in STYLES}
        if total
        else {}
    )
    scale = 100 / sum(shares.values()) if total else 1.0
    for state, share in shares.items():
        if share:
            width = share * scale
            title = f"{items[state]:,} {state}"
            pieces.append(_rect(at, 0, width, 10, f"s-{state}", title))
            at += width
    words = ", ".join(f"{items[state]:,} {state}" for state in STYLES if items[state]) or "no items"
    return _svg("statebar", 10, words, pieces)


def gauge_bar(share: float, *, is_nearly_full: bool, label: str) -> Markup:
    """Draw the used share of a limit, from 0 to 1."""
    kind = "g-full" if is_nearly_full else "g-used"
    return _svg("gauge", 10, label, [_rect(0, 0, 100, 10, "g-room"), _rect(0, 0, 100 * share, 10, kind)])


def day_chart(calendar: Calendar) -> DayChart:
    """Draw a profile's used and expected credits by day, with a line for the daily limit."""
    days = calendar.days
    most = max(calendar.credits_per_day, *(day.credits + day.credits_ahead for day in days))
    step = 100 / len(days)
    pieces = [_line(y, "c-grid") for y in (0, HEIGHT / 2, HEIGHT)]
    for number, day in enumerate(days):
        used, ahead = (HEIGHT * part / most if most else 0.0 for part in (day.credits, day.credits_ahead))
        x, width = step * (number + _GAP / 2), step * (1 - _GAP)
        pieces.append(_rect(x, HEIGHT - used, width, used, "c-used"))
        pieces.append(_rect(x, HEIGHT - used - ahead, width, ahead, "c-ahead"))
    if most:
        pieces.append(_line(HEIGHT - HEIGHT * calendar.credits_per_day / most, "c-limit"))
    for number, day in enumerate(days):  # above all others, so that a pointer anywhere in a day's column is told
        pieces.append(_rect(step * number, 0, step, HEIGHT, "c-hit", day_words(calendar, day)))
    label = f"Credits by day of {calendar.profile}, from {days[0].starts_at:%Y-%m-%d} to {days[-1].starts_at:%Y-%m-%d}"
    scale = (f"{most:,}", f"{most / 2:,.0f}", "0") if most else ("0",)
    return DayChart(_svg("chart", HEIGHT, label, pieces), scale, _marks(calendar))


def _marks(calendar: Calendar) -> tuple[str, ...]:
    """Return the date of every few days, counted from today, which is called that."""
    days = calendar.days
    every = -(-len(days) // _MARKS)
    today = next((number for number, day in enumerate(days) if day.is_today), 0)
    is_whole = days[1].starts_at - days[0].starts_at >= timedelta(days=1)
    return tuple(
        ""
        if (number - today) % every
        else "today"
        if day.is_today
        else f"{day.starts_at:%d %b}"
        if is_whole
        else f"{day.starts_at:%H:%M}"
        for number, day in enumerate(days)
    )


def day_words(calendar: Calendar, day: Day) -> str:
    """Describe a day's usage and forecast in one line of text."""
    parts = [f"{day_name(calendar, day)}: {plural(day.credits, 'credit')} used"]
    if day.items_ahead:
        parts.append(f"{plural(day.items_ahead, 'item')} for {plural(day.credits_ahead, 'credit')} expected")
    return ", ".join(parts)


def day_name(calendar: Calendar, day: Day) -> str:
    """Return a day's date, with the time if the service's days are shorter than 24 hours, as in a rehearsal."""
    is_whole = calendar.days[1].starts_at - calendar.days[0].starts_at >= timedelta(days=1)
    return f"{day.starts_at:%a %Y-%m-%d}" if is_whole else f"{day.starts_at:%a %Y-%m-%d %H:%M}"


def hour_chart(hours: Sequence[Hour], *, until: datetime, length: timedelta, number: int) -> Chart:
    """Draw the attempts that ended in each of the last hours, the good below the others, and their credits as a line.

    An item that was tried three times has three. Refunded credits do not count.

    The titles of the bars have their times in UTC; the script of the pages rewrites them, as it does a `<time>`.
    """
    by_start = {hour.starts_at: hour for hour in hours}
    starts = [until - length * back for back in reversed(range(number))]
    row = [by_start.get(at, Hour(at, 0, 0, 0)) for at in starts]
    most = max(1, *(hour.succeeded + hour.otherwise for hour in row))
    most_credits = max(1, *(hour.credits for hour in row))
    step, pieces, points = 100 / number, [], []
    for place, hour in enumerate(row):
        good, bad = HEIGHT * hour.succeeded / most, HEIGHT * hour.otherwise / most
        x, width = step * (place + _GAP / 2), step * (1 - _GAP)
        title = (
            f"{hour.starts_at:%Y-%m-%d %H:%M} UTC: {hour.succeeded:,} succeeded, {hour.otherwise:,} ended otherwise, "
        )
        title += plural(hour.credits, "credit")
        pieces.append(_rect(x, HEIGHT - good, width, good, "c-done", title))
        pieces.append(_rect(x, HEIGHT - good - bad, width, bad, "c-bad", title))
        points.append(f"{step * (place + 0.5):.2f},{HEIGHT - HEIGHT * hour.credits / most_credits:.2f}")
    pieces.append(Markup('<polyline points="{}" class="c-line"/>').format(" ".join(points)))
    label = f"Attempts and credits of the last {number} hours"
    total = sum(hour.succeeded + hour.otherwise for hour in row), sum(hour.credits for hour in row)
    highest = f"most in an hour: {_amounts(most, most_credits)}"
    first, last = (moment(_format_hour, at) for at in (starts[0], starts[-1]))
    return Chart(_svg("chart", HEIGHT, label, pieces), _amounts(*total), highest, first, last)


def _amounts(attempts: int, spent: int) -> str:
    return f"{plural(attempts, 'attempt')}, {plural(spent, 'credit')}"


def _format_hour(at: datetime, zone: tzinfo) -> str:
    return at.astimezone(zone).strftime("%H:%M %Z")


def _rect(x: float, y: float, width: float, height: float, kind: str, title: str = "") -> Markup:  # noqa: PLR0917  as SVG has them
    inner = Markup("<title>{}</title>").format(title) if title else Markup()
    return Markup('<rect x="{:.2f}" y="{:.2f}" width="{:.2f}" height="{:.2f}" class="{}">{}</rect>').format(
        x, y, max(0.0, width), max(0.0, height), kind, inner
    )


def _line(y: float, kind: str) -> Markup:
    return Markup('<line x1="0" x2="100" y1="{0:.2f}" y2="{0:.2f}" class="{1}"/>').format(y, kind)


def _svg(kind: str, height: float, label: str, pieces: Sequence[Markup]) -> Markup:
    return Markup(
        '<svg class="{}" viewBox="0 0 100 {:g}" preserveAspectRatio="none" role="img" aria-label="{}">{}</svg>'
    ).format(kind, height, label, Markup().join(pieces))
