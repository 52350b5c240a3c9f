"""Quotes and uploads for what comes next, made while the slot is busy."""

from typing import Final, assert_never

from batchkiln.core.budget import Obstacle
from batchkiln.core.instants import Now
from batchkiln.core.planner import (
    AskQuote,
    Candidate,
    Reason,
    Reject,
    Rest,
    Upload,
    choose_preparation,
)
from batchkiln.core.replies import (
    AccountBlocked,
    AssetsReady,
    BytesStored,
    CompleteReply,
    EdgeBlocked,
    NoReply,
    NotUnderstood,
    PrepareReply,
    Quoted,
    RefusalKind,
    Refused,
    ServiceError,
    Throttled,
    TicketRefused,
    Unavailable,
    UploadsPrepared,
    UploadTicket,
)
from batchkiln.core.views import RequestKind, WantedInput
from batchkiln.scheduler.lane import Lane

FILES_PER_REQUEST: Final = 5  # Service section 8
ALIKE_REFUSALS: Final = 3
"""So many items of one recipe refused in a row for the same reason mean that the recipe is at fault."""


async def prepare(lane: Lane) -> None:
    """Make ready what the slot will need next, until the run stops."""
    while not lane.control.is_over_for(lane.account_id):
        now = lane.ports.clock.now()
        queue, account, version = await lane.look(now)
        choice = choose_preparation(queue, account, now)
        if isinstance(choice, Reject):
            await _reject(lane, choice, now)
            continue
        if choice.due.at > now.steady:
            await lane.wait("preparation", choice.due, version)
            continue
        match choice:
            case AskQuote(candidate=candidate):
                await _ask_quote(lane, candidate)
            case Upload(candidate=candidate):
                await _upload(lane, candidate, now)
            case Rest():
                lane.count_stale_plan()
            case _:
                assert_never(choice)


async def _reject(lane: Lane, choice: Reject, now: Now) -> None:
    candidate, money = choice.candidate, choice.candidate.money
    left = None if money.budget is None else max(money.budget - money.committed, 0)
    limit = {
        Obstacle.OVER_CAP: candidate.cap,
        Obstacle.OVER_JOB_BUDGET: left,
        Obstacle.OVER_JOB_DAY: money.budget_per_day,
        Obstacle.OVER_DAY: lane.limits.credits_per_day,
    }[choice.obstacle]
    await lane.ports.queue.reject_unpayable(candidate, choice.obstacle, limit, now)


async def _ask_quote(lane: Lane, candidate: Candidate) -> None:
    """Ask the price of a candidate's recipe; a refusal is the item's, or its whole recipe's after a few alike."""
    body = await lane.ports.queue.quote_body(candidate.item_id, lane.account_id)
    if body is None:
        lane.count_stale_plan()
        lane.ports.queue.announce()
        return
    if not await lane.place(creates=False):
        return
    request = lane.note(RequestKind.QUOTE, lane.ports.clock.now())
    async with lane.sending(request):
        await lane.ports.queue.note_request(request)
        reply = await lane.ports.service.quote(body)
    after = lane.ports.clock.now()
    match reply:
        case Quoted(cost_credits=cost):
            lane.recovered(creates=False)
            lane.refused_quotes.pop(candidate.recipe_id, None)
            await lane.ports.queue.record_quote(candidate, cost, after)
        case Refused(kind=kind, error=error):
            lane.recovered(creates=False)
            await _quote_refused(lane, candidate, kind, error, after)
        case Throttled() | Unavailable() | NoReply() | NotUnderstood() | EdgeBlocked() | AccountBlocked():
            await lane.meet(reply, creates=False)
        case _:
            assert_never(reply)


async def _quote_refused(lane: Lane, candidate: Candidate, kind: RefusalKind, error: ServiceError, now: Now) -> None:
    gone = lane.gone_assets.get(candidate.item_id, 0)
    if kind is RefusalKind.ASSET_GONE and gone < ALIKE_REFUSALS:
        lane.gone_assets[candidate.item_id] = gone + 1
        await lane.ports.queue.drop_assets(candidate.item_id, lane.account_id)
        return
    said = f"{error.code}: {error.message}"
    before, times = lane.refused_quotes.get(candidate.recipe_id, (said, 0))
    times = times + 1 if before == said else 1
    lane.refused_quotes[candidate.recipe_id] = (said, times)
    if times >= ALIKE_REFUSALS:
        await lane.ports.queue.reject_alike(candidate, error, now)
    else:
        await lane.ports.queue.reject_item(candidate.item_id, error, now)


async def _upload(lane: Lane, candidate: Candidate, now: Now) -> None:
    """Upload up to five images that are needed soon (Service section 4, upload flow)."""
    wanted = await _payable_inputs(lane, candidate, now)
    if not wanted:
        return
    for want in wanted:
        if not await lane.ports.inputs.is_unchanged(want.file):
            message = f"{want.file.path} is gone or has changed since its manifest was accepted; put it back"
            await lane.ports.queue.hold_for_input(candidate, want.input_id, message, now)
            return
    if not await lane.place(creates=True):
        return
    size = sum(want.file.size_bytes for want in wanted)
    request = lane.note(RequestKind.UPLOAD, lane.ports.clock.now(), files=len(wanted), size_bytes=size)
    async with lane.sending(request):
        await lane.ports.queue.note_request(request)
        prepared = await lane.ports.service.prepare_uploads(
            [(_upload_name(want), want.file.media_type, want.file.size_bytes) for want in wanted]
        )
    if isinstance(prepared, UploadsPrepared):
        if await _put_all(lane, wanted, prepared.tickets):
            await _complete(lane, candidate, wanted, prepared.tickets)
    else:
        await _upload_failed(lane, candidate, prepared)


