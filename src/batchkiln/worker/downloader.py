"""Downloads the files of finished generations: a few at once, resumed after a break, verified, then recorded."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import cache, partial
from math import inf
from pathlib import Path
from typing import Final, assert_never

import structlog
from msgspec.structs import replace

from batchkiln.core import outcome_errors
from batchkiln.core.account_view import AccountView
from batchkiln.core.calls import Call
from batchkiln.core.job import SavedFile, SavedOutput
from batchkiln.core.outcomes import DOWNLOADS, FACTS, Download, Fact, is_gone
from batchkiln.core.output_links import Listed, Listing, compare, extension_of, free_number
from batchkiln.core.polling import next_poll_at, retention_ends_at
from batchkiln.core.queue_changes import Committed, Facts
from batchkiln.core.queue_types import DownloadTask
from batchkiln.core.rate_limits import RequestKind
from batchkiln.core.responses import (
    AccountBlocked,
    DownloadBroken,
    DownloadTruncated,
    DownloadUnusable,
    EdgeBlocked,
    GenerationRecord,
    NoResponse,
    NotFound,
    NotUnderstood,
    OutputLink,
    RecordRead,
    Throttled,
    Unavailable,
)
from batchkiln.core.timestamps import ClockReading
from batchkiln.core.urls import is_url
from batchkiln.core.waits import NotBefore, WaitReason
from batchkiln.worker import object_uploads
from batchkiln.worker.account_worker import AccountWorker
from batchkiln.worker.download_state import Failure, Output
from batchkiln.worker.ports import Part
from batchkiln.worker.transfer import NotStreamed, Streamed, pause_before_retry, stream, until_stopped

log = structlog.get_logger()

AT_ONCE: Final = 4
"""The downloads that transfer bytes at the same time. A download that pauses after a failure does not count."""


async def fetch_downloads(worker: AccountWorker) -> None:
    """Download the finished generations of one account until the run stops; finish those in progress first."""
    running: dict[int, asyncio.Task[int]] = {}
    ended: dict[int, int] = {}  # by attempt: the version of the queue at which its download had ended
    download_places, send_places = asyncio.Semaphore(AT_ONCE), asyncio.Semaphore(object_uploads.AT_ONCE)
    async with asyncio.TaskGroup() as group:
        while not worker.control.is_over_for(worker.account_id):
            queue, version = await worker.queue_view(worker.ports.clock.now())
            ended |= {attempt_id: task.result() for attempt_id, task in running.items() if task.done()}
            ended = {attempt_id: at for attempt_id, at in ended.items() if at > version}  # the snapshot is older
            wanted = [attempt_id for attempt_id in queue.downloads if attempt_id not in ended]
            running = {attempt_id: task for attempt_id, task in running.items() if not task.done()}
            for attempt_id in wanted:
                if attempt_id not in running:
                    running[attempt_id] = group.create_task(_fetch(worker, attempt_id, download_places, send_places))
            if not wanted:
                await worker.wait("downloads", NotBefore(inf, WaitReason.NOTHING), version)
            elif due := _wait_for_truncated_files(worker, wanted):
                await worker.wait("downloads", due, version)
            else:
                news = group.create_task(worker.wait_for_news(version))
                await asyncio.wait({news, *running.values()}, return_when=asyncio.FIRST_COMPLETED)
                news.cancel()


def _wait_for_truncated_files(worker: AccountWorker, attempt_ids: Sequence[int]) -> NotBefore | None:
    """Return the wait if all these downloads wait for truncated files, else None.

    A run that is to end early does not wait for them: its wait has no end.
    """
    now = worker.ports.clock.now()
    at = worker.downloads.truncated.all_wait_until(attempt_ids, now.monotonic)
    if at is None:
        return None
    is_ending = worker.control.stops_at_reset or not worker.control.may_start_at(now.instant)
    return NotBefore(inf, WaitReason.ENOUGH) if is_ending else NotBefore(at, WaitReason.POLL_INTERVAL)


async def _fetch(
    worker: AccountWorker, attempt_id: int, download_places: asyncio.Semaphore, send_places: asyncio.Semaphore
) -> int:
    """Download all outputs of one generation. Request new links as often as needed during its retention.

    Files that are to become objects are sent once they are complete on this disk, without delaying other downloads.
    Return the version of the queue at the end.
    """
    tries = 0
    while not worker.control.is_over_for(worker.account_id):
        task = worker.downloads.take_task(attempt_id) or await worker.ports.queue.download_task(attempt_id)
        if task.gone:
            if await object_uploads.adopt(worker, task):
                break
            task = await worker.ports.queue.download_task(attempt_id)
        if task.staged:
            async with send_places:
                if await object_uploads.send_staged(worker, task):
                    break
            if worker.control.is_over_for(worker.account_id):
                break
            task = await worker.ports.queue.download_task(attempt_id)
        async with download_places:
            tried = await _try(worker, task)
        if tried is _TryResult.STAGED:
            continue
        if tried is _TryResult.ENDED:
            break
        if (at := worker.downloads.truncated.waits_until(attempt_id)) is not None:
            tries = 0
            await worker.ports.clock.sleep_until(at, worker.control.stopping)
            worker.downloads.truncated.end_wait(attempt_id)
        else:
            tries += 1
            await pause_before_retry(worker, tries)
    worker.polls.forget(attempt_id)
    worker.downloads.forget(attempt_id)
    return worker.ports.queue.changes.version


class _TryResult(Enum):
    ENDED = auto()  # nothing is left to download, for good or in this run
    STAGED = auto()  # files are complete on the local disk, and are to be sent
    AGAIN = auto()


async def _try(worker: AccountWorker, task: DownloadTask) -> _TryResult:
    """Try once to download an attempt's files."""
    if record := worker.downloads.take_links(task.attempt.id):
        return await _save_record(worker, task, record)
    match await _record_with_links(worker, task):
        case GenerationRecord() as record:
            return await _save_record(worker, task, record)
        case _Links.LATER:
            return _TryResult.AGAIN
        case _Links.NEVER:
            return _TryResult.ENDED


