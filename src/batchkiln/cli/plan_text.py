"""The three forms of a plan: the full text, the short text before a run, and JSON."""

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, time
from textwrap import indent
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from batchkiln.api import Change, ChangeKind, PlannedItem
from batchkiln.cli.rich_console import console
from batchkiln.core.credit_price import CreditPrice
from batchkiln.planning.plan import JobPlan, Plan
from batchkiln.planning.plan_document import planned_request, under_way_of
from batchkiln.planning.plan_warnings import note_of_images_to_make, warnings_of
from batchkiln.presentation.forecasts import JobForecast
from batchkiln.presentation.formatting import (
    format_duration,
    format_minute,
    plural,
    sanitize,
    service_note,
)

CHANGES_SHOWN: Final = 6
"""The number of items shown per kind of change; --json contains more."""

DAYS_SHOWN: Final = 14

_SYMBOLS: Final[Mapping[ChangeKind, tuple[str, str]]] = {
    ChangeKind.NEW: ("+", "green"),
    ChangeKind.UPDATED: ("~", "yellow"),
    ChangeKind.REQUEUED: ("~", "yellow"),
    ChangeKind.REDONE: ("~", "yellow"),
    ChangeKind.REFUSED: ("!", "red"),
    ChangeKind.PRUNED: ("-", "red"),
    ChangeKind.LEFT_ALONE: (" ", "dim"),
}

_REJECTED: Final = "x"


def show_plan(plan: Plan, *, is_detailed: bool = False) -> None:
    """Print the whole plan. `is_detailed` says that `--detailed-exitcode` was given, which is then not explained."""
    out = console()
    for job in plan.jobs:
        _show_job(out, job)
        out.print()
    if plan.costs or plan.rejected:
        out.print(_cost_table(plan))
        out.print()
    for outlook in plan.outlooks:
        if any(day.items or day.busy for day in outlook.forecast.days):
            out.print(
                _calendar(outlook, is_one=len(plan.outlooks) == 1, time_scale=plan.profiles[outlook.profile].time_scale)
            )
            out.print()
    for line in _closing_lines(plan, is_detailed=is_detailed):
        out.print(line)


def short_lines(plan: Plan) -> Iterator[str]:
    """Yield the short form of a plan, which `run` shows before its question."""
    for job in plan.jobs:
        is_over = not job.to_send and not under_way_of(job)
        end = "" if is_over or not (ends := _end_text(job, plan)) else f", ends {ends}"
        rejected = f", {job.rejected:,} of them would be rejected" if job.rejected else ""
        yield f"{job.manifest.spec.name}: {_totals(job)}; {_to_send(job)} to send{rejected}{end}"
        if job.manifest.unselected:
            yield f"{job.manifest.spec.name}: {_unselected(job)}"
    if plan.costs:
        yield f"Cost: {_cost(plan)}."
        yield from _service_notes(plan)
    for warning in warnings_of(plan):
        if warning.code != "files_there_already":  # a question of its own
            yield f"Warning: {_job_prefix(warning.job)}{sanitize(warning.message)}."


def _unselected(job: JobPlan) -> str:
    return f"{plural(job.manifest.unselected, 'more item')} would be queued and not begun: not selected"


def _to_send(job: JobPlan) -> str:
    """Return how many items are to be sent; with a selection, also how many of them are sources that others need."""
    needed = job.manifest.needed
    if not needed:
        return plural(job.to_send, "item")
    selected = job.to_send - needed
    they = "it needs" if selected == 1 else "they need"
    return f"{plural(selected, 'item')} and {plural(needed, 'source')} that {they}"


def _show_job(out: Console, job: JobPlan) -> None:
    manifest = job.manifest
    title = Text(manifest.spec.name, style="bold")
    title.append(f"  {_totals(job)}, profile {manifest.profile}", style="not bold")
    out.print(title)
    if manifest.selected:
        named = manifest.selected[:CHANGES_SHOWN]
        names = ", ".join(map(sanitize, named))
        more = job.to_send - manifest.needed - len(named)
        out.print(Text(f"  selected: {names}{f' and {more:,} more' if more else ''}; all changes of the manifest:"))
    rejections = job.rejections
    for kind, number in manifest.numbers.items():
        changes = [change for change in manifest.changes if change.kind is kind][:CHANGES_SHOWN]
        mark, style = _SYMBOLS[kind]
        for change in changes:
            if (code := rejections.get(change.item)) is None:
                out.print(Text(f"  {mark} {_line(change, job)}", style=style))
            else:
                out.print(Text(f"  {_REJECTED} {_line(change, job)}, would be rejected ({code})", style="red"))
        if number > len(changes):
            out.print(Text(f"  {mark} … and {number - len(changes):,} more {_WORDS[kind]}", style=style))
    for item in manifest.shown:
        out.print()
        out.print(Text(f"  {sanitize(item.name)}", style="bold"))
        out.print(Text(indent(_request_text(item), "  ")))


