"""`batchkiln run` and `batchkiln work`: run the queue, with or without new manifests."""

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, time
from functools import wraps
from typing import Any, Final, TypeVar, cast

import click
from msgspec import Struct

from batchkiln.api import ApplyOptions, OnChange
from batchkiln.api.apply_manifests import Applied
from batchkiln.api.queue import Queue, opened
from batchkiln.api.run import RunOptions, Until, contact_limit
from batchkiln.cli.command import JOB, Common, can_ask_person, command, handle_signals, run_async
from batchkiln.cli.confirm import ask_before_paying_again, ask_before_spending, can_ask
from batchkiln.cli.dashboard import dashboard_of_run
from batchkiln.cli.enqueue import MANIFESTS, on_change_options, print_applied, print_warnings, tell_new_folder
from batchkiln.cli.manifest_progress import app_context
from batchkiln.cli.run_display import RunDisplay
from batchkiln.cli.streams import ignore_closed_output
from batchkiln.core.errors import ExitStatus
from batchkiln.core.selection import Selection

F = TypeVar("F", bound=Callable[..., Any])

_LONGEST_PATTERN: Final = 200
_CLOCK: Final = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)")


class UntilType(click.ParamType):  # type: ignore[type-arg]  # not generic before click 8.2
    """`done`, `budget`, `HH:MM`, or an ISO 8601 date and time. A time without a zone is UTC."""

    name = "done|budget|TIME"

    def convert(self, value: str | Until, param: click.Parameter | None, ctx: click.Context | None) -> Until:
        """Return the parsed value."""
        if isinstance(value, Until):
            return value
        if value in {"done", "budget"}:
            return Until(is_budget=value == "budget")
        if match := _CLOCK.fullmatch(value):
            return Until(at=time(int(match[1]), int(match[2])))
        try:
            instant = datetime.fromisoformat(value)
        except ValueError:
            self.fail(
                f"{value!r} is neither done nor budget, nor a time such as 18:30 or 2030-01-31T18:30Z", param, ctx
            )
        if len(value) <= len(date.min.isoformat()):
            self.fail(f"{value!r} has no time: write {value}T00:00Z", param, ctx)
        return Until(at=instant.astimezone(UTC) if instant.tzinfo else instant.replace(tzinfo=UTC))


UNTIL = UntilType()


def selection_options(function: F) -> F:
    """Add the options that select a few items. The command receives them as `selection`."""

    @wraps(function)
    def selecting(*args: object, **options: Any) -> object:  # noqa: ANN401  as click gives them
        names = ("only", "limit", "sample", "seed")
        return function(*args, selection=Selection(*map(options.pop, names)), **options)

    wrapped: Any = selecting
    for option in (
        click.option("--seed", type=int, default=0, metavar="N", help="The seed of --sample; default 0."),
        click.option(
            "--sample",
            type=click.IntRange(min=1),
            metavar="N",
            help="Of each job, begin only N random items.",
        ),
        click.option(
            "--limit",
            type=click.IntRange(min=1),
            metavar="N",
            help="Of each job, begin only the first N items. Those that have ended count: a repeat begins no others.",
        ),
        click.option(
            "--only",
            type=PATTERN,
            multiple=True,
            metavar="PATTERN",
            help="Begin only items whose ids match, as in 'fox-*'. May be repeated.",
        ),
    ):
        wrapped = option(wrapped)
    return cast("F", wrapped)