async def _payable_inputs(lane: Lane, candidate: Candidate, now: Now) -> tuple[WantedInput, ...]:
    """Return the next inputs that fit today's upload limits, or let uploads wait for the reset."""
    _, account, _ = await lane.look(now)
    wanted = (await lane.ports.queue.wanted_inputs(candidate))[:FILES_PER_REQUEST]
    files_left = lane.limits.upload_files_per_day - account.today.usage.upload_files
    bytes_left = lane.limits.upload_bytes_per_day - account.today.usage.upload_bytes
    fitting: list[WantedInput] = []
    for want in wanted[: max(files_left, 0)]:
        if want.file.size_bytes > bytes_left:
            break
        bytes_left -= want.file.size_bytes
        fitting.append(want)
    if wanted and _is_beyond_any_day(lane, wanted[0]):
        message = f"{wanted[0].file.path} is larger than what the account may upload in a whole day; nothing was sent"
        await lane.ports.queue.reject_item(candidate.item_id, ServiceError("over_upload_limit", message), now)
    elif wanted and not fitting:
        lane.postpone_uploads(now, until=account.today.resets_at, reason=Reason.DAY_REQUESTS)
    if not wanted:
        lane.ports.queue.announce()
    return tuple(fitting)


def _is_beyond_any_day(lane: Lane, want: WantedInput) -> bool:
    return not lane.limits.upload_files_per_day or want.file.size_bytes > lane.limits.upload_bytes_per_day


async def _put_all(lane: Lane, wanted: tuple[WantedInput, ...], tickets: tuple[UploadTicket, ...]) -> bool:
    for want, ticket in zip(wanted, tickets, strict=True):
        content = lane.ports.inputs.content(want.file)
        reply = await lane.ports.service.put_upload(ticket, content, want.file.size_bytes)
        match reply:
            case BytesStored():
                continue
            case TicketRefused() | NoReply():
                lane.postpone_uploads(lane.ports.clock.now(), reason=Reason.UNAVAILABLE)
                return False
            case _:
                assert_never(reply)
    return True


async def _complete(
    lane: Lane, candidate: Candidate, wanted: tuple[WantedInput, ...], tickets: tuple[UploadTicket, ...]
) -> None:
    if not await lane.place(creates=True):
        return
    request = lane.note(RequestKind.UPLOAD, lane.ports.clock.now())
    async with lane.sending(request):
        await lane.ports.queue.note_request(request)
        reply = await lane.ports.service.complete_uploads([ticket.asset_id for ticket in tickets])
    if isinstance(reply, AssetsReady):
        lane.upload_troubles = 0
        lane.refused_uploads.pop(candidate.item_id, None)
        lane.recovered(creates=True)
        urls = [(want.file.sha256, url) for want, url in zip(wanted, reply.urls, strict=True)]
        await lane.ports.queue.record_assets(lane.account_id, urls, lane.ports.clock.now())
    else:
        await _upload_failed(lane, candidate, reply)


async def _upload_failed(lane: Lane, candidate: Candidate, reply: PrepareReply | CompleteReply) -> None:
    match reply:
        case Refused(error=error):
            refusals = lane.refused_uploads.pop(candidate.item_id, 0) + 1
            if refusals >= ALIKE_REFUSALS:
                await lane.ports.queue.reject_item(candidate.item_id, error, lane.ports.clock.now())
            else:
                lane.refused_uploads[candidate.item_id] = refusals
                lane.postpone_uploads(lane.ports.clock.now(), reason=Reason.UNAVAILABLE)
        case Throttled(retry_after=retry_after, error=error) if _is_of_uploads(error):
            now = lane.ports.clock.now()
            until = None if retry_after is None else now.steady + retry_after.total_seconds()
            lane.postpone_uploads(now, until=until, reason=Reason.DAY_REQUESTS)
        case Throttled() | Unavailable() | NoReply() | NotUnderstood() | EdgeBlocked() | AccountBlocked():
            await lane.meet(reply, creates=True)
        case UploadsPrepared() | AssetsReady():
            raise AssertionError("a success is no failure")
        case _:
            assert_never(reply)


def _is_of_uploads(error: ServiceError) -> bool:
    """Tell a limit of uploads alone from the one that they share with creates (Service section 8)."""
    text = f"{error.code} {error.message}".lower()
    return any(word in text for word in ("upload", "file", "byte", "mib"))


def _upload_name(want: WantedInput) -> str:
    """Return a name for an upload that tells nothing about this machine."""
    ending = {"image/jpeg": "jpg", "image/png": "png", "image/webp": "webp"}.get(want.file.media_type, "bin")
    return f"{want.file.sha256[:16]}.{ending}"
