"""The queue as a worker uses it: each method is one transaction, and one hop to the connection's thread."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Concatenate, ParamSpec, TypeVar

from batchkiln.core.duration_model import Observation
from batchkiln.core.job import Attempt, AttemptState
from batchkiln.core.outcomes import Outcome
from batchkiln.core.queue_changes import AccountChange, Committed, Facts, Preparation
from batchkiln.core.queue_types import (
    Candidate,
    DownloadTask,
    Kind,
    LostAttempt,
    NewAttempt,
    Snapshot,
    UploadHistory,
    Viewpoint,
    WantedInput,
)
from batchkiln.core.rate_limits import LoggedRequest, RequestNote, ServiceDay
from batchkiln.core.timestamps import LATEST, ClockReading, from_milliseconds, to_milliseconds
from batchkiln.store import attempts, commit, downloads, lost_attempts, planner_snapshot, preparations, usage
from batchkiln.store.account_changes import account_id, remember_time, service_time, update_account
from batchkiln.store.attempt_journal import AttemptJournal
from batchkiln.store.database import Database
from batchkiln.store.session import Session

P = ParamSpec("P")
T = TypeVar("T")


class ChangeNotifier:
    """Wakes all who wait for a change of the queue, made by this process or by another one."""

    def __init__(self) -> None:
        """Begin with nothing changed."""
        self._changed = asyncio.Event()
        self.version = 0

    def announce(self) -> None:
        """Wake everybody who waits: the queue may have changed."""
        self.version += 1
        self._changed.set()
        self._changed = asyncio.Event()

    def next(self) -> asyncio.Event:
        """Return an event that the next change sets."""
        return self._changed


class WorkerStore:
    """The queue for the accounts of one profile. What is written wakes all who wait for `changes`."""

    def __init__(
        self,
        database: Database,
        changes: ChangeNotifier,
        *,
        profile: str,
        day: ServiceDay,
        keep_requests_seconds: float,
        journal: AttemptJournal | None = None,
    ) -> None:
        """Use an open database; requests older than `keep_requests_seconds` no longer matter to any minute.

        Without `journal`, nothing is paid: a rehearsal, or a command that begins no attempt.
        """
        self._journal = journal
        self.changes = changes
        self._database = database
        self._profile = profile
        self._day = day
        self._keep = keep_requests_seconds

    async def _write(self, work: Callable[Concatenate[Session, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await self._database.write(work, *args, **kwargs)
        finally:
            self.changes.announce()

    # --- for the engine, at the start and the end of a run ---

    async def account(self, name: str) -> int:
        """Return an account's id; a new account is stored."""
        return await self._write(account_id, self._profile, name)

    async def durations(self) -> list[tuple[Kind, Observation]]:
        """Return the observed durations of the profile's newest successes, the oldest first."""
        return await self._database.read(planner_snapshot.durations, self._profile)

    async def remember_time(self, now: ClockReading) -> None:
        """Store the service's time: the next start guesses no earlier one."""
        await self._database.write(remember_time, self._profile, now)

    async def lost_attempts_found_at(self) -> datetime | None:
        """Return the machine's time at which the queue was found to be an older copy; None if it never was."""
        return await self._database.read(lost_attempts.found_at)

    async def remembered_time(self) -> datetime | None:
        """Return the latest service time that was stored."""
        milliseconds = await self._database.read(service_time, self._profile)
        is_possible = milliseconds is not None and 0 <= milliseconds < to_milliseconds(LATEST)
        return from_milliseconds(milliseconds) if milliseconds is not None and is_possible else None

    # --- reads of a worker ---

    async def snapshot(self, viewpoint: Viewpoint, days: Sequence[datetime]) -> Snapshot:
        """Read all that the planner has to know about one account."""
        return await self._database.read(planner_snapshot.snapshot, viewpoint, days)

    async def logged_requests(self) -> list[LoggedRequest]:
        """Return the requests that may still count in a minute, of all accounts, the oldest first."""
        return await self._database.read(usage.logged_requests, self._profile, self._keep)

    async def quote_body(self, item_id: int, account_id: int) -> bytes | None:
        """Return the body of a quote; None where the item is no longer queued, or an image is not uploaded."""
        return await self._database.read(attempts.quote_body, item_id, account_id)

    async def alike(self, candidate: Candidate, number: int) -> int:
        """Return an item of the same price as a candidate: another one for each of the first few numbers."""
        return await self._database.read(preparations.alike, candidate, number)

    async def wanted_inputs(self, candidate: Candidate) -> tuple[WantedInput, ...]:
        """Return the files to upload for a candidate and the items just behind it."""
        return await self._database.read(preparations.wanted_inputs, candidate.missing_inputs, candidate.item_id)

    async def upload_history(self, account_id: int, item_id: int) -> UploadHistory:
        """Return whether uploads of an account ever worked, and whether an item needs any."""
        return await self._database.read(preparations.upload_history, account_id, item_id)

    async def download_task(self, attempt_id: int, *, number: int = 1) -> DownloadTask:
        """Return what is needed to fetch an attempt's files and to name output `number`."""
        return await self._database.read(downloads.download_task, attempt_id, number)

    # --- writes of a worker ---

    async def record_request(
        self, request: RequestNote, *, attempt_id: int | None = None, is_further: bool = False
    ) -> None:
        """Write a request down before it leaves (Law 5), a read with its attempt; or count it in further days."""
        await self._database.write(
            attempts.record_request, request, keep_seconds=self._keep, attempt_id=attempt_id, is_further=is_further
        )

    async def begin_attempt(self, new: NewAttempt | LostAttempt) -> Attempt | None:
        """Make an attempt durable before it is sent (Law 1), or again; None where the plan is no longer true."""
        if isinstance(new, LostAttempt):
            return await self._write(lost_attempts.recover_attempt, new)
        attempt = await self._write(attempts.begin_attempt, new, keep_seconds=self._keep)
        if attempt is not None and self._journal is not None:
            await self._database.run(lost_attempts.journal_attempt, self._journal, attempt.id)
        return attempt

    async def resend(self, attempt_id: int, request: RequestNote) -> Attempt | None:
        """Count one more send before it happens; None where the stored attempt is damaged, and now held."""
        return await self._write(attempts.resend, attempt_id, request, keep_seconds=self._keep)

    async def commit(self, attempt: Attempt, outcome: Outcome, facts: Facts, now: ClockReading) -> Committed:
        """Apply an outcome to attempt, item, credits and history."""
        at = to_milliseconds(now.instant)
        committed = await self._write(
            commit.commit, attempt.id, outcome, facts, at, lambda instant: self._day.start_of(instant or now.latest)
        )
        if self._journal is not None and committed.outcome.attempt is AttemptState.REFUSED:
            await self._database.run(lost_attempts.journal_refusal, self._journal, attempt.idempotency_key)
        return committed

    async def record_preparation(self, candidate: Candidate, result: Preparation, now: ClockReading) -> None:
        """Write what a preparation of a candidate came to."""
        at = to_milliseconds(now.instant)
        await self._write(preparations.record_preparation, self._profile, candidate, result, at)

    async def update_account(self, account_id: int, change: AccountChange, now: ClockReading) -> None:
        """Write what became known of an account."""
        await self._write(update_account, self._profile, account_id, change, now)