class _Links(Enum):
    LATER = auto()  # a temporary error interrupted it
    NEVER = auto()  # the item has left the downloads


async def _record_with_links(worker: AccountWorker, task: DownloadTask) -> GenerationRecord | _Links:
    """Read the generation again to get its links."""
    if not worker.ports.service.has_key(task.attempt.key_fingerprint):
        now = worker.ports.clock.now()
        error = outcome_errors.error_of_missing_key(task.attempt)
        await worker.commit(task.attempt, FACTS[Fact.KEY_MISSING], Facts(error=error), now)
        return _Links.NEVER
    return await _read(worker, task) if await _read_is_due(worker, task) else _Links.LATER


async def _read(worker: AccountWorker, task: DownloadTask) -> GenerationRecord | _Links:
    clock, attempt = worker.ports.clock, task.attempt
    assert attempt.generation_id is not None, "a download belongs to a generation"
    request = worker.new_request(RequestKind.READ, clock.now())
    async with worker.rate_limited(request):
        await worker.record_request(request, attempt_id=attempt.id)
        call = worker.ports.service.read_generation(attempt.generation_id, key_fingerprint=attempt.key_fingerprint)
        reply = await worker.spans.timed("read", attempt, call)
    worker.polls.touch(attempt.id, clock.now().monotonic)
    match reply:
        case RecordRead(record=record):
            worker.on_success(Call.READ, key=attempt.key_fingerprint)
            return record
        case NotFound():
            if is_gone(reply, is_retained=_is_retained(worker, task)):
                await _commit(worker, task, Download.GONE)
                return _Links.NEVER
            _fail(worker, task, 0, Failure.BROKEN, "the service no longer knows the generation")
            return _Links.NEVER if await _postpone(worker, task, [(attempt.id, 0)]) else _Links.LATER
        case AccountBlocked() if worker.is_of_older_key(attempt, reply):
            if await worker.retry_old_key(attempt, reply, Call.READ):
                return _Links.LATER
            error = outcome_errors.error_of_missing_key(attempt, is_refused=True)
            await worker.commit(attempt, FACTS[Fact.KEY_MISSING], Facts(error=error), clock.now())
            return _Links.NEVER
        case Throttled() | Unavailable() | NoResponse() | NotUnderstood() | EdgeBlocked() | AccountBlocked():
            await worker.on_failure(reply, Call.READ, about_paid=True)
            return _Links.LATER
        case _:
            assert_never(reply)


