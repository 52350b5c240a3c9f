"""Quotes and uploads for the next items, requested while the slot is busy."""

from collections.abc import Iterable
from typing import Final, assert_never

from msgspec.structs import replace

from batchkiln.core.account_view import AccountView
from batchkiln.core.byte_sizes import format_size
from batchkiln.core.calls import Call
from batchkiln.core.errors import StorageError
from batchkiln.core.planner import WaitUntil
from batchkiln.core.preparation import AskQuote, Reject, Upload, choose_preparation
from batchkiln.core.provider import UPLOAD_LINK_SECONDS, UPLOAD_MAX_BYTES, UPLOADED_TYPES, names_upload_limit
from batchkiln.core.queue_changes import (
    Failing,
    InputLost,
    ItemRefused,
    NeverFits,
    Priced,
    RecipeRefused,
    Uploaded,
    UploadsGone,
)
from batchkiln.core.queue_types import Candidate, WantedInput
from batchkiln.core.rate_limits import RequestKind
from batchkiln.core.responses import (
    AccountBlocked,
    AssetsReady,
    BytesStored,
    CompleteReply,
    EdgeBlocked,
    ErrorInfo,
    NoResponse,
    NotUnderstood,
    PrepareReply,
    Quoted,
    RefusalKind,
    Refused,
    Throttled,
    TicketRefused,
    TransientError,
    Unavailable,
    UploadsPrepared,
    UploadTicket,
)
from batchkiln.core.timestamps import ClockReading
from batchkiln.core.waits import WaitReason
from batchkiln.core.wakes import Change, awaited_place
from batchkiln.worker.account_worker import AccountWorker
from batchkiln.worker.upload_denials import count_gone, denial_of, suspend_after_repeated_denials

FILES_PER_REQUEST: Final = 5  # Service section 8
ALIKE_REFUSALS: Final = 3
"""The equal refusals in a row, for items of one recipe, that are blamed on the recipe."""


async def prepare(worker: AccountWorker) -> None:
    """Request the quotes and uploads that the slot will need next, until the run ends."""
    while not worker.control.is_over_for(worker.account_id):
        now = worker.ports.clock.now()
        queue, account, version = await worker.snapshot(now)
        choice = choose_preparation(queue, account, now)
        is_due = isinstance(choice, Reject) or choice.due.at <= now.monotonic
        if is_due and worker.is_overtaken(version):  # other workers use the same queue
            queue, account, version = await worker.snapshot(now, is_current=True)
            choice = choose_preparation(queue, account, now)
        if isinstance(choice, Reject):
            await _reject(worker, choice, now)
            continue
        if choice.due.at > now.monotonic:
            await worker.wait("preparation", choice.due, version, awaited_place(choice.due))
            continue
        match choice:
            case AskQuote(candidate=candidate):
                await _ask_quote(worker, candidate)
            case Upload(candidate=candidate):
                await _upload(worker, candidate, now)
            case WaitUntil():
                worker.plan_overtaken()
            case _:
                assert_never(choice)


async def _reject(worker: AccountWorker, choice: Reject, now: ClockReading) -> None:
    never_fits = NeverFits(choice.obstacle, choice.limit(worker.rates.limits.credits_per_day))
    await worker.ports.queue.record_preparation(choice.candidate, never_fits, now)