class _PatternType(click.ParamType):  # type: ignore[type-arg]  # as above
    """A glob pattern of item ids."""

    name = "PATTERN"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the pattern. It is not longer than an id can be."""
        if not value or len(value) > _LONGEST_PATTERN:
            self.fail(f"a pattern has 1 to {_LONGEST_PATTERN} characters, as in 'fox-*'", param, ctx)
        return value


PATTERN = _PatternType()

EGRESS = click.option(
    "--egress",
    metavar="NAME",
    help="The address that this machine sends from, for a queue in a database; default the host's name.",
)

JOURNALS_WAIT = click.option(
    "--wait-journals",
    "journals_wait_minutes",
    type=click.IntRange(min=0),
    metavar="MINUTES",
    default=RunOptions().journals_wait_minutes,
    help="If the database was restored, how long to wait for the journals of other machines; default 15 minutes.",
)


def run_control_options(function: F) -> F:
    """Add the options for the end, the cost and the display of a run."""
    for option in (
        click.option("--dashboard", "has_dashboard", is_flag=True, help="Also serve the dashboard during the run."),
        click.option(
            "--contact-timeout",
            "contact_seconds",
            type=click.FloatRange(min=0),
            metavar="SECONDS",
            help="End if the service has not answered by then; 0 waits forever. Default 60; 0 for endless runs.",
        ),
        click.option("--yes", "assume_yes", is_flag=True, help="Do not ask for confirmation."),
        click.option(
            "--max-credits", type=click.IntRange(min=0), metavar="N", help="Spend at most N credits in this run."
        ),
        click.option(
            "--until",
            type=UNTIL,
            metavar="done|budget|TIME",
            default="done",
            help="Stop when everything has ended (done), when today's credits are spent (budget), or at a time (UTC).",
        ),
    ):
        function = option(function)
    return function


@command(
    "run",
    example="batchkiln run manifest.yaml\n"
    "batchkiln run birds.yaml foxes.yaml --max-credits 500 --until 18:30\n"
    "generate-manifest | batchkiln run -",
    logs=True,
)
@MANIFESTS
@EGRESS
@JOURNALS_WAIT
@run_control_options
@selection_options
@on_change_options
def run(
    common: Common,
    manifests: tuple[str, ...],
    *,
    egress: str | None,
    until: Until,
    max_credits: int | None,
    journals_wait_minutes: int,
    assume_yes: bool,
    has_dashboard: bool,
    contact_seconds: float | None,
    on_change: OnChange,
    prune: bool,
    is_unchecked: bool,
    allow_duplicates: bool,
    selection: Selection,
) -> ExitStatus:
    """Enqueue each MANIFEST, then run the queue until their jobs have ended.

    The same command resumes: known items stay unchanged, and nothing is charged twice. On a terminal, it first shows a
    short plan. It asks for confirmation if the cost exceeds `confirm_above_credits`, or if a price is unknown and
    neither a cap nor a budget bounds it. With --only, --limit or --sample, all items are enqueued, and only a few are
    begun; the rest stays queued (exit 5). A queue in a database is shared with other workers; the command then waits
    for its jobs, whoever runs them.
    """
    only = selection.only if len(manifests) == 1 else ()  # of several, it may match in one
    options = ApplyOptions(on_change=on_change, prune=prune, allow_duplicates=allow_duplicates, only=only)
    run_options = RunOptions(
        until=until,
        max_credits=max_credits,
        egress=egress,
        selection=selection,
        journals_wait_minutes=journals_wait_minutes,
        contact_seconds=contact_limit(contact_seconds),
        stays_while_paused=can_ask_person(),
    )
    is_asking = can_ask(manifests, assume_yes=assume_yes)
    mode = _RunMode(is_asking=is_asking, has_dashboard=has_dashboard, is_unchecked=is_unchecked)
    return run_async(_run(common, manifests, options, run_options, mode))


class _RunMode(Struct, frozen=True):
    """The interactive options of a run.

    `is_asking`: ask for confirmation first. `is_unchecked`: do not check items against the service's catalogue.
    """

    is_asking: bool
    has_dashboard: bool
    is_unchecked: bool


async def _run(
    common: Common, manifests: Sequence[str], options: ApplyOptions, run_options: RunOptions, mode: _RunMode
) -> ExitStatus:
    ignore_closed_output()
    tell_new_folder(common)
    async with dashboard_of_run() as page:
        with handle_signals() as signals:
            async with (
                opened(app_context(common)) as queue,
                queue.driving(run_options, command="run") as active_run,
            ):
                applied = await _applied(common, queue, manifests, options, run_options, mode=mode)
                if mode.is_asking:
                    await ask_before_paying_again(applied)
                await active_run.limit_to([entry.job.name for entry in applied])
                async with page.showing(active_run.engine, is_wanted=mode.has_dashboard):
                    status = await RunDisplay(common, active_run, signals).run()
        await page.stay_open(signals)
    return status


async def _applied(
    common: Common,
    queue: Queue,
    manifests: Sequence[str],
    options: ApplyOptions,
    run_options: RunOptions,
    *,
    mode: _RunMode,
) -> list[Applied]:
    """Enqueue the manifests, after a confirmation if one is needed. The caller owns the queue's lock."""
    from batchkiln.planning.catalogues import Catalogues  # noqa: PLC0415  slow to import, and not needed for --help
    from batchkiln.planning.queue_access import QueueAccess  # noqa: PLC0415  as above

    access = QueueAccess.of_driver(queue)
    catalogues = Catalogues(access, is_disabled=mode.is_unchecked)
    agreed: Mapping[str, str] | None = None
    if mode.is_asking:
        agreed, options = await ask_before_spending(
            common, access, manifests, options=options, run_options=run_options, catalogues=catalogues
        )
    applied = await queue.apply(
        manifests, options=options, stdin=sys.stdin.buffer, agreed=agreed, catalogue_of=catalogues.of
    )
    print_applied(common, applied)
    print_warnings(common, [] if mode.is_asking else applied, catalogues.new_warnings(is_run=True).values())
    return applied


