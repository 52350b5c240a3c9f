"""Plots: what they show adds up, and they carry nothing that the page's policy forbids."""

import re
from datetime import UTC, datetime, timedelta

import pytest

from batchkiln.core.states import ItemState
from batchkiln.dashboard.charts import day_chart, gauge_bar, hour_chart, state_bar
from batchkiln.presentation.calendar import Calendar, Day
from batchkiln.store.generations import Hour

MIDNIGHT = datetime(2030, 1, 1, tzinfo=UTC)


def widths(svg: str) -> list[float]:
    return [float(width) for width in re.findall(r' width="([\d.]+)"', svg)]


def test_a_bar_is_full_and_shows_the_rarest_state() -> None:
    """One failed item in a million is still seen."""
    svg = state_bar(dict.fromkeys(ItemState, 0) | {ItemState.DONE: 1_000_000, ItemState.FAILED: 1})

    assert sum(widths(svg)) == pytest.approx(100, abs=0.1)
    assert min(widths(svg)) > 0.5
    assert "1 failed" in svg


def test_a_job_without_items_has_an_empty_bar() -> None:
    """Nothing is divided by nothing."""
    assert widths(state_bar(dict.fromkeys(ItemState, 0))) == []


def test_a_gauge_is_as_long_as_its_share() -> None:
    """And says that it is nearly full by its class."""
    assert widths(gauge_bar(0.25, is_nearly_full=False, label="credits")) == [100, 25]
    assert "g-full" in gauge_bar(0.95, is_nearly_full=True, label="credits")


def test_a_day_over_its_limit_stays_inside_the_plot() -> None:
    """What was spent before a limit was lowered is higher than the line, not cut off."""
    days = tuple(Day(MIDNIGHT + timedelta(days=number), credits=3000 * (number == 0)) for number in range(14))

    chart = day_chart(Calendar("studio", 2000, days, is_cut=False))

    heights = [float(height) for height in re.findall(r' height="([\d.]+)"', chart.svg)]
    assert max(heights) == 100
    assert chart.scale == ("3,000", "1,500", "0")
    assert 'y1="33.33"' in chart.svg


def test_days_are_counted_from_today_and_told_by_their_whole_column() -> None:
    """A bar of two pixels is no place for a pointer; a date below each bar is no axis that anybody reads."""
    days = tuple(Day(MIDNIGHT + timedelta(days=number), is_today=number == 3) for number in range(14))

    chart = day_chart(Calendar("studio", 2000, days, is_cut=False))

    assert chart.marks[:6] == ("", "02 Jan", "", "today", "", "06 Jan")
    assert len(chart.marks) == 14
    told = re.findall(r'height="100.00" class="c-hit"><title>([^<]+)<', chart.svg)
    assert told[3] == "Fri 2030-01-04: 0 credits used"
    assert len(told) == 14


def test_hours_without_anything_are_there() -> None:
    """A plot of a day has its 24 hours, so that a pause is seen as one."""
    hours = [Hour(MIDNIGHT, 3, 1, 20), Hour(MIDNIGHT + timedelta(hours=1), 2, 0, 30)]

    chart = hour_chart(hours, until=MIDNIGHT + timedelta(hours=2), length=timedelta(hours=1), number=24)

    assert chart.svg.count('class="c-done"') == 24
    assert "3 succeeded, 1 ended otherwise, 20 credits" in chart.svg
    assert chart.total == "6 attempts, 50 credits"
    assert chart.highest == "most in an hour: 4 attempts, 30 credits"
    assert re.fullmatch(r'<time datetime="[^"]+T02:00:00\+00:00">02:00 UTC</time>', chart.last)


def test_names_are_escaped_and_nothing_is_inline() -> None:
    """A profile may be named anything; styles and scripts in attributes would be blocked by the policy."""
    days = tuple(Day(MIDNIGHT + timedelta(days=number)) for number in range(14))

    svg = day_chart(Calendar('a"><script>', 2000, days, is_cut=False)).svg

    assert "<script" not in svg
    assert "style=" not in svg
    assert not re.search(r"\son\w+=", svg)
