"""`batchkiln doctor`: check the configuration, the service and the queue."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, Final

import click

from batchkiln.api.app_context import AppContext
from batchkiln.cli.command import Common, Signals, can_ask_person, command, handle_signals, run_async
from batchkiln.cli.output import print_json, print_status, question_text
from batchkiln.cli.streams import ignore_closed_output
from batchkiln.core.errors import ExitStatus, InputError
from batchkiln.doctor.check_results import CheckResult, Level, exit_status_of, warn
from batchkiln.doctor.runner import CheckContext, run_checks
from batchkiln.presentation.formatting import sanitize

if TYPE_CHECKING:
    from batchkiln.doctor.trial import PaymentConsent

_STYLES: Final = {Level.OK: "green", Level.WARN: "yellow", Level.FAIL: "red"}


@command(
    "doctor",
    example="batchkiln doctor\nbatchkiln doctor --profile studio --json\nbatchkiln doctor --probe",
    logs=True,
)
@click.option(
    "--probe", "is_probing", is_flag=True, help="Also examine what the service's document leaves open, at no cost."
)
@click.option(
    "--with-generation",
    "is_paid",
    is_flag=True,
    help="With --probe: also generate one picture. Its price is shown first.",
)
@click.option("--yes", "assume_yes", is_flag=True, help="Accept the price of that picture without a question.")
def doctor(common: Common, *, is_probing: bool, is_paid: bool, assume_yes: bool) -> ExitStatus:
    """Check the configuration, the API keys, the service, the clock, the disk and the queue, at no cost.

    Each line is ok, warn or fail, with the next step. It works without a network, without a queue, and with an invalid
    configuration, and reports checks that were not possible. With --probe it sends a few more requests. It first prints
    how much of the limits they use, and then how batchkiln interprets each reply.
    """
    if is_paid and not is_probing:
        raise InputError("--with-generation needs --probe: `batchkiln doctor --probe --with-generation`")
    if is_paid and not assume_yes and not can_ask_person():
        raise InputError(
            "--with-generation spends credits, and there is no terminal for a confirmation: add --yes to accept the "
            "price of the cheapest picture; nothing was sent"
        )
    return run_async(_doctor(common, is_probing=is_probing, is_paid=is_paid, assume_yes=assume_yes))


async def _doctor(common: Common, *, is_probing: bool, is_paid: bool, assume_yes: bool) -> ExitStatus:
    context = CheckContext(common.queue, common.config_path, common.profile, os.environ)
    results: list[CheckResult] = []
    show = None if common.is_json else _printer()
    if is_probing:
        ignore_closed_output()  # a probe has the queue's lock, and may be paying for a picture
    with handle_signals() as signals:
        consent = _payment_consent(signals, assume_yes=assume_yes) if is_paid else None
        async for result in _all_checks(common, context, results, consent, is_probing=is_probing):
            results.append(result)
            if show is not None:
                show(result)
    status = exit_status_of(results) if signals.exit_status is None else ExitStatus(signals.exit_status)
    if show is None:
        print_json({"exit": int(status), "checks": [_document(result) for result in results]})
    return status


async def _all_checks(
    common: Common,
    context: CheckContext,
    earlier: list[CheckResult],
    consent: "PaymentConsent | None",
    *,
    is_probing: bool,
) -> AsyncIterator[CheckResult]:
    """Yield the results of the ordinary checks, then those of the probe unless a check failed."""
    async for result in run_checks(context):
        yield result
    if not is_probing:
        return
    if any(result.level is Level.FAIL and not result.check.startswith("description") for result in earlier):
        yield warn("probe", "not started: a check above failed", "fix that problem first")
        return
    from batchkiln.doctor.runner import probe  # noqa: PLC0415  the worker is slow to import, and only the probe needs it

    async for result in probe(AppContext(common.queue, common.load_config(), common.profile), consent=consent):
        yield result


def _payment_consent(signals: Signals, *, assume_yes: bool) -> "PaymentConsent":
    from batchkiln.doctor.trial import PaymentConsent  # noqa: PLC0415  as above

    async def agrees(question: str) -> bool:
        if assume_yes:
            print_status(f"{question} Yes.")
            return True
        try:  # in a thread, so that signals are handled while the question is open
            return await asyncio.to_thread(click.confirm, question_text(question), err=True)
        except click.Abort:
            return False

    def on_run(stop: Callable[[], None]) -> None:
        signals.stop = stop

    return PaymentConsent(agrees, on_run)


def _printer() -> Callable[[CheckResult], None]:
    """Return a function that prints a result immediately, because a check of a silent service takes long."""
    from rich.text import Text  # noqa: PLC0415  slow to import, and not needed for JSON

    from batchkiln.cli.rich_console import console  # noqa: PLC0415  as above

    out = console()

    def show(result: CheckResult) -> None:
        line = Text(f"{result.level:<5}", style=_STYLES[result.level])
        line.append(f"{result.check}: ", style="bold")
        line.append("\n      ".join(sanitize(part) for part in result.message.splitlines()), style="not bold")
        out.print(line)
        if result.remedy is not None:
            out.print(Text(f"      {result.remedy}", style="dim"))

    return show


def _document(result: CheckResult) -> dict[str, Any]:
    return {
        "check": result.check,
        "level": result.level.value,
        "message": result.message,
        "remedy": result.remedy,
    }