async def _read_is_due(worker: AccountWorker, task: DownloadTask) -> bool:
    """Wait until the generation may be read again (Service rule 4.4). Return False if the run ends first."""

    def due_of(account: AccountView, now: ClockReading) -> NotBefore:
        gap = next_poll_at(
            last_settled_at=worker.polls.touched_at(task.attempt.id, task.last_read_at, now),
            interval_seconds=worker.rates.limits.poll_interval_seconds,
            now=now.monotonic,
        )
        return account.call_due(Call.READ, now, places=2).after(NotBefore(gap, WaitReason.POLL_INTERVAL))

    return await worker.wait_until_due(due_of)


async def _save_record(worker: AccountWorker, task: DownloadTask, record: GenerationRecord) -> _TryResult:
    """Save the missing outputs of a record."""
    if is_gone(RecordRead(record), is_retained=_is_retained(worker, task)):
        await _commit(worker, task, Download.GONE)
        return _TryResult.ENDED
    if record.outputs:
        return await _save_all(worker, task, record)
    _fail(worker, task, 0, Failure.BROKEN, "the service says that the generation succeeded, and lists no outputs")
    return _TryResult.ENDED if await _postpone(worker, task, [(task.attempt.id, 0)]) else _TryResult.AGAIN


def _is_retained(worker: AccountWorker, task: DownloadTask) -> bool:
    return worker.ports.clock.now().instant <= retention_ends_at(task.created_at)


async def _commit(
    worker: AccountWorker,
    task: DownloadTask,
    step: Download,
    *,
    reason: str | None = None,
    saved: SavedOutput | None = None,
    staged: SavedOutput | None = None,
) -> Committed:
    """Record the progress of a generation's downloads."""
    error = outcome_errors.EXPIRED if step is Download.GONE else None
    facts = Facts(error=error, reason=reason, saved=saved, staged=staged)
    return await worker.commit(task.attempt, DOWNLOADS[step], facts, worker.ports.clock.now())


async def _save_all(worker: AccountWorker, task: DownloadTask, record: GenerationRecord) -> _TryResult:
    """Save or stage all missing outputs.

    Outputs are identified by their content, not by their position in the list. A failed output does not delay the
    others.
    """
    clock, attempt_id = worker.ports.clock, task.attempt.id
    saving = _Saving(worker, task, record)
    for entry in saving.listing.wanted:
        number = free_number(entry.position, frozenset(saving.numbers))
        if not worker.downloads.truncated.is_due((attempt_id, number), clock.now().monotonic):
            saving.leave(number)
            continue
        match await _save(saving, entry, number):
            case _SaveResult.SAVED | _SaveResult.ALREADY_SAVED:
                pass
            case _SaveResult.FAILED:
                saving.leave(number)
            case _SaveResult.INTERRUPTED:
                return _TryResult.AGAIN
    if saving.has_staged:
        return _TryResult.STAGED  # the other outputs are tried again once these are sent
    if not saving.left and saving.is_complete:
        if not saving.has_ended:
            await _commit(worker, task, Download.ALL_SAVED)
        return _TryResult.ENDED
    if not saving.left:
        reason = f"the service lists {len(record.outputs)} outputs, and listed {saving.listed} before"
        _fail(worker, task, 0, Failure.FEWER, reason)
        saving.leave(0)
    has_ended = await _postpone(worker, task, [(attempt_id, number) for number in saving.left])
    return _TryResult.ENDED if has_ended else _TryResult.AGAIN


async def _postpone(worker: AccountWorker, task: DownloadTask, left: Sequence[Output]) -> bool:
    """Delay the outputs that could not be saved; return whether the item was handed over to a person."""
    if all(worker.downloads.failed.is_hopeless(output) for output in left):
        await _commit(worker, task, Download.UNUSABLE, reason=worker.downloads.failed.describe(left))
        return True
    if any(worker.downloads.truncated.is_due(output, worker.ports.clock.now().monotonic) for output in left):
        await _commit(worker, task, Download.LINK_EXPIRED, reason="a fresh link is read")
    else:
        worker.downloads.truncated.record_wait(task.attempt.id, left)  # before the commit wakes the other tracks
        await _commit(worker, task, Download.LINK_EXPIRED, reason="it is fetched again later")
    return False