async def _ask_quote(worker: AccountWorker, candidate: Candidate) -> None:
    """Request the price of a candidate's recipe.

    A refusal rejects the item; a few equal ones reject the recipe's items.
    """
    failing = worker.backoffs.quotes.get(candidate.recipe_id)
    if failing is not None:  # the item's own text may be the cause, and another item of the recipe has the same price
        candidate = replace(candidate, item_id=await worker.ports.queue.same_priced_item(candidate, failing.failures))
    body = await worker.ports.queue.quote_body(candidate.item_id, worker.account_id)
    if body is None:
        worker.plan_overtaken()
        worker.announce(Change.PLAN_OUTDATED)
        return
    if not await worker.wait_for_capacity(Call.QUOTE):
        return
    request = worker.new_request(RequestKind.QUOTE, worker.ports.clock.now())
    async with worker.rate_limited(request):
        await worker.record_request(request)
        reply = await worker.spans.timed("quote", candidate.item_id, worker.ports.service.quote(body))
    after = worker.ports.clock.now()
    match reply:
        case Quoted(cost_credits=cost):
            worker.on_success(Call.QUOTE)
            worker.backoffs.quotes.pop(candidate.recipe_id, None)
            worker.failure_counts.quoted(candidate.recipe_id)
            await worker.ports.queue.record_preparation(candidate, Priced(cost), after)
        case Refused(kind=kind, error=error):
            worker.on_success(Call.QUOTE)
            worker.backoffs.quotes.pop(candidate.recipe_id, None)
            await _quote_refused(worker, candidate, kind, error, after)
        case Throttled() | Unavailable() | NoResponse() | NotUnderstood() | EdgeBlocked() | AccountBlocked():
            failing = worker.backoffs.of_quote(candidate.recipe_id)
            await worker.on_failure(reply, Call.QUOTE, own=(failing,))
            if failing.should_report:
                failing.is_reported = True
                await worker.ports.queue.record_preparation(candidate, Failing(None, failing.last_error or ""), after)
        case _:
            assert_never(reply)


async def _quote_refused(
    worker: AccountWorker, candidate: Candidate, kind: RefusalKind, error: ErrorInfo, now: ClockReading
) -> None:
    if kind is RefusalKind.ASSET_GONE:
        is_suspended = await count_gone(worker, candidate.item_id, error)
        if is_suspended or worker.failure_counts.times_gone(candidate.item_id) <= ALIKE_REFUSALS:
            await worker.ports.queue.record_preparation(candidate, UploadsGone(worker.account_id), now)
            return
    if worker.failure_counts.quote_refused(candidate.recipe_id, f"{error.code}: {error.message}") >= ALIKE_REFUSALS:
        await worker.ports.queue.record_preparation(candidate, RecipeRefused(error), now)
    else:
        await worker.ports.queue.record_preparation(candidate, ItemRefused(error), now)


async def _upload(worker: AccountWorker, candidate: Candidate, now: ClockReading) -> None:
    """Upload up to five images that are needed soon (Service section 4, upload flow)."""
    wanted = await _inputs_within_limits(worker, candidate, now)
    if not wanted:
        return
    for want in wanted:
        try:
            lost = _unusable(want) or (None if await worker.ports.inputs.is_unchanged(want.file) else _gone(want))
        except StorageError as error:
            failure = Unavailable(None, ErrorInfo("storage", f"{want.file.path} cannot be read: {error}"))
            await _uploads_wait(worker, candidate, (want,), failure, Call.COMPLETION)
            return
        if lost is not None:
            await worker.ports.queue.record_preparation(candidate, lost, now)
            return
    if not await worker.wait_for_capacity(Call.UPLOAD):
        return
    links_end_at = worker.ports.clock.now().monotonic + UPLOAD_LINK_SECONDS
    size = sum(want.file.size_bytes for want in wanted)
    request = worker.new_request(RequestKind.UPLOAD, worker.ports.clock.now(), files=len(wanted), size_bytes=size)
    async with worker.rate_limited(request):
        await worker.record_request(request)
        files = [(_upload_name(want), want.file.media_type, want.file.size_bytes) for want in wanted]
        call = worker.ports.service.prepare_uploads(files)
        prepared = await worker.spans.timed("upload.prepare", candidate.item_id, call)
    if not isinstance(prepared, UploadsPrepared):
        await _upload_failed(worker, candidate, wanted, prepared, Call.UPLOAD)
        return
    worker.on_success(Call.UPLOAD)
    if stored := await _put_all(worker, candidate, zip(wanted, prepared.tickets, strict=True), links_end_at):
        await _complete(worker, candidate, stored)


