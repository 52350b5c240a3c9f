"""Runs the hook `on_saved` during a run: after each saved item, in parallel, and at the end for a bounded time.

The slot never waits for the hook. The end of a run waits until the hook has seen all saved items, because it may have
items made again, but never longer than `END_SECONDS`. The next start runs what was not finished by then, or was cut off
by a crash.
"""

import asyncio
import json
import os
import shutil
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from datetime import datetime
from math import inf
from typing import Final, Protocol

import structlog

from batchkiln.clock import ServiceClock
from batchkiln.config import Config, Hook
from batchkiln.core.errors import InputError
from batchkiln.core.timestamps import to_milliseconds
from batchkiln.core.urls import is_url
from batchkiln.hooks.program import Clock, ProgramEnd, run_program
from batchkiln.object_storage import held_file
from batchkiln.store import ChangeNotifier, HookDecision, Reader, RedoBounds, SavedItem, Store, Writer
from batchkiln.worker.run_state import RunState

DECISIONS: Final = {10: HookDecision.KEEP, 11: HookDecision.DROP, 12: HookDecision.REDO}
"""The decision of an exit status. 0 decides nothing, and any other status is a failure."""

_STRENGTH: Final = (HookDecision.KEEP, HookDecision.DROP, HookDecision.REDO)

END_SECONDS: Final = 60.0
"""The end of a run waits this long for the hook, in seconds of real time."""

TELL_SECONDS: Final = 1.0
"""After this time the wait is announced, so that the run does not seem to hang."""

CHECK_INTERVAL_SECONDS: Final = 60.0
"""The queue is read at this interval, even without a change."""

_TAKEN_MARGIN_SECONDS: Final = 60.0

log = structlog.get_logger()


class RunningEngine(Protocol):
    """The part of a run's engine that the hook uses."""

    store: Store
    news: ChangeNotifier
    control: RunState
    owner: str

    def on_wakeup(self) -> None:
        """Read the queue again, because it has changed."""


@asynccontextmanager
async def running_hooks(
    engine: RunningEngine,
    reader: Store,
    hook: Hook,
    environment: Mapping[str, str],
    *,
    wall: Callable[[], datetime],
    clock: Clock | None = None,
) -> AsyncIterator[None]:
    """Run the hook during a run. Errors of the program do not reach the run. `wall` returns this machine's time.

    Raise `InputError` if the program does not exist.
    """
    program = hook.command[0]
    if shutil.which(program, path=environment.get("PATH")) is None:
        raise InputError(f"on_saved: there is no program {program}; nothing was sent. Install it, or remove on_saved")
    await engine.store.write(Writer.begin_hooks)
    runner = HookRunner(engine, reader, hook, environment, wall=wall, clock=clock or ServiceClock())
    running = asyncio.create_task(runner.run(), name="batchkiln-hooks")
    engine.control.settle = runner.settle
    try:
        yield
        if not runner.has_settled and not engine.control.stop_wanted.is_set():  # it ended early
            await runner.settle(None)
    finally:
        engine.control.settle = None
        running.cancel()
        await asyncio.wait({running})
        if runner.left:
            log.warning("hooks_left", number=runner.left, remedy="the next run runs on_saved for them")


