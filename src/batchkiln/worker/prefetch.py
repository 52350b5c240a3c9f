"""Quotes and uploads for what comes next, made while the slot is busy."""

from dataclasses import replace
from typing import Final, assert_never

from batchkiln.core.budget import BudgetLimit
from batchkiln.core.calls import Call
from batchkiln.core.planner import (
    AccountView,
    AskQuote,
    Candidate,
    Reject,
    Upload,
    WaitReason,
    WaitUntil,
    choose_preparation,
)
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
from batchkiln.core.queue_types import RequestKind, WantedInput
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
from batchkiln.worker.account_worker import AccountWorker
from batchkiln.worker.backoffs import Backoff
from batchkiln.worker.upload_denials import count_gone, denial_of, rest_if_in_vain

FILES_PER_REQUEST: Final = 5  # Service section 8
ALIKE_REFUSALS: Final = 3
"""So many items of one recipe refused in a row for the same reason mean that the recipe is at fault."""


async def prepare(worker: AccountWorker) -> None:
    """Make ready what the slot will need next, until the run stops."""
    while not worker.control.is_over_for(worker.account_id):
        now = worker.ports.clock.now()
        queue, account, version = await worker.snapshot(now)
        choice = choose_preparation(queue, account, now)
        if isinstance(choice, Reject):
            await _reject(worker, choice, now)
            continue
        if choice.due.at > now.monotonic:
            await worker.wait("preparation", choice.due, version)
            continue
        match choice:
            case AskQuote(candidate=candidate):
                await _ask_quote(worker, candidate)
            case Upload(candidate=candidate):
                await _upload(worker, candidate, now)
            case WaitUntil():
                worker.count_stale_plan()
            case _:
                assert_never(choice)


async def _reject(worker: AccountWorker, choice: Reject, now: ClockReading) -> None:
    candidate, money = choice.candidate, choice.candidate.money
    left = None if money.budget is None else max(money.budget - money.committed, 0)
    limit = {
        BudgetLimit.OVER_CAP: candidate.cap,
        BudgetLimit.OVER_JOB_BUDGET: left,
        BudgetLimit.OVER_JOB_DAY: money.budget_per_day,
        BudgetLimit.OVER_DAY: worker.limits.credits_per_day,
    }[choice.obstacle]
    await worker.ports.queue.record_preparation(candidate, NeverFits(choice.obstacle, limit), now)


async def _ask_quote(worker: AccountWorker, candidate: Candidate) -> None:
    """Ask the price of a candidate's recipe; a refusal is the item's, or its whole recipe's after a few alike."""
    failing = worker.failing_quotes.get(candidate.recipe_id)
    if failing is not None:  # it may be the item's own text that fails: another one of its recipe has the same price
        candidate = replace(candidate, item_id=await worker.ports.queue.alike(candidate, failing.troubles))
    body = await worker.ports.queue.quote_body(candidate.item_id, worker.account_id)
    if body is None:
        worker.count_stale_plan()
        worker.ports.queue.changes.announce()
        return
    if not await worker.wait_for_capacity(Call.QUOTE):
        return
    request = worker.new_request(RequestKind.QUOTE, worker.ports.clock.now())
    async with worker.rate_limited(request):
        await worker.ports.queue.record_request(request)
        reply = await worker.ports.service.quote(body)
    after = worker.ports.clock.now()
    match reply:
        case Quoted(cost_credits=cost):
            worker.on_success(Call.QUOTE)
            worker.failing_quotes.pop(candidate.recipe_id, None)
            worker.refused_quotes.pop(candidate.recipe_id, None)
            await worker.ports.queue.record_preparation(candidate, Priced(cost), after)
        case Refused(kind=kind, error=error):
            worker.on_success(Call.QUOTE)
            worker.failing_quotes.pop(candidate.recipe_id, None)
            await _quote_refused(worker, candidate, kind, error, after)
        case Throttled() | Unavailable() | NoResponse() | NotUnderstood() | EdgeBlocked() | AccountBlocked():
            failing = worker.failing_quotes.setdefault(candidate.recipe_id, Backoff(alone_reason=WaitReason.NO_PRICE))
            await worker.on_failure(reply, Call.QUOTE, of=(failing,))
            if failing.is_to_be_told:
                failing.is_told = True
                await worker.ports.queue.record_preparation(candidate, Failing(None, failing.said or ""), after)
        case _:
            assert_never(reply)


