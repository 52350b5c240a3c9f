"""Describes the service's errors in words for a person."""

from collections.abc import Mapping
from typing import Final, assert_never

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


def describe_error(failure: TransientError) -> str:
    """Return one line about what the service did or did not do."""
    match failure:
        case NoResponse(reason=reason):
            return f"the service does not answer ({reason})"
        case NotUnderstood(lacking=lacking, shape=shape, status=status, remedy=remedy):
            came = f"status {status}: {shape}" if status else shape
            text = f"the service's reply {lacking}; it is not understood ({came})"
            return text if remedy is None else f"{text}; if the field is there, add its path to the profile: {remedy}"
        case EdgeBlocked():
            return "the firewall in front of the API refused the request"
        case Throttled(error=error):
            return f"the service asks for a pause ({error.code}: {error.message})"
        case Unavailable(error=error):
            return f"the service is unavailable ({error.code}: {error.message})"
        case AccountBlocked(problem=problem, error=error):
            return f"{_PROBLEMS[problem]} ({error.code}: {error.message})"
        case _:
            assert_never(failure)


_PROBLEMS: Final[Mapping[AccountProblem, str]] = {
    AccountProblem.KEY_REFUSED: "its API key is refused",
    AccountProblem.UPGRADE_REQUIRED: "its API key was issued before the API's launch",
    AccountProblem.NO_CREDITS: "it has no credits left",
    AccountProblem.FORBIDDEN: "the service denies this account API access",
    AccountProblem.KEY_CONFLICT: "the service keeps answering that a request was sent before with other content",
    AccountProblem.IDS_UNKNOWN: "the service does not know the ids that are read as those of generations",
    AccountProblem.REFUSED_ALIKE: "several items in a row were refused in the same words",
    AccountProblem.OVERCHARGED: "the service charged more than the maximum that was sent",
}
