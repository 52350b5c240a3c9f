"""What a run has come to: the exit status, and what a person is told, with the command to go on."""

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


def say_ending(ending: RunResult, common: Common) -> None:
    """Tell a person: on standard output, or with --json what cannot wait on standard error."""
    if not common.is_json:
        _say_jobs(ending)
    for line in _next_steps(ending, common):
        print_status(line)


def _say_jobs(ending: RunResult) -> None:
    from batchkiln.cli.text_tables import console, problem_lines  # noqa: PLC0415  Rich, once the work is done

    out = console()
    if not ending.views:
        out.print("There is nothing to do.")
    for view in ending.views:
        out.print(_sentence(view, did_anything=ending.did_anything))
        for line in problem_lines(view):
            out.print(line)


def _sentence(view: JobView, *, did_anything: bool) -> str:
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


def _next_steps(ending: RunResult, common: Common) -> Iterator[str]:
    """Say what is to be done, and how to go on."""
    for view in ending.views:
        if waiting := waiting_in_pause(view):
            name = view.summary.name
            yield f"{name} is paused with {plural(waiting, 'item')} queued: `batchkiln unpause {name}` lets it go on."
    for profile, account, trouble in ending.blocked:
        said = sanitize(f"{trouble.error.code}: {trouble.error.message}")
        yield (
            f"The account {profile}/{account} cannot work: {ACCOUNT_ADVICE[trouble.problem]}. "
            f"The service said: {said}. Nothing is lost; what is queued stays queued."
        )
    for profile, account, entry in ending.misunderstood:
        yield f"{misunderstanding(entry, f'{profile}/{account}')}."
    if ending.left and WaitReason.HELD in ending.rests:
        yield (
            "An account's one place belongs to a held item whose API key is not configured: put that key back beside "
            "the new one, or end the item with `batchkiln resolve`."
        )
    if ending.left and WaitReason.NO_KEY in ending.rests:
        yield (
            "An account has no API key, and was driven for what it had under way alone: put its key where the "
            "configuration looks for it."
        )
    status = ending.exit_status
    if status is ExitStatus.ITEMS_NOT_DONE and ending.left:
        reasons = {REASONS[reason] for reason in ending.rests if reason not in {WaitReason.NOTHING, WaitReason.NOW}}
        yield f"{plural(ending.left, 'item')} cannot go on; waiting for {' and '.join(sorted(reasons)) or 'a person'}."
    if ending.left or ending.signal_status is not None:
        yield f"Everything is saved. To go on: {resume_command(common)}"


def resume_command(common: Common) -> str:
    """Return the command line that goes on; what came by standard input is in the queue already."""
    if "-" in common.arguments:
        return shlex.join(["batchkiln", "work", "--queue", str(common.queue)])
    return shlex.join(["batchkiln", *common.arguments])