async def _quote_refused(
    worker: AccountWorker, candidate: Candidate, kind: RefusalKind, error: ErrorInfo, now: ClockReading
) -> None:
    if kind is RefusalKind.ASSET_GONE:
        is_resting = await count_gone(worker, candidate.item_id, error)
        if is_resting or worker.gone_assets[candidate.item_id] <= ALIKE_REFUSALS:
            await worker.ports.queue.record_preparation(candidate, UploadsGone(worker.account_id), now)
            return
    said = f"{error.code}: {error.message}"
    before, times = worker.refused_quotes.get(candidate.recipe_id, (said, 0))
    times = times + 1 if before == said else 1
    worker.refused_quotes[candidate.recipe_id] = (said, times)
    if times >= ALIKE_REFUSALS:
        await worker.ports.queue.record_preparation(candidate, RecipeRefused(error), now)
    else:
        await worker.ports.queue.record_preparation(candidate, ItemRefused(error), now)


async def _upload(worker: AccountWorker, candidate: Candidate, now: ClockReading) -> None:
    """Upload up to five images that are needed soon (Service section 4, upload flow)."""
    wanted = await _payable_inputs(worker, candidate, now)
    if not wanted:
        return
    for want in wanted:
        if not await worker.ports.inputs.is_unchanged(want.file):
            message = f"{want.file.path} is gone or has changed since its manifest was accepted; put it back"
            await worker.ports.queue.record_preparation(candidate, InputLost(want.input_id, message), now)
            return
    if not await worker.wait_for_capacity(Call.UPLOAD):
        return
    size = sum(want.file.size_bytes for want in wanted)
    request = worker.new_request(RequestKind.UPLOAD, worker.ports.clock.now(), files=len(wanted), size_bytes=size)
    async with worker.rate_limited(request):
        await worker.ports.queue.record_request(request)
        prepared = await worker.ports.service.prepare_uploads(
            [(_upload_name(want), want.file.media_type, want.file.size_bytes) for want in wanted]
        )
    if not isinstance(prepared, UploadsPrepared):
        await _upload_failed(worker, candidate, wanted, prepared, Call.UPLOAD)
        return
    worker.on_success(Call.UPLOAD)
    if stored := await _put_all(worker, candidate, wanted, prepared.tickets):
        await _complete(worker, candidate, stored)


async def _payable_inputs(worker: AccountWorker, candidate: Candidate, now: ClockReading) -> tuple[WantedInput, ...]:
    """Return the next inputs that fit today's upload limits, or let uploads wait for the reset."""
    _, account, _ = await worker.snapshot(now)
    found = await worker.ports.queue.wanted_inputs(candidate)
    for want in found:
        wait_alike(worker.failing_uploads, want)
    wanted = _together(worker, found, now)
    files_left = worker.limits.upload_files_per_day - account.today.usage.upload_files
    bytes_left = worker.limits.upload_bytes_per_day - account.today.usage.upload_bytes
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
        worker.postpone_uploads(now, WaitReason.DAY_REQUESTS, told=account.today.resets_at - now.monotonic)
    if not found:
        worker.count_stale_plan()
        worker.ports.queue.changes.announce()
    return tuple(fitting)


def wait_alike(failing: dict[int, Backoff], want: WantedInput) -> None:
    """Let all inputs of one content wait together, those as well that have come into sight since it failed.

    Equal images are uploaded once, under one of their ids: another of them would look due, and never be chosen.
    """
    if want.input_id in failing:
        failing.update(dict.fromkeys(want.alike, failing[want.input_id]))


def _together(worker: AccountWorker, wanted: tuple[WantedInput, ...], now: ClockReading) -> tuple[WantedInput, ...]:
    """Return what one request is to upload: what failed before goes alone, in its own time, and holds no other up.

    So does the first file of a run: where uploads are not understood, no more of the day's files are spent. Until one
    has worked, another image is tried first: where that works, it is the failing one's own fault.
    """
    due = [
        want
        for want in wanted
        if want.input_id not in worker.failing_uploads or worker.failing_uploads[want.input_id].held.at <= now.monotonic
    ]
    fresh = [want for want in due if want.input_id not in worker.failing_uploads]
    if due and due[0] not in fresh and (worker.has_uploaded or not fresh):
        return (due[0],)
    return tuple(fresh[: FILES_PER_REQUEST if worker.has_uploaded else 1])


