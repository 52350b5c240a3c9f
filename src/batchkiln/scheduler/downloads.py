"""Fetches what is paid for and ready: a few at once, continued where they broke off, verified, then recorded."""

import asyncio
from collections.abc import Callable, Sequence
from enum import Enum, auto
from functools import partial
from math import inf
from pathlib import Path
from typing import Final, assert_never

import structlog

from batchkiln.core.backoff import delay_seconds
from batchkiln.core.calls import Call
from batchkiln.core.instants import Now
from batchkiln.core.job import SavedFile
from batchkiln.core.planner import AccountView, Due, Reason
from batchkiln.core.polling import next_poll_at, retention_ends_at
from batchkiln.core.replies import (
    AccountBlocked,
    DownloadBroken,
    DownloadCut,
    DownloadStarted,
    EdgeBlocked,
    GenerationRecord,
    GenerationStatus,
    LinkRefused,
    NoReply,
    NotFound,
    NotUnderstood,
    OutputLink,
    RecordRead,
    Throttled,
    Unavailable,
)
from batchkiln.core.states import ItemState
from batchkiln.core.views import DownloadTask, RequestKind
from batchkiln.scheduler.lane import Lane
from batchkiln.scheduler.ports import Part

log = structlog.get_logger()

AT_ONCE: Final = 4
"""Downloads that move bytes at one time; those that pause after a trouble let others go on meanwhile."""

TRIES_PER_LINK: Final = 4


async def fetch_downloads(lane: Lane) -> None:
    """Fetch finished generations of one account until the run stops; what is in hand is finished first."""
    running: dict[int, asyncio.Task[None]] = {}
    turns = asyncio.Semaphore(AT_ONCE)
    async with asyncio.TaskGroup() as group:
        while not lane.control.is_over_for(lane.account_id):
            queue, _, version = await lane.look(lane.ports.clock.now())
            running = {attempt_id: task for attempt_id, task in running.items() if not task.done()}
            for attempt_id in queue.downloads:
                if attempt_id not in running:
                    running[attempt_id] = group.create_task(_fetch(lane, attempt_id, turns))
            if not queue.downloads:
                await lane.wait("downloads", Due(inf, Reason.NOTHING), version)
            elif due := _rest_for_cut_files(lane, queue.downloads):
                await lane.wait("downloads", due, version)
            else:
                await lane.wait_for_news(version)


def _rest_for_cut_files(lane: Lane, attempt_ids: Sequence[int]) -> Due | None:
    """Return how long there is nothing to do but wait for cut files; a run that is to end early does not."""
    now = lane.ports.clock.now()
    at = lane.cut_files.all_wait_until(attempt_ids, now.steady)
    if at is None:
        return None
    is_ending = lane.control.stops_at_reset or not lane.control.may_start_at(now.instant)
    return Due(inf, Reason.ENOUGH) if is_ending else Due(at, Reason.POLL_INTERVAL)


async def _fetch(lane: Lane, attempt_id: int, turns: asyncio.Semaphore) -> None:
    """Fetch all outputs of one generation; links are read afresh as often as needed, while they are retained."""
    tries = 0
    while not lane.control.is_over_for(lane.account_id):
        async with turns:
            has_ended = await _try(lane, attempt_id)
        if has_ended:
            break
        if (at := lane.cut_files.waits_until(attempt_id)) is not None:
            tries = 0
            await lane.ports.clock.sleep_until(at, lane.control.stopping)
            lane.cut_files.go_on(attempt_id)
        else:
            tries += 1
            await _pause(lane, tries)
    lane.ready.pop(attempt_id, None)
    lane.touched.pop(attempt_id, None)
    lane.cut_files.forget(attempt_id)


async def _try(lane: Lane, attempt_id: int) -> bool:
    """Take one step toward an attempt's files; tell whether nothing is left to fetch, for good or for this run."""
    if ready := lane.ready.pop(attempt_id, None):
        return await _use(lane, *ready)
    task = await lane.ports.queue.download_task(attempt_id)
    match await _record_with_links(lane, task):
        case GenerationRecord() as record:
            return await _use(lane, task, record)
        case _Links.LATER:
            return False
        case _Links.NEVER:
            return True


class _Links(Enum):
    LATER = auto()  # a trouble came in between
    NEVER = auto()  # the item has left the downloads


