"""Images that the service accepts and later denies. If no upload ever worked, uploads are not understood.

A misread id or address of an asset looks like a deleted asset. Uploading the image again would use up the day's files
in vain. After two denials, the account's uploads are suspended and a person is informed (Law 10).
"""

from typing import Final

from batchkiln.core.calls import Call
from batchkiln.core.queue_types import Candidate
from batchkiln.core.response_rules import ReplyField, remedy_line
from batchkiln.core.responses import (
    CompleteReply,
    ErrorInfo,
    NoResponse,
    NotUnderstood,
    PrepareReply,
    RefusalKind,
    Refused,
    TicketRefused,
)
from batchkiln.worker.account_worker import AccountWorker
from batchkiln.worker.backoffs import MISUNDERSTOOD_AT_MOST

DENIED_FILES_IN_A_ROW: Final = 3
"""The files uploaded today, none of which worked, after which one more misunderstood reply suspends uploads.

An earlier run may have met the first misunderstood reply, and ended before a second one."""

_CLIENT_ERRORS: Final = range(400, 500)


async def denial_of(
    worker: AccountWorker, candidate: Candidate, reply: PrepareReply | CompleteReply | TicketRefused, call: Call
) -> NotUnderstood | None:
    """Return a refused upload as a call that is not understood, if no upload of the account ever worked."""
    match reply:
        case TicketRefused(reason=reason):
            reason_text = f"was not requested, because the storage did not accept the file ({reason})"
            denial = _denial(reason_text, ReplyField.UPLOAD_HEADERS)
        case Refused(error=error) if call is Call.UPLOAD:
            denial = _denial(f"was a refusal ({error.summary})", ReplyField.UPLOAD_URL)
        case Refused(error=error):
            denial = _denial(f"denied the file that had just been uploaded ({error.summary})", ReplyField.ASSET_ID)
        case NoResponse(reason=reason, status=status) if call is Call.COMPLETION and status in _CLIENT_ERRORS:
            denial = _denial(
                f"denied the file that had just been uploaded ({reason})", ReplyField.ASSET_ID, status=status
            )
        case _:
            return None
    return None if await _has_worked(worker, candidate.item_id) else denial


async def suspend_after_repeated_denials(worker: AccountWorker, candidate: Candidate, call: Call) -> None:
    """Suspend the call at its next failure if enough files were uploaded today and no upload ever worked."""
    _, account, _ = await worker.snapshot(worker.ports.clock.now())
    if account.rates.usage.upload_files < DENIED_FILES_IN_A_ROW:
        return
    if not await _has_worked(worker, candidate.item_id):
        worker.backoffs.exhaust(call)


async def _has_worked(worker: AccountWorker, item_id: int) -> bool:
    """Return whether an upload of the account has ever been completed."""
    if worker.failure_counts.has_uploaded:
        return True
    return (await worker.ports.queue.upload_history(worker.account_id, item_id)).has_completed


async def count_gone(worker: AccountWorker, item_id: int, error: ErrorInfo) -> bool:
    """Count a quote or create whose uploads the service denied; return whether uploads are suspended for it.

    They are suspended after the second denial if no create with an image was ever accepted for the account.
    """
    times = worker.failure_counts.asset_gone(item_id)
    if times < MISUNDERSTOOD_AT_MOST:
        return False
    history = await worker.ports.queue.upload_history(worker.account_id, item_id)
    if history.was_used or not history.item_has_images:
        return False
    reason_text = f"gave an address that the service itself denies ({error.summary})"
    await worker.report_misunderstood(
        Call.COMPLETION, _denial(reason_text, ReplyField.ASSET_URL), worker.ports.clock.now()
    )
    return True


def asset_denial(reply: object) -> ErrorInfo | None:
    """Return the service's error if a reply denies an asset, else None."""
    return reply.error if isinstance(reply, Refused) and reply.kind is RefusalKind.ASSET_GONE else None


def _denial(lacking: str, field: ReplyField, *, status: int | None = None) -> NotUnderstood:
    return NotUnderstood(lacking, "a refusal", status or 0, remedy_line(field, None))
