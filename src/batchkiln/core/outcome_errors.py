"""The errors that come with an outcome: the service's own words, or the program's where the service has none."""

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
    "attempt_damaged", "key or request changed on the disk since they were sent; they were not sent again"
)
KEY_FORGOTTEN: Final = ErrorInfo(
    "key_forgotten", "no reply to it for a day: the service may have forgotten its key, and would make it anew"
)
_EDGE: Final = ErrorInfo("edge_firewall", "refused by the firewall before the API; the whole machine waits")
EXPIRED: Final = ErrorInfo("expired", "paid, but the service no longer holds the outputs")


def error_of_create(reply: Refused | IdempotencyConflict | Busy | TransientError) -> ErrorInfo:
    """Return what the service said of a create that it did not accept, or what is said for it."""
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
    """Return why a generation came to nothing; None where it did not."""
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
    """Return why an item waits for its API key."""
    fate = "refused by the service" if is_refused else "not configured"
    return ErrorInfo("key_missing", f"the API key {attempt.key_fingerprint} that made the request is {fate}")


def id_taken(generation_id: str) -> ErrorInfo:
    """Return why an accepted attempt is held whose generation is another item's."""
    message = f"the service answered with the generation {generation_id}, which another item has"
    return ErrorInfo("generation_known", message)


def unusable(files_saved: int, reason: str) -> ErrorInfo:
    """Return why an item is held whose outputs were tried often and long enough."""
    return ErrorInfo("output_unusable", f"{files_saved} of its outputs are on disk; {reason}")


def gone(files_saved: int, listed: int) -> ErrorInfo:
    """Return why the outputs of an item cannot be fetched any more, of which so many are saved."""
    if not files_saved:
        return EXPIRED
    reason = f"{files_saved} of {listed} outputs are on disk; the service no longer holds the rest"
    return ErrorInfo("outputs_gone", reason)