def _request_text(item: PlannedItem) -> str:
    request = planned_request(item)
    quote = "" if item.cost_credits is not None else "\nmax_cost_credits is added: the quote, which is not known yet"
    body = json.dumps(request["body"], ensure_ascii=False, indent=2)
    lines = (line if line.isprintable() else sanitize(line) for line in body.split("\n"))
    return f"POST {request['path']}\n" + "\n".join(lines) + quote


_WORDS: Final[Mapping[ChangeKind, str]] = {
    ChangeKind.NEW: "new",
    ChangeKind.UPDATED: "changed",
    ChangeKind.REQUEUED: "to be queued again",
    ChangeKind.REDONE: "to be made again",
    ChangeKind.REFUSED: "changed after being sent",
    ChangeKind.PRUNED: "removed",
    ChangeKind.LEFT_ALONE: "no longer in the manifest",
}


def _totals(job: JobPlan) -> str:
    numbers = job.manifest.numbers
    kinds = (ChangeKind.UPDATED, ChangeKind.REQUEUED, ChangeKind.REDONE, ChangeKind.REFUSED)
    changed = sum(numbers[kind] for kind in kinds)
    same = job.manifest.report.known - changed
    parts = [f"{numbers[ChangeKind.NEW]:,} new", f"{same:,} known", f"{changed:,} changed"]
    parts.append(f"{numbers[ChangeKind.PRUNED]:,} removed")
    return ", ".join(parts)


def _line(change: Change, job: JobPlan) -> str:  # noqa: PLR0911  one for each kind
    item = sanitize(change.item)
    fields = sanitize(", ".join(change.fields))
    match change.kind:
        case ChangeKind.NEW:
            return f"{item}  {sanitize(' '.join(change.fields))}"
        case ChangeKind.UPDATED:
            return f"{item}  {fields} ({change.state})"
        case ChangeKind.REQUEUED:
            why = f"{change.state}: {change.reason}" if change.reason else str(change.state)
            return f"{item}  queued again ({why})" + (f": {fields}" if fields else "")
        case ChangeKind.REDONE:
            return f"{item}  {fields} ({change.state}), would be made again, which costs again"
        case ChangeKind.REFUSED:
            kept = "kept as it was sent" if job.manifest.report.kept else "refused because it was already sent"
            return f"{item}  {fields} ({change.state}), {kept}"
        case ChangeKind.PRUNED:
            return f"{item}  no longer in the manifest, would be canceled"
        case ChangeKind.LEFT_ALONE:
            return f"{item}  no longer in the manifest ({change.state}), unchanged"


def _cost_table(plan: Plan) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("MODEL", no_wrap=True)
    for heading in ("ITEMS", "CREDITS EACH", "CREDITS"):
        table.add_column(heading, justify="right", no_wrap=True)
    is_many = len({cost.profile for cost in plan.costs}) > 1
    prices = {cost.profile: plan.profiles[cost.profile].credit_price for cost in plan.costs}
    has_money = any(prices.values())
    if has_money:
        table.add_column("MONEY", justify="right", no_wrap=True)
    for cost in plan.costs:
        priced = cost.items - cost.unpriced
        each = "unknown" if not priced else f"{cost.credits / priced:,.1f}".removesuffix(".0")
        unpriced = f" + {cost.unpriced:,} unpriced" if cost.unpriced and priced else ""
        name = f"{cost.profile}/{cost.model}" if is_many else cost.model
        price = prices[cost.profile]
        money = [price.of(cost.credits) if price is not None and priced else ""] if has_money else []
        known = f"{cost.credits:,}{unpriced}" if priced else "unknown"
        table.add_row(Text(sanitize(name)), f"{cost.items:,}", each, known, *money)
    if plan.rejected:  # the warnings name them
        table.add_row("rejected, not charged", f"{plan.rejected:,}", "0", "0", *([""] if has_money else []))
    table.add_row(
        Text("total", style="bold"),
        f"{sum(cost.items for cost in plan.costs) + plan.rejected:,}",
        "",
        _cost_figure(plan),
        *([_total_money(plan, set(prices.values()))] if has_money else []),
    )
    return table


def _total_money(plan: Plan, prices: set[CreditPrice | None]) -> str:
    """Return the total cost in money; empty if profiles have different prices of a credit."""
    price = prices.pop() if len(prices) == 1 else None
    if price is None:
        return ""
    return f"at most {price.of(plan.most)}" if plan.unpriced else price.of(plan.credits)


def _cost_figure(plan: Plan) -> str:
    """Return the total cost, or its upper bound if a price is unknown. The daily budgets count the same amount."""
    return f"at most {plan.most:,}" if plan.unpriced else f"{plan.credits:,}"


