"""Tracing of a run."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Final, Protocol

import structlog

from batchkiln.clock import ServiceClock
from batchkiln.config import Traces
from batchkiln.core.queue_types import Viewpoint
from batchkiln.store import Reader, Store
from batchkiln.tracing.proxies import around
from batchkiln.tracing.recorder import Recorder, watch_statuses
from batchkiln.tracing.span_data import nanoseconds
from batchkiln.worker.account_worker import Ports
from batchkiln.worker.run_state import RunState

if TYPE_CHECKING:
    from batchkiln.tracing.exporter import Emitter
    from batchkiln.tracing.span_writer import Writer

END_SECONDS: Final = 3.0
"""Time that the end of a run waits for the last spans, in seconds of real time; later spans are lost."""

log = structlog.get_logger()


class TracedEngine(Protocol):
    """What tracing needs of the engine of a run. `listener` wraps the ports of each worker that is built later."""

    listener: "Listener | None"

    @property
    def control(self) -> RunState:
        """The state of the run."""


class Listener:
    """Records a run: wraps the ports of its workers, and sends their spans."""

    def __init__(
        self, engine: TracedEngine, wall: Callable[[], datetime], writer: "Writer", emitter: "Emitter"
    ) -> None:
        """Use `tracing`. `wall` is the machine's clock."""
        self.engine = engine
        self.writer = writer
        self.emitter = emitter
        self.http = watch_statuses()
        self._wall = wall
        self._task = asyncio.create_task(writer.run(), name="batchkiln-traces")

    def around(self, ports: Ports, clock: ServiceClock, viewpoint: Viewpoint) -> Ports:
        """Return a worker's ports wrapped in proxies with a recorder of their own."""
        control = self.engine.control
        recorder = Recorder(
            self.writer.put,
            account=viewpoint.account,
            wall=self._wall,
            clock=clock,
            slot_rest=lambda: control.slot_rest(viewpoint.account_id),
        )
        return around(ports, recorder)

    def now_ns(self) -> int:
        """Return the machine's clock in nanoseconds."""
        return nanoseconds(self._wall())

    async def close(self, error: str | None, *, seconds: float) -> None:
        """Write and send the recorded spans, and wait at most `seconds`; a cancelled run does not wait."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        self.writer.end()
        await asyncio.wait({self._task}, timeout=seconds)
        self._task.cancel()
        await asyncio.wait({self._task})
        self.emitter.end_run(self.now_ns(), error)
        await self.emitter.close(max(0.0, until - loop.time()))


@asynccontextmanager
async def tracing(
    engine: TracedEngine,
    reader: Store,
    traces: Traces,
    *,
    wall: Callable[[], datetime],
    jobs: Sequence[str] | None,
) -> AsyncIterator[None]:
    """Trace a run. No failure of tracing reaches the run."""
    listener = await _begin(engine, reader, traces, wall, jobs)
    if listener is None:
        yield
        return
    engine.listener, error, seconds = listener, None, END_SECONDS
    try:
        yield
    except BaseException as raised:
        error = type(raised).__name__
        if isinstance(raised, asyncio.CancelledError):
            seconds = 0.0
        raise
    finally:
        engine.listener = None
        try:
            await listener.close(error, seconds=seconds)
        except Exception as problem:  # noqa: BLE001  the run has ended well or badly by itself
            log.warning("traces_not_delivered", error=type(problem).__name__)


async def _begin(
    engine: TracedEngine, reader: Store, traces: Traces, wall: Callable[[], datetime], jobs: Sequence[str] | None
) -> Listener | None:
    try:
        from batchkiln.tracing import exporter, span_writer  # noqa: PLC0415  an extra, and slow to import
    except ImportError:
        tell = log.info if traces.endpoint is None else log.warning  # the environment's variables apply to all programs
        tell("traces_unusable", reason="an extra is missing", remedy="pip install 'batchkiln[traces]'")
        return None
    try:
        uid = await reader.read(Reader.queue_uid)
        emits = exporter.Emitter(exporter.new_exporter(traces))
        listener = Listener(engine, wall, span_writer.Writer(reader, emits, uid=uid), emits)
        emits.begin_run(listener.now_ns(), jobs)
    except Exception as error:  # noqa: BLE001  a run that spends money does not depend on being traced
        log.warning("traces_unusable", error=type(error).__name__)
        return None
    return listener
