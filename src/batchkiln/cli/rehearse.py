"""`batchkiln rehearse`: run manifests in virtual time against the local service."""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Literal

import click

from batchkiln.cli.command import Common, command, set_up_logging
from batchkiln.cli.enqueue import MANIFESTS
from batchkiln.cli.output import can_redraw, print_json
from batchkiln.clock import machine_now
from batchkiln.core.errors import ExitStatus
from batchkiln.presentation.formatting import format_minute, plural

if TYPE_CHECKING:
    from batchkiln.rehearsal.simulation import RehearsalResult


@command(
    "rehearse",
    example="batchkiln rehearse manifest.yaml\nbatchkiln rehearse manifest.yaml --faults rough --seed 7 --json",
)
@MANIFESTS
@click.option(
    "--faults",
    type=click.Choice(["none", "mild", "rough"]),
    default="none",
    help="How often the service fails and connections break.",
)
@click.option("--seed", type=int, default=0, metavar="N", help="The random seed; default 0.")
@click.option(
    "--kept",
    type=click.FloatRange(0, 1),
    default=1.0,
    metavar="SHARE",
    help="The share of reviewed results that is kept, from 0 to 1; default 1. The rest is made again or dropped.",
)
@click.option("--full", is_flag=True, help="Run the whole program, also where a model gives the same result.")
@click.option(
    "--no-catalogue",
    is_flag=True,
    expose_value=False,
    help="Accepted as by `run`, without an effect: a rehearsal never reads the service's catalogue.",
)
def rehearse(
    common: Common,
    manifests: tuple[str, ...],
    *,
    faults: Literal["none", "mild", "rough"],
    seed: int,
    kept: float,
    full: bool,
) -> ExitStatus:
    """Run each MANIFEST to its end in virtual time against the local service. A month takes less than a minute.

    The limits are those of the profile; prices and durations are those of the local service. The queue, the outputs
    and the account stay unchanged: all files are temporary, and no request leaves this process. Reviews and choices are
    drawn at random: if too few results are kept, items are made again, at most three times. `-` reads standard input.

    Without faults, jobs of prompts alone on one account run in a model, by the program's own decisions, and many times
    as fast. The result says so, and is the same as with --full.
    """
    with _stopped_by_signals():
        return _rehearse(common, manifests, faults=faults, seed=seed, kept=kept, full=full)


def _rehearse(
    common: Common,
    manifests: tuple[str, ...],
    *,
    faults: Literal["none", "mild", "rough"],
    seed: int,
    kept: float,
    full: bool,
) -> ExitStatus:
    # These imports take longer than a whole `status` command.
    from batchkiln.api.app_context import AppContext  # noqa: PLC0415
    from batchkiln.rehearsal.simulation import (  # noqa: PLC0415
        RehearsalOptions,
        rehearse as play,
    )

    # The report lists all incidents; with -v the log also shows them as they occur.
    set_up_logging(common, verbosity=common.verbosity - 1 if common.verbosity > 0 else -2)
    app = AppContext(common.queue, common.load_config(), common.profile)
    options = RehearsalOptions(
        manifests, faults, seed, machine_now(), sys.stdin.buffer, _progress(common), kept, is_full=full
    )
    result = play(app, options)
    if can_redraw():
        sys.stderr.write("\r\x1b[K")
    _print_result(result, common, level=faults, seed=seed)
    if not result.is_sound:
        return ExitStatus.UNEXPECTED
    return ExitStatus.OK if result.is_all_done else ExitStatus.ITEMS_NOT_DONE


@contextmanager
def _stopped_by_signals() -> Iterator[None]:
    """Stop on SIGTERM as on Ctrl-C, with the exit status of the received signal."""
    received: list[int] = []

    def end(number: int, _: object) -> None:
        received.append(number)
        signal.raise_signal(signal.SIGINT)

    handlers = {
        signal.SIGINT: signal.default_int_handler,
        signal.SIGTERM: end,
    }  # a shell may have set SIGINT to be ignored
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    except KeyboardInterrupt:
        if not received:
            raise
        sys.exit(ExitStatus.TERMINATED)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _print_result(result: "RehearsalResult", common: Common, *, level: str, seed: int) -> None:
    from batchkiln.cli.rehearsal_report import rehearsal_document, show_rehearsal  # noqa: PLC0415  Rich is slow to import

    if common.is_json:
        print_json(rehearsal_document(result, level=level, seed=seed))
    else:
        # The rehearsal's own profile has no faster clock; a run of this one may.
        time_scale = common.load_config().profiles[result.profile.name].time_scale
        show_rehearsal(result, level=level, seed=seed, time_scale=time_scale)


def _progress(common: Common) -> Callable[[datetime, int], None]:
    """Return a callback that shows the virtual time on a terminal."""
    if common.is_quiet or not can_redraw():
        return lambda _, __: None

    def print_progress(now: datetime, left: int) -> None:
        sys.stderr.write(f"\r\x1b[KRehearsing {format_minute(now)}: {plural(left, 'item')} left")
        sys.stderr.flush()

    return print_progress
