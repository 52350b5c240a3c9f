"""Enqueues stable manifests, writes a result file for each, and rewrites it when the job has ended."""

import asyncio
from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from importlib.util import find_spec
from math import inf
from pathlib import Path
from typing import Any, Final, Protocol, assert_never

import structlog
from msgspec import Struct, field
from msgspec.structs import asdict, replace

from batchkiln.core.errors import InputError, QueueBusy, QueueUnusable
from batchkiln.watch.folder import MANIFEST_SUFFIXES, StabilityTracker, manifests_in, sha256_of
from batchkiln.watch.result_files import ResultFile, read_result, result_name, results_in, write_result

log = structlog.get_logger()

RETRY_SECONDS: Final = 30.0
"""The wait before a manifest is tried again after the disk was full or the queue was locked."""

PAUSE_SECONDS: Final = 0.2
"""The pause before a scan, so that files moved in together are handled together."""


class Clock(Protocol):
    """The watcher's clock: monotonic seconds, and waits."""

    def monotonic(self) -> float:
        """Return monotonic seconds."""

    async def sleep_until(self, at: float, wake: asyncio.Event) -> None:
        """Wait until the monotonic moment `at`, or until `wake` is set."""


class JobSink(Protocol):
    """The operations of a queue that the watcher uses."""

    async def apply(self, path: Path) -> tuple[str, Mapping[str, Any]]:
        """Enqueue a manifest; return its job's name and the result file's content. Raise `InputError`."""

    async def open_jobs(self) -> frozenset[str]:
        """Return the names of the jobs with items that are queued or under way."""

    async def known_jobs(self, names: Collection[str]) -> frozenset[str]:
        """Return the names among `names` that belong to jobs in the queue."""

    async def ended(self, job: str) -> Mapping[str, Any]:
        """Return the result file's content for a job that has ended."""

    def refused(self, error: InputError) -> Mapping[str, Any]:
        """Return the result file's content for a refused manifest."""


