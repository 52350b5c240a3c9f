"""`batchkiln doctor`."""

import os
from collections.abc import Callable
from typing import Any, Final

from batchkiln.cli.command import command, run_async
from batchkiln.cli.options import Common
from batchkiln.cli.output import print_json
from batchkiln.core.errors import ExitStatus
from batchkiln.doctor.examination import Patient, examine
from batchkiln.doctor.findings import Finding, Level, exit_status_of
from batchkiln.views.words import one_line

_STYLES: Final = {Level.OK: "green", Level.WARN: "yellow", Level.FAIL: "red"}


@command("doctor", example="batchkiln doctor\nbatchkiln doctor --profile studio --json", logs=True)
def doctor(common: Common) -> ExitStatus:
    """Check configuration, keys, service, clock, disk and queue, and spend nothing.

    Each line is ok, warn or fail, with what to do. It works without a network, without a queue, and with a broken
    configuration; what could not be checked is told.
    """
    return run_async(_doctor(common))


async def _doctor(common: Common) -> ExitStatus:
    patient = Patient(common.queue, common.config_path, common.profile, os.environ)
    findings: list[Finding] = []
    show = None if common.is_json else _printer()
    async for finding in examine(patient):
        findings.append(finding)
        if show is not None:
            show(finding)
    status = exit_status_of(findings)
    if show is None:
        print_json({"exit": int(status), "checks": [_document(finding) for finding in findings]})
    return status


def _printer() -> Callable[[Finding], None]:
    """Make what shows a finding as soon as it is there: a service that does not answer takes its time."""
    from rich.text import Text  # noqa: PLC0415  slow to import, and only for people

    from batchkiln.cli.tables import console  # noqa: PLC0415  as above

    out = console()

    def show(finding: Finding) -> None:
        line = Text(f"{finding.level:<5}", style=_STYLES[finding.level])
        line.append(f"{finding.check}: ", style="bold")
        line.append("\n      ".join(one_line(part) for part in finding.message.splitlines()), style="not bold")
        out.print(line)
        if finding.remedy is not None:
            out.print(Text(f"      {finding.remedy}", style="dim"))

    return show


def _document(finding: Finding) -> dict[str, Any]:
    return {
        "check": finding.check,
        "level": finding.level.value,
        "message": finding.message,
        "remedy": finding.remedy,
    }
