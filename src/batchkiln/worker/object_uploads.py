"""Finishes items from complete local files: sends the files to the job's URL, and records the objects.

The files were recorded as staged before. An object is recorded only after it was verified, and the local file stays
until then. A crash between any two steps, or an outage of the storage, therefore costs nothing: the next run sends the
files again. The service is not needed for this.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import structlog

from batchkiln.core.errors import OutputDirNotWritable, StorageError
from batchkiln.core.job import SavedFile, SavedOutput
from batchkiln.core.outcomes import DOWNLOADS, Download
from batchkiln.core.queue_changes import Facts
from batchkiln.core.queue_types import DownloadTask
from batchkiln.worker.account_worker import AccountWorker
from batchkiln.worker.transfer import until_stopped

log = structlog.get_logger()

AT_ONCE: Final = 4
"""The number of generations of one account whose files are sent at the same time."""

WAITS_SECONDS: Final = (1.0, 5.0, 15.0, 60.0, 300.0, 600.0)
"""The service seconds after the first failure, the second, and so on. A failure after the last wait ends the run."""

LASTING_WAITS_SECONDS: Final = (1.0, 5.0)
"""The same for a failure that a retry is unlikely to solve, such as denied access."""

_MAX_TAKEN: Final = 100

T = TypeVar("T")


class _Stopped(Exception):
    """The run ended before a file was sent. The next run sends it."""


async def send_staged(worker: AccountWorker, task: DownloadTask) -> bool:
    """Write an attempt's staged files as objects and record them; return whether that ended its item.

    A file that is no longer on this disk, or is on another machine's disk, is left out and downloaded again. Raise
    `OutputDirNotWritable` after a bounded number of tries; the files stay on this disk.
    """
    saved = set(task.saved)
    for staged in task.staged:
        async with worker.ports.objects.held(task.output_dir, staged.file) as source:
            if source is None:
                log.info(
                    "staged_file_missing", account=worker.viewpoint.account, item=task.item_name, path=staged.file.path
                )
                continue
            try:
                is_last = await _send(worker, task, staged, source, saved)
            except _Stopped:
                return False
        saved.add(staged.number)
        if is_last:
            return True
    return False


async def adopt(worker: AccountWorker, task: DownloadTask) -> bool:
    """Record files that were gone and exist again with the same hash; return whether that ended the item."""
    saved = set(task.saved)
    for gone in task.gone:
        if not await worker.ports.outputs.holds(gone.file):
            continue
        is_last = len(saved | {gone.number}) >= task.listed
        step = Download.LAST_FILE_SAVED if is_last else Download.FILE_SAVED
        now = worker.ports.clock.now()
        committed = await worker.commit(task.attempt, DOWNLOADS[step], Facts(saved=gone), now)
        if committed.outcome is DOWNLOADS[Download.NAME_TAKEN]:
            continue
        log.info("file_saved", account=worker.viewpoint.account, path=gone.file.path, size_bytes=gone.file.size_bytes)
        saved.add(gone.number)
        if is_last:
            return True
    return False


async def _send(worker: AccountWorker, task: DownloadTask, staged: SavedOutput, source: Path, saved: set[int]) -> bool:
    """Send one file with its sidecar and record it; return whether it was the last one of its item.

    If the object is recorded as another output with the same bytes, the file gets a separate name.
    """
    objects, url, is_last = worker.ports.objects, task.output_dir, len(saved | {staged.number}) >= task.listed
    step = Download.LAST_FILE_SAVED if is_last else Download.FILE_SAVED
    for taken in range(_MAX_TAKEN):
        name = distinct_name(staged.file.path, task, taken)
        file = await _until_written(worker, task, partial(objects.send, url, source, staged.file, name))
        sidecar = await _write_sidecar(worker, task, staged.number, file)
        recorded = SavedOutput(file, number=staged.number, listed=task.listed, type=staged.type)
        now = worker.ports.clock.now()
        committed = await worker.commit(task.attempt, DOWNLOADS[step], Facts(saved=recorded), now)
        if committed.outcome is not DOWNLOADS[Download.NAME_TAKEN]:
            log.info("file_saved", account=worker.viewpoint.account, path=file.path, size_bytes=file.size_bytes)
            await objects.keep(source, file)
            return is_last
        if sidecar is not None:
            await _until_written(worker, task, partial(objects.remove, url, sidecar))
        log.info("file_name_taken", account=worker.viewpoint.account, path=file.path, item=task.item_name)
    raise OutputDirNotWritable(f"{url}: {_MAX_TAKEN} names of {staged.file.path} belong to other outputs.")


def distinct_name(name: str, task: DownloadTask, taken: int) -> str:
    """Return a name for a file; after other outputs took it `taken` times, the name contains the item's id."""
    path = Path(name)
    own = f"~{task.attempt.item_id}" + (f"~{taken}" if taken > 1 else "")
    return str(path.with_name(f"{path.stem}{own}{path.suffix}") if taken else path)


async def _write_sidecar(worker: AccountWorker, task: DownloadTask, number: int, file: SavedFile) -> str | None:
    """Write the sidecar that a job wants, before its object is recorded; return the URL of a new sidecar."""
    kind, origin = task.sidecar, task.origin
    if kind is None or origin is None:
        return None
    content = origin.sidecar(kind, file, number)
    return await _until_written(
        worker, task, lambda: worker.ports.objects.write_sidecar(task.output_dir, file.path, kind, content)
    )


async def _until_written(worker: AccountWorker, task: DownloadTask, write: Callable[[], Awaitable[T]]) -> T:
    """Repeat a write after growing waits. Raise `_Stopped` at the end of the run, `OutputDirNotWritable` after all."""
    clock, tries = worker.ports.clock, 0
    while True:
        try:
            async with until_stopped(worker):
                return await write()
            raise _Stopped
        except StorageError as error:
            waits = LASTING_WAITS_SECONDS if error.is_lasting else WAITS_SECONDS
            if tries >= len(waits):
                raise _given_up(worker, task, error) from error
            wait_seconds = waits[tries]
            log.warning(
                "object_not_written",
                account=worker.viewpoint.account,
                job=task.job_name,
                item=task.item_name,
                reason=str(error),
                retry_after_seconds=wait_seconds,
            )
        tries += 1
        await clock.sleep_until(clock.now().monotonic + wait_seconds, worker.control.stopping)
        if worker.control.is_over_for(worker.account_id):
            raise _Stopped


def _given_up(worker: AccountWorker, task: DownloadTask, error: StorageError) -> OutputDirNotWritable:
    folder = worker.ports.objects.folder_of(task.output_dir)
    remedy = error.remedy or "Check the URL, the credentials of its storage and the network"
    return OutputDirNotWritable(
        f"{task.output_dir}: {error}. The files of {task.job_name}/{task.item_name} are complete in {folder}, and the "
        f"next run sends them; nothing is charged again. {remedy}, then start again."
    )
