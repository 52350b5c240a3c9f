"""The watcher: takes manifests that are still, answers each, and answers again when its job has ended."""

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from math import inf
from pathlib import Path
from typing import Any, Final, Protocol, assert_never

import structlog

from batchkiln.core.errors import InputError, QueueBusy, QueueUnusable
from batchkiln.watch.folder import StabilityTracker, manifests_in, sha256_of
from batchkiln.watch.result_files import ResultFile, read_result, result_name, results_in, write_result

log = structlog.get_logger()

AGAIN_SECONDS: Final = 30.0
"""How long a manifest waits that could not be taken for now: the disk is full, or the queue was kept locked."""

PAUSE_SECONDS: Final = 0.2
"""Between two looks at the folder: many files that are moved in together are one piece of news."""


class Clock(Protocol):
    """Steady time."""

    def monotonic(self) -> float:
        """Return monotonic seconds."""

    async def sleep_until(self, at: float, wake: asyncio.Event) -> None:
        """Wait for a monotonic moment, or until `wake` is set."""


class JobSink(Protocol):
    """Where manifests are brought, and what is told of their jobs."""

    async def apply(self, path: Path) -> tuple[str, Mapping[str, Any]]:
        """Enqueue a manifest; return its job and what became of it. Raises `InputError` with its mistakes."""

    async def open_jobs(self) -> frozenset[str]:
        """Return the jobs that have anything queued or under way."""

    async def known_jobs(self, names: Collection[str]) -> frozenset[str]:
        """Return those of these jobs that the queue has."""

    async def ended(self, job: str) -> Mapping[str, Any]:
        """Return what is to be told of a job that has ended."""

    def refused(self, error: InputError) -> Mapping[str, Any]:
        """Return what is to be told of a manifest that was refused."""


