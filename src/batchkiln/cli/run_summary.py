"""The summary of a run: its jobs, the necessary next steps, and the command that resumes."""

import shlex
from collections.abc import Iterator

from batchkiln.api.run_result import RunResult, left_of, waiting_in_pause
from batchkiln.cli.options import Common
from batchkiln.cli.output import print_status
from batchkiln.core.errors import ExitStatus
from batchkiln.core.states import PROBLEM_STATES, ItemState
from batchkiln.core.waits import WaitReason
from batchkiln.presentation.account_errors import ACCOUNT_ADVICE
from batchkiln.presentation.formatting import REASONS, plural, sanitize
from batchkiln.presentation.overview import JobView
from batchkiln.presentation.unread_replies import misunderstanding
from batchkiln.store import hide_passwords


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
        out.print("There is nothing to do.")
    for view in result.views:
        out.print(_job_line(view, did_anything=result.did_anything))
        for line in problem_lines(view):
            out.print(line)


def _job_line(view: JobView, *, did_anything: bool) -> str:
    summary = view.summary
    items, spent = summary.items, summary.credits
    parts = [f"{items[ItemState.DONE]:,} of {plural(summary.total, 'item')} done"]
    parts += [f"{items[state]:,} {state}" for state in (*PROBLEM_STATES, ItemState.CANCELED) if items[state]]
    if left := left_of(view):
        parts.append(f"{left:,} left")
    money = f"{plural(spent.charged, 'credit')} charged"
    if spent.refunded:
        money += f", {spent.refunded:,} refunded"
    if spent.reserved:
        money += f", {spent.reserved:,} reserved"
    opening = "" if did_anything or left else "Nothing to do. "
    where = f" Files are in {sanitize(summary.output_dir)}." if items[ItemState.DONE] else ""
    return f"{opening}{summary.name}: {', '.join(parts)}; {money}.{where}"


def _next_steps(result: RunResult, common: Common) -> Iterator[str]:
    """Yield the problems that need a person, and the command that resumes."""
    for view in result.views:
        if waiting := waiting_in_pause(view):
            name = view.summary.name
            yield f"{name} is paused with {plural(waiting, 'item')} queued: `batchkiln unpause {name}` resumes it."
    for profile, account, trouble in result.blocked:
        said = sanitize(f"{trouble.error.code}: {trouble.error.message}")
        yield (
            f"The account {profile}/{account} cannot work: {ACCOUNT_ADVICE[trouble.problem]}. "
            f"The service said: {said}. All data is safe; queued items stay queued."
        )
    for profile, account, entry in result.misunderstood:
        yield f"{misunderstanding(entry, f'{profile}/{account}')}."
    if result.left and WaitReason.HELD in result.rests:
        yield (
            "A held item occupies an account's only slot, and its API key is not configured: configure that API key "
            "beside the new one, or end the item with `batchkiln resolve`."
        )
    if result.left and WaitReason.NO_KEY in result.rests:
        yield (
            "An account has no API key, so only its active items were continued: put its API key where the "
            "configuration expects it."
        )
    status = result.exit_status
    if status is ExitStatus.ITEMS_NOT_DONE and result.left:
        reasons = {REASONS[reason] for reason in result.rests if reason not in {WaitReason.NOTHING, WaitReason.NOW}}
        waits = " and ".join(sorted(reasons)) or "a person"
        yield f"{plural(result.left, 'item')} cannot continue; waiting for {waits}."
    if result.left or result.signal_status is not None:
        yield f"Everything is saved. To resume: {resume_command(common)}"


def resume_command(common: Common) -> str:
    """Return the command line that resumes. A manifest from standard input is in the queue, so `work` resumes it."""
    if "-" in common.arguments:
        return shlex.join(["batchkiln", "work", "--queue", str(common.queue)])
    return shlex.join(["batchkiln", *map(hide_passwords, common.arguments)])
