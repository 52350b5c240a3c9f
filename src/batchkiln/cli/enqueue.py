"""`batchkiln enqueue`, and the manifest options and messages that it shares with `run`, `plan` and `watch`."""

import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click

from batchkiln.api import ApplyOptions, ApplyReport, OnChange
from batchkiln.api.apply_manifests import Applied
from batchkiln.api.documents import applied_document
from batchkiln.api.queue import opened
from batchkiln.cli.command import Common, command, run_async
from batchkiln.cli.manifest_progress import app_context
from batchkiln.cli.output import print_json, print_result, print_status, typed_path
from batchkiln.core.errors import ExitStatus, command_arguments
from batchkiln.presentation.confirmations import redo_effects_text
from batchkiln.presentation.formatting import plural, sanitize
from batchkiln.presentation.rejections import manifest_argument
from batchkiln.presentation.takers import who_takes

F = TypeVar("F", bound=Callable[..., Any])

WARNINGS_SHOWN = 10

MANIFESTS = click.argument("manifests", type=click.Path(), metavar="MANIFEST...", nargs=-1, required=True)


ON_CHANGE = click.option(
    "--on-change",
    type=click.Choice(["error", "keep", "redo"]),
    default="error",
    help="If an item's request changed after it was sent: refuse the manifest, keep the item as sent, or make it "
    "again, which costs again.",
)


NO_CATALOGUE = click.option(
    "--no-catalogue",
    "is_unchecked",
    is_flag=True,
    help="Do not check items against the service's catalogue; the service decides.",
)


def on_change_options(function: F) -> F:
    """Add the options for changed, removed and repeated items, and the catalogue check."""
    for option in (
        click.option(
            "--allow-duplicates",
            is_flag=True,
            help="Pay again for new items whose requests the job has already paid for under other ids.",
        ),
        NO_CATALOGUE,
        click.option(
            "--prune", is_flag=True, help="Cancel items that are no longer in the manifest and were never sent."
        ),
        ON_CHANGE,
    ):
        function = option(function)
    return function


@command("enqueue", example="batchkiln enqueue manifest.yaml\ncat manifest.yaml | batchkiln enqueue -", logs=True)
@MANIFESTS
@on_change_options
def enqueue(
    common: Common,
    manifests: tuple[str, ...],
    *,
    on_change: OnChange,
    prune: bool,
    is_unchecked: bool,
    allow_duplicates: bool,
) -> ExitStatus:
    """Put each MANIFEST into the queue and return; `-` reads standard input.

    Items are checked against the service's catalogue if it can be read; a violation is an error in the manifest.
    Works while another process runs the queue, which then starts on the new items immediately.
    """
    options = ApplyOptions(on_change=on_change, prune=prune, allow_duplicates=allow_duplicates)
    return run_async(_enqueue(common, manifests, options, is_unchecked=is_unchecked))


async def _enqueue(
    common: Common, manifests: Sequence[str], options: ApplyOptions, *, is_unchecked: bool
) -> ExitStatus:
    from batchkiln.planning.catalogues import Catalogues  # noqa: PLC0415  slow to import, and not needed for --help
    from batchkiln.planning.queue_access import open_access  # noqa: PLC0415  as above

    app = app_context(common)
    tell_new_folder(common)
    async with opened(app) as queue, open_access(app) as access:
        catalogues = Catalogues(access, is_disabled=is_unchecked)
        applied = await queue.apply(manifests, options=options, stdin=sys.stdin.buffer, catalogue_of=catalogues.of)
        queued = sorted({entry.job.name for entry in applied} & set(await queue.unfinished_jobs()))
        paused = await queue.reader.read(
            lambda reader: [name for name in queued if reader.jobs.summary(name).is_paused]
        )
        begun = [name for name in queued if name not in paused]
        takers = await queue.reader.read(partial(who_takes, jobs=begun))
    print_warnings(common, applied, catalogues.new_warnings().values())
    if common.is_json:
        print_json({"jobs": [applied_document(entry) for entry in applied]})
    else:
        for entry in applied:
            print_result(applied_line(entry))
        for name in paused:
            print_result(f"{name} is paused: `batchkiln unpause {command_arguments(name)}` lets its items begin.")
        if not queued:
            has_items = any(entry.report.new or entry.report.known for entry in applied)
            reason = "all items have ended before" if has_items else "there are no items"
            print_result(f"Nothing is queued: {reason}.")
        elif len(paused) < len(queued):
            print_result(takers)
    return ExitStatus.OK