def _unusable(want: WantedInput) -> InputLost | None:
    """Return the reason why an image can never be uploaded, or None. Only another item can have made such an image."""
    file = want.file
    if file.media_type not in UPLOADED_TYPES:
        reason = f"{file.path} is {file.media_type}, and the service takes JPEG, PNG and WebP"
    elif file.size_bytes > UPLOAD_MAX_BYTES:
        reason = f"{file.path} has {format_size(file.size_bytes)}, and the service takes at most 30 MiB a file"
    else:
        return None
    return InputLost(want.input_id, reason, "input_unusable")


def _gone(want: WantedInput) -> InputLost:
    message = f"{want.file.path} is gone or has changed since its manifest was accepted; put it back"
    return InputLost(want.input_id, message)


async def _inputs_within_limits(
    worker: AccountWorker, candidate: Candidate, now: ClockReading
) -> tuple[WantedInput, ...]:
    """Return the next inputs that fit today's upload limits, or delay uploads until the reset."""
    _, account, _ = await worker.snapshot(now)
    found = await worker.ports.queue.wanted_inputs(candidate)
    for want in found:
        worker.backoffs.share(want.input_id, want.alike)
    wanted = _files_of_next_request(worker, found, now)
    files_left = worker.rates.limits.upload_files_per_day - account.rates.usage.upload_files
    bytes_left = worker.rates.limits.upload_bytes_per_day - account.rates.usage.upload_bytes
    fitting: list[WantedInput] = []
    for want in wanted[: max(files_left, 0)]:
        if want.file.size_bytes > bytes_left:
            break
        bytes_left -= want.file.size_bytes
        fitting.append(want)
    if wanted and _is_beyond_any_day(worker, wanted[0]):
        message = f"{wanted[0].file.path} is larger than what the account may upload in a whole day; nothing was sent"
        refused = ItemRefused(ErrorInfo("over_upload_limit", message))
        await worker.ports.queue.record_preparation(candidate, refused, now)
    elif wanted and not fitting:
        worker.postpone_uploads(now, WaitReason.DAY_REQUESTS, requested=account.rates.resets_at - now.monotonic)
    if not found:
        worker.plan_overtaken()
        worker.announce(Change.PLAN_OUTDATED)
    return tuple(fitting)


def _files_of_next_request(
    worker: AccountWorker, wanted: tuple[WantedInput, ...], now: ClockReading
) -> tuple[WantedInput, ...]:
    """Return the files to upload in one request. An image that failed before is sent alone, to delay no other image.

    The first file of a run is also sent alone, because replies to uploads may not be understood, and each file uses up
    the daily limit. Until one upload has succeeded, another image is tried first. If that one succeeds, the failing
    image itself is at fault.
    """
    due = [
        want
        for want in wanted
        if want.input_id not in worker.backoffs.inputs
        or worker.backoffs.inputs[want.input_id].not_before.at <= now.monotonic
    ]
    fresh = [want for want in due if want.input_id not in worker.backoffs.inputs]
    if due and due[0] not in fresh and (worker.failure_counts.has_uploaded or not fresh):
        return (due[0],)
    return tuple(fresh[: FILES_PER_REQUEST if worker.failure_counts.has_uploaded else 1])


def _is_beyond_any_day(worker: AccountWorker, want: WantedInput) -> bool:
    return (
        not worker.rates.limits.upload_files_per_day or want.file.size_bytes > worker.rates.limits.upload_bytes_per_day
    )


Stored = tuple[WantedInput, UploadTicket]


async def _put_all(
    worker: AccountWorker, candidate: Candidate, wanted: Iterable[Stored], links_end_at: float
) -> list[Stored]:
    """Send the bytes of each file; return the files that the storage accepted, up to the first failure.

    A link that is refused after its expiry was merely used too late, and the next try requests a new one.
    """
    stored: list[Stored] = []
    for want, ticket in wanted:
        content = worker.ports.inputs.content(want.file)
        put = worker.ports.service.put_upload(ticket, content, want.file.size_bytes)
        reply = await worker.spans.timed("upload.put", candidate.item_id, put)
        match reply:
            case BytesStored():
                stored.append((want, ticket))
            case TicketRefused(reason=reason) | NoResponse(reason=reason):
                denial = None
                if isinstance(reply, TicketRefused) and worker.ports.clock.now().monotonic < links_end_at:
                    denial = await denial_of(worker, candidate, reply, Call.COMPLETION)
                failure = denial or Unavailable(None, ErrorInfo("storage", reason))
                await _upload_failed(worker, candidate, (want,), failure, Call.COMPLETION)
                break
            case _:
                assert_never(reply)
    return stored


