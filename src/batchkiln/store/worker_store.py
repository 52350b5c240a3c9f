"""The queue for workers. Each method is one transaction in one call to the connection's thread."""

import asyncio
from collections.abc import Sequence, Set as AbstractSet
from contextlib import suppress
from copy import copy
from datetime import datetime
from typing import Final, ParamSpec, TypeVar

from msgspec import Struct, field

from batchkiln.core.job import Attempt, AttemptState
from batchkiln.core.lease_types import Fence
from batchkiln.core.outcomes import Outcome
from batchkiln.core.polling import Kind, Observation
from batchkiln.core.queue_changes import AccountChange, Committed, Facts, Preparation, TimeKnown, Uploaded, UploadsGone
from batchkiln.core.queue_types import (
    Candidate,
    DownloadTask,
    Look,
    LostAttempt,
    NewAttempt,
    Scope,
    Snapshot,
    UploadHistory,
    Viewpoint,
    WantedInput,
)
from batchkiln.core.rate_limits import LoggedRequest, RequestNote, ServiceDay
from batchkiln.core.states import ItemState
from batchkiln.core.timestamps import LATEST, ClockReading, from_milliseconds, to_milliseconds
from batchkiln.core.wakes import WAKES, Awaited, Change, change_by_outcome, change_by_preparation
from batchkiln.store import attempts, commit, downloads, lost_attempts, planner_snapshot, preparations, usage
from batchkiln.store.account_changes import account_id, remember_time, service_time, update_account
from batchkiln.store.attempt_journal import AttemptJournal, JournalEntry
from batchkiln.store.database import in_snapshot
from batchkiln.store.leases import FencedDatabase, Transactions
from batchkiln.store.selected_items import follow_changes
from batchkiln.store.session import Session

P = ParamSpec("P")
T = TypeVar("T")

_EVERY_JOB: Final = Scope()


class _Listener(Struct):
    """The waiting tracks of one account: their wake-up event, their newest version, and what each of them awaits."""

    event: asyncio.Event = field(default_factory=asyncio.Event)
    news_at: int = 0
    awaited: dict[str, AbstractSet[Awaited]] = field(default_factory=dict)


class ChangeNotifier:
    """Wakes the tracks that a change of the queue concerns, by this process or another one; see `core.wakes`.

    `version` grows with each change. `may_have_ended_at` is the version of the last change that may have ended a run,
    `plans_outdated_at` that of the last one that may have outdated a plan for new work.
    """

    def __init__(self) -> None:
        """Begin at version 0, without listeners."""
        self.version = 0
        self.may_have_ended_at = 0
        self.plans_outdated_at = 0
        self._changed = asyncio.Event()
        self._news_for_all_at = 0
        self._listeners: dict[int, _Listener] = {}

    def announce(self, change: Change = Change.ANYTHING, account_id: int | None = None) -> None:
        """Wake the tracks that a change concerns.

        `account_id` is the account whose state changed, None if there is none.
        """
        wakes = WAKES[change]
        if account_id is not None:
            self._listener(account_id)  # it may have read the queue and not wait yet
        concerned = [
            listener
            for listener_id, listener in self._listeners.items()
            if wakes.all
            or (wakes.own and listener_id == account_id)
            or (wakes.others and any(wakes.others & awaited for awaited in listener.awaited.values()))
        ]
        if not concerned and not wakes.is_of_queue:
            return
        self.version += 1
        if wakes.may_end_run:
            self.may_have_ended_at = self.version
        if wakes.outdates_plans:
            self.plans_outdated_at = self.version
        self._changed.set()
        self._changed = asyncio.Event()
        if wakes.all:
            self._news_for_all_at = self.version
        for listener in concerned:
            listener.news_at = self.version
            listener.event.set()
            listener.event = asyncio.Event()

    def has_news(self, account_id: int, since: int) -> bool:
        """Return whether a change after version `since` concerns an account."""
        return max(self._listener(account_id).news_at, self._news_for_all_at) > since

    def next(self, account_id: int | None = None) -> asyncio.Event:
        """Return an event that is set by the next change that concerns an account, or by any change without one."""
        return self._changed if account_id is None else self._listener(account_id).event

    def expect(self, account_id: int, track: str, awaited: AbstractSet[Awaited]) -> bool:
        """Record which resources of other workers a track awaits; return whether all of them were recorded before."""
        known = self._listener(account_id).awaited
        was_known = awaited <= known.get(track, frozenset())
        known[track] = awaited
        return was_known

    def _listener(self, account_id: int) -> _Listener:
        found = self._listeners.get(account_id)
        if found is None:
            found = self._listeners[account_id] = _Listener()
        return found


