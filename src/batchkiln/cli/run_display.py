"""The display of one run: progress and events while it runs; at its end a summary and the next steps."""

import asyncio
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from math import inf
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from batchkiln.api import hide_passwords
from batchkiln.api.run import Run, RunResult, left_of
from batchkiln.cli.command import Common, Signals
from batchkiln.cli.output import can_redraw, print_error, print_json_lines, print_status
from batchkiln.cli.progress import (
    LINE_EVERY_SECONDS,
    Display,
    PlainDisplay,
    ProgressState,
    RefreshBackoff,
    WorkerState,
    last_ended,
    problem_lines as new_problem_lines,
)
from batchkiln.clock import ServiceClock
from batchkiln.core.errors import BatchkilnError, ExitStatus, QueueBusy, command_arguments
from batchkiln.core.states import PROBLEM_STATES, ItemState
from batchkiln.core.waits import WaitReason
from batchkiln.logs import IS_LIVE
from batchkiln.presentation.account_errors import blocked_lines, misunderstanding
from batchkiln.presentation.chained_inputs import stale_line, waiting_lines
from batchkiln.presentation.formatting import REASONS, plural, sanitize
from batchkiln.presentation.item_documents import event_document
from batchkiln.presentation.job_documents import job_document
from batchkiln.presentation.outages import past_outages
from batchkiln.presentation.overview import JobView, Overview, review_line, service_notes
from batchkiln.presentation.takers import to_resume
from batchkiln.worker.account_worker import AccountWorker
from batchkiln.worker.loop import first_error

if TYPE_CHECKING:
    from batchkiln.core.responses import AccountBlocked

TICK_SECONDS: Final = 0.25


class RunDisplay:
    """Runs the queue with a progress display, and stops it on a signal."""

    def __init__(
        self, common: Common, active_run: Run, signals: Signals, *, awaited: str = "`batchkiln enqueue`"
    ) -> None:
        """Display a run that has not started. `awaited` is where a run without an end gets its items from."""
        self._common = common
        self._awaited = awaited if active_run.options.is_forever else None
        self._run = active_run
        self._engine = active_run.engine
        self._signals = signals
        self._last_ended: str | None = None

    async def run(self) -> ExitStatus:
        """Run to the end, print the summary, and return the exit status."""
        self._signals.stop, self._signals.resuming = self._engine.control.stop, resume_command(self._common)
        try:
            result = await self._run_with_display()
            return await self._print_end(replace(result, signal_status=self._signals.exit_status))
        except BatchkilnError as error:
            if not self._common.is_json:
                raise
            print_json_lines([{"event": "run_ended", "exit": error.exit_status, "error": str(error), "jobs": []}])
            print_error(error)
            return error.exit_status

    # --- during the run ---

    async def _run_with_display(self) -> RunResult:
        ended = asyncio.Event()
        with ExitStack() as stack:
            display = choose_display(stack, is_quiet=self._common.is_quiet, is_json=self._common.is_json)
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._refresh(display, ended), name="display")
                    try:
                        return await self._run.run()
                    finally:
                        ended.set()
                        self._engine.announce()
            except BaseExceptionGroup as errors:
                raise first_error(errors) from errors

    async def _refresh(self, display: Display | None, ended: asyncio.Event) -> None:
        """Print events and progress several times a second while items are active, otherwise on a change."""
        ticker, backoff, pause = ServiceClock(), RefreshBackoff(TICK_SECONDS), TICK_SECONDS
        started_at = ticker.monotonic()
        while not ended.is_set():
            await ticker.sleep_until(ticker.monotonic() + pause, ended)
            if isinstance(display, PlainDisplay) and not self._common.is_json:
                pause = LINE_EVERY_SECONDS  # it shows no more, and each look reads the queue
            news = self._engine.news.next()  # before reading, so that no change is missed
            has_active_items, slowest = False, inf
            with suppress(QueueBusy):  # the run itself decides whether it goes on without its database
                await self._print_events(display)
                if display is not None and not ended.is_set():
                    state = await self._state(ticker.monotonic() - started_at)
                    display.show(state, ticker.monotonic())
                    has_active_items = bool(state.under_way)
                    slowest = inf if isinstance(display, PlainDisplay) else state.tick_seconds
            if not ended.is_set():
                rest = min(backoff.next(has_active_items=has_active_items), slowest)
                await ticker.sleep_until(ticker.monotonic() + rest, news)
                backoff.on_change(is_news=news.is_set())

    async def _print_events(self, display: Display | None) -> None:
        """Print the new events: all of them as JSON, or those of items with problems as text."""
        while (self._common.is_json or display is not None) and (events := await self._run.new_events()):
            self._last_ended = last_ended(events) or self._last_ended
            if self._common.is_json:
                print_json_lines([event_document(event) for event in events])
            elif display is not None:
                for line in new_problem_lines(events):
                    display.announce(line)

    async def _state(self, seconds: float) -> ProgressState:
        overview = await self._run.progress()
        return ProgressState(
            overview.jobs,
            tuple(_worker_state(worker, overview) for worker in self._engine.workers),
            is_stopping=self._signals.received is not None,
            spent=self._run.spent(overview),
            most=self._run.options.max_credits,
            seconds=seconds,
            last=self._last_ended,
            awaited=self._awaited,
        )

    # --- at its end ---

    async def _print_end(self, result: RunResult) -> ExitStatus:
        await self._print_events(None)
        if self._common.is_json:
            jobs = [job_document(view) for view in result.views]
            rest = {} if result.unselected is None else {"unselected": result.unselected}
            print_json_lines([{"event": "run_ended", "exit": int(result.exit_status), "jobs": jobs} | rest])
        print_run_summary(result, self._common)
        if not self._common.is_json:
            for view in result.views:
                if (line := stale_line(view.summary.name, view.stale)) is not None:
                    print_status(f"{view.summary.name}: {line}.")
        return result.exit_status


