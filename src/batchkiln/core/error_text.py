"""Error messages about failed replies, for a person."""

from collections.abc import Mapping
from typing import Final, assert_never

from batchkiln.core.errors import ExitStatus
from batchkiln.core.responses import (
    AccountBlocked,
    AccountProblem,
    EdgeBlocked,
    NoResponse,
    NotUnderstood,
    Throttled,
    TransientError,
    Unavailable,
)


def exit_status_of(failure: TransientError) -> ExitStatus:
    """Return the exit code of a command that needed the reply (contract, section 4; `docs/commands.md`).

    It is that of `run`: a service that gives no answer of its own is one that cannot be reached.
    """
    match failure:
        case AccountBlocked() | NoResponse() | Unavailable() | EdgeBlocked():
            return ExitStatus.ACCOUNT_CANNOT_WORK
        case NotUnderstood() | Throttled():
            return ExitStatus.UNEXPECTED
        case _:
            assert_never(failure)


def describe_error(failure: TransientError) -> str:
    """Return one line that describes a failed reply."""
    match failure:
        case NoResponse(reason=reason, status=status):  # with a status, the reason says what answered
            return f"the service does not answer ({reason})" if status is None else reason
        case NotUnderstood(lacking=lacking, shape=shape, status=status, remedy=remedy):
            came = f"status {status}: {shape}" if status else shape
            text = f"the service's reply {lacking}; it is not understood ({came})"
            return text if remedy is None else f"{text}; if the field is there, add its path to the profile: {remedy}"
        case EdgeBlocked():
            return "the firewall in front of the API refused the request"
        case Throttled(error=error):
            return f"the service requires a pause ({error.code}: {error.message})"
        case Unavailable(error=error):
            return f"the service is unavailable ({error.code}: {error.message})"
        case AccountBlocked(problem=problem, error=error):
            return f"{_PROBLEMS[problem]} ({error.code}: {error.message})"
        case _:
            assert_never(failure)


def short_reason(failure: TransientError) -> str:
    """Return the cause of a failed reply in a few words, where a later message has all of them."""
    if isinstance(failure, NoResponse) and failure.status is None:
        return failure.reason
    return describe_error(failure).partition(" (")[0]


def scale_remedy(apparent_scale: float | None) -> str:
    """Return how to tell the program of a faster local service, with the command to copy."""
    number = "N" if apparent_scale is None else f"{apparent_scale:.0f}"
    return (
        f"if the service is `batchkiln serve --time-scale {number}`: `export BATCHKILN_TIME_SCALE={number}`, "
        "or set the profile's time_scale, and run again"
    )


_PROBLEMS: Final[Mapping[AccountProblem, str]] = {
    AccountProblem.KEY_REFUSED: "its API key is refused",
    AccountProblem.UPGRADE_REQUIRED: "its API key was issued before the API's launch",
    AccountProblem.NO_CREDITS: "it has no credits left",
    AccountProblem.FORBIDDEN: "the service denies this account API access",
    AccountProblem.KEY_CONFLICT: "the service keeps replying that an idempotency key was used with another body",
    AccountProblem.IDS_UNKNOWN: "the service does not know the generation ids that were read from its replies",
    AccountProblem.REFUSED_ALIKE: "several consecutive items were refused with the same message",
    AccountProblem.OVERCHARGED: "the service charged more than the maximum that was sent",
}
