"""The parts of the live pages. Each part is rendered separately, and sent again after a change."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final

from msgspec.structs import replace

from batchkiln.api import ItemSummary, Reader
from batchkiln.api.reading import read_item_report
from batchkiln.core.job import InputFile
from batchkiln.core.states import FINAL_STATES, RETRYABLE, ItemState
from batchkiln.dashboard.charts import Chart, day_chart, day_name, gauge_bar, hour_chart, state_bar
from batchkiln.dashboard.context import Context
from batchkiln.dashboard.file_faults import faults_of, missing_inputs
from batchkiln.dashboard.live_state import LiveState
from batchkiln.dashboard.snapshot import PageSnapshot, expected_cost, headline
from batchkiln.presentation.calendar import Calendar, read_calendars
from batchkiln.presentation.overview import read_accounts

HOURS_SHOWN: Final = 24
_HOUR: Final = timedelta(hours=1)

NEWEST_SHOWN: Final = 14

EVENTS_SHOWN: Final = 300
"""The newest events on an item's page. An item that is resent for days has thousands."""

_OVERVIEW: Final = ("headline", "slots", "jobs", "problems", "newest", "hours")
_JOB: Final = ("headline", "job", "problems", "newest")


async def sections(context: Context, job: str | None) -> tuple[dict[str, str], PageSnapshot]:
    """Render the parts of the overview, or of a job's page, from the current state of the queue.

    Raise `InputError` for an unknown job.
    """
    now = await context.snapshot(job)
    newest = await context.reader.read(_newest, job)
    chart = await context.reader.read(_hours, now) if job is None else None
    values = {
        "now": now,
        "headline": headline(now),
        "job": now.overview.jobs[0] if job is not None else None,
        "newest": newest,
        "chart": chart,
        "state_bar": state_bar,
        "gauge_bar": gauge_bar,
        "profiles": context.config.profiles,
        "started_at": context.started_at,
        "stale": 0 if job is None else len(await context.reader.read(_stale, job)),
        "expected": None
        if job is None
        else await context.reader.read(expected_cost, context.config, now.overview.jobs[0].summary),
    }
    names = _OVERVIEW if job is None else _JOB
    return {name: context.render(f"sections/{name}.html", **values) for name in names}, now


def _newest(reader: Reader, job: str | None) -> list[tuple[str, ItemSummary]]:
    if job is None:
        return reader.items.newest_results(NEWEST_SHOWN)
    return [(job, item) for item in reader.items.newest_of_job(job, NEWEST_SHOWN)]


def _stale(reader: Reader, job: str) -> list[str]:
    return reader.items.stale_names(job)


def _hours(reader: Reader, now: PageSnapshot) -> Chart | None:
    """Draw the last 24 hours, or return None if no item ended in them."""
    if not now.overview.accounts:
        return None
    latest = max(view.now for view in now.overview.accounts)
    until = latest.replace(minute=0, second=0, microsecond=0)
    hours = reader.generations.ended_by_hour(until - (HOURS_SHOWN - 1) * _HOUR, length=_HOUR)
    return hour_chart(hours, until=until, length=_HOUR, number=HOURS_SHOWN) if hours else None


async def failure_sections(context: Context) -> dict[str, str]:
    """Render what failed, by cause, as one part."""
    now = await context.snapshot()
    return {"failures": context.render("sections/failures.html", jobs=(*now.current, *now.earlier))}


async def day_sections(context: Context) -> dict[str, str]:
    """Render past and coming days as one part."""
    calendars = await context.reader.read(_calendars, context, context.live_state())
    charts = [(calendar, day_chart(calendar)) for calendar in calendars]
    return {"days": context.render("sections/days.html", charts=charts, day_name=day_name)}


def _calendars(reader: Reader, context: Context, live: LiveState) -> list[Calendar]:
    accounts, times = read_accounts(reader, context.config, context.machine_now(), live.times)
    return read_calendars(reader, context.config, times, accounts)


async def item_sections(context: Context, job: str, name: str) -> dict[str, str]:
    """Render an item's page as one part. It shows no ages, so it changes only with the queue.

    Raise `InputError` for an unknown job or item.
    """
    report = await context.reader.read(read_item_report, context.config, job, name, context.machine_now())
    detail, explanation = report.detail, report.explanation
    events = [replace(event, detail={"manifest": event.detail.get("manifest")}) for event in (detail.arrival,) if event]
    events += detail.events  # the counts of the arrival are left out, because they describe the whole manifest
    shown, inputs = await context.reader.read(_inputs, detail.item.id)
    profile = context.config.profiles.get(report.summary.profile)
    html = context.render(
        "sections/item.html",
        detail=detail,
        profile=report.summary.profile,
        time_scale=1.0 if profile is None else profile.time_scale,
        shown_inputs=shown,
        inputs=inputs,
        gone_inputs=await missing_inputs([*shown, *inputs]),
        faults=await faults_of([detail.item]),
        events=list(reversed(events))[:EVENTS_SHOWN],
        events_total=len(events),
        explanation=explanation,
        actions=_actions(detail.item.state),
        can_choose=detail.item.state in FINAL_STATES,
    )
    return {"item": html}


def _inputs(reader: Reader, item_id: int) -> tuple[Sequence[tuple[int, InputFile]], Sequence[tuple[int, InputFile]]]:
    """Return the images that the shown files were made from, and those of the request, if these are others."""
    shown, inputs = reader.items.shown_inputs_of(item_id), reader.items.inputs_of(item_id)
    return shown, [] if shown == inputs else inputs


_ACTIONS: Final[Mapping[ItemState, tuple[str, ...]]] = {
    ItemState.QUEUED: ("cancel",),
    ItemState.HELD: ("resolve",),
    ItemState.DONE: ("redo",),
}


def _actions(state: ItemState) -> tuple[str, ...]:
    if state in RETRYABLE:
        return ("retry",)
    return _ACTIONS.get(state, ())
