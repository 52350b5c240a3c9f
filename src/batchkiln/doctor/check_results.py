"""The result of a check."""

from enum import StrEnum

from msgspec import Struct

from batchkiln.core.errors import ExitStatus


class Level(StrEnum):
    """The severity of a result. `WARN` also means that a check was not possible."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class CheckResult(Struct, frozen=True):
    """One line of the report: the check, its message and a remedy.

    `exit_status` is the exit status of `doctor` after a failure: USAGE for the configuration, ACCOUNT_CANNOT_WORK for
    the account, QUEUE_HELD if another process holds the queue's lock, otherwise UNEXPECTED.
    """

    check: str
    level: Level
    message: str
    remedy: str | None = None
    exit_status: ExitStatus = ExitStatus.OK


def ok(check: str, message: str) -> CheckResult:
    """Return a result without problems."""
    return CheckResult(check, Level.OK, message)


def warn(check: str, message: str, remedy: str | None = None) -> CheckResult:
    """Return a result that deserves attention but does not prevent a run."""
    return CheckResult(check, Level.WARN, message, remedy)


def fail(
    check: str, message: str, remedy: str | None = None, *, exit_status: ExitStatus = ExitStatus.USAGE
) -> CheckResult:
    """Return a result that would stop or harm a run."""
    return CheckResult(check, Level.FAIL, message, remedy, exit_status)


_BY_PRIORITY = (ExitStatus.USAGE, ExitStatus.QUEUE_HELD, ExitStatus.ACCOUNT_CANNOT_WORK, ExitStatus.UNEXPECTED)


def exit_status_of(results: list[CheckResult]) -> ExitStatus:
    """Return the exit status of all results: USAGE has priority, because other failures may follow from it."""
    failed = {result.exit_status for result in results if result.level is Level.FAIL}
    return next((status for status in _BY_PRIORITY if status in failed), ExitStatus.OK)