@dataclass(slots=True)
class Watcher:
    """Watches one folder. `wake` asks it to look at once; `look_every_seconds` is how long it goes without."""

    folder: Path
    desk: JobSink
    clock: Clock
    ignored: Collection[str] = ()
    look_every_seconds: float = 2.0
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    answered: dict[str, ResultFile] = field(default_factory=dict)  # by the manifest's name
    _stillness: StabilityTracker = field(default_factory=StabilityTracker)
    _present: Collection[str] = ()  # names of the last look
    _pending: set[str] = field(default_factory=set)  # names whose job's end is still to be told
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)  # held by who takes manifests, or tells ends

    async def run(self) -> None:
        """Look at the folder until cancelled. Raises `InputError` where it cannot be read."""
        log.info("folder_watched", folder=str(self.folder))
        await self._take_up()
        while True:
            await self.look()
            await self.tell_ends()
            now = self.clock.monotonic()
            await self.clock.sleep_until(min(self._stillness.next_at, now + self.look_every_seconds), self.wake)
            self.wake.clear()
            await self._pause()

    async def follow(self, next_news: Callable[[], asyncio.Event]) -> None:
        """Tell the ends of jobs as they come, until cancelled; `next_news` gives an event that the next news sets."""
        while True:
            news = next_news()  # before looking, so that none is missed
            await self.tell_ends()
            await self.clock.sleep_until(inf, news)
            await self._pause()

    async def _pause(self) -> None:
        await self.clock.sleep_until(self.clock.monotonic() + PAUSE_SECONDS, asyncio.Event())

    async def settle(self) -> None:
        """Take all that lies there now, as soon as it is still."""
        await self.look()
        while self._stillness.next_at < inf:
            await self.clock.sleep_until(self._stillness.next_at, asyncio.Event())
            await self.look()
        await self._await_open()

    @property
    def jobs(self) -> frozenset[str]:
        """The jobs whose end is still to be told."""
        return frozenset(job for name in self._pending if (job := self.answered[name].job) is not None)

    @property
    def refused(self) -> int:
        """How many manifests that lie there were refused."""
        return sum(answer.status == "refused" for answer in self.answered.values())

    async def look(self) -> None:
        """Look at the folder once, and take what is due."""
        try:
            found = await asyncio.to_thread(manifests_in, self.folder, ignored=self.ignored)
        except OSError as error:
            raise InputError(f"{self.folder}: the folder cannot be read: {error.strerror}") from error
        async with self._turn:
            self._present = found.keys()
            for name in [name for name in self.answered if name not in found and name not in self._pending]:
                del self.answered[name]  # tidied up; one whose job goes on is still answered
            for name in self._stillness.look(found, self.clock.monotonic()):
                await self._take(name)

    async def tell_ends(self) -> None:
        """Write the result again for each job that has ended since; await again what a person has resumed."""
        async with self._turn:
            still_open = await self._await_open()
            for name, answer in list(self.answered.items()):
                if name in self._pending and answer.job not in still_open:
                    await self._tell_end(answer)

    async def _await_open(self) -> frozenset[str]:
        """Await the ends of all answered jobs that are open, and return the open jobs."""
        still_open = await self.desk.open_jobs() if self.answered else frozenset()
        self._pending |= {name for name, answer in self.answered.items() if answer.job in still_open}
        return still_open

    async def _tell_end(self, accepted: ResultFile) -> None:
        job = accepted.job
        assert job is not None, "only an accepted manifest's job is awaited"
        document = await self.desk.ended(job)
        try:
            self._answer(replace(accepted, status="ended"), document)
        except OSError as error:  # it stays pending: the next look tries again
            log.warning("answer_not_written", file=self._answer_path(accepted.manifest).name, reason=error.strerror)
            return
        log.info("job_ended", job=job, file=accepted.manifest)

    async def _take_up(self) -> None:
        """Await the ends of what an earlier watcher accepted, also where the manifest has been tidied up since."""
        for answer in await asyncio.to_thread(results_in, self.folder):
            if answer.status == "accepted" and await self._holds(answer):
                self._remember(answer)

    async def _take(self, name: str) -> None:
        """Enqueue a manifest and answer it, unless these very bytes were answered before."""
        path = self.folder / name
        try:
            sha256 = await asyncio.to_thread(sha256_of, path)
            known = await asyncio.to_thread(read_result, self._answer_path(name))
            if known is not None and (known.manifest, known.sha256) == (name, sha256) and await self._holds(known):
                self._remember(known)
            else:
                await self._apply(name, path, sha256)
        except FileNotFoundError:
            return  # gone again, or moved on: the next look forgets it
        except (OSError, QueueBusy) as error:
            log.warning("manifest_postponed", file=name, reason=str(error), duration_seconds=AGAIN_SECONDS)
            self._stillness.postpone(name, self.clock.monotonic() + AGAIN_SECONDS)
            return
        self._stillness.deal_with(name)

    async def _holds(self, answer: ResultFile) -> bool:
        """Whether an answer still stands: what was accepted by a queue that is gone is brought again.

        So is what was refused: the reason may lie elsewhere, and be gone. What has ended was paid.
        """
        match answer.status:
            case "ended":
                return True
            case "refused":
                return False
            case "accepted":
                return answer.job is not None and bool(await self.desk.known_jobs([answer.job]))
            case never:
                assert_never(never)

    async def _apply(self, name: str, path: Path, sha256: str) -> None:
        try:
            job, document = await self.desk.apply(path)
        except QueueUnusable:
            raise
        except InputError as error:
            if not path.exists():
                raise FileNotFoundError(path) from error
            self._answer(ResultFile(name, sha256, "refused", None), self.desk.refused(error))
            log.warning("manifest_refused", file=name, reason=error.mistakes[0].reason)
            return
        self._answer(ResultFile(name, sha256, "accepted", job), document)
        log.info("manifest_accepted", file=name, job=job)

    def _answer(self, answer: ResultFile, document: Mapping[str, Any]) -> None:
        head = asdict(answer)
        write_result(
            self._answer_path(answer.manifest),
            head | {key: value for key, value in document.items() if key not in head},
        )
        self._remember(answer)

    def _answer_path(self, name: str) -> Path:
        return self.folder / result_name(name, {*self._present, *self.answered})

    def _remember(self, answer: ResultFile) -> None:
        self.answered[answer.manifest] = answer
        if answer.status == "accepted":
            self._pending.add(answer.manifest)
        else:
            self._pending.discard(answer.manifest)
