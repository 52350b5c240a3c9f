"""`batchkiln plan`: show the effect and the cost of `run`."""

import sys
from collections.abc import Sequence

import click
from msgspec import Struct

from batchkiln.api import ApplyOptions, OnChange
from batchkiln.cli.command import Common, command, run_async
from batchkiln.cli.enqueue import MANIFESTS, on_change_options
from batchkiln.cli.manifest_progress import app_context
from batchkiln.cli.output import print_json
from batchkiln.cli.run import selection_options
from batchkiln.core.errors import BatchkilnError, ExitStatus
from batchkiln.core.selection import Selection
from batchkiln.planning.catalogues import Catalogues
from batchkiln.planning.plan import Plan, make_plan
from batchkiln.planning.plan_document import plan_document
from batchkiln.planning.queue_access import open_access


@command(
    "plan",
    example="batchkiln plan manifest.yaml\nbatchkiln plan birds.yaml foxes.yaml --json --detailed-exitcode",
    logs=True,
)
@MANIFESTS
@click.option(
    "--detailed-exitcode",
    "is_detailed",
    is_flag=True,
    help="Exit code 2 if `run` would change or send anything, 0 if not, 1 after an error or if `run` would refuse.",
)
@click.option(
    "--show",
    type=click.IntRange(min=0, max=1000),
    default=0,
    metavar="N",
    help="Print prompts and whole requests of the first N items of each job that would be sent.",
)
@selection_options
@on_change_options
def plan(
    common: Common,
    manifests: tuple[str, ...],
    *,
    is_detailed: bool,
    on_change: OnChange,
    prune: bool,
    is_unchecked: bool,
    allow_duplicates: bool,
    show: int,
    selection: Selection,
) -> ExitStatus:
    """Show what `run` would do with each MANIFEST: the changes, the cost and the days. Spends nothing.

    Unknown prices are requested from the service, which is free. No job and no item changes. Works without a queue,
    and while another process runs the queue.
    """
    only = selection.only if len(manifests) == 1 else ()  # of several, it may match in one
    options = ApplyOptions(on_change=on_change, prune=prune, allow_duplicates=allow_duplicates, only=only)
    few = _Few(selection, show)
    try:
        return run_async(_plan(common, manifests, options, few, is_detailed=is_detailed, is_unchecked=is_unchecked))
    except BatchkilnError as error:
        if not is_detailed:
            raise
        raise PlanFailed(error) from error


class PlanFailed(BatchkilnError):
    """An error of `plan --detailed-exitcode`, which has an exit status of its own: 1 (contract, section 10)."""


class _Few(Struct, frozen=True):
    """The selected items, and the number of them to show in full."""

    selection: Selection
    show: int


async def _plan(
    common: Common,
    manifests: Sequence[str],
    options: ApplyOptions,
    few: _Few,
    *,
    is_detailed: bool,
    is_unchecked: bool,
) -> ExitStatus:
    from batchkiln.cli.plan_text import show_plan  # noqa: PLC0415  Rich is slow to import

    app = app_context(common)
    async with open_access(app) as access:
        made = await make_plan(
            access,
            manifests,
            options=options,
            stdin=sys.stdin.buffer,
            catalogues=Catalogues(access, is_disabled=is_unchecked),
            selection=few.selection,
            show=few.show,
        )
    if common.is_json:
        print_json(plan_document(made))
    else:
        show_plan(made, is_detailed=is_detailed)
    return _exit_status(made, is_detailed=is_detailed)


def _exit_status(made: Plan, *, is_detailed: bool) -> ExitStatus:
    """Return the error status that would end `run`; without one, 0, or the status of `--detailed-exitcode`."""
    status = max((failure.exit_status for failure in made.quotes.failures), default=ExitStatus.OK)
    if made.refusals:
        status = ExitStatus.USAGE
    if status is not ExitStatus.OK:
        return ExitStatus.UNEXPECTED if is_detailed else status
    return ExitStatus.USAGE if is_detailed and made.would_do_anything else ExitStatus.OK