class WorkerStore:
    """The queue for the accounts of one profile. Each write wakes the waiting tracks that it concerns."""

    def __init__(
        self,
        database: Transactions,
        changes: ChangeNotifier,
        *,
        profile: str,
        day: ServiceDay,
        keep_requests_seconds: float,
        journal: AttemptJournal | None = None,
    ) -> None:
        """Use an open database. Requests older than `keep_requests_seconds` no longer count in a minute window.

        Without `journal`, nothing may be paid, as in a rehearsal or in a command that begins no attempt.
        """
        self._journal = journal
        self.changes = changes
        self._database = database
        self._profile = profile
        self._day = day
        self._keep = keep_requests_seconds

    def under(self, fence: Fence) -> "WorkerStore":
        """Return this store for the worker of one account, whose writes require its lease."""
        fenced = copy(self)
        fenced._database = FencedDatabase(self._database, fence)  # noqa: SLF001  its own
        return fenced

    # --- for the engine, at the start and the end of a run ---

    async def account(self, name: str) -> int:
        """Return an account's id. Store the account if it is new."""
        return await self._database.write(account_id, self._profile, name)

    async def durations(self) -> list[tuple[Kind, Observation]]:
        """Return the observed durations of the profile's newest successes, the oldest first."""
        return await self._database.read(planner_snapshot.durations, self._profile)

    async def remember_time(self, now: ClockReading) -> None:
        """Store the service's time. The next start estimates no earlier time."""
        await self._database.write(remember_time, self._profile, now)

    async def lost_attempts_found_at(self) -> datetime | None:
        """Return the machine's time at which the queue was found to be an older copy; None if it never was one."""
        return await self._database.read(lost_attempts.found_at)

    async def remembered_time(self) -> datetime | None:
        """Return the latest service time that was stored."""
        milliseconds = await self._database.read(service_time, self._profile)
        is_possible = milliseconds is not None and 0 <= milliseconds < to_milliseconds(LATEST)
        return from_milliseconds(milliseconds) if milliseconds is not None and is_possible else None

    # --- reads of a worker ---

    async def snapshot(self, viewpoint: Viewpoint, days: Sequence[datetime]) -> Snapshot:
        """Return the planner's input for one account."""
        return await self._database.read(planner_snapshot.snapshot, viewpoint, days)

    async def logged_requests(self) -> list[LoggedRequest]:
        """Return the requests of all accounts that may still count in a minute window, the oldest first."""
        return await self._database.read(usage.logged_requests, self._profile, self._keep)

    async def quote_body(self, item_id: int, account_id: int) -> bytes | None:
        """Return the body of a quote; None if the item is no longer queued or an image is not uploaded."""
        return await self._database.read(attempts.quote_body, item_id, account_id)

    async def same_priced_item(self, candidate: Candidate, number: int) -> int:
        """Return the id of an item with a candidate's price. Small values of `number` select different items."""
        return await self._database.read(preparations.same_priced_item, candidate, number)

    async def wanted_inputs(self, candidate: Candidate) -> tuple[WantedInput, ...]:
        """Return the files to upload for a candidate and the next items after it."""
        return await self._database.read(preparations.wanted_inputs, candidate.missing_inputs, candidate.item_id)

    async def upload_history(self, account_id: int, item_id: int) -> UploadHistory:
        """Return whether any upload of an account ever succeeded, and whether an item needs uploads."""
        return await self._database.read(preparations.upload_history, account_id, item_id)

    async def download_task(self, attempt_id: int, *, number: int = 1) -> DownloadTask:
        """Return the data needed to download an attempt's files and to name output `number`."""
        return await self._database.read(downloads.download_task, attempt_id, number)

    # --- writes of a worker ---

    async def record_request(
        self, request: RequestNote, *, attempt_id: int | None = None, is_further: bool = False
    ) -> None:
        """Record a request before it is sent (Law 5), a read with its attempt.

        `is_further` is true for a recorded request that now also counts on the day after a reset.
        """
        await self._database.write(
            attempts.record_request, request, keep_seconds=self._keep, attempt_id=attempt_id, is_further=is_further
        )

    async def begin_attempt(self, new: NewAttempt | LostAttempt) -> Attempt | None:
        """Make a new or a lost attempt durable before it is sent (Law 1); return None if the plan is out of date."""
        attempt, change = None, Change.STARTED if isinstance(new, NewAttempt) else Change.RECOVERED
        try:
            attempt = await self._begin(new)
        finally:
            self.changes.announce(change if attempt else Change.PLAN_OUTDATED, new.viewpoint.account_id)
        return attempt

    async def _begin(self, new: NewAttempt | LostAttempt) -> Attempt | None:
        if isinstance(new, LostAttempt):  # it is in the journal
            return await self._database.write(lost_attempts.recover_attempt, new)
        if self._journal is None:
            return await self._database.write(attempts.begin_attempt, new, keep_seconds=self._keep)
        begun = await self._database.write_and_then(
            self._journal_begun, lost_attempts.begin_attempt, new, keep_seconds=self._keep
        )
        return begun[0] if begun else None

    def _journal_begun(self, _: Session, begun: list[tuple[Attempt, JournalEntry] | None]) -> None:
        """Append attempts that were committed together to the journal, with one flush, in the connection's thread."""
        entries = [each[1] for each in begun if each is not None]
        if self._journal is not None and entries:
            self._journal.append(*entries)

    async def resend(self, attempt_id: int, request: RequestNote) -> Attempt | None:
        """Count a resend before it is sent; return None if the stored attempt is damaged, and is now held."""
        counted = None
        try:
            counted = await self._database.write_and_then(
                self._journal_resent, attempts.resend, attempt_id, request, keep_seconds=self._keep
            )
        finally:
            self.changes.announce(Change.PROGRESSED if counted else Change.ENDED, request.account_id)
        return counted

    def _journal_resent(self, session: Session, counted: list[Attempt | None]) -> None:
        """Append attempts that are about to be sent again to the journal; another machine may have begun them."""
        sent = [attempt.id for attempt in counted if attempt is not None]
        if self._journal is not None and sent:
            self._journal.append(*(in_snapshot(session, lost_attempts.journal_entry, (each,), {}) for each in sent))

    async def commit(
        self,
        attempt: Attempt,
        outcome: Outcome,
        facts: Facts,
        now: ClockReading,
        look: Look | None = None,
        *,
        scope: Scope = _EVERY_JOB,
    ) -> tuple[Committed, Snapshot | None]:
        """Apply an outcome to attempt, item, credits and history. `scope` is that of the run.

        With `look`, also return the planner's input after it, read in the same call to the connection's thread; None if
        that fails, or if the queue may have changed since.
        """
        at, change, version = to_milliseconds(now.instant), Change.ANYTHING, self.changes.version
        found: Snapshot | None = None

        def follow(session: Session, results: list[Committed]) -> None:
            nonlocal found
            if self._journal is not None and results[0].outcome.attempt is AttemptState.REFUSED:
                self._journal.append(in_snapshot(session, lost_attempts.journal_entry, (attempt.id,), {}))
            if scope.is_selected and results[0].state is ItemState.QUEUED:
                follow_changes(session, scope)  # its inputs may be open again, and their sources not selected
            if look is not None:
                with suppress(Exception):  # the outcome is recorded; the worker's own read of the queue will raise it
                    found = in_snapshot(session, planner_snapshot.snapshot, look, {})

        def day_of(instant: datetime | None) -> datetime:
            return self._day.start_of(instant or now.latest)

        try:
            committed = await self._database.write_and_then(
                follow, commit.commit, attempt.id, outcome, facts, at, day_of, key=attempt.idempotency_key
            )
            change = change_by_outcome(committed)
            is_newest = not self.changes.has_news(attempt.account_id, version)
            is_newest = is_newest and self.changes.plans_outdated_at <= version
        finally:  # after an error, the plan is made again instead of waiting forever
            self.changes.announce(change, attempt.account_id)
        return committed, found if is_newest else None

    async def record_preparation(self, candidate: Candidate, result: Preparation, now: ClockReading) -> None:
        """Record the result of a candidate's preparation."""
        at = to_milliseconds(now.instant)
        own = result.account_id if isinstance(result, Uploaded | UploadsGone) else None
        try:
            await self._database.write(preparations.record_preparation, self._profile, candidate, result, at)
        finally:
            self.changes.announce(change_by_preparation(result), own)

    async def update_account(self, account_id: int, change: AccountChange, now: ClockReading) -> None:
        """Store a new fact about an account."""
        try:
            await self._database.write(update_account, self._profile, account_id, change, now)
        finally:
            is_time = isinstance(change, TimeKnown)  # others may be about to ask for it
            self.changes.announce(Change.CLOCK_SET if is_time else Change.ACCOUNT, account_id)
