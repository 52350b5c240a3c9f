"""The result of a rehearsal as text, and as the JSON document of `rehearse --json`."""

from collections.abc import Iterator
from typing import Any, Final

from msgspec.structs import asdict
from rich.table import Table
from rich.text import Text

from batchkiln.api import JobSummary
from batchkiln.cli.rich_console import console
from batchkiln.core.states import ItemState
from batchkiln.presentation.formatting import STYLES, format_duration, format_minute, plural, sanitize
from batchkiln.presentation.item_documents import iso
from batchkiln.rehearsal.reviewing import ReviewFigures
from batchkiln.rehearsal.simulation import RehearsalResult

_LONGEST_MESSAGE: Final = 160


def show_rehearsal(result: RehearsalResult, *, level: str, seed: int, time_scale: float) -> None:
    """Print the bill, the duration, the requests, the incidents, and whether anything was charged twice.

    `time_scale` is that of a run.
    """
    out = console()
    place = "in a model " if result.is_modelled else ""
    faults = "without faults" if level == "none" else f"with {level} faults"
    out.print(
        Text(
            f"Rehearsed {place}{faults} (seed {seed}), under the limits of profile {result.profile.name}, "
            "at the local service's prices.",
            style="bold",
        )
    )
    for job in result.jobs:
        for line in _job_lines(job):
            out.print(line)
    out.print(_facts(result, time_scale))
    if result.incidents:
        out.print()
        out.print(_incident_table(result))
    out.print()
    out.print(_conclusion(result))


def _job_lines(job: JobSummary) -> Iterator[Text]:
    line = Text(f"{job.name}: {plural(job.total, 'item')}:")
    for state in ItemState:
        if number := job.items[state]:
            line.append(f"  {number:,} {state}", style=STYLES[state])
    yield line
    for problem in job.problems:
        message = sanitize(problem.example or "")[:_LONGEST_MESSAGE]
        text = f"    {problem.state}: {problem.count:,} {sanitize(problem.code)}" + (f" ({message})" if message else "")
        yield Text(text, style=STYLES[problem.state])


def _facts(result: RehearsalResult, time_scale: float) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    refunded = sum(job.credits.refunded for job in result.jobs)
    bill = plural(result.charged_credits, "credit")
    table.add_row("bill", bill + (f", and {refunded:,} refunded" if refunded else ""))
    table.add_row("time", _time_text(result, time_scale))
    table.add_row("days", _days(result))
    reviews = result.reviews
    if reviews != ReviewFigures():
        table.add_row("reviews", f"{reviews.kept:,} kept, {reviews.dropped:,} dropped, {reviews.redone:,} made again")
    for window in result.report.windows:
        name = window.budget if window.account == "main" else f"{window.budget} ({window.account})"
        table.add_row(
            name,
            f"{result.requests_of(window.budget):,} in total, at most {window.busiest_day_requests:,} of "
            f"{window.limit_per_day:,} a day and {window.busiest_minute_requests:,} of "
            f"{window.limit_per_minute:,} a minute",
        )
    for slot in result.report.slots:
        if slot.busy_share is not None:
            name = "slot" if slot.account == "main" else f"slot ({slot.account})"
            table.add_row(name, f"generating {slot.busy_share:.0%} of the time")
    return table


def _time_text(result: RehearsalResult, speed: float) -> str:
    """Return how long it takes: where the profile's clock runs faster, service time and the real time of a run."""
    seconds = (result.ends_at - result.starts_at).total_seconds()
    if speed == 1:
        return f"{format_duration(seconds)}, from {format_minute(result.starts_at)} to {format_minute(result.ends_at)}"
    real = format_duration(seconds / speed)
    return (
        f"{format_duration(seconds)} of service time, about {real} of a run, whose clock goes {speed:g} times as fast"
    )


def _days(result: RehearsalResult) -> str:
    days = result.report.days
    if not days.entries:
        return "none with credits used"
    busiest = max(days.entries, key=lambda day: day.used_credits)
    whole = plural(len(days.entries) + days.more, "service day")
    return f"{whole} with credits used, at most {busiest.used_credits:,} of {busiest.limit_credits:,} a day"


def _incident_table(result: RehearsalResult) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("FAULT", no_wrap=True)
    table.add_column("AT", no_wrap=True)
    table.add_column("TIMES", justify="right", no_wrap=True)
    table.add_column("HOW IT ENDED", overflow="fold")
    for incident in result.incidents:
        endings = "; ".join(
            ending if times == incident.times else f"{times:,} {ending}" for ending, times in incident.endings.items()
        )
        table.add_row(sanitize(incident.kind.replace("_", " ")), incident.endpoint, f"{incident.times:,}", endings)
    return table


def _conclusion(result: RehearsalResult) -> Text:
    paid = result.paid
    if not result.is_sound:
        return Text(
            f"The records disagree: the service charged {result.charged_credits:,} credits and the queue recorded "
            f"{paid.credits:,}; {result.charged_twice:,} generations are too many. This is a bug in batchkiln: please "
            "report it with the manifest and the seed.",
            style="red",
        )
    service = "modelled service" if result.is_modelled else "service"
    made = f"the {service} created {plural(paid.generations, 'generation')}"
    refunded = paid.generations - paid.kept
    kept = f", refunded {refunded:,}" if refunded else ""
    return Text(
        f"No prompt was charged twice: {made}{kept}, and charged {paid.kept:,} for "
        f"{plural(paid.items, 'item')}. Your queue, files and account are unchanged.",
        style="green",
    )


def rehearsal_document(result: RehearsalResult, *, level: str, seed: int) -> dict[str, Any]:
    """Return a rehearsal as `rehearse --json` prints it."""
    report = result.report
    return {
        "profile": result.profile.name,
        "faults": level,
        "seed": seed,
        "modelled": result.is_modelled,
        "starts_at": iso(result.starts_at),
        "ends_at": iso(result.ends_at),
        "bill": {
            "credits": result.charged_credits,
            "refunded": sum(job.credits.refunded for job in result.jobs),
        },
        "jobs": [_job_document(job) for job in result.jobs],
        "days": {
            "count": len(report.days.entries) + report.days.more,
            "first": [
                {
                    "account": day.account,
                    "began_at": day.began_at,
                    "credits": day.used_credits,
                    "credits_limit": day.limit_credits,
                }
                for day in report.days.entries
            ],
        },
        "reviews": asdict(result.reviews),
        "requests": [asdict(entry) for entry in report.requests],
        "windows": [asdict(window) for window in report.windows],
        "troubles": [asdict(incident) for incident in result.incidents],
        "generations": {
            "made": result.paid.generations,
            "kept": result.paid.kept,
            "refunded": result.paid.generations - result.paid.kept,
        },
        "charged_twice": result.charged_twice,
        "sound": result.is_sound,
    }


def _job_document(job: JobSummary) -> dict[str, Any]:
    return {
        "job": job.name,
        "items": {state.value: job.items[state] for state in ItemState} | {"total": job.total},
        "credits": {
            "reserved": job.credits.reserved,
            "charged": job.credits.charged,
            "refunded": job.credits.refunded,
        },
        "problems": [
            {"state": problem.state.value, "code": problem.code, "count": problem.count, "message": problem.example}
            for problem in job.problems
        ],
    }
