"""`batchkiln run` and `batchkiln work`."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import click

from batchkiln.api.app_context import AppContext
from batchkiln.api.apply_manifests import Applied, scope_of
from batchkiln.api.open_queue import opened
from batchkiln.api.queue import Queue
from batchkiln.api.run import Run
from batchkiln.api.run_options import RunOptions, Until
from batchkiln.cli.command import command, run_async
from batchkiln.cli.confirm import ask_before_paying_again, ask_before_spending, may_ask
from batchkiln.cli.dashboard import dashboard_beside
from batchkiln.cli.enqueue import MANIFESTS, on_change_options, tell_applied, tell_warnings
from batchkiln.cli.options import Common
from batchkiln.cli.run_display import RunDisplay
from batchkiln.cli.signals import handle_signals
from batchkiln.cli.streams import outlive_readers
from batchkiln.cli.until import UNTIL
from batchkiln.core.errors import ExitStatus
from batchkiln.store import ApplyOptions
from batchkiln.worker.run_state import RunState

F = TypeVar("F", bound=Callable[..., Any])


def driving_options(function: F) -> F:
    """Add when a drive is to stop, and what it may spend."""
    for option in (
        click.option("--dashboard", "has_dashboard", is_flag=True, help="Serve the web page of the queue meanwhile."),
        click.option("--yes", "is_agreed", is_flag=True, help="Answer yes to whatever would be asked."),
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
@driving_options
@on_change_options
def run(
    common: Common,
    manifests: tuple[str, ...],
    *,
    until: Until,
    max_credits: int | None,
    is_agreed: bool,
    has_dashboard: bool,
    on_change: Literal["error", "keep"],
    prune: bool,
    is_unchecked: bool,
) -> ExitStatus:
    """Enqueue each MANIFEST, then drive the queue until their jobs have ended.

    The same command again is how to resume: known items are left alone, and nothing is paid twice. On a terminal
    it shows first what it would come to, and asks where that is more than `confirm_above_credits`, or where a price
    is not known yet and neither a cap nor a budget bounds it.
    """
    options = ApplyOptions(on_change=on_change, prune=prune)
    wishes = RunOptions(until=until, max_credits=max_credits)
    is_asking = may_ask(manifests, is_agreed=is_agreed)
    manner = _Manner(is_asking=is_asking, has_dashboard=has_dashboard, is_unchecked=is_unchecked)
    return run_async(_run(common, manifests, options, wishes, manner))


@dataclass(frozen=True, slots=True)
class _Manner:
    """How a run deals with a person: whether it asks first, and whether they can watch it in a browser.

    `is_unchecked`: they want nothing held against the service's catalogue.
    """

    is_asking: bool
    has_dashboard: bool
    is_unchecked: bool


async def _run(
    common: Common, manifests: Sequence[str], options: ApplyOptions, wishes: RunOptions, manner: _Manner
) -> ExitStatus:
    outlive_readers()
    with handle_signals() as signals:
        async with opened(AppContext(common.queue, common.load_config(), common.profile)) as queue:
            control = RunState()
            async with queue.driving(control, command="run") as engine:
                newest = await queue.reader.read(lambda reader: reader.events.last_id())
                applied = await _applied(common, queue, manifests, options, wishes, manner=manner)
                if manner.is_asking:
                    await ask_before_paying_again(applied)
                control.scope = scope_of(applied)
                run = Run(engine, queue.reader, wishes, jobs=[entry.job.name for entry in applied])
                async with dashboard_beside(engine, is_wanted=manner.has_dashboard):
                    return await RunDisplay(common, run, queue.reader, signals, after_event=newest).run()


async def _applied(
    common: Common,
    queue: Queue,
    manifests: Sequence[str],
    options: ApplyOptions,
    wishes: RunOptions,
    *,
    manner: _Manner,
) -> list[Applied]:
    """Enqueue the manifests, once a person was asked where one is to be; the queue's lock is held."""
    from batchkiln.planning.catalogues import Catalogues  # noqa: PLC0415  only who plans needs them otherwise
    from batchkiln.planning.request_log import RequestLog  # noqa: PLC0415  as above

    note = RequestLog(queue.writer, queue.setting).note
    catalogues = Catalogues(queue.writer, queue.setting, note, is_alone=True, is_off=manner.is_unchecked)
    agreed = None
    if manner.is_asking:
        agreed = await ask_before_spending(
            common, queue, manifests, options=options, wishes=wishes, catalogues=catalogues
        )
    applied = await queue.apply(
        manifests, options=options, stdin=sys.stdin.buffer, agreed=agreed, catalogue_of=catalogues.of
    )
    tell_applied(common, applied)
    tell_warnings(common, [] if manner.is_asking else applied, catalogues.complaints())
    return applied


@command("work", example="batchkiln work\nbatchkiln work --forever --log-format json", logs=True)
@click.option("--forever", "is_forever", is_flag=True, help="Wait for more when all is done, until a signal.")
@driving_options
def work(
    common: Common,
    *,
    is_forever: bool,
    until: Until,
    max_credits: int | None,
    is_agreed: bool,
    has_dashboard: bool,
) -> ExitStatus:
    """Run whatever is in the queue, until all of it has ended."""
    del is_agreed  # it asks nothing: what is in the queue was planned before
    wishes = RunOptions(until=until, max_credits=max_credits, is_forever=is_forever)
    return run_async(_work(common, wishes, has_dashboard=has_dashboard))


async def _work(common: Common, wishes: RunOptions, *, has_dashboard: bool) -> ExitStatus:
    outlive_readers()
    with handle_signals() as signals:
        async with (
            opened(AppContext(common.queue, common.load_config(), common.profile)) as queue,
            queue.driving(RunState(), command="work") as engine,
            dashboard_beside(engine, is_wanted=has_dashboard),
        ):
            newest = await queue.reader.read(lambda reader: reader.events.last_id())
            run = Run(engine, queue.reader, wishes, jobs=None)
            return await RunDisplay(common, run, queue.reader, signals, after_event=newest).run()