class Watcher(Struct):
    """Watches one folder. Setting `wake` starts a scan at once; otherwise it scans every `poll_seconds`."""

    folder: Path
    sink: JobSink
    clock: Clock
    ignored: Collection[str] = ()
    poll_seconds: float = 2.0
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    results: dict[str, ResultFile] = field(default_factory=dict)  # by manifest name
    _stability: StabilityTracker = field(default_factory=StabilityTracker)
    _present: Collection[str] = ()  # manifest names of the last scan
    _pending: set[str] = field(default_factory=set)  # manifest names whose job has not ended
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)  # serialises scans and reports of ended jobs

    async def run(self) -> None:
        """Scan the folder until cancelled. Raise `InputError` if it cannot be read."""
        log.info("folder_watched", folder=str(self.folder))
        await self._restore()
        while True:
            await self.scan()
            await self.report_ended()
            now = self.clock.monotonic()
            await self.clock.sleep_until(min(self._stability.next_due_at, now + self.poll_seconds), self.wake)
            self.wake.clear()
            await self._pause()

    async def report_as_they_end(self, next_change: Callable[[], asyncio.Event]) -> None:
        """Update result files as jobs end, until cancelled; `next_change` returns the event of the next change."""
        while True:
            change = next_change()  # before reading, so that no change is missed
            await self.report_ended()
            await self.clock.sleep_until(inf, change)
            await self._pause()

    async def _pause(self) -> None:
        await self.clock.sleep_until(self.clock.monotonic() + PAUSE_SECONDS, asyncio.Event())

    async def drain(self) -> None:
        """Handle all manifests that are present now, each as soon as it is stable."""
        await self.scan()
        while self._stability.next_due_at < inf:
            await self.clock.sleep_until(self._stability.next_due_at, asyncio.Event())
            await self.scan()
        await self._mark_open()

    @property
    def jobs(self) -> frozenset[str]:
        """The jobs that have not ended yet."""
        return frozenset(job for name in self._pending if (job := self.results[name].job) is not None)

    @property
    def refused(self) -> int:
        """The number of refused manifests in the folder."""
        return sum(result.status == "refused" for result in self.results.values())

    async def scan(self) -> None:
        """Scan the folder once, and handle the manifests that are due. Raise `InputError` if it cannot be read."""
        try:
            found = await asyncio.to_thread(manifests_in, self.folder, ignored=self.ignored)
        except OSError as error:
            raise InputError(f"{self.folder}: the folder cannot be read: {error.strerror}") from error
        async with self._lock:
            self._present = found.keys()
            for name in [name for name in self.results if name not in found and name not in self._pending]:
                del self.results[name]  # removed by a person; the result of an unfinished job is still awaited
            for name in self._stability.update(found, self.clock.monotonic()):
                await self._handle(name)

    async def report_ended(self) -> None:
        """Rewrite the result file of each job that has ended. A job that a person has resumed is awaited again."""
        async with self._lock:
            open_jobs = await self._mark_open()
            for name, result in list(self.results.items()):
                if name in self._pending and result.job not in open_jobs:
                    await self._report_end(result)

    async def _mark_open(self) -> frozenset[str]:
        """Mark the results whose jobs are open as pending; return the names of all open jobs."""
        open_jobs = await self.sink.open_jobs() if self.results else frozenset()
        self._pending |= {name for name, result in self.results.items() if result.job in open_jobs}
        return open_jobs

    async def _report_end(self, accepted: ResultFile) -> None:
        job = accepted.job
        assert job is not None, "only an accepted manifest's job is awaited"
        document = await self.sink.ended(job)
        try:
            self._write(replace(accepted, status="ended"), document)
        except OSError as error:  # it stays pending: the next report tries again
            log.warning("result_not_written", file=self._result_path(accepted.manifest).name, reason=error.strerror)
            return
        log.info("job_ended", job=job, file=accepted.manifest)

    async def _restore(self) -> None:
        """Restore the accepted results of an earlier watcher, also those whose manifests have been removed."""
        for result in await asyncio.to_thread(results_in, self.folder):
            if result.status == "accepted" and await self._is_valid(result):
                self._remember(result)

    async def _handle(self, name: str) -> None:
        """Enqueue a manifest and write its result, unless the result of the same content is still valid."""
        path = self.folder / name
        try:
            sha256 = await asyncio.to_thread(sha256_of, path)
            known = await asyncio.to_thread(read_result, self._result_path(name))
            if known is not None and (known.manifest, known.sha256) == (name, sha256) and await self._is_valid(known):
                self._remember(known)
            else:
                await self._apply(name, path, sha256)
        except FileNotFoundError:
            return  # removed meanwhile: the next scan forgets it
        except (OSError, QueueBusy) as error:
            log.warning("manifest_postponed", file=name, reason=str(error), duration_seconds=RETRY_SECONDS)
            self._stability.postpone(name, self.clock.monotonic() + RETRY_SECONDS)
            return
        self._stability.mark_handled(name)

    async def _is_valid(self, result: ResultFile) -> bool:
        """Return whether a result for the same content makes another attempt unnecessary.

        A refused manifest is tried again, because the cause may be outside it. An accepted one is enqueued again if its
        queue was replaced. The result of an ended job is final, because the job was charged.
        """
        match result.status:
            case "ended":
                return True
            case "refused":
                return False
            case "accepted":
                return result.job is not None and bool(await self.sink.known_jobs([result.job]))
            case never:
                assert_never(never)

    async def _apply(self, name: str, path: Path, sha256: str) -> None:
        try:
            job, document = await self.sink.apply(path)
        except QueueUnusable:
            raise
        except InputError as error:
            if not path.exists():
                raise FileNotFoundError(path) from error
            self._write(ResultFile(name, sha256, "refused", None), self.sink.refused(error))
            log.warning("manifest_refused", file=name, reason=error.mistakes[0].reason)
            return
        self._write(ResultFile(name, sha256, "accepted", job), document)
        log.info("manifest_accepted", file=name, job=job)

    def _write(self, result: ResultFile, document: Mapping[str, Any]) -> None:
        head = asdict(result)
        write_result(
            self._result_path(result.manifest),
            head | {key: value for key, value in document.items() if key not in head},
        )
        self._remember(result)

    def _result_path(self, name: str) -> Path:
        return self.folder / result_name(name, {*self._present, *self.results})

    def _remember(self, result: ResultFile) -> None:
        self.results[result.manifest] = result
        if result.status == "accepted":
            self._pending.add(result.manifest)
        else:
            self._pending.discard(result.manifest)


log = structlog.get_logger()

FALLBACK_POLL_SECONDS: Final = 60.0
"""The poll interval while events arrive. Network file systems send none, and a busy system drops some."""

_DEBOUNCE_MS: Final = 200
_TIMEOUT_MS: Final = 5_000


async def watch_events(watcher: Watcher) -> None:
    """Wake the watcher whenever its folder changes, until cancelled. Without events, the watcher polls."""
    if find_spec("watchfiles") is None:
        log.info("folder_is_polled", duration_seconds=watcher.poll_seconds, remedy="batchkiln[watch]")
        return
    watchfiles = import_module("watchfiles")  # an optional extra, and slow to import
    poll_seconds = watcher.poll_seconds
    try:
        async for changes in watchfiles.awatch(
            watcher.folder,
            watch_filter=lambda _, path: Path(path).suffix in MANIFEST_SUFFIXES,
            debounce=_DEBOUNCE_MS,
            rust_timeout=_TIMEOUT_MS,
            yield_on_timeout=True,
            recursive=False,
        ):
            # Events are known to work only from here on; polling has found all earlier changes.
            is_first, watcher.poll_seconds = watcher.poll_seconds == poll_seconds, FALLBACK_POLL_SECONDS
            if changes or is_first:
                watcher.wake.set()
    except (OSError, RuntimeError) as error:
        watcher.poll_seconds = poll_seconds
        log.warning("folder_is_polled", reason=type(error).__name__, duration_seconds=poll_seconds)
        watcher.wake.set()
