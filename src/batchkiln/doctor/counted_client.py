"""Requests of the probe within the account's windows, each written down before it leaves (Law 5).

A worker that is not driven keeps them, in the process that holds the queue's lock: what an earlier run has used counts,
and what is used here counts for the next run.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from math import inf
from typing import Final, TypeVar

from batchkiln.api.engine import Engine
from batchkiln.client import ObservingClient
from batchkiln.core.calls import Call
from batchkiln.core.errors import InvariantBroken
from batchkiln.core.queue_changes import HoldImposed
from batchkiln.core.rate_limits import RequestKind
from batchkiln.core.responses import Throttled, Unavailable
from batchkiln.core.waits import WaitReason
from batchkiln.presentation.formatting import REASONS, format_duration
from batchkiln.worker.account_worker import AccountWorker
from batchkiln.worker.run_state import RunState
from batchkiln.worker.startup import sync_clock

T = TypeVar("T")

LONGEST_WAIT_SECONDS: Final = 120.0
"""How long, in service time, a place in a window is waited for; a longer wait is only told."""

BEGIN_SECONDS: Final = 120.0
"""How long, in real time, the service is asked for its time before the probe gives up."""


class RequestNotSent(Exception):
    """The windows have no place that is near enough; the message says why."""


@dataclass(frozen=True, slots=True)
class CountedClient:
    """One account's way to the service, with its windows."""

    worker: AccountWorker
    client: ObservingClient

    @classmethod
    async def of(cls, driver: Engine, profile: str, account: str) -> "CountedClient":
        """Build the way. Raises `InputError` where the account has no key."""
        worker = await driver.worker_of(profile, account, client_type=ObservingClient)
        worker.control = RunState()  # the end of a drive is not the end of this
        if not isinstance(worker.ports.service, ObservingClient):
            raise InvariantBroken("a worker has another client than it was built with")
        return cls(worker, worker.ports.service)

    async def begin(self) -> None:
        """Learn the service's time from its description, and take over the windows. Raises `RequestNotSent`."""
        try:
            async with asyncio.timeout(BEGIN_SECONDS):
                await sync_clock(self.worker)
        except TimeoutError:
            raise RequestNotSent("the service does not answer any more") from None

    async def ask(
        self, kind: RequestKind, send: Callable[[], Awaitable[T]], *, files: int = 0, size_bytes: int = 0
    ) -> T:
        """Wait for a place, write the request down, and send it. Raises `RequestNotSent`."""
        worker = self.worker
        await self._place(kind, files, size_bytes)
        request = worker.new_request(kind, worker.ports.clock.now(), files=files, size_bytes=size_bytes)
        async with worker.rate_limited(request):
            await worker.ports.queue.record_request(request)
            reply = await send()
        if isinstance(reply, Throttled | Unavailable) and reply.retry_after is not None:
            now = worker.ports.clock.now()
            hold = HoldImposed(kind.is_create, now.latest + reply.retry_after, WaitReason.THROTTLED)
            await worker.ports.queue.update_account(worker.account_id, hold, now)
        return reply

    async def _place(self, kind: RequestKind, files: int, size_bytes: int) -> None:
        # By the windows of creates and reads alone: what rests, since it is not understood, is asked on purpose.
        worker, call = self.worker, Call.CREATE if kind.is_create else Call.READ
        now = worker.ports.clock.now()
        _, account, _ = await worker.snapshot(now)
        due, limits, used = account.call_due(call, now), worker.rates.limits, account.rates.usage
        if due.at - now.monotonic > LONGEST_WAIT_SECONDS:
            how_long = "" if due.at == inf else f" {format_duration(due.at - now.monotonic)}"
            raise RequestNotSent(f"it would wait{how_long} for {REASONS[due.reason]}")
        if used.upload_files + files > limits.upload_files_per_day or (
            used.upload_bytes + size_bytes > limits.upload_bytes_per_day
        ):
            raise RequestNotSent("today's uploads of the account are used up")
        if not await worker.wait_for_capacity(call):
            raise RequestNotSent("the program is being stopped")
