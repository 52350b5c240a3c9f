"""`batchkiln run` and `batchkiln work`."""

import sys
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

import click

from batchkiln.cli.command import command, run_async
from batchkiln.cli.dashboard import dashboard_beside
from batchkiln.cli.enqueue import MANIFESTS, on_change_options, tell_applied
from batchkiln.cli.options import Common
from batchkiln.cli.session import Session, Wishes
from batchkiln.cli.signals import listening_to_signals
from batchkiln.cli.until import UNTIL, Until
from batchkiln.core.errors import ExitStatus
from batchkiln.queue.connection import Database
from batchkiln.queue.history import last_event_id
from batchkiln.queue.intake import ApplyOptions
from batchkiln.scheduler.control import Control
from batchkiln.wiring import Setting, apply_manifests, driving, scope_of

F = TypeVar("F", bound=Callable[..., Any])


def _driving_options(function: F) -> F:
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
@_driving_options
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
) -> ExitStatus:
    """Enqueue each MANIFEST, then drive the queue until their jobs have ended.

    The same command again is how to resume: known items are left alone, and nothing is paid twice.
    """
    del is_agreed  # no question is asked yet; scripts may say yes already
    options = ApplyOptions(on_change=on_change, prune=prune)
    wishes = Wishes(until=until, max_credits=max_credits)
    return run_async(_run(common, manifests, options, wishes, has_dashboard=has_dashboard))


async def _run(
    common: Common, manifests: Sequence[str], options: ApplyOptions, wishes: Wishes, *, has_dashboard: bool
) -> ExitStatus:
    with listening_to_signals() as signals:
        setting = Setting(common.queue, common.load_config(), common.profile)
        database = await Database.open_for_writing(common.queue)
        try:
            control = Control()
            async with driving(database, setting, control, command="run") as driver:
                newest = await database.read(last_event_id)
                applied = await apply_manifests(database, setting, manifests, options=options, stdin=sys.stdin.buffer)
                tell_applied(common, applied)
                control.scope = scope_of(applied)
                names = [entry.job.name for entry in applied]
                async with dashboard_beside(driver, is_wanted=has_dashboard):
                    return await Session(common, driver, signals, wishes, jobs=names, after_event=newest).run()
        finally:
            await database.close()


@command("work", example="batchkiln work\nbatchkiln work --forever --log-format json", logs=True)
@click.option("--forever", "is_forever", is_flag=True, help="Wait for more when all is done, until a signal.")
@_driving_options
def work(
    common: Common,
    *,
    is_forever: bool,
    until: Until,
    max_credits: int | None,
    is_agreed: bool,
    has_dashboard: bool,
) -> ExitStatus:
    """Drive whatever is in the queue, until all of it has ended."""
    del is_agreed  # as above
    wishes = Wishes(until=until, max_credits=max_credits, is_forever=is_forever)
    return run_async(_work(common, wishes, has_dashboard=has_dashboard))


async def _work(common: Common, wishes: Wishes, *, has_dashboard: bool) -> ExitStatus:
    with listening_to_signals() as signals:
        setting = Setting(common.queue, common.load_config(), common.profile)
        database = await Database.open_for_writing(common.queue)
        try:
            control = Control(waits_for_more=wishes.is_forever)
            async with driving(database, setting, control, command="work") as driver:
                newest = await database.read(last_event_id)
                async with dashboard_beside(driver, is_wanted=has_dashboard):
                    return await Session(common, driver, signals, wishes, jobs=None, after_event=newest).run()
        finally:
            await database.close()
