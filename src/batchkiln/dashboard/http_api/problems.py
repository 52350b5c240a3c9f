"""Errors of the HTTP interface as RFC 9457 problem details: the reason, what was or was not charged, the next step."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from http import HTTPStatus
from typing import Any, Final, TypedDict

import orjson
import structlog
from aiohttp import web

from batchkiln.core.errors import (
    BatchkilnError,
    CommitInDoubt,
    Diagnostic,
    InputError,
    QueueBusy,
    QueueInUse,
    QueueUnusable,
)

CONTENT_TYPE: Final = "application/problem+json"
UNCHANGED: Final = "Nothing was changed, and nothing was charged."
RETRY_AFTER: Final = {"Retry-After": "5"}

log = structlog.get_logger()


class Kind(StrEnum):
    """The kinds of problems; `type` is the URN with this name."""

    MALFORMED = "malformed-request"
    NO_TOKEN = "token-missing"  # noqa: S105  a name
    NO_SCOPE = "scope-missing"
    FOREIGN_FORM = "foreign-form"
    NOT_FOUND = "not-found"
    OFF = "interface-off"
    METHOD = "method-not-allowed"
    SLOW = "body-too-slow"
    CONFLICT = "conflict"
    TOO_LARGE = "body-too-large"
    MEDIA_TYPE = "media-type"
    RANGE = "range"
    HOST = "foreign-host"
    INVALID = "invalid-content"
    UNCONFIRMED = "confirmation-needed"
    BUSY = "queue-busy"
    BUG = "unexpected"


class MistakeDocument(TypedDict):
    """One mistake in what was sent. Lines and columns count from 1."""

    reason: str
    file: str | None
    line: int | None
    column: int | None
    remedy: str | None


class _Problem(TypedDict):
    type: str
    title: str
    status: int
    detail: str
    charged: str
    next: str


class ProblemDocument(_Problem, total=False):
    """An error (RFC 9457). `charged` tells what was or was not charged, and `next` the next step, in sentences.

    `mistakes` are in the order of the text, and `omitted` counts those that are not listed. `needed_scope` is the scope
    that the token lacks. `agreed` is to be sent to confirm the current cost.
    """

    mistakes: list[MistakeDocument]
    omitted: int
    needed_scope: str
    agreed: str
    number: int
    skipped: list[dict[str, str]]


_STATUS: Final[Mapping[Kind, HTTPStatus]] = {
    Kind.MALFORMED: HTTPStatus.BAD_REQUEST,
    Kind.NO_TOKEN: HTTPStatus.UNAUTHORIZED,
    Kind.NO_SCOPE: HTTPStatus.FORBIDDEN,
    Kind.FOREIGN_FORM: HTTPStatus.FORBIDDEN,
    Kind.NOT_FOUND: HTTPStatus.NOT_FOUND,
    Kind.OFF: HTTPStatus.NOT_FOUND,
    Kind.METHOD: HTTPStatus.METHOD_NOT_ALLOWED,
    Kind.SLOW: HTTPStatus.REQUEST_TIMEOUT,
    Kind.CONFLICT: HTTPStatus.CONFLICT,
    Kind.TOO_LARGE: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    Kind.MEDIA_TYPE: HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    Kind.RANGE: HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE,
    Kind.HOST: HTTPStatus.MISDIRECTED_REQUEST,
    Kind.INVALID: HTTPStatus.UNPROCESSABLE_ENTITY,
    Kind.UNCONFIRMED: HTTPStatus.PRECONDITION_REQUIRED,
    Kind.BUSY: HTTPStatus.SERVICE_UNAVAILABLE,
    Kind.BUG: HTTPStatus.INTERNAL_SERVER_ERROR,
}

_TITLES: Final[Mapping[Kind, str]] = {
    Kind.MALFORMED: "The request is malformed",
    Kind.NO_TOKEN: "A valid token is missing",
    Kind.NO_SCOPE: "The token lacks a scope",
    Kind.FOREIGN_FORM: "The request was not sent from the dashboard",
    Kind.NOT_FOUND: "Not found",
    Kind.OFF: "The HTTP interface is off",
    Kind.METHOD: "The method is not allowed here",
    Kind.SLOW: "The body arrives too slowly",
    Kind.CONFLICT: "This is not possible now",
    Kind.TOO_LARGE: "The body is too large",
    Kind.MEDIA_TYPE: "The content type is not accepted",
    Kind.RANGE: "The file has no such range",
    Kind.HOST: "The server has another name",
    Kind.INVALID: "The content has mistakes",
    Kind.UNCONFIRMED: "The cost needs a confirmation",
    Kind.BUSY: "The queue is not available",
    Kind.BUG: "The request failed",
}


@dataclass(slots=True)
class ProblemError(Exception):
    """A refused request. `more` are further fields of its document."""

    kind: Kind
    detail: str
    next: str
    charged: str = UNCHANGED
    more: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)

    def response(self) -> web.Response:
        """Return the problem as a response."""
        status = _STATUS[self.kind]
        document: dict[str, Any] = {
            "type": f"urn:batchkiln:problem:{self.kind}",
            "title": _TITLES[self.kind],
            "status": int(status),
            "detail": self.detail,
            "charged": self.charged,
            "next": self.next,
        }
        body = orjson.dumps(document | dict(self.more))
        return web.Response(body=body, status=status, headers=self.headers, content_type=CONTENT_TYPE)


def status_of(kind: Kind) -> int:
    """Return the status code of a kind of problem."""
    return int(_STATUS[kind])


def problem_of(error: Exception, *, is_read: bool) -> ProblemError:  # noqa: PLR0911  one for each kind of error
    """Return the problem for an error of the application layer or of aiohttp. A read changes nothing in any case."""
    match error:
        case ProblemError():
            return error
        case web.HTTPException():
            return _of_aiohttp(error)
        case CommitInDoubt():
            doubt = "The change is stored or not; nothing was charged by it so far."
            return ProblemError(Kind.BUSY, str(error), "Read the item or the job, then repeat the request.", doubt)
        case QueueBusy() | QueueUnusable() | QueueInUse():
            return ProblemError(Kind.BUSY, str(error), "Repeat the request later.", headers=RETRY_AFTER)
        case InputError():
            kind = Kind.NOT_FOUND if is_read else Kind.CONFLICT
            return ProblemError(kind, str(error), _remedy(error), more=mistakes_of(error))
        case BatchkilnError():
            return ProblemError(Kind.CONFLICT, str(error), "Read the job, then repeat the request.")
        case _:
            log.error("http_request_failed", error=type(error).__name__)  # an exception's text may contain secrets
            detail = "This is a bug in the program; its log names the error."
            known = UNCHANGED if is_read else "The queue holds what was changed before; read it to know."
            return ProblemError(Kind.BUG, detail, "Read the job, then repeat the request.", known)


def mistakes_of(error: InputError) -> dict[str, Any]:
    """Return the mistakes of an error, for `more`."""
    listed = [_mistake(mistake) for mistake in error.mistakes]
    return {"mistakes": listed, "omitted": error.omitted}


def _mistake(mistake: Diagnostic) -> MistakeDocument:
    return {
        "reason": mistake.reason,
        "file": mistake.file,
        "line": mistake.line,
        "column": mistake.column,
        "remedy": mistake.remedy,
    }


def _remedy(error: InputError) -> str:
    found = next((mistake.remedy for mistake in error.mistakes if mistake.remedy), None)
    return found or "Read the job and its items, and correct the request."


def _of_aiohttp(error: web.HTTPException) -> ProblemError:
    match error:
        case web.HTTPMethodNotAllowed():
            allowed = ", ".join(sorted(error.allowed_methods))
            headers = {"Allow": allowed}
            return ProblemError(Kind.METHOD, f"The path takes {allowed}.", "Use one of these methods.", headers=headers)
        case web.HTTPNotFound():
            return ProblemError(Kind.NOT_FOUND, "There is no such path.", "Read /api/v1/openapi.json for the paths.")
        case web.HTTPRequestEntityTooLarge():
            return ProblemError(Kind.TOO_LARGE, "The body exceeds the limit.", "Send less, in several requests.")
        case web.HTTPBadRequest():
            return ProblemError(Kind.MALFORMED, error.text or "The request is malformed.", "Correct the request.")
        case _:
            return ProblemError(Kind.BUG, error.reason, "Repeat the request later.")