def choose_display(stack: ExitStack, *, is_quiet: bool, is_json: bool) -> Display | None:
    """Return a display on standard error: a block that is redrawn, or lines where it cannot be; None with -q."""
    if is_quiet:
        return None
    if can_redraw() and not is_json:
        from batchkiln.cli.live_display import LiveDisplay  # noqa: PLC0415  Rich is slow to import

        display = stack.enter_context(LiveDisplay())
        shown = IS_LIVE.set(True)
        stack.callback(IS_LIVE.reset, shown)
        return display
    return PlainDisplay()


def _worker_state(worker: AccountWorker, overview: Overview) -> WorkerState:
    now = worker.ports.clock.now()
    usage = next((view.usage for view in overview.accounts if view.summary.id == worker.account_id), None)
    due = worker.control.slot_wait(worker.account_id)
    time_scale = next((view.time_scale for view in overview.jobs), 1.0)
    return WorkerState(
        account=f"{worker.viewpoint.profile}/{worker.viewpoint.account}",
        credits_today=usage.credits if usage else 0,
        credits_limit=worker.rates.limits.credits_per_day,
        creates=worker.rates.creates.window.used(now.monotonic),
        creates_limit=worker.rates.limits.creates_per_minute,
        reads=worker.rates.reads.window.used(now.monotonic),
        reads_limit=worker.rates.limits.reads_per_minute,
        reason=due.reason if due is not None else None,
        time_scale=time_scale,
        last_error=worker.backoffs.last_failure,
        until=now.instant_of(due.at) if due is not None and due.at < inf else None,
        wait_seconds=max(0.0, due.at - now.monotonic) / time_scale if due is not None else 0.0,
    )


def print_run_summary(result: RunResult, common: Common) -> None:
    """Print the jobs to standard output, unless --json is set, and the next steps to standard error."""
    if not common.is_json:
        _print_jobs(result)
    for line in _next_steps(result, common):
        print_status(line)


def _print_jobs(result: RunResult) -> None:
    from batchkiln.cli.rich_console import console  # noqa: PLC0415  Rich is slow to import
    from batchkiln.cli.status_text import problem_lines  # noqa: PLC0415  Rich is slow to import

    out = console()
    if not result.views:
        has_waited = result.paused or result.signal_status is not None
        hint = "" if has_waited else " `batchkiln work --forever` waits for items."
        out.print(f"There is nothing to do.{hint}")
    for view in result.views:
        out.print(job_line(view, did_anything=result.did_anything))
        for line in problem_lines(view):
            out.print(line)
    for job, items in result.paused:
        out.print(f"{job} is paused, {items:,} queued: `batchkiln unpause {command_arguments(job)}`")


def job_line(view: JobView, *, did_anything: bool) -> str:
    """Return what became of a job's items, what they cost, and where its files are."""
    summary = view.summary
    items, spent = summary.items, summary.credits
    parts = [
        f"{items[ItemState.DONE]:,} of {plural(summary.total, 'item')} done" if summary.total else "it has no items"
    ]
    parts += [f"{items[state]:,} {state}" for state in (*PROBLEM_STATES, ItemState.CANCELED) if items[state]]
    if left := left_of(view):
        parts.append(f"{left:,} left")
    money = f"{plural(spent.charged, 'credit')} charged{view.money(spent.charged)}"
    if spent.refunded:
        money += f", {spent.refunded:,} refunded"
    if spent.reserved:
        money += f", {spent.reserved:,} reserved"
    text = f"{summary.name}: {', '.join(parts)}; {money}."
    if items[ItemState.DONE]:
        text += f" Files are in {sanitize(summary.files_dir)}."
    if did_anything or left:
        return text
    lost = f" `batchkiln fetch {command_arguments(summary.name)}` downloads lost ones again."
    return f"Nothing to do. {text}{lost * bool(items[ItemState.DONE])}"


