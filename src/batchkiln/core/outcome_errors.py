"""The error that is stored with an outcome: the service's own text, or the program's if the service sent none."""

from typing import Final, assert_never

from batchkiln.core.error_text import describe_error
from batchkiln.core.job import Attempt
from batchkiln.core.responses import (
    Busy,
    EdgeBlocked,
    ErrorInfo,
    GenerationRecord,
    GenerationStatus,
    IdempotencyConflict,
    NoResponse,
    NotUnderstood,
    Refused,
    TransientError,
)

DAMAGED: Final = ErrorInfo(
    "attempt_damaged", "the idempotency key or the request changed on disk after a send; it was not sent again"
)
KEY_FORGOTTEN: Final = ErrorInfo(
    "key_forgotten", "no reply for a day: the service may have forgotten its key, and a resend might be charged"
)
_EDGE: Final = ErrorInfo(
    "edge_firewall", "refused by the firewall in front of the API; all requests of this machine wait"
)
EXPIRED: Final = ErrorInfo("expired", "paid, but the service has deleted the outputs")


def error_of_create(reply: Refused | IdempotencyConflict | Busy | TransientError) -> ErrorInfo:
    """Return the error for a create that was not accepted."""
    match reply:
        case EdgeBlocked():
            return _EDGE
        case NotUnderstood():
            return ErrorInfo("not_understood", describe_error(reply))
        case NoResponse(reason=reason):
            return ErrorInfo("no_reply", reason)
        case _:
            return reply.error


def error_of_record(record: GenerationRecord) -> ErrorInfo | None:
    """Return the error for a generation that ended without outputs; None if it did not."""
    match record.status:
        case GenerationStatus.FAILED:
            return record.error or ErrorInfo("generation_failed", "the service verified that the generation failed")
        case GenerationStatus.CANCELED:
            return record.error or ErrorInfo("canceled_by_service", "the service canceled the generation")
        case GenerationStatus.EXPIRED:
            return EXPIRED
        case (
            GenerationStatus.PENDING | GenerationStatus.PROCESSING | GenerationStatus.SUCCESS | GenerationStatus.UNKNOWN
        ):
            return None
        case _:
            assert_never(record.status)


def error_of_missing_key(attempt: Attempt, *, is_refused: bool = False) -> ErrorInfo:
    """Return the error for an item whose API key is not configured, or was refused if `is_refused`."""
    status = "refused by the service" if is_refused else "not configured"
    return ErrorInfo("key_missing", f"the API key {attempt.key_fingerprint} of the request is {status}")


def id_taken(generation_id: str) -> ErrorInfo:
    """Return the error for an accepted attempt whose generation id belongs to another item."""
    message = f"the service answered with the generation {generation_id}, which belongs to another item"
    return ErrorInfo("generation_known", message)


def unusable(files_saved: int, reason: str) -> ErrorInfo:
    """Return the error for an item whose outputs stayed unusable after all downloads."""
    return ErrorInfo("output_unusable", f"{files_saved} of its outputs are on disk; {reason}")


def gone(files_saved: int, listed: int) -> ErrorInfo:
    """Return the error for an item whose missing outputs can no longer be downloaded."""
    if not files_saved:
        return EXPIRED
    reason = f"{files_saved} of {listed} outputs are on disk; the service has deleted the others"
    return ErrorInfo("outputs_gone", reason)