class HookRunner:
    """Takes saved items, runs the program for each file, and records the program's decisions."""

    def __init__(
        self,
        engine: RunningEngine,
        reader: Store,
        hook: Hook,
        environment: Mapping[str, str],
        *,
        wall: Callable[[], datetime],
        clock: Clock,
    ) -> None:
        """Use `running_hooks` instead. `environment` is the program's environment."""
        self._engine = engine
        self._reader = reader
        self._hook = hook
        self._environment = environment
        self._wall = wall
        self._clock = clock
        self._running: dict[int, asyncio.Task[None]] = {}
        self._decided = self._settled = 0
        self._news = asyncio.Event()
        self._starting = asyncio.Lock()
        self._is_over = False
        self.has_settled = False
        self.left = 0

    async def run(self) -> None:
        """Run the hook until this coroutine is cancelled; then end the running programs."""
        try:
            while True:
                change = self._engine.news.next()
                self._news.clear()
                await self._start_due()
                await self._wait(change)
        finally:
            self._is_over = True
            self.left = len(self._running)
            tasks = list(self._running.values())
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks)

    async def settle(self, changed: asyncio.Event | None) -> bool:
        """Wait until the hook has seen all saved items; return False if it has changed the queue since the last call.

        A stop, `END_SECONDS` and `changed` end the wait.
        """
        begun = self._clock.monotonic()
        ends_at, told_at = begun + END_SECONDS, begun + TELL_SECONDS
        stop = asyncio.create_task(self._engine.control.stop_wanted.wait())
        change = asyncio.create_task((changed or asyncio.Event()).wait())
        try:
            while not stop.done() and not change.done() and not self._is_over and self._clock.monotonic() < ends_at:
                await self._start_due()
                if not self._running:
                    break
                timer = asyncio.create_task(self._clock.sleep_until(min(told_at, ends_at), asyncio.Event()))
                await asyncio.wait({stop, change, timer, *self._running.values()}, return_when=asyncio.FIRST_COMPLETED)
                timer.cancel()
                if told_at <= self._clock.monotonic() < ends_at:
                    told_at = inf
                    log.warning(
                        "hooks_awaited",
                        number=len(self._running),
                        duration_seconds=END_SECONDS,
                        remedy="press Ctrl-C to leave them to the next run",
                    )
        finally:
            stop.cancel()
            change.cancel()
        self.has_settled = changed is None or not changed.is_set()
        has_changed, self._settled = self._decided != self._settled, self._decided
        return not has_changed

    async def _wait(self, change: asyncio.Event) -> None:
        """Wait for a change of the queue or the end of a program."""
        changes = asyncio.create_task(self._clock.sleep_until(self._clock.monotonic() + CHECK_INTERVAL_SECONDS, change))
        ends = asyncio.create_task(self._news.wait())
        try:
            await asyncio.wait({changes, ends}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            changes.cancel()
            ends.cancel()

    async def _start_due(self) -> None:
        """Start the program for items that are due, as many at once as configured."""
        async with self._starting:
            free = self._hook.at_once - len(self._running)
            if free <= 0 or self._is_over:
                return
            try:
                items = await self._take(free)
            except Exception as error:  # noqa: BLE001  as below
                self._give_up(error)
                return
            if not self._is_over:
                self._running |= {item.event_id: asyncio.create_task(self._handle(item)) for item in items}

    async def _take(self, limit: int) -> list[SavedItem]:
        if not await self._reader.read(Reader.has_due_hooks):
            return []
        return await self._engine.store.write(
            Writer.take_for_hooks,
            self._engine.owner,
            running=frozenset(self._running),
            limit=limit,
            now=to_milliseconds(self._wall()),
            each_ms=round((self._hook.timeout_seconds + _TAKEN_MARGIN_SECONDS) * 1000),
        )

    def _give_up(self, error: Exception) -> None:
        """Start nothing more in this run."""
        self._is_over = True
        log.warning("hooks_ended", error=type(error).__name__, reason=str(error), remedy="the next run goes on")

    async def _handle(self, item: SavedItem) -> None:
        """Run the program for each file of an item, and record the strongest decision: redo, then drop, then keep."""
        try:
            ends = [await self._run(item, at) for at in range(len(item.files))]
            decisions = [DECISIONS[end.status] for end in ends if end.status in DECISIONS]
            if decisions:
                await self._decide(item, max(decisions, key=_STRENGTH.index))
            await self._engine.store.write(Writer.end_hook, item.event_id)
        except Exception as error:  # noqa: BLE001  a run that spends money does not depend on the hook
            self._give_up(error)
        finally:
            self._running.pop(item.event_id, None)
            self._news.set()

    async def _run(self, item: SavedItem, at: int) -> ProgramEnd:
        """Run the program for one file, and report a failure."""
        number, file = item.files[at]
        origin = item.origin
        with ExitStack() as stack:
            held = held_file(file.path, sha256=file.sha256, size_bytes=file.size_bytes)
            try:
                path = await asyncio.to_thread(stack.enter_context, held)
            except OSError as error:  # of an object: a file is named, and not read
                end = ProgramEnd(None, f"{file.path} cannot be read: {error.strerror or error}")
            else:
                end = await self._run_program(origin.document(file, number) | {"path": str(path)}, file.path)
        if end.status != 0 and end.status not in DECISIONS:
            reason = end.reason or f"it ended with exit status {end.status}"
            log.warning(
                "hook_failed", job=origin.job, item=origin.item, number=number, reason=reason, message=end.output
            )
        return end

    async def _run_program(self, document: dict[str, object], place: str) -> ProgramEnd:
        """Run the program with `document`, the description of the file at `place`, a path or a URL."""
        if is_url(place):
            document["url"] = place
        return await run_program(
            filled(self._hook.command, {name: "" if value is None else str(value) for name, value in document.items()}),
            (json.dumps(document, ensure_ascii=False) + "\n").encode(),
            folder=self._hook.folder,
            environment=self._environment,
            clock=self._clock,
            timeout_seconds=self._hook.timeout_seconds,
        )

    async def _decide(self, item: SavedItem, decision: HookDecision) -> None:
        bounds = RedoBounds(self._hook.redos, self._hook.redo_credits)
        job, name = item.origin.job, item.origin.item
        refusal = await self._engine.store.write(
            Writer.decide_by_hook, job, item.attempt_id, decision, bounds, self._wall()
        )
        if refusal is None:
            self._decided += 1
            log.info("hook_decided", job=job, item=name, kind=decision.value)
            self._engine.on_wakeup()
        else:
            log.warning("hook_not_followed", job=job, item=name, kind=decision.value, reason=refusal)


def filled(command: Sequence[str], values: Mapping[str, str]) -> list[str]:
    """Return the arguments with their fields filled in; each stays one argument."""
    return [Hook.FIELD.sub(lambda field: values[field[1]] if field[1] else field[0][0], part) for part in command]


def program_environment(config: Config, environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment of the hook: this process's, without variables that may hold a secret (Law 8).

    Removed are this program's own variables, and all that the configuration names as places of keys and addresses.
    """
    secret = config.secret_variables() | {"PGPASSWORD"}
    given = os.environ if environ is None else environ
    return {
        name: value
        for name, value in given.items()
        if name not in secret and not name.startswith(("BATCHKILN_", "OTEL_EXPORTER_OTLP_"))
    }