@dataclass(slots=True)
class _Saving:
    """The progress of saving the outputs of one record.

    `left` contains the numbers of the outputs not saved, `numbers` all assigned numbers.
    """

    worker: AccountWorker
    task: DownloadTask
    record: GenerationRecord
    listing: Listing = field(init=False)
    numbers: set[int] = field(init=False)
    unplaced: Counter[str] = field(init=False)
    listed: int = field(init=False)
    left: list[int] = field(default_factory=list)
    settled: int = 0
    has_ended: bool = False
    has_staged: bool = False

    def __post_init__(self) -> None:
        """Compare the outputs in the record with the saved ones."""
        attempt_id, links = self.task.attempt.id, self.record.outputs
        self.listing = compare(links, self.task.saved, self.worker.downloads.marks.get(attempt_id, {}))
        self.numbers, self.unplaced = set(self.task.saved), Counter(self.listing.unplaced)
        self.listed = self.worker.downloads.most_listed(attempt_id, max(len(links), self.task.listed))

    def leave(self, number: int) -> None:
        """Record that an output is not saved. No other output gets its number."""
        self.left.append(number)
        self.numbers.add(number)

    @property
    def is_complete(self) -> bool:
        """Whether the record lists as many outputs as any record before it."""
        return len(self.record.outputs) >= self.listed

    @property
    def is_last(self) -> bool:
        """Whether the current output is the last missing one."""
        return self.is_complete and not self.left and self.settled + 1 == len(self.listing.wanted)


class _SaveResult(Enum):
    SAVED = auto()
    ALREADY_SAVED = auto()  # a saved file has the same bytes, from another position in the list
    FAILED = auto()  # it is tried again, with a new link or later
    INTERRUPTED = auto()  # the run ends, or the name was taken


async def _save(saving: _Saving, entry: Listed, number: int) -> _SaveResult:
    """Stream one output to its file and record it (Law 7)."""
    worker, task = saving.worker, saving.task
    name_for = await _file_namer(worker, task, number)
    folder = _folder_of(worker, task)
    part = await worker.ports.outputs.open_part(folder, name_for("mp4" if task.attempt.is_video else "png"))
    try:
        async with until_stopped(worker) as time:
            streamed = await worker.spans.timed(
                "download", task.attempt, stream(worker, part, entry.link), output=number
            )
        if time.expired() or (isinstance(streamed, NotStreamed) and worker.control.stopping.is_set()):
            return _SaveResult.INTERRUPTED
        if isinstance(streamed, NotStreamed):
            _fail(worker, task, number, streamed.failure, streamed.reason)
            return _SaveResult.FAILED
        if saving.unplaced and saving.unplaced[digest := await part.digest()]:
            saving.unplaced[digest] -= 1
            saving.settled += 1
            return _SaveResult.ALREADY_SAVED
        finish = _finish(worker, task, number, part=part, name_for=name_for, streamed=streamed, link=entry.link)
        saved = await worker.spans.timed("save", task.attempt, finish, output=number)
    finally:
        await part.discard()
    if saved is None:
        return _SaveResult.FAILED
    return await (_stage if is_url(task.output_dir) else _record)(saving, entry, number, saved)


def _folder_of(worker: AccountWorker, task: DownloadTask) -> Path:
    """Return the local folder of a job's files, from which objects are sent if its place is a URL."""
    return worker.ports.objects.folder_of(task.output_dir) if is_url(task.output_dir) else Path(task.output_dir)


async def _stage(saving: _Saving, entry: Listed, number: int, saved: SavedFile) -> _SaveResult:
    """Record a file that is complete on the local disk, so that the next run can send it without the service."""
    worker, task = saving.worker, saving.task
    name = str(Path(saved.path).relative_to(_folder_of(worker, task)))
    staged = SavedOutput(replace(saved, path=name), number=number, type=entry.link.type, listed=saving.listed)
    await _commit(worker, task, Download.FILE_STAGED, staged=staged)
    saving.settled += 1
    saving.numbers.add(number)
    saving.has_staged = True
    worker.downloads.saved((task.attempt.id, number), entry.mark)
    log.info("file_staged", account=worker.viewpoint.account, path=saved.path, size_bytes=saved.size_bytes)
    return _SaveResult.SAVED


async def _finish(
    worker: AccountWorker,
    task: DownloadTask,
    number: int,
    *,
    part: Part,
    name_for: Callable[[str], str],
    streamed: Streamed,
    link: OutputLink,
) -> SavedFile | None:
    """Publish a file under its name; return None if it is not an output, or is truncated and not accepted yet."""
    finish = partial(
        worker.ports.outputs.finish,
        part,
        total_bytes=streamed.total_bytes,
        name_for=name_for,
        content_type=streamed.content_type,
        link_extension=extension_of(link),
    )
    try:
        try:
            saved: SavedFile = await finish()
        except DownloadTruncated as cut:
            if not _is_accepted(worker, task, number, cut):
                return None
            saved = await finish(accepted_sha256=cut.sha256)
    except DownloadUnusable as unusable:
        _fail(worker, task, number, Failure.UNUSABLE, str(unusable))
        return None
    except DownloadBroken as broken:
        _fail(worker, task, number, Failure.BROKEN, str(broken))
        return None
    return saved