async def _pause(lane: Lane, tries: int) -> None:
    clock = lane.ports.clock
    at = clock.now().steady + delay_seconds(tries, clock.draw())
    await clock.sleep_until(at, lane.control.stopping)


async def _record_with_links(lane: Lane, task: DownloadTask) -> GenerationRecord | _Links:
    """Read the generation again, for its links."""
    if not lane.ports.service.has_key(task.attempt.key_fingerprint):
        now = lane.ports.clock.now()
        await lane.ports.queue.record_key_missing(task.attempt, ItemState.DOWNLOADING, now)
        return _Links.NEVER
    return await _read(lane, task) if await _read_is_due(lane, task) else _Links.LATER


async def _read(lane: Lane, task: DownloadTask) -> GenerationRecord | _Links:
    clock, attempt = lane.ports.clock, task.attempt
    assert attempt.generation_id is not None, "what is downloaded was generated"
    request = lane.note(RequestKind.READ, clock.now())
    async with lane.sending(request):
        await lane.ports.queue.note_read(attempt.id, request)
        reply = await lane.ports.service.read_generation(attempt.generation_id, key_fingerprint=attempt.key_fingerprint)
    lane.touched[attempt.id] = clock.now().steady
    match reply:
        case RecordRead(record=record):
            lane.recovered(Call.READ, key=attempt.key_fingerprint)
            return record
        case NotFound():
            if clock.now().instant > retention_ends_at(task.created_at):
                await lane.ports.queue.record_retention_ended(task, clock.now())
                return _Links.NEVER
            return _Links.LATER
        case AccountBlocked() if lane.is_of_older_key(attempt, reply):
            if await lane.outlasts_refusal(attempt, reply, Call.READ):
                return _Links.LATER
            await lane.ports.queue.record_key_missing(attempt, ItemState.DOWNLOADING, clock.now(), is_refused=True)
            return _Links.NEVER
        case Throttled() | Unavailable() | NoReply() | NotUnderstood() | EdgeBlocked() | AccountBlocked():
            await lane.meet(reply, Call.READ, about_paid=True)
            return _Links.LATER
        case _:
            assert_never(reply)


async def _read_is_due(lane: Lane, task: DownloadTask) -> bool:
    """Wait until another read of this generation keeps the gap and fits the windows (Service rule 4.4)."""

    def due_of(account: AccountView, now: Now) -> Due:
        gap = next_poll_at(
            last_settled_at=lane.last_touched(task.attempt.id, task.last_read_at, now),
            interval_seconds=lane.limits.poll_interval_seconds,
            now=now.steady,
        )
        return account.read_due(now, places=2).after(Due(gap, Reason.POLL_INTERVAL))

    return await lane.wait_until_due(due_of)


async def _use(lane: Lane, task: DownloadTask, record: GenerationRecord) -> bool:
    """Save what is not yet saved; tell whether the item ended."""
    queue, clock = lane.ports.queue, lane.ports.clock
    if record.status is GenerationStatus.EXPIRED:
        await queue.record_retention_ended(task, clock.now())
        return True
    if not record.outputs:
        if clock.now().instant <= retention_ends_at(task.created_at):
            return False
        await queue.record_retention_ended(task, clock.now())
        return True
    return await _save_all(lane, task, record)


async def _save_all(lane: Lane, task: DownloadTask, record: GenerationRecord) -> bool:
    """Save all outputs that are missing; tell whether none is left. A cut one does not keep its siblings waiting."""
    queue, clock = lane.ports.queue, lane.ports.clock
    missing = [(n, link) for n, link in enumerate(record.outputs, start=1) if n not in task.saved]
    if not missing:
        await queue.record_done(task, clock.now())
    left_count = len(missing)
    for number, link in missing:
        if not lane.cut_files.is_due((task.attempt.id, number), clock.now().steady):
            continue
        match await _save(lane, task, number=number, link=link, is_last=left_count == 1):
            case _Saved.YES:
                left_count -= 1
            case _Saved.CUT:
                pass
            case _Saved.NEEDS_LINK:
                await queue.record_link_expired(task, "a fresh link is read", clock.now())
                return False
            case _Saved.LATER:
                return False
    if left_count:
        lane.cut_files.rest(task.attempt.id)  # before others hear of it
        await queue.record_link_expired(task, "the file lacks its end; it is fetched again later", clock.now())
    return not left_count


class _Saved(Enum):
    YES = auto()
    CUT = auto()  # all announced bytes came, and are no whole file
    NEEDS_LINK = auto()
    LATER = auto()