def _waits(views: Sequence[JobView]) -> Iterator[str]:
    """Yield the queued items that cannot begin: their job is paused, or they are made from others."""
    for view in views:
        if waiting := view.summary.waits_in_pause:
            name = view.summary.name
            yield f"{name} is paused with {plural(waiting, 'item')} queued. {to_resume(name)}."
        for line in waiting_lines(view.summary):
            yield f"{view.summary.name}: {line}."
        if to_review := review_line(view.summary):
            yield f"{to_review}."


def _viewing(result: RunResult, *, is_noted: bool) -> Iterator[str]:
    """Yield the notes on local services unless the display had them all the time, and how to look at the results."""
    if not is_noted:
        yield from service_notes(result.views)
    names = [view.summary.name for view in result.views if view.summary.items[ItemState.DONE]]
    if names and result.did_anything and not result.left:
        job = command_arguments(names[0]) if len(names) == 1 else "JOB"
        yield f"To look at the results: `{_program()} dashboard`, or `{_program()} report {job}` for one HTML file."


def _program() -> str:
    """Return the program's name, or the path it was started by where the name alone would not be found."""
    started = Path(sys.argv[0])
    is_by_path = started.name == "batchkiln" and started.is_file()  # not `python -m`, nor a program that imports it
    return shlex.quote(sys.argv[0]) if is_by_path and which("batchkiln") is None else "batchkiln"


def _accounts(result: RunResult) -> Iterator[str]:
    """Yield when the service did not answer, the accounts that cannot work, and what was not understood."""
    for line in past_outages(result.outages, {view.summary.profile: view.time_scale for view in result.views}):
        yield f"{line}."
    told = {(group.code, group.example or "") for view in result.views for group in view.summary.problems}
    alike: dict[AccountBlocked, list[str]] = {}
    for profile, account, error in result.blocked:
        alike.setdefault(error, []).append(f"{profile}/{account}")
    for error, accounts in alike.items():
        yield blocked_lines(accounts, error, told)
    for profile, account, entry in result.misunderstood:
        yield f"{misunderstanding(entry, f'{profile}/{account}')}."


def _next_steps(result: RunResult, common: Common) -> Iterator[str]:
    """Yield the problems that need a person, and the command that resumes."""
    if not common.is_quiet:
        yield from _viewing(result, is_noted=can_redraw() and not common.is_json)
    yield from _waits(result.views)
    yield from _accounts(result)
    if result.left and WaitReason.HELD in result.last_waits:
        yield (
            "A held item occupies an account's only slot, and its API key is not configured: configure that API key "
            "beside the new one, or end the item with `batchkiln resolve`."
        )
    if result.left and WaitReason.NO_KEY in result.last_waits:
        yield (
            "An account has no API key, so only its active items were continued: put its API key where the "
            "configuration expects it."
        )
    status = result.exit_status
    if status is ExitStatus.ITEMS_NOT_DONE and result.left:
        reasons = {
            REASONS[reason] for reason in result.last_waits if reason not in {WaitReason.NOTHING, WaitReason.NOW}
        }
        waits = " and ".join(sorted(reasons)) or "a person"
        yield f"{plural(result.left, 'item')} cannot continue; waiting for {waits}."
    if result.needed:
        yield f"The run included {plural(result.needed, 'source')} that the selected items need."
    if result.unselected:
        names = [view.summary.name for view in result.views if left_of(view)]
        command = f"batchkiln work {command_arguments(*names)}"
        of = sanitize(names[0]) if len(names) == 1 else plural(len(names), "job")
        was, is_left, them = ("was", "is", "it") if result.unselected == 1 else ("were", "are", "them")
        yield (
            f"{plural(result.unselected, 'item')} of {of} {was} not selected for this run, and {is_left} still queued. "
            f"To make {them}: `{command}`."
        )
    most, is_short = result.max_credits, status is ExitStatus.STOPPED_WITH_WORK_LEFT
    if most is not None and is_short and WaitReason.ENOUGH in result.last_waits:
        yield (
            f"This run may spend at most {plural(most, 'credit')}: it spent {result.spent:,}, and the next item costs "
            "more than the rest. The same command may spend as much again."
        )
    if result.left > (result.unselected or 0) or result.signal_status is not None:
        saved = "Everything is saved, and queued items stay queued" if result.blocked else "Everything is saved"
        yield f"{saved}. To resume: `{resume_command(common)}`"


def resume_command(common: Common) -> str:
    """Return the command line that resumes. A manifest from standard input is in the queue, so `work` resumes it."""
    if "-" in common.arguments:
        return "batchkiln work"
    return shlex.join(["batchkiln", *map(hide_passwords, common.arguments)])
