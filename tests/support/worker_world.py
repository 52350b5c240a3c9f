"""A whole run without a network: the real queue on a real file, the real scheduler, a fake service and clock."""

import asyncio
import itertools
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from batchkiln.core.job import InputFile, Mode
from batchkiln.core.queue_types import Outstanding, Scope, Viewpoint
from batchkiln.core.rate_limits import HostRateLimit, Limits, RateLimits, ServiceDay, quiet_seconds_left
from batchkiln.core.states import ItemState
from batchkiln.core.timestamps import to_milliseconds
from batchkiln.store.apply import ApplyOptions, apply_manifest
from batchkiln.store.attempt_journal import AttemptJournal
from batchkiln.store.lost_attempts import open_journal
from batchkiln.store.planner_snapshot import outstanding
from batchkiln.store.session import Session, transaction
from batchkiln.store.worker_store import ChangeNotifier, WorkerStore
from batchkiln.worker.account_worker import AccountWorker, Ports
from batchkiln.worker.loop import drive
from batchkiln.worker.poll_timing import DurationModels, PollTiming
from batchkiln.worker.run_state import HostState, RunState

from .builders import PlacedItem, diagnostic_at, item_spec, job_spec, recipe
from .fake_clock import FakeClock
from .fake_service import FakeService
from .memory_files import MemoryInputs, MemoryObjects, MemoryOutputs
from .stores import InlineConnection

T = TypeVar("T")

PROFILE = "test"