async def _save(lane: Lane, task: DownloadTask, *, number: int, link: OutputLink, is_last: bool) -> _Saved:
    """Stream one output to its file and record it (Law 7)."""
    outputs, directory = lane.ports.outputs, Path(task.output_dir)
    name_for = await _names(lane, task, number)
    part = await outputs.open_part(directory, name_for("mp4" if task.attempt.is_video else "png"))
    try:
        total_bytes = await _stream(lane, part, link)
        if isinstance(total_bytes, _Saved):
            return total_bytes
        finish = partial(
            outputs.finish,
            part,
            expects_video=task.attempt.is_video,
            total_bytes=total_bytes,
            name_for=name_for,
        )
        try:
            saved = await finish()
        except DownloadCut as cut:
            if not _is_believed(lane, task, number, cut):
                return _Saved.CUT
            saved = await finish(believed_sha256=cut.sha256)
    except DownloadBroken:
        return _Saved.NEEDS_LINK
    finally:
        await part.discard()
    now = lane.ports.clock.now()
    if not await lane.ports.queue.record_saved(
        task, saved, number=number, output_type=link.type, is_last=is_last, now=now
    ):
        _count_shared_name(lane, task, number, saved)
        return _Saved.LATER
    lane.cut_files.saved((task.attempt.id, number))
    lane.shared_names.pop((task.attempt.id, number), None)
    log.info("file_saved", account=lane.viewpoint.account, path=saved.path, size_bytes=saved.size_bytes)
    return _Saved.YES


def _count_shared_name(lane: Lane, task: DownloadTask, number: int, saved: SavedFile) -> None:
    """Note that the file found standing there is another output's, which was saved at the same time: it stays there."""
    output = (task.attempt.id, number)
    lane.shared_names[output] = lane.shared_names.get(output, 0) + 1
    log.info("file_name_taken", account=lane.viewpoint.account, path=saved.path, item=task.item_name)


def _is_believed(lane: Lane, task: DownloadTask, number: int, cut: DownloadCut) -> bool:
    """Tell whether a file that lacks its format's end is to be saved all the same; else it waits for its next try."""
    output, now = (task.attempt.id, number), lane.ports.clock.now()
    lane.cut_files.count(output, cut.sha256, now.steady)
    is_believed = lane.cut_files.is_believed(output, created_at=task.created_at, now=now.instant)
    log.warning(
        "file_believed" if is_believed else "file_cut",
        account=lane.viewpoint.account,
        job=task.job_name,
        item=task.item_name,
        number=number,
        sha256=cut.sha256,
        reason=f"{cut}; it is taken all the same" if is_believed else str(cut),
        retry_after_seconds=None if is_believed else lane.cut_files.postpone(output, now.steady),
    )
    return is_believed


async def _stream(lane: Lane, part: Part, link: OutputLink) -> int | _Saved | None:
    """Write a link's bytes to a part, continued by range after a break; return the length told, or why not."""
    etag: str | None = None
    for tries in range(1, TRIES_PER_LINK + 1):
        async with lane.ports.service.download(link, offset_bytes=part.size_bytes, etag=etag) as reply:
            match reply:
                case DownloadStarted():
                    etag = reply.etag
                    if reply.offset_bytes != part.size_bytes:
                        await part.restart()
                    try:
                        async for chunk in reply.chunks:
                            await part.write(chunk)
                    except DownloadBroken:
                        pass
                    else:
                        return reply.total_bytes
                case LinkRefused():
                    return _Saved.NEEDS_LINK
                case NoReply():
                    pass
                case _:
                    assert_never(reply)
        if lane.control.stopping.is_set():
            return _Saved.LATER
        await _pause(lane, tries)
    return _Saved.NEEDS_LINK


async def _names(lane: Lane, task: DownloadTask, number: int) -> Callable[[str], str]:
    """Return how the file is named for an extension: its own name, or one beside it where another item has that."""
    taken = task.taken if number == 1 else await lane.ports.queue.taken_paths(task, number)
    names = {Path(path).name for path in taken}
    met = lane.shared_names.get((task.attempt.id, number), 0)
    own = f"~{task.attempt.item_id}" + (f"~{met}" if met > 1 else "")

    def name_for(extension: str) -> str:
        name = Path(task.relative_name(number, extension))
        return str(name.with_name(f"{name.stem}{own}{name.suffix}") if met or name.name in names else name)

    return name_for
