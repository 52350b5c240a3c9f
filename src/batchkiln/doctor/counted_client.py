"""Sends the probe's requests within the account's limits, and records each before it is sent (Law 5).

An `AccountWorker` without a loop counts them, in the process that holds the queue's lock. Usage of earlier runs counts
here, and usage of the probe counts in the next run.
"""

import asyncio
from collections.abc import Awaitable, Callable
from math import inf
from typing import Final, TypeVar

from msgspec import Struct

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
"""Maximum wait for a rate limit, in service seconds; a longer wait raises `RequestNotSent`."""

BEGIN_SECONDS: Final = 120.0
"""Time within which the service has to answer at the start, in seconds of real time."""


class RequestNotSent(Exception):
    """Raised if the limits allow no request soon, or the service does not answer. The message is the reason."""


class CountedClient(Struct, frozen=True):
    """A client of one account whose requests are counted in the account's limits."""

    worker: AccountWorker
    client: ObservingClient

    @classmethod
    async def open(cls, driver: Engine, profile: str, account: str) -> "CountedClient":
        """Create the client. Raise `InputError` if the account has no key."""
        worker = await driver.worker_of(profile, account, client_type=ObservingClient)
        worker.control = RunState()  # its own: the end of a run does not end the probe
        if not isinstance(worker.ports.service, ObservingClient):
            raise InvariantBroken("a worker has another client than it was built with")
        return cls(worker, worker.ports.service)

    async def start(self) -> None:
        """Learn the service's time from its description, and restore the account's usage. Raise `RequestNotSent`."""
        try:
            async with asyncio.timeout(BEGIN_SECONDS):
                await sync_clock(self.worker)
        except TimeoutError:
            raise RequestNotSent("the service does not answer") from None

    async def ask(
        self, kind: RequestKind, send: Callable[[], Awaitable[T]], *, files: int = 0, size_bytes: int = 0
    ) -> T:
        """Wait until the limits allow the request, record it, and send it. Raise `RequestNotSent`."""
        worker = self.worker
        await self._wait_for_capacity(kind, files, size_bytes)
        request = worker.new_request(kind, worker.ports.clock.now(), files=files, size_bytes=size_bytes)
        async with worker.rate_limited(request):
            await worker.record_request(request)
            reply = await send()
        if isinstance(reply, Throttled | Unavailable) and reply.retry_after is not None:
            now = worker.ports.clock.now()
            hold = HoldImposed(kind.is_create, now.latest + reply.retry_after, WaitReason.THROTTLED)
            await worker.ports.queue.update_account(worker.account_id, hold, now)
        return reply

    async def _wait_for_capacity(self, kind: RequestKind, files: int, size_bytes: int) -> None:
        # Only the rate limits count. A call that waits because its replies are not understood is sent on purpose.
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
