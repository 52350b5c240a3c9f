"""The worker of one account: snapshots of the queue, waits, records of requests, and delays after failures.

Each request is recorded before it is sent.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence, Set as AbstractSet
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import inf
from typing import Any, Final

import structlog
from msgspec import Struct
from msgspec.structs import replace

from batchkiln.core.account_view import AccountView, Permission, account_view
from batchkiln.core.backoff import RAREST_SECONDS
from batchkiln.core.calls import Call, Misunderstood, Outage, PastOutage
from batchkiln.core.error_text import describe_error
from batchkiln.core.errors import InvariantBroken
from batchkiln.core.job import Attempt
from batchkiln.core.outcomes import Outcome
from batchkiln.core.polling import LOST_AFTER
from batchkiln.core.queue_changes import (
    CallMisunderstood,
    CallUnderstood,
    Committed,
    Facts,
    HoldImposed,
    OutageBegan,
    OutageEnded,
)
from batchkiln.core.queue_types import Circumstances, QueueView, Snapshot, Viewpoint
from batchkiln.core.rate_limits import RECENT_MINUTES, LoggedRequest, RateLimits, RequestKind, RequestNote
from batchkiln.core.responses import (
    AccountBlocked,
    AccountProblem,
    EdgeBlocked,
    ErrorInfo,
    NoResponse,
    NotUnderstood,
    Throttled,
    TransientError,
    Unavailable,
)
from batchkiln.core.timestamps import ClockReading
from batchkiln.core.waits import NotBefore, WaitReason
from batchkiln.core.wakes import Awaited, Change
from batchkiln.worker.backoffs import REASONS, Backoff, Backoffs, describe_failure, is_content, requested_seconds
from batchkiln.worker.download_state import DownloadState
from batchkiln.worker.failure_counts import FailureCounts
from batchkiln.worker.lease_keeper import ALWAYS_HELD, Lease
from batchkiln.worker.poll_timing import PollTiming
from batchkiln.worker.ports import Clock, Inputs, Objects, Outputs, Queue, Service
from batchkiln.worker.run_state import HostState, RunCredits, RunState
from batchkiln.worker.spans import Spans

log = structlog.get_logger()

STANDSTILL_SECONDS: Final = 5.0
"""The service seconds between record and send after which a request is recorded again."""

OUTAGE_SECONDS: Final = 15.0
"""The service seconds without an answer after which the next failed try is recorded as an outage."""

STALE_PLANS_IN_A_ROW: Final = 1000
"""The overtaken plans in a row that count as a bug: other accounts and people overtake fewer."""


class Ports(Struct, frozen=True):
    """The parts of the program that a worker uses."""

    clock: Clock
    queue: Queue
    service: Service
    outputs: Outputs[Any]
    objects: Objects
    inputs: Inputs


class _CachedSnapshot(Struct, frozen=True):
    """A snapshot, the version of the queue at which it was read, and the circumstances of the read."""

    snapshot: Snapshot
    version: int
    days: tuple[datetime, ...]
    viewpoint: Viewpoint
    released: tuple[int, int]


@dataclass(slots=True)
class AccountWorker:
    """The state of one account in this process. The queue stores all that must survive the process.

    `digest` identifies the program and its configuration, which decide how replies are understood.
    """

    viewpoint: Viewpoint
    ports: Ports
    control: RunState
    host: HostState
    rates: RateLimits
    polls: PollTiming
    digest: str = ""
    lease: Lease = ALWAYS_HELD
    spans: Spans = field(default_factory=Spans)
    credits: RunCredits = field(init=False)
    backoffs: Backoffs = field(default_factory=Backoffs)
    failure_counts: FailureCounts = field(default_factory=FailureCounts)
    downloads: DownloadState = field(default_factory=DownloadState)
    _stale_plans: int = 0
    _reading: asyncio.Lock = field(default_factory=asyncio.Lock)
    _cached: _CachedSnapshot | None = None  # the last snapshot, while it is valid
    _misunderstood: frozenset[Call] = frozenset()  # as of the last snapshot
    _understood: set[Call] = field(default_factory=set)  # the calls among these that were understood since
    _outage: Outage | None = None  # as of the last snapshot

    def __post_init__(self) -> None:
        """Register the account's use of the run's credits."""
        self.credits = RunCredits(self.control)

    @property
    def account_id(self) -> int:
        """The account's id in the queue."""
        return self.viewpoint.account_id

    @property
    def has_key(self) -> bool:
        """Whether the account has an API key. Without one, it only downloads finished files."""
        return bool(self.ports.service.fingerprints)

    @property
    def circumstances(self) -> Circumstances:
        """The circumstances that decide how replies are understood."""
        return Circumstances(self.digest, self.host.description)

    # --- snapshots ---

    async def snapshot(self, now: ClockReading, *, is_current: bool = False) -> tuple[QueueView, AccountView, int]:
        """Return the planner's input, and the version of the queue at which it was read.

        The queue is read again after a change that concerns the account. With `is_current`, it is also read again after
        a change that may outdate a plan; new work needs this, because accounts share its limits.
        """
        look = await self._current(now, is_current=is_current)
        return look.snapshot.queue, self._account_view(look.snapshot, now, look.released), look.version

    async def queue_view(self, now: ClockReading) -> tuple[QueueView, int]:
        """Return what `snapshot` does, for a track that sends nothing by itself and needs no view of the account."""
        look = await self._current(now)
        return look.snapshot.queue, look.version

    async def _current(self, now: ClockReading, *, is_current: bool = False) -> _CachedSnapshot:
        """Return the last snapshot while it is valid, or a new one; notice what it says about the account."""
        while self._understood:
            await self.ports.queue.update_account(self.account_id, CallUnderstood(self._understood.pop()), now)
        if self.host.is_answering:
            await self._end_outage(now)
        async with self._reading:  # the tracks wake together, and one of them reads for all
            look, days = self._cached, self.rates.days(now)
            if look is None or not self._is_valid(look, days, is_current=is_current):
                version, released = self.ports.queue.changes.version, self.rates.released()
                found = await self.ports.queue.snapshot(self.viewpoint, days)
                look = self._cached = _CachedSnapshot(found, version, days, self.viewpoint, released)
        self._notice_understood(look.snapshot)
        self._outage = look.snapshot.outage
        if self._outage is not None:
            self.host.without_service.add(self.account_id)
        return look

    def is_overtaken(self, version: int) -> bool:
        """Return whether a change since a version, for any account, may have outdated a plan for new work."""
        return self.ports.queue.changes.plans_outdated_at > version

    def _is_valid(self, look: "_CachedSnapshot", days: tuple[datetime, ...], *, is_current: bool) -> bool:
        """Return whether a snapshot is still valid: nothing that concerns the account has changed since it was read."""
        changes = self.ports.queue.changes
        is_old = changes.has_news(self.account_id, look.version) or (is_current and self.is_overtaken(look.version))
        # Requests in progress at that time now count twice, which matters only if they seem to fill the day.
        is_miscounted = self.rates.is_day_spent and look.released != self.rates.released()
        return not (is_old or is_miscounted) and (look.days, look.viewpoint) == (days, self.viewpoint)

    def _notice_understood(self, snapshot: Snapshot) -> None:
        """Resume the calls whose records as misunderstood a person has deleted."""
        known, self._misunderstood = self._misunderstood, frozenset(entry.call for entry in snapshot.misunderstood)
        for call in known - self._misunderstood:
            self.backoffs.reset(call)

    def _account_view(self, snapshot: Snapshot, now: ClockReading, released: tuple[int, int]) -> AccountView:
        attempt, kind = snapshot.queue.unresolved, snapshot.active_kind
        touched_at = self.polls.touched_at(attempt.id, snapshot.last_read_at, now) if attempt else None
        worth_at = -inf
        if attempt is not None and kind is not None and touched_at is not None:
            worth_at = self.polls.worth_at(attempt, kind, touched_at, now)
        permission = Permission(
            may_start=self.control.may_start_at(now.instant) and self.account_id not in self.control.winding_down,
            is_blocked=self.account_id in self.control.blocked,
            has_key=self.has_key,
            credits_left=self.credits.left_for(attempt),
        )
        return account_view(
            snapshot,
            self.rates,
            now,
            released=released,
            waits=self.backoffs.waits,
            permission=permission,
            last_touched_at=touched_at,
            read_worth_at=worth_at,
        )

    def plan_carried_out(self) -> None:
        """Record that a plan was still valid when it was carried out."""
        self._stale_plans = 0

    def plan_overtaken(self) -> None:
        """Record that the queue changed before a plan was carried out.

        Raise `InvariantBroken` if this repeats without end.
        """
        self._stale_plans += 1
        if self._stale_plans > STALE_PLANS_IN_A_ROW:
            raise InvariantBroken(f"account {self.viewpoint.account}: every plan is out of date when carried out")

    # --- waiting ---

    def announce(self, change: Change) -> None:
        """Wake the tracks that a change of this account concerns."""
        self.ports.queue.changes.announce(change, self.account_id)

    async def wait(self, track: str, due: NotBefore, version: int, awaited: AbstractSet[Awaited] = frozenset()) -> None:
        """Wait until something is due or a change concerns the account; return at once if either is already true.

        `awaited` names the resources that other workers may free for this track.
        """
        changes = self.ports.queue.changes
        news, was_expected = changes.next(self.account_id), changes.expect(self.account_id, track, awaited)
        if changes.has_news(self.account_id, version) or self.control.is_over_for(self.account_id):
            return
        if not was_expected and self.is_overtaken(
            version
        ):  # the awaited change may have come before the wait was recorded
            self._cached = None
            return
        self.control.record_wait(self.account_id, track, version, due)
        if track == "slot":
            self.spans.record_wait(due.reason)
        at, now = due.at, self.ports.clock.now()
        if self.control.starts_until is not None and self.control.may_start_at(now.instant):
            at = min(at, now.monotonic_of(self.control.starts_until))
        await self.ports.clock.sleep_until(at, news)
        self.control.record_work(self.account_id, track)

    async def wait_for_news(self, version: int) -> None:
        """Wait until the queue changes. The track still counts as working, because it has a call in progress."""
        changes = self.ports.queue.changes
        news = changes.next(self.account_id)
        if not changes.has_news(self.account_id, version) and not self.control.is_over_for(self.account_id):
            await news.wait()

    async def wait_until_due(
        self, due_of: Callable[[AccountView, ClockReading], NotBefore], *, is_for_new: bool = False
    ) -> bool:
        """Wait until a request may be sent.

        Return True without a further await, so that the caller can acquire its place.

        Other workers may fill the minute during the wait, so `due_of` is called again after each wait (Law 5). Return
        False if the run ends first, or if the request is for new work and the account begins no more.
        """
        while not self.control.is_over_for(self.account_id, is_for_new=is_for_new):
            now = self.ports.clock.now()
            _, account, _ = await self.snapshot(now)
            due = due_of(account, now)
            if due.at <= now.monotonic:
                return True
            at = min(due.at, now.monotonic + self.rates.limits.minute_seconds)
            await self.ports.clock.sleep_until(at, self.control.stopping)
        return False

    async def wait_for_capacity(self, call: Call) -> bool:
        """Wait until a prepared quote or upload may be sent; return as `wait_until_due` does."""
        return await self.wait_until_due(lambda account, now: account.call_due(call, now), is_for_new=True)

    # --- requests ---

    def new_request(self, kind: RequestKind, now: ClockReading, *, files: int = 0, size_bytes: int = 0) -> RequestNote:
        """Return the record of a request that is about to be sent, with every service day that may count it."""
        return RequestNote(
            account_id=self.account_id,
            kind=kind,
            at=now.instant,
            days=self.rates.days(now),
            latest=now.latest,
            upload_files=files,
            upload_bytes=size_bytes,
            egress=self.host.rates.egress,
        )

    async def record_request(self, request: RequestNote, *, attempt_id: int | None = None) -> None:
        """Record a request right before it is sent (Law 5). A read of a generation names its attempt."""
        await self.ports.queue.record_request(request, attempt_id=attempt_id)
        await self.record_standstill(request, attempt_id=attempt_id)

    async def record_standstill(self, request: RequestNote, *, attempt_id: int | None = None) -> None:
        """Record a request again if this process stood still after its record, for example while it was suspended.

        The next process of the account knows only the record, and keeps the minute and the poll interval from its time.
        """
        now = self.ports.clock.now()
        if (now.instant - request.at).total_seconds() > STANDSTILL_SECONDS:
            further = tuple(day for day in self.rates.days(now) if day not in request.days)
            again = replace(request, at=now.instant, days=further, latest=now.latest)
            await self.ports.queue.record_request(again, attempt_id=attempt_id)

    @asynccontextmanager
    async def rate_limited(self, request: RequestNote) -> AsyncIterator[None]:
        """Occupy the request's places in the minute windows from before it is recorded until it has ended."""
        self.rates.acquire(request.kind)
        try:
            yield
        finally:
            now = self.ports.clock.now()
            self.rates.release(request.kind, now.monotonic)
            self.announce(Change.PLACE_FREED)
            if self.host.is_clock_set(now):
                self.announce(Change.CLOCK_SET)
        if request.kind is RequestKind.UPLOAD:
            self._cached = None  # only the queue counts the files and bytes of the day
        further = tuple(day for day in self.rates.days(now) if day not in request.days)
        if further:
            further_request = replace(request, at=now.instant, days=further)
            await self.ports.queue.record_request(further_request, is_further=True)
            self._cached = None

    async def restore_windows(self, logged: Sequence[LoggedRequest], now: ClockReading) -> None:
        """Restore the minute windows from the requests of an earlier run.

        Any of them may have been in progress when that run ended. Without the service's own time, each counts as ended
        now, because a wrong clock may make it look old. A request that may have arrived after the day's reset also
        counts in the new day (Law 5).
        """
        own = [request for request in logged if request.account_id == self.account_id]
        recent_seconds = RECENT_MINUTES * self.rates.limits.minute_seconds
        self.rates.restore(own, now, recent_seconds=recent_seconds if self.ports.clock.is_observed else inf)
        today = self.rates.day.start_of(now.instant)
        for request in own:
            is_recent = (now.instant - request.sent_at).total_seconds() < recent_seconds
            if is_recent and self.rates.day.start_of(request.sent_at) != today:
                note = RequestNote(self.account_id, request.kind, now.instant, (today,))
                await self.ports.queue.record_request(note, is_further=True)

    async def commit(self, attempt: Attempt, outcome: Outcome, facts: Facts, now: ClockReading) -> Committed:
        """Apply an outcome to attempt, item, credits and history, and end the spans that it ends."""
        days, viewpoint, released = self.rates.days(now), self.viewpoint, self.rates.released()
        look = (viewpoint, days) if facts.record is not None else None  # the slot plans again
        committed, found = await self.ports.queue.commit(attempt, outcome, facts, now, look, scope=viewpoint.scope)
        if found is not None:
            self._cached = _CachedSnapshot(found, self.ports.queue.changes.version, days, viewpoint, released)
        if committed.download is not None:
            self.downloads.keep_task(committed.download)
        await self.spans.committed(attempt, facts, committed)
        return committed

    # --- replies ---

    def on_success(self, call: Call, *, key: str | None = None) -> None:
        """Record a definite reply. The next failure of this call begins with a short wait again.

        `key` is the fingerprint of the API key that the service accepted, if it may be an older key.
        """
        self.host.answered += 1
        self._notice_reply()
        if self.backoffs.calls[call].failures:
            self.announce(Change.ACCOUNT)  # another track may still wait because of the last failure
        self.backoffs.reset(call)
        if call in self._misunderstood:
            self._understood.add(call)
        if key is not None:
            self.failure_counts.key_accepted(key)

    def _notice_reply(self) -> None:
        """Record any reply, so that the accounts which recorded an outage end it."""
        self.host.heard()
        for account_id in self.host.without_service:
            self.ports.queue.changes.announce(Change.ACCOUNT, account_id)

    async def on_failure(
        self,
        failure: TransientError,
        call: Call,
        *,
        reason: WaitReason | None = None,
        about_paid: bool = False,
        is_refusal: bool = False,
        own: Sequence[Backoff] = (),
    ) -> None:
        """Delay the call by the longer of the service's requested wait and the back-off after its failures in a row.

        `about_paid` is true if a read of something already paid failed; `is_refusal`, if the service refused a request
        that is repeated all the same. `own` contains the back-offs of the failed requests, if other requests of the
        same call need not wait for them.
        """
        now, described = self.ports.clock.now(), describe_failure(failure)
        is_old = any(described == each.last_error for each in (self.backoffs.calls[call], *own))
        is_unanswered = isinstance(failure, NoResponse | Unavailable) and not is_refusal
        waits = {"until": self._waits_until(failure, now)} if is_unanswered and not own else {}
        self._log_failure(call, described, "request_troubled", is_old=is_old, **waits)
        if not is_unanswered:
            await self._notice_answer(now)
        if isinstance(failure, AccountBlocked):
            self.control.block(self.account_id, failure, is_cut_off=about_paid)
        else:
            is_alone = self.backoffs.fail(
                failure,
                call,
                own,
                now=now.monotonic,
                draws=[self.ports.clock.draw() for _ in range(1 + len(own))],
                reason=reason or REASONS[type(failure)],
                answered=self.host.answered,
            )
            if isinstance(failure, EdgeBlocked) and not (is_alone and is_content(own)):
                # The window may have begun with our last request, so a whole one has to pass.
                until = now.monotonic + self.rates.limits.minute_seconds
                self.host.rates.held = NotBefore(until, WaitReason.EDGE_FIREWALL)
            if isinstance(failure, NotUnderstood) and self.backoffs.count_misunderstood(
                call, now.monotonic, self.rates.limits.minute_seconds
            ):
                await self.report_misunderstood(call, failure, now)
            await self._hold_window(call, failure, now)
            if is_unanswered and not is_alone:
                await self._notice_outage(described, now)
            if self.host.is_given_up(failure, now.monotonic):
                silent = AccountBlocked(AccountProblem.UNREACHABLE, ErrorInfo("unreachable", described))
                self.control.block(self.account_id, silent, is_cut_off=True)
        self.announce(Change.ACCOUNT)

    def _waits_until(self, failure: TransientError, now: ClockReading) -> str:
        """Return until when the run repeats an unanswered request, as text."""
        ends_at = self.host.given_up_at(failure, now.monotonic)
        if ends_at is None:
            return "the service answers"
        return f"{now.instant + timedelta(seconds=ends_at - now.monotonic):%Y-%m-%d %H:%M:%S} UTC"

    async def _notice_outage(self, described: str, now: ClockReading) -> None:
        """Record an outage once no call of this machine was answered for a while, so that people see it elsewhere."""
        first = self.host.unheard(now)
        if not self.host.without_service and now.monotonic - first.monotonic >= OUTAGE_SECONDS:
            self.host.without_service.add(self.account_id)
            self._outage = Outage(first.instant, described)
            await self.ports.queue.update_account(self.account_id, OutageBegan(self._outage), now)

    async def _notice_answer(self, now: ClockReading) -> None:
        """Record a refusal as the answer that it is. The worker may not look at the queue again."""
        self._notice_reply()
        await self._end_outage(now)

    async def _end_outage(self, now: ClockReading) -> None:
        """Record that the service answers again, if this account has recorded an outage."""
        outage, self._outage = self._outage, None
        if outage is not None:
            self.host.without_service.discard(self.account_id)
            self.control.outages.append(PastOutage(self.viewpoint.profile, outage.since, now.instant))
            await self.ports.queue.update_account(self.account_id, OutageEnded(), now)

    def _log_failure(self, call: Call, described: str, event: str, *, is_old: bool, **details: object) -> None:
        """Log a failure. Log it as a warning only when it changes, so that a night without network logs one warning."""
        (log.debug if is_old else log.warning)(event, account=self.viewpoint.account, reason=described, **details)
        self.backoffs.calls[call].last_error = described

    async def report_misunderstood(self, call: Call, failure: NotUnderstood, now: ClockReading) -> None:
        """Report a call that is not understood.

        If the call may be suspended, suspend it until something changes (Law 10).
        """
        entry = Misunderstood(
            call=call,
            since=now.instant,
            lacking=failure.lacking,
            shape=failure.shape,
            status=failure.status,
            remedy=failure.remedy or "",
        )
        log.error("reply_not_understood", account=self.viewpoint.account, reason=describe_error(failure))
        self._understood.discard(call)
        await self.ports.queue.update_account(self.account_id, CallMisunderstood(entry, self.circumstances), now)
        if call.may_be_suspended:
            self.backoffs.suspend(call)

    async def _hold_window(self, call: Call, failure: TransientError, now: ClockReading) -> None:
        """Block the window that the call shares, as the service asks, or for at most a minute (Service section 8)."""
        requested, own = requested_seconds(failure), self.backoffs.calls[call].not_before
        if requested is None and not isinstance(failure, Throttled):
            return
        at = (
            min(own.at, now.monotonic + self.rates.limits.minute_seconds)
            if requested is None
            else now.monotonic + requested
        )
        # Known to all tracks before anything is awaited.
        is_latest = self.rates.hold(NotBefore(at, own.reason), is_create=call.is_create, is_exact=requested is not None)
        if requested is not None and is_latest:
            until = now.latest + timedelta(seconds=requested)
            hold = HoldImposed(is_of_creates=call.is_create, until=until, reason=own.reason)
            await self.ports.queue.update_account(self.account_id, hold, now)

    async def hold_while_quiet(self, now: ClockReading) -> None:
        """Delay creates and reads for the rest of the quiet minute of a restored queue (Law 5)."""
        due = NotBefore(self.host.quiet_until, WaitReason.RESTORED)
        if due.at <= now.monotonic:
            return
        for is_create in (True, False):
            self.rates.hold(due, is_create=is_create, is_exact=False)
            hold = HoldImposed(is_of_creates=is_create, until=now.instant_of(due.at), reason=due.reason)
            await self.ports.queue.update_account(self.account_id, hold, now)

    def postpone_creates(self, now: ClockReading, seconds: float, reason: WaitReason, explanation: str) -> None:
        """Delay creates by at least `seconds` service seconds. Log the explanation once."""
        own = self.backoffs.calls[Call.CREATE]
        self._log_failure(
            Call.CREATE,
            explanation,
            "create_undecided",
            is_old=explanation == own.last_error,
            retry_after_seconds=seconds,
        )
        own.not_before = own.not_before.after(NotBefore(now.monotonic + seconds, reason))
        self.announce(Change.ACCOUNT)

    def postpone_uploads(self, now: ClockReading, reason: WaitReason, *, requested: float) -> None:
        """Delay uploads by at least `requested` seconds, and longer after each failure in a row. Creates continue."""
        backoff = self.backoffs.calls[Call.UPLOAD]
        backoff.count(answered=self.host.answered)
        backoff.wait(
            now.monotonic, self.ports.clock.draw(), reason, requested=requested, longest_seconds=RAREST_SECONDS
        )
        self.announce(Change.ACCOUNT)

    def avoid_failing_inputs(self) -> None:
        """Prefer items that need no image whose upload has failed repeatedly."""
        avoided = frozenset(input_id for input_id, backoff in self.backoffs.inputs.items() if backoff.is_reported)
        self.viewpoint = replace(self.viewpoint, avoided_inputs=avoided)

    def is_of_older_key(self, attempt: Attempt, failure: AccountBlocked) -> bool:
        """Return whether the service refuses only the API key of an earlier attempt, and the account has a newer key.

        A revoked key makes its generations unreadable, because no other key may read them (Service rules 4.2 and 4.4).
        The account itself continues.
        """
        is_about_key = failure.problem in {AccountProblem.KEY_REFUSED, AccountProblem.UPGRADE_REQUIRED}
        return is_about_key and attempt.key_fingerprint != self.ports.service.newest_key

    async def retry_old_key(self, attempt: Attempt, failure: AccountBlocked, call: Call) -> bool:
        """Delay the next call after a refusal of an older key. Return False once the key was refused for an hour."""
        now = self.ports.clock.now()
        if (
            self.failure_counts.key_refused_seconds(attempt.key_fingerprint, now.monotonic)
            >= LOST_AFTER.total_seconds()
        ):
            await self._notice_answer(now)
            return False
        await self.on_failure(Unavailable(None, failure.error), call, is_refusal=True)
        return True