async def _record(saving: _Saving, entry: Listed, number: int, saved: SavedFile) -> _SaveResult:
    """Record a complete file; the last one ends its item."""
    worker, task, output = saving.worker, saving.task, (saving.task.attempt.id, number)
    is_last = saving.is_last
    step = Download.LAST_FILE_SAVED if is_last else Download.FILE_SAVED
    file = SavedOutput(saved, number=number, listed=saving.listed, type=entry.link.type)
    sidecar = await _write_sidecar(worker, task, number, saved)
    committed = await _commit(worker, task, step, saved=file)
    if committed.outcome is DOWNLOADS[Download.NAME_TAKEN]:
        if sidecar is not None:
            await worker.ports.outputs.remove_sidecar(sidecar)
        worker.downloads.names_taken[output] += 1  # another output was saved under this name at the same time
        log.info("file_name_taken", account=worker.viewpoint.account, path=saved.path, item=task.item_name)
        return _SaveResult.INTERRUPTED
    saving.settled += 1
    saving.numbers.add(number)
    saving.has_ended = is_last
    worker.downloads.saved(output, entry.mark)
    log.info("file_saved", account=worker.viewpoint.account, path=saved.path, size_bytes=saved.size_bytes)
    return _SaveResult.SAVED


async def _write_sidecar(worker: AccountWorker, task: DownloadTask, number: int, saved: SavedFile) -> str | None:
    """Write the sidecar that a job wants beside a saved file, before the file is recorded.

    After a crash in between, neither is recorded. The next run then downloads the file again, recognises it, and finds
    or writes its sidecar. Return the path of a new sidecar.
    """
    if task.sidecar is None or task.origin is None:
        return None
    content = task.origin.sidecar(task.sidecar, saved, number)
    path: str | None = await worker.ports.outputs.write_sidecar(saved.path, task.sidecar, content)
    return path


def _fail(worker: AccountWorker, task: DownloadTask, number: int, failure: Failure, reason: str) -> None:
    """Count and log a failure of an output, and delay the output."""
    output, now = (task.attempt.id, number), worker.ports.clock.now().monotonic
    wait_seconds = worker.downloads.fail(output, failure, reason, now)
    log.warning(
        "output_not_saved",
        account=worker.viewpoint.account,
        job=task.job_name,
        item=task.item_name,
        number=number,
        reason=reason,
        retry_after_seconds=wait_seconds,
    )


def _is_accepted(worker: AccountWorker, task: DownloadTask, number: int, cut: DownloadTruncated) -> bool:
    """Return whether to save a file that lacks its format's end. Otherwise the file is downloaded again later."""
    output, now = (task.attempt.id, number), worker.ports.clock.now()
    worker.downloads.truncated.count(output, cut.sha256, now.monotonic)
    is_accepted = worker.downloads.truncated.is_accepted(output, created_at=task.created_at, now=now.instant)
    log.warning(
        "truncated_file_accepted" if is_accepted else "file_truncated",
        account=worker.viewpoint.account,
        job=task.job_name,
        item=task.item_name,
        number=number,
        sha256=cut.sha256,
        reason=f"{cut}; it is accepted nevertheless" if is_accepted else str(cut),
        retry_after_seconds=None if is_accepted else worker.downloads.truncated.postpone(output, now.monotonic),
    )
    return is_accepted


async def _file_namer(worker: AccountWorker, task: DownloadTask, number: int) -> Callable[[str], str]:
    """Return a function from extension to file name, which avoids names that other items have."""
    if number > 1:
        task = await worker.ports.queue.download_task(task.attempt.id, number=number)
    names = {Path(path).name for path in task.taken}
    met = worker.downloads.names_taken[task.attempt.id, number]
    own = f"~{task.attempt.item_id}" + (f"~{met}" if met > 1 else "")

    def name_for(extension: str) -> str:
        relative = task.relative_name(number, extension)
        if not met and relative.rpartition("/")[2] not in names:
            return relative
        name = Path(relative)
        return str(name.with_name(f"{name.stem}{own}{name.suffix}"))

    return cache(name_for)