async def _complete(worker: AccountWorker, candidate: Candidate, stored: list[Stored]) -> None:
    wanted = tuple(want for want, _ in stored)
    if not await worker.wait_until_due(AccountView.completion_due, is_for_new=True):
        return
    request = worker.new_request(RequestKind.UPLOAD, worker.ports.clock.now())
    async with worker.rate_limited(request):
        await worker.record_request(request)
        call = worker.ports.service.complete_uploads([ticket.asset_id for _, ticket in stored])
        reply = await worker.spans.timed("upload.complete", candidate.item_id, call)
    if isinstance(reply, AssetsReady):
        worker.on_success(Call.COMPLETION)
        worker.failure_counts.upload_ended(candidate.item_id, has_uploaded=True)
        for want in wanted:
            for input_id in want.alike:
                worker.backoffs.inputs.pop(input_id, None)
        worker.avoid_failing_inputs()
        urls = [(want.file.sha256, url) for want, url in zip(wanted, reply.urls, strict=True)]
        uploaded = Uploaded(worker.account_id, urls)
        await worker.ports.queue.record_preparation(candidate, uploaded, worker.ports.clock.now())
    else:
        await _upload_failed(worker, candidate, wanted, reply, Call.COMPLETION)


async def _upload_failed(
    worker: AccountWorker,
    candidate: Candidate,
    wanted: tuple[WantedInput, ...],
    reply: PrepareReply | CompleteReply,
    call: Call,
) -> None:
    match await denial_of(worker, candidate, reply, call) or reply:
        case Refused(error=error):
            if worker.failure_counts.upload_refused(candidate.item_id) >= ALIKE_REFUSALS:
                worker.failure_counts.upload_ended(candidate.item_id, has_uploaded=False)
                await worker.ports.queue.record_preparation(candidate, ItemRefused(error), worker.ports.clock.now())
            else:
                await _uploads_wait(worker, candidate, wanted, Unavailable(None, error), call)
        case Throttled(retry_after=retry_after, error=error) if names_upload_limit(error.code, error.message):
            requested = 0.0 if retry_after is None else retry_after.total_seconds()
            worker.postpone_uploads(worker.ports.clock.now(), WaitReason.DAY_REQUESTS, requested=requested)
        case (
            Throttled() | Unavailable() | NoResponse() | NotUnderstood() | EdgeBlocked() | AccountBlocked()
        ) as failure:
            await _uploads_wait(worker, candidate, wanted, failure, call)
        case UploadsPrepared() | AssetsReady():
            raise AssertionError("a success is not a failure")
        case _:
            assert_never(reply)


async def _uploads_wait(
    worker: AccountWorker, candidate: Candidate, wanted: tuple[WantedInput, ...], failure: TransientError, call: Call
) -> None:
    """Delay each of these images separately, so that one that always fails does not delay the others."""
    failing = [worker.backoffs.of_input(want.input_id, want.alike) for want in wanted]
    if isinstance(failure, NotUnderstood):
        await suspend_after_repeated_denials(worker, candidate, call)
    await worker.on_failure(failure, call, own=failing)
    for want, backoff in zip(wanted, failing, strict=True):
        if backoff.should_report:
            backoff.is_reported = True
            worker.avoid_failing_inputs()
            now, said = worker.ports.clock.now(), backoff.last_error or ""
            await worker.ports.queue.record_preparation(candidate, Failing(want.input_id, said), now)


def _upload_name(want: WantedInput) -> str:
    """Return a name for an upload that reveals nothing about this machine."""
    ending = UPLOADED_TYPES.get(want.file.media_type, "bin")
    return f"{want.file.sha256[:16]}.{ending}"
