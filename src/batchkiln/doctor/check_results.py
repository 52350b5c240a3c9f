"""What a check comes to."""

from dataclasses import dataclass
from enum import StrEnum

from batchkiln.core.errors import ExitStatus


class Level(StrEnum):
    """How good it is. `WARN` is also what could not be checked."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One line: what was checked, how it is, and what to do about it.

    `exit_status` is what a failure makes `doctor` end with: USAGE for what a person has configured,
    ACCOUNT_CANNOT_WORK for the account, QUEUE_HELD where another process drives the queue, else UNEXPECTED.
    """

    check: str
    level: Level
    message: str
    remedy: str | None = None
    exit_status: ExitStatus = ExitStatus.OK


def ok(check: str, message: str) -> CheckResult:
    """Return that all is well."""
    return CheckResult(check, Level.OK, message)


def warn(check: str, message: str, remedy: str | None = None) -> CheckResult:
    """Return what a person should look at, though a run would go on."""
    return CheckResult(check, Level.WARN, message, remedy)


def fail(
    check: str, message: str, remedy: str | None = None, *, exit_status: ExitStatus = ExitStatus.USAGE
) -> CheckResult:
    """Return what would end a run, or harm it."""
    return CheckResult(check, Level.FAIL, message, remedy, exit_status)


_GRAVEST = (ExitStatus.USAGE, ExitStatus.QUEUE_HELD, ExitStatus.ACCOUNT_CANNOT_WORK, ExitStatus.UNEXPECTED)


def exit_status_of(findings: list[CheckResult]) -> ExitStatus:
    """Return the exit status of all together: what is configured first, since the rest may follow from it."""
    failed = {finding.exit_status for finding in findings if finding.level is Level.FAIL}
    return next((status for status in _GRAVEST if status in failed), ExitStatus.OK)