def tell_new_folder(common: Common) -> None:
    """Say, unless `-q` is set, that a named queue gets a folder of its own, which a typing error would make as well."""
    folder = common.queue.parent if isinstance(common.queue, Path) else None
    if folder is not None and common.queue_option and not folder.exists() and not common.is_quiet:
        print_status(f"There is no folder {sanitize(str(folder))} yet: it is made for a new queue.")


def print_applied(common: Common, applied: Sequence[Applied]) -> None:
    """Print one line per applied manifest to standard error, unless `-q` is set."""
    if not common.is_quiet:
        for entry in applied:
            print_status(applied_line(entry))


def print_warnings(common: Common, applied: Sequence[Applied], new_warnings: Iterable[str]) -> None:
    """Print warnings to standard error, unless `-q` is set. `new_warnings` describe unreadable catalogues."""
    if common.is_quiet:
        return
    for error in new_warnings:
        print_status(f"Warning: {sanitize(error)}.")
    warnings = [warning for entry in applied for warning in entry.report.warnings]
    for warning in warnings[:WARNINGS_SHOWN]:
        print_status(f"Warning: {warning}")
    if len(warnings) > WARNINGS_SHOWN:
        print_status(f"… and {len(warnings) - WARNINGS_SHOWN} more warnings; --json lists more of them")


def _names(report: ApplyReport) -> str:
    """Return the names of the kept items that the report lists."""
    more = report.changed_count - len(report.changed)
    return ", ".join(map(sanitize, report.changed)) + (f" and {more:,} more" if more else "")


def _redo_cost(report: ApplyReport) -> str:
    """Return the possible cost of the items that are made again. Items without a quote are not estimated."""
    quoted = report.redone - report.redo_unquoted - report.redo_over_cap
    parts = [f"which may cost {plural(report.redo_cost, 'credit')} by the known quotes"] if quoted else []
    parts += [f"{report.redo_unquoted:,} of them without a quote"] if report.redo_unquoted else []
    parts += [f"{report.redo_over_cap:,} of them over their cap"] if report.redo_over_cap else []
    return ", ".join(parts)


def applied_line(entry: Applied) -> str:
    """Return the line about a manifest."""
    report = entry.report
    parts = [f"{report.new:,} new", f"{report.known:,} known"]
    for number, word in (
        (report.updated, "updated"),
        (report.kept, f"changed but kept as they were sent: {_names(report)}"),
        (report.redone, f"to be made again, {_redo_cost(report)}"),
        (report.requeued, "queued again"),
        (report.pruned, "canceled because they are no longer in the manifest"),
    ):
        if number:
            parts.append(f"{number:,} {word}")
    if left := report.missing - report.pruned:
        parts.append(f"{left:,} no longer in the manifest but unchanged")
    total = report.new + report.known
    line = f"{entry.job.name}: {plural(total, 'item')} ({', '.join(parts)}), profile {entry.profile}"
    line += "".join(f"; {sentence}" for sentence in redo_effects_text(report.redo_effects, "what is made again"))
    if report.moved_from is None:
        return line
    manifest = manifest_argument(typed_path(entry.job.manifest_path))
    back = f"batchkiln enqueue {manifest} --profile {report.moved_from}"
    return f"{line}; its items had the profile {report.moved_from}, and `{back}` moves them back"