def _is_beyond_any_day(worker: AccountWorker, want: WantedInput) -> bool:
    return not worker.limits.upload_files_per_day or want.file.size_bytes > worker.limits.upload_bytes_per_day


Stored = tuple[WantedInput, UploadTicket]


async def _put_all(
    worker: AccountWorker, candidate: Candidate, wanted: tuple[WantedInput, ...], tickets: tuple[UploadTicket, ...]
) -> list[Stored]:
    """Put the bytes of each file; return those that the storage took, up to the first that it did not."""
    stored: list[Stored] = []
    for want, ticket in zip(wanted, tickets, strict=True):
        content = worker.ports.inputs.content(want.file)
        reply = await worker.ports.service.put_upload(ticket, content, want.file.size_bytes)
        match reply:
            case BytesStored():
                stored.append((want, ticket))
            case TicketRefused(reason=reason) | NoResponse(reason=reason):
                denial = (
                    await denial_of(worker, candidate, reply, Call.COMPLETION)
                    if isinstance(reply, TicketRefused)
                    else None
                )
                trouble = denial or Unavailable(None, ErrorInfo("storage", reason))
                await _upload_failed(worker, candidate, (want,), trouble, Call.COMPLETION)
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
        await worker.ports.queue.record_request(request)
        reply = await worker.ports.service.complete_uploads([ticket.asset_id for _, ticket in stored])
    if isinstance(reply, AssetsReady):
        worker.on_success(Call.COMPLETION)
        worker.has_uploaded = True
        worker.refused_uploads.pop(candidate.item_id, None)
        for want in wanted:
            for input_id in want.alike:
                worker.failing_uploads.pop(input_id, None)
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
            refusals = worker.refused_uploads.pop(candidate.item_id, 0) + 1
            if refusals >= ALIKE_REFUSALS:
                await worker.ports.queue.record_preparation(candidate, ItemRefused(error), worker.ports.clock.now())
            else:
                worker.refused_uploads[candidate.item_id] = refusals
                await _uploads_wait(worker, candidate, wanted, Unavailable(None, error), call)
        case Throttled(retry_after=retry_after, error=error) if _is_of_uploads(error):
            told = 0.0 if retry_after is None else retry_after.total_seconds()
            worker.postpone_uploads(worker.ports.clock.now(), WaitReason.DAY_REQUESTS, told=told)
        case (
            Throttled() | Unavailable() | NoResponse() | NotUnderstood() | EdgeBlocked() | AccountBlocked()
        ) as trouble:
            await _uploads_wait(worker, candidate, wanted, trouble, call)
        case UploadsPrepared() | AssetsReady():
            raise AssertionError("a success is no failure")
        case _:
            assert_never(reply)


async def _uploads_wait(
    worker: AccountWorker, candidate: Candidate, wanted: tuple[WantedInput, ...], trouble: TransientError, call: Call
) -> None:
    """Let these images wait, each in its own time, so that one that always fails holds no other up."""
    failing = [_failing(worker, want) for want in wanted]
    if isinstance(trouble, NotUnderstood):
        await rest_if_in_vain(worker, candidate, call)
    await worker.on_failure(trouble, call, of=failing)
    for want, backoff in zip(wanted, failing, strict=True):
        if backoff.is_to_be_told:
            backoff.is_told = True
            worker.avoid_failing_inputs()
            now, said = worker.ports.clock.now(), backoff.said or ""
            await worker.ports.queue.record_preparation(candidate, Failing(want.input_id, said), now)


def _failing(worker: AccountWorker, want: WantedInput) -> Backoff:
    """Return an image's backoff: one for all inputs of the same content."""
    backoff = worker.failing_uploads.get(want.input_id) or Backoff(alone_reason=WaitReason.NO_UPLOAD)
    for input_id in want.alike:
        worker.failing_uploads[input_id] = backoff
    return backoff


def _is_of_uploads(error: ErrorInfo) -> bool:
    """Tell a limit of uploads alone from the one that they share with creates (Service section 8)."""
    text = f"{error.code} {error.message}".lower()
    return any(word in text for word in ("upload", "file", "byte", "mib"))


def _upload_name(want: WantedInput) -> str:
    """Return a name for an upload that tells nothing about this machine."""
    ending = {"image/jpeg": "jpg", "image/png": "png", "image/webp": "webp"}.get(want.file.media_type, "bin")
    return f"{want.file.sha256[:16]}.{ending}"