def _cost(plan: Plan) -> str:
    if not plan.unpriced:
        return f"{plan.credits:,} credits"
    unpriced = plural(plan.unpriced, "item")
    return f"at most {plan.most:,} credits: {plan.credits:,} by quotes, and {unpriced} without a price"


def _calendar(outlook: JobForecast, *, is_one: bool, time_scale: float) -> Table:
    """Return the days; where the clock runs faster, the slot's time is called service time: ends are in real time."""
    days = [day for day in outlook.forecast.days if day.items or day.busy]
    table = Table(box=None, pad_edge=False)
    table.add_column("DAY (UTC)" if is_one else f"DAY (UTC), {'+'.join(outlook.accounts)}", no_wrap=True)
    for heading in ("ITEMS", "CREDITS", "SLOT TIME" if time_scale == 1 else "SLOT TIME (service time)"):
        table.add_column(heading, justify="right", no_wrap=True)
    for day in days[:DAYS_SHOWN]:
        busy = format_duration(day.busy.total_seconds())
        table.add_row(_day(day.starts_at), f"{day.items:,}", f"{day.credits:,}", busy)
    if len(days) > DAYS_SHOWN:
        rest = days[DAYS_SHOWN:]
        busy = format_duration(sum(day.busy.total_seconds() for day in rest))
        items, spent = sum(day.items for day in rest), sum(day.credits for day in rest)
        table.add_row(f"… {len(rest):,} more days", f"{items:,}", f"{spent:,}", busy)
    return table


def _day(starts_at: datetime) -> str:
    """Return a day's date, or its start time if the day does not start at midnight, as in a rehearsal."""
    starts_at = starts_at.astimezone(UTC)
    return starts_at.strftime("%Y-%m-%d") if starts_at.time() == time() else format_minute(starts_at)


def _closing_lines(plan: Plan, *, is_detailed: bool) -> Iterator[Text]:
    """Yield the estimated end of each job, and the warnings."""
    for job in plan.jobs:
        name = sanitize(job.manifest.spec.name)
        if job.manifest.is_paused:
            yield Text(f"{name}: paused", style="yellow")
        elif not job.to_send and not under_way_of(job):
            yield Text(f"{name}: nothing to send")
        elif ends := _end_text(job, plan):
            yield Text(f"{name}: ends {ends}")
        else:
            yield Text(f"{name}: end not known yet: {job.end.reason}")
        if note := note_of_images_to_make(job, plan):
            yield Text(f"{name}: {note}")
        if job.manifest.needed:
            yield Text(f"{name}: {_to_send(job)} to send")
        if job.manifest.unselected:
            yield Text(f"{name}: {_unselected(job)}")
    for warning in warnings_of(plan):
        yield Text(f"Warning: {_job_prefix(warning.job)}{sanitize(warning.message)}.", style="yellow")
    for note in _service_notes(plan):
        yield Text(note, style="dim")
    yield from _last_lines(plan, is_detailed=is_detailed)


def _last_lines(plan: Plan, *, is_detailed: bool) -> Iterator[Text]:
    yield Text("Nothing was sent, spent or changed.", style="dim")
    if plan.refusals:
        yield Text(f"`run` would refuse this (exit 2): {sanitize('; '.join(plan.refusals))}.", style="red")
    elif plan.rejected:
        told = "" if is_detailed else " `plan` itself ends with 0, or with `--detailed-exitcode` with 2."
        rejected = f"{plural(plan.rejected, 'item')} would be rejected: `run` would end with exit code 3."
        yield Text(f"{rejected}{told}", style="red")


def _service_notes(plan: Plan) -> Iterator[str]:
    """Yield a sentence for each profile of a local service: its credits are not real, and its speed may differ."""
    for profile in sorted({job.manifest.profile for job in plan.jobs}):
        known = plan.profiles[profile]
        made_up = service_note(is_embedded=known.is_embedded, time_scale=known.time_scale)
        if made_up is not None:
            yield f"{made_up[0].upper()}{made_up[1:]}."


def _end_text(job: JobPlan, plan: Plan) -> str | None:
    """Return when a job ends; None if it is not known. Nobody knows when a person reviews what others are made from."""
    end, to_choose = plan.end_of(job), job.manifest.chains.to_choose
    if end is None:
        return None
    if job.end.reason is not None:
        return f"{end}: {job.end.reason}"
    if not to_choose:
        return str(end)
    verb = "is" if to_choose == 1 else "are"
    return f"{end}, not counting the time until somebody reviews what {plural(to_choose, 'item')} {verb} made from"


def _job_prefix(job: str | None) -> str:
    return "" if job is None else f"{sanitize(job)}: "