class World:
    """One process after another on one queue file, with one service beside it."""

    def __init__(
        self,
        folder: Path,
        *,
        limits: Limits | None = None,
        accounts: Sequence[str] = ("main",),
        day: ServiceDay | None = None,
        clock: FakeClock | None = None,
        keeps_journal: bool = False,
    ) -> None:
        self.keeps_journal = keeps_journal
        self.path = folder / "queue.db"
        self.limits = limits or Limits()
        self.accounts = tuple(accounts)
        self.day = day or ServiceDay()
        self.clock = clock or FakeClock()
        self.service = FakeService(self.clock, limits=self.limits, day=self.day)
        self.outputs = MemoryOutputs()
        self.objects = MemoryObjects(self.outputs)
        self.inputs = MemoryInputs()
        self.keys: dict[str, tuple[str, ...]] = dict.fromkeys(self.accounts, ("key-1",))
        self.digest = "today's program and configuration"
        self.is_waiting_in_pause = False
        self.control = RunState()
        self.workers: list[AccountWorker] = []
        self._names = itertools.count(1)
        self._open()

    def _open(self) -> None:
        self._inline = InlineConnection(self.path)
        self.database = self._inline.database
        self.journal = AttemptJournal(self.path)
        self.store = WorkerStore(
            self.database,
            ChangeNotifier(),
            profile=PROFILE,
            day=self.day,
            keep_requests_seconds=5 * self.limits.minute_seconds,
            journal=self.journal if self.keeps_journal else None,
        )

    def close(self) -> None:
        self._inline.raw.close()

    # --- the queue ---

    def enqueue(
        self,
        *names: str,
        cost_credits: int = 10,
        job: str = "job",
        inputs: tuple[InputFile, ...] = (),
        priority: int = 0,
        recipe_fields: dict[str, Any] | None = None,
        **job_fields: Any,  # noqa: ANN401  fields of JobSpec
    ) -> tuple[str, ...]:
        """Add items to a job: `cost_credits` is what the service asks for each."""
        chosen = names or (f"item-{next(self._names)}",)
        mode = Mode.IMAGE_TO_IMAGE if inputs else Mode.TEXT_TO_IMAGE
        fields: dict[str, Any] = {"model": f"cost-{cost_credits}", "mode": mode, "inputs_count": len(inputs)}
        made = recipe(**fields | (recipe_fields or {}))
        placed = [PlacedItem(item_spec(name, recipe=made, inputs=inputs, priority=priority)) for name in chosen]
        apply_manifest(
            self.connection,
            job_spec(job, **job_fields),
            placed,
            profile=PROFILE,
            now=to_milliseconds(self.clock.instant),
            options=ApplyOptions(),
            diagnostic_at=diagnostic_at,
        )
        return chosen

    @property
    def connection(self) -> Session:
        return self._inline.raw

    def write(self, work: Callable[..., T], *args: object, **kwargs: object) -> T:
        """Run `work(connection, …)` in one transaction, as the store does."""
        with transaction(self.connection):
            return work(self.connection, *args, **kwargs)

    def rows(self, statement: str, *parameters: object) -> list[Any]:
        return self.connection.execute(statement, parameters).fetchall()

    def one(self, statement: str, *parameters: object) -> Any:  # noqa: ANN401  any column
        return self.connection.execute(statement, parameters).fetchone()[0]

    def state(self, item: str) -> ItemState:
        return ItemState(self.one("SELECT state FROM item WHERE name = ?", item))

    def states(self) -> dict[str, int]:
        return dict(tuple(row) for row in self.rows("SELECT state, count(*) FROM item GROUP BY state"))

    def error(self, item: str) -> str | None:
        code: str | None = self.one("SELECT error_code FROM item WHERE name = ?", item)
        return code

    def money(self, job: str = "job") -> tuple[int, int, int]:
        """Return the job's reserved, charged and refunded credits."""
        return tuple(self.rows("SELECT reserved, charged, refunded FROM job WHERE name = ?", job)[0])

    def attempts(self, item: str) -> list[str]:
        """Return the states of an item's attempts."""
        rows = self.rows(
            "SELECT attempt.state FROM attempt JOIN item ON item.id = attempt.item_id WHERE item.name = ? "
            "ORDER BY attempt.number",
            item,
        )
        return [row[0] for row in rows]

    def kinds(self, item: str) -> list[str]:
        """Return the kinds of the item's history, in order."""
        rows = self.rows(
            "SELECT kind FROM event JOIN item ON item.id = event.item_id WHERE item.name = ? ORDER BY event.id", item
        )
        return [row[0] for row in rows]

    @property
    def now_ms(self) -> int:
        """The present instant, as stored."""
        return to_milliseconds(self.clock.instant)

    # --- running ---

    async def run(self, control: RunState | None = None, *, steps: int | None = None) -> Outstanding | None:
        """Drive until nothing can move without a person; None where it was cut off after `steps`."""
        self.control = control or RunState()
        return await self.clock.run(self._drive(), steps=steps)

    async def run_until(self, item: str, state: ItemState) -> None:
        """Drive until an item has a state, then stop as a signal would."""
        await self.run_until_true(lambda: self.state(item) is state)
        assert self.state(item) is state, f"{item} is {self.state(item)}, not {state}"

    async def run_until_true(self, is_so: Callable[[], bool]) -> None:
        """Drive until something is so, then stop as a signal would."""
        self.control = RunState()

        def look() -> None:
            if is_so():
                self.control.stop()

        await self.clock.run(self._drive(), each_turn=look)

    async def run_watched(
        self, look: Callable[[], None], control: RunState | None = None, *, alarm_seconds: float | None = None
    ) -> None:
        """Drive to the end, and look at every turn of the loop; there is one at the alarm, though the run waits."""
        self.control = control or RunState()
        await self.clock.run(self._drive_with_alarm(alarm_seconds), each_turn=look)

    async def _drive_with_alarm(self, seconds: float | None) -> None:
        alarm = None if seconds is None else asyncio.ensure_future(self.clock.sleep(seconds))
        try:
            await self._drive()
        finally:
            if alarm is not None:
                alarm.cancel()

    async def _drive(self) -> Outstanding:
        host = HostState(HostRateLimit.of(self.limits))
        if self.keeps_journal:
            await open_journal(self.database, self.journal, to_milliseconds(self.clock.instant))
            if found_at := await self.store.lost_attempts_found_at():
                passed = (self.clock.instant - found_at).total_seconds()
                host.quiet_until = self.clock.now().monotonic + quiet_seconds_left(self.limits, passed)
        paces = DurationModels(self.limits.poll_interval_seconds)
        paces.remember(await self.store.durations())
        self.workers = [await self._worker(name, host, paces) for name in self.accounts]
        self._new_workers = list(self.workers)
        return await drive(self, self.control)

    @property
    def news(self) -> ChangeNotifier:
        """Wakes the tracks that wait."""
        return self.store.changes

    def announce(self) -> None:
        """Wake all who wait for news."""
        self.store.changes.announce()

    async def outstanding(self, scope: Scope) -> Outstanding:
        """Count what may still change without a person."""
        return await self.database.read(outstanding, scope)

    async def new_workers(self) -> list[AccountWorker]:
        """Return each account's worker once."""
        new, self._new_workers = self._new_workers, []
        return new

    async def wait_while_paused(self, jobs: frozenset[int]) -> None:
        """Wait for a change of the queue."""
        assert jobs
        self.is_waiting_in_pause = True
        await self.control.recheck.wait()

    async def worker_ended(self, worker: AccountWorker, error: BaseException | None) -> bool:
        """Let an error end the run."""
        del worker
        return error is None

    async def _worker(self, name: str, host: HostState, paces: DurationModels) -> AccountWorker:
        return AccountWorker(
            viewpoint=Viewpoint(
                account_id=await self.store.account(name),
                profile=PROFILE,
                account=name,
                is_first=name == self.accounts[0],
                scope=self.control.scope,
            ),
            ports=Ports(
                self.clock,
                self.store,
                self.service.account(name, self.keys[name]),
                self.outputs,
                self.objects,
                self.inputs,
            ),
            control=self.control,
            host=host,
            rates=RateLimits(self.limits, self.day, host.rates),
            polls=PollTiming(paces),
            digest=self.digest,
        )

    async def run_killed(self, steps: int) -> bool:
        """Drive for so many turns of the loop, then die: nothing after that is written, sent or received.

        Returns whether the run had ended by itself before.
        """
        self.control = RunState()
        return await self.clock.run(self._drive(), steps=steps, on_cut=self._die) is not None

    def _die(self) -> None:
        self._inline.is_dead = True
        self.service.is_dead = True

    def restart(self, *, after_seconds: float = 0.0) -> None:
        """Begin another process on the same file, with a monotonic clock of its own."""
        self.close()
        self.clock = self.service.clock = FakeClock(self.clock.instant + timedelta(seconds=after_seconds))
        self.service.is_dead = False
        self._open()
