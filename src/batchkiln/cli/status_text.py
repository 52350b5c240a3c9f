"""The text of `status`: tables, counts, problems and warnings."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from batchkiln.api import ProblemGroup
from batchkiln.cli.output import typed_path
from batchkiln.core.errors import command_arguments
from batchkiln.core.states import NOT_DELIVERED, PROBLEM_STATES, WORKING_STATES, ItemState
from batchkiln.presentation.chained_inputs import stale_line, waiting_lines
from batchkiln.presentation.formatting import (
    REASONS,
    STYLES,
    format_minute,
    format_service_age,
    format_wait_end,
    plural,
    sanitize,
)
from batchkiln.presentation.outages import present_outages
from batchkiln.presentation.overview import AccountView, JobView, Overview, alerts_of, review_line, service_notes
from batchkiln.presentation.rejections import remedy_of_rejected

if TYPE_CHECKING:
    from batchkiln.presentation.shared_by import SharedBy

_LONGEST_MESSAGE = 160
_NARROWEST_END = len("WOULD END")
_UNBOUNDED = 10_000


def overview_blocks(overview: Overview) -> Iterator[RenderableType]:
    """Yield all jobs, the accounts, and the process that runs the queue."""
    if not overview.jobs:
        yield "The queue is empty. `batchkiln init` writes a first manifest, and `batchkiln run` runs it."
        return
    yield _Jobs(overview.jobs)
    for view in overview.jobs:
        if view.end_reason is not None:
            yield Text(f"{view.summary.name}: {view.end_line}.", style="dim")
    if overview.accounts:
        yield ""
        yield _account_table(overview.accounts, overview.shared_by)
    yield ""
    yield _driver(overview)
    for warning in overview.shared_by.warnings if overview.shared_by is not None else ():
        yield Text(f"Warning: {warning}.", style="yellow")
    for note in service_notes(overview.jobs):
        yield Text(note, style="dim")
    yield from _outage_lines(overview, overview.accounts)
    yield from _missing_key_lines(overview, overview.accounts)
    yield from _refusal_lines(overview, overview.accounts)
    yield from _unread_reply_lines(overview.accounts)
    for view in overview.jobs:
        for line in _person_lines(view):
            yield Text(f"{view.summary.name}: {line}.", style="yellow")
        for warning in alerts_of(view):
            yield Text(f"Warning: {view.summary.name}: {warning}.", style="yellow")


def job_blocks(overview: Overview) -> Iterator[RenderableType]:
    """Yield one job: counts, credits, active items, problems, estimated end, and warnings."""
    view = overview.jobs[0]
    summary = view.summary
    title = Text(summary.name, style="bold")
    if summary.description:
        title.append(f"  {sanitize(summary.description)}", style="dim")
    yield title
    yield _counts(view)
    yield from job_lines(view)
    own = [each for each in overview.accounts if each.summary.profile == summary.profile]
    for each in own:
        if each.wait is not None and (text := _waits(each)):
            yield Text(f"{each.summary.profile}/{each.summary.name} waits {text}", style="yellow")
    yield from _outage_lines(overview, own)
    yield from _missing_key_lines(overview, own)
    yield from _refusal_lines(overview, own)
    yield from _unread_reply_lines(own)
    yield _driver(overview)


def job_lines(view: JobView) -> Iterator[Text]:
    """Yield the text below the counts of a job."""
    summary = view.summary
    spent = summary.credits
    money = f"credits: {spent.spent:,} spent{view.money(spent.spent)} ({spent.charged:,} charged, "
    money += f"{spent.refunded:,} refunded), {spent.reserved:,} reserved"
    if summary.budget_credits is not None:
        money += f", budget {summary.budget_credits:,}"
    yield Text(money)
    for entry in summary.under_way:
        status = f", {sanitize(entry.status)}" if entry.status else ""
        age = (
            ""
            if entry.state is ItemState.DOWNLOADING
            else f" for {format_service_age(entry.since, view.now, view.time_scale)}"
        )
        yield Text(f"{entry.state}: {entry.item}{age}{status}", style="cyan")
    yield from problem_lines(view)
    for line in waiting_lines(summary):
        yield Text(line, style="yellow")
    for line in _person_lines(view):
        yield Text(line, style="yellow")
    if summary.is_paused:
        yield Text(f"paused: `batchkiln unpause {command_arguments(summary.name)}` resumes it", style="yellow")
    elif summary.is_finished:
        yield Text(_finished_line(view))
    else:
        yield Text(view.end_line)
    if view.service_note is not None:
        yield Text(view.service_note, style="dim")
    for warning in alerts_of(view):
        yield Text(f"Warning: {warning}.", style="yellow")


def _person_lines(view: JobView) -> Iterator[str]:
    """Yield what is left to a person: reviews, choices and stale items, without full stops."""
    for line in (review_line(view.summary), stale_line(view.summary.name, view.stale)):
        if line is not None:
            yield line


def _finished_line(view: JobView) -> str:
    if not view.summary.total:
        return view.end_text
    end = "finished" if view.summary.has_ended else "the rest waits for a person"
    return f"{end}; the files are in {sanitize(view.summary.files_dir)}"


def problem_lines(view: JobView) -> Iterator[Text]:
    """Yield each group of failed or held items, with the command that shows an example, and the next step."""
    name = view.summary.name
    for problem in view.summary.problems:
        yield Text(_problem(problem), style=STYLES[problem.state])
        item = view.examples.get((problem.state, problem.code))
        if item is not None:
            yield Text(f"    `batchkiln show {command_arguments(name, item)}`", style="dim")
        if problem.state is ItemState.REJECTED:
            manifest = typed_path(view.summary.manifest_path)
            remedy = remedy_of_rejected(problem.code, manifest, view.sufficient_budget)
            yield Text(f"    {remedy}", style="dim")
    states = {problem.state for problem in view.summary.problems}
    if retried := [state for state in NOT_DELIVERED if state in states and state is not ItemState.REJECTED]:
        choice = "".join(f" --state {state}" for state in retried) if ItemState.REJECTED in states else ""
        yield Text(f"    `batchkiln retry{choice} {command_arguments(name)}`", style="dim")


def _problem(problem: ProblemGroup) -> str:
    message = sanitize(problem.example or "")
    if len(message) > _LONGEST_MESSAGE:
        message = message[: _LONGEST_MESSAGE - 1] + "…"
    return f"{problem.state}: {problem.count:,} {sanitize(problem.code)}" + (f" ({message})" if message else "")


def _counts(view: JobView) -> Text:
    text = Text(f"{plural(view.summary.total, 'item')}:")
    for state in ItemState:
        if number := view.summary.items[state]:
            text.append(f"  {number:,} {state}", style=STYLES[state])
    return text


class _Jobs:
    """A row for each job, or, where the terminal is too narrow for the longest name, some lines for each."""

    def __init__(self, views: tuple[JobView, ...]) -> None:
        self._views = views

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        table = _job_table(self._views)
        if Measurement.get(console, options.update_width(_UNBOUNDED), table).minimum <= options.max_width:
            yield table
            return
        for view in self._views:
            yield Text(view.summary.name, style="bold")
            yield Padding(Text(", ").join(_job_facts(view)), (0, 0, 0, 2))


def _job_facts(view: JobView) -> Iterator[Text]:
    """Yield what the table says of a job, as short texts."""
    summary = view.summary
    bad, left = _troubled(view), _left(view)
    yield Text(f"{summary.items[ItemState.DONE]:,} of {summary.total:,} done", style="green")
    yield Text(f"{left:,} left")
    if bad:
        yield Text(plural(bad, "problem"), style="red")
    if canceled := summary.items[ItemState.CANCELED]:
        yield Text(f"{canceled:,} canceled")
    yield Text(plural(summary.credits.spent, "credit"))
    verb = "" if view.end is None or summary.is_paused else "ends " if view.is_driven else "would end "
    yield Text(f"{verb}{view.end_text}", style=_end_style(view))


def _troubled(view: JobView) -> int:
    return sum(view.summary.items[state] for state in PROBLEM_STATES)


def _left(view: JobView) -> int:
    return sum(view.summary.items[state] for state in WORKING_STATES)


def _end_style(view: JobView) -> str:
    summary = view.summary
    needs_person = not summary.has_ended and (summary.is_paused or summary.is_finished)
    return "yellow" if needs_person else ""


def _job_table(views: tuple[JobView, ...]) -> Table:
    canceled = sum(view.summary.items[ItemState.CANCELED] for view in views)
    table = Table(box=None, pad_edge=False, collapse_padding=bool(canceled))
    table.add_column("JOB", no_wrap=True)
    for heading in ("ITEMS", "DONE", "LEFT", "PROBLEMS", *(["CANCELED"] if canceled else []), "CREDITS"):
        table.add_column(heading, justify="right", no_wrap=True)
    ends = [view for view in views if view.end is not None and not view.summary.is_paused]
    table.add_column("WOULD END" if ends and not ends[0].is_driven else "ENDS", min_width=_NARROWEST_END)
    for view in views:
        summary, bad = view.summary, _troubled(view)
        table.add_row(
            summary.name,
            f"{summary.total:,}",
            Text(f"{summary.items[ItemState.DONE]:,}", style="green"),
            f"{_left(view):,}",
            Text(f"{bad:,}", style="red" if bad else ""),
            *([f"{summary.items[ItemState.CANCELED]:,}"] if canceled else []),
            f"{summary.credits.spent:,}",
            Text(view.end_text, style=_end_style(view)),
        )
    return table


def _account_table(views: tuple[AccountView, ...], shared_by: "SharedBy | None") -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("ACCOUNT", no_wrap=True)
    for heading in ("CREDITS TODAY", "CREATES TODAY", "READS TODAY"):
        table.add_column(heading, justify="right", no_wrap=True)
    if shared_by is not None:
        table.add_column("DRIVEN BY", no_wrap=True)
    waits = {view.summary.id: text for view in views if (text := _waits(view))}
    if waits:
        table.add_column("WAITING", overflow="fold", min_width=len("WAITING"))
    for view in views:
        limits, usage = view.limits, view.usage
        table.add_row(
            f"{view.summary.profile}/{view.summary.name}",
            _of(usage.credits, limits.credits_per_day if limits else None),
            _of(usage.creates, limits.creates_per_day if limits else None),
            _of(usage.reads, limits.reads_per_day if limits else None),
            *([shared_by.driver_of(view.summary.profile, view.summary.name) or "-"] if shared_by else []),
            *([waits.get(view.summary.id, "")] if waits else []),
        )
    return table


def _of(used: int, limit: int | None) -> str:
    return f"{used:,}" if limit is None else f"{used:,} of {limit:,}"


def _waits(view: AccountView) -> str:
    waits = [
        f"until {format_minute(held.until)} for {REASONS[held.reason]}"
        for held in (view.summary.creates_held, view.summary.reads_held)
        if held is not None and held.until > view.now
    ]
    if not waits and view.wait is not None and view.wait.is_reportable:
        until = view.wait.until
        end = "" if until is None else f"until {format_wait_end(until, view.now, view.time_scale)} "
        waits = [f"{end}for {REASONS[view.wait.reason]}"]
    if view.summary.misunderstood:
        from batchkiln.presentation.account_errors import CALLS  # noqa: PLC0415  slow to import, and rarely needed

        waits += [f"not understood: {CALLS[entry.call]}" for entry in view.summary.misunderstood]
    return "; ".join(waits)


def _missing_key_lines(overview: Overview, views: Iterable[AccountView]) -> Iterator[Text]:
    """Yield a warning for each account with work and without an API key."""
    for view in views:
        places = view.summary.key_missing
        if overview.lacks_key(view) and places is not None:
            from batchkiln.presentation.account_errors import key_missing_text  # noqa: PLC0415  as above

            name = f"{view.summary.profile}/{view.summary.name}"
            yield Text(f"Warning: the account {name} cannot work: {key_missing_text(places)}.", style="yellow")


def _refusal_lines(overview: Overview, views: Iterable[AccountView]) -> Iterator[Text]:
    """Yield a warning for each account that the service refuses, or that cannot work for another reason."""
    for view in views:
        if (blocked := overview.refusal_of(view)) is not None:
            from batchkiln.presentation.account_errors import blocked_text, cannot_work_text  # noqa: PLC0415  as above

            name = f"{view.summary.profile}/{view.summary.name}"
            told = cannot_work_text(name, blocked_text(blocked), is_driven=overview.is_driven)
            yield Text(f"Warning: {told}.", style="yellow")


def _outage_lines(overview: Overview, views: Iterable[AccountView]) -> Iterator[Text]:
    """Yield a warning for each service that does not answer."""
    for message in present_outages(views, is_driven=overview.is_driven):
        yield Text(f"Warning: {message}.", style="yellow")


def _unread_reply_lines(views: Iterable[AccountView]) -> Iterator[Text]:
    """Yield a warning for each reply that was not understood."""
    for view in views:
        for entry in view.summary.misunderstood:
            from batchkiln.presentation.account_errors import misunderstanding  # noqa: PLC0415  as above

            message = misunderstanding(entry, f"{view.summary.profile}/{view.summary.name}")
            yield Text(f"Warning: {message}.", style="yellow")


def _driver(overview: Overview) -> Text:
    lease = overview.lease
    if lease is None and overview.shared_by is not None:
        return Text(overview.shared_by.summary, style="dim")
    if lease is None:
        is_finished = all(view.summary.is_finished for view in overview.jobs)
        hint = "" if is_finished else "; `batchkiln work` starts one"
        return Text(f"No process runs this queue{hint}.", style="dim")
    return Text(
        f"Process {lease.pid} on {lease.host} runs this queue "
        f"({lease.command}, since {format_minute(lease.started_at)})."
    )
