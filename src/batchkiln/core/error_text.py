"""What the service did instead of answering, in words for a person."""

from collections.abc import Mapping
from typing import Final, assert_never

from batchkiln.core.responses import (
    AccountBlocked,
    AccountProblem,
    EdgeBlocked,
    ErrorInfo,
    NoResponse,
    NotUnderstood,
    Throttled,
    TransientError,
    Unavailable,
)


def describe_error(trouble: TransientError) -> str:
    """Say in a line what the service did, or did not do."""
    match trouble:
        case NoResponse(reason=reason):
            return f"the service does not answer ({reason})"
        case NotUnderstood(lacking=lacking, shape=shape, status=status, remedy=remedy):
            came = f"status {status}: {shape}" if status else shape
            told = f"the service's reply {lacking}; it is not understood ({came})"
            return told if remedy is None else f"{told}; if it is there, tell where in the profile: {remedy}"
        case EdgeBlocked():
            return "the firewall before the API refused the request"
        case Throttled(error=error):
            return f"the service asks for a pause ({error.code}: {error.message})"
        case Unavailable(error=error):
            return f"the service is unavailable ({error.code}: {error.message})"
        case AccountBlocked(problem=problem, error=error):
            return f"{_PROBLEMS[problem]} ({error.code}: {error.message})"
        case _:
            assert_never(trouble)


def error_text(error: ErrorInfo) -> str:
    """Give what the service said, in a line."""
    return f"{error.code}: {error.message}" if error.code else error.message


_PROBLEMS: Final[Mapping[AccountProblem, str]] = {
    AccountProblem.KEY_REFUSED: "its API key is refused",
    AccountProblem.UPGRADE_REQUIRED: "its API key was issued before the API's launch",
    AccountProblem.NO_CREDITS: "it has no credits left",
    AccountProblem.FORBIDDEN: "the service forbids it the API",
    AccountProblem.KEY_CONFLICT: "the service keeps saying that a request was sent before with other contents",
    AccountProblem.IDS_UNKNOWN: "what is read as the ids of generations is not known to the service",
    AccountProblem.REFUSED_ALIKE: "one item after the other was refused in the same words",
    AccountProblem.OVERCHARGED: "the service charged it more than the maximum that was sent",
}