@command(
    "work",
    example="batchkiln work\nbatchkiln work field-guide --limit 5\nbatchkiln work --forever --log-format json",
    logs=True,
)
@click.argument("jobs", type=JOB, metavar="[JOB...]", nargs=-1)
@click.option("--forever", "is_forever", is_flag=True, help="Wait for more work until a signal.")
@EGRESS
@JOURNALS_WAIT
@run_control_options
@selection_options
def work(
    common: Common,
    jobs: tuple[str, ...],
    *,
    is_forever: bool,
    egress: str | None,
    until: Until,
    max_credits: int | None,
    journals_wait_minutes: int,
    assume_yes: bool,
    has_dashboard: bool,
    contact_seconds: float | None,
    selection: Selection,
) -> ExitStatus:
    """Run the whole queue, or the named jobs, until everything has ended.

    A queue in a database is shared: each process takes accounts whose API keys its machine has, and releases them
    when it ends. Of several processes with the same --egress, one sends, and the others stand by.
    """
    del assume_yes  # `work` asks nothing: the queued items were confirmed before
    if is_forever and selection:
        raise click.UsageError("--forever waits for new items, and --only, --limit and --sample select from known ones")
    run_options = RunOptions(
        until=until,
        max_credits=max_credits,
        is_forever=is_forever,
        egress=egress,
        selection=selection,
        journals_wait_minutes=journals_wait_minutes,
        contact_seconds=contact_limit(contact_seconds, is_forever=is_forever),
        stays_while_paused=can_ask_person(),
    )
    return run_async(_work(common, jobs, run_options, has_dashboard=has_dashboard))


async def _work(common: Common, jobs: Sequence[str], run_options: RunOptions, *, has_dashboard: bool) -> ExitStatus:
    ignore_closed_output()
    async with dashboard_of_run() as page:
        with handle_signals() as signals:
            async with (
                opened(app_context(common)) as queue,
                queue.driving(run_options, command="work") as active_run,
            ):
                if jobs:
                    await active_run.limit_to(jobs)
                async with page.showing(active_run.engine, is_wanted=has_dashboard):
                    status = await RunDisplay(common, active_run, signals).run()
        await page.stay_open(signals)
    return status
