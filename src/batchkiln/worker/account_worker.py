"""One account's worker: its windows in memory, its waits, and the writing down of each request before it leaves."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from math import inf
from typing import Any, Final

import structlog

from batchkiln.core.backoff import LONGEST_SECONDS, RAREST_SECONDS
from batchkiln.core.calls import Call, Misunderstood
from batchkiln.core.duration_model import Observation
from batchkiln.core.error_text import describe_error
from batchkiln.core.errors import InvariantBroken
from batchkiln.core.job import Attempt
from batchkiln.core.planner import AccountView, NotBefore, QueueView, WaitReason
from batchkiln.core.polling import LOST_AFTER
from batchkiln.core.queue_changes import CallMisunderstood, CallUnderstood, HoldImposed
from batchkiln.core.queue_types import (
    Circumstances,
    DownloadTask,
    HeldUntil,
    Kind,
    LoggedRequest,
    Look,
    Progress,
    RequestKind,
    RequestNote,
    Snapshot,
    Viewpoint,
)
from batchkiln.core.rate_limits import CurrentDay, DayUsage, Limits, ServiceDay, SlidingWindow, day_starts
from batchkiln.core.responses import (
    AccountBlocked,
    AccountProblem,
    EdgeBlocked,
    GenerationRecord,
    GenerationStatus,
    NotUnderstood,
    Throttled,
    TransientError,
    Unavailable,
)
from batchkiln.core.timestamps import ClockReading
from batchkiln.worker.backoffs import REASONS, Backoff, described_trouble, is_content, told_seconds
from batchkiln.worker.failed_outputs import FailedOutputs
from batchkiln.worker.poll_timing import DurationModels, TrackedGeneration, track_generation
from batchkiln.worker.ports import Clock, Inputs, Outputs, Queue, Service
from batchkiln.worker.run_state import HostRateLimit, RunState
from batchkiln.worker.truncation import TruncatedFiles
from batchkiln.worker.unnamed_results import UnnamedResults

log = structlog.get_logger()

Seen = tuple[GenerationStatus, str, int | None]
"""Status, its word and the cost: what makes a record of a generation worth recording."""

_NUMBERS: Final = re.compile(r"\d+|\"[^\"]*\"|'[^']*'")  # what differs between refusals that are alike

MISUNDERSTOOD_AT_MOST: Final = 2
"""So often a call is made that succeeds and is not understood, before it rests, or is told."""

STALE_PLANS_IN_A_ROW = 1000
"""A plan may be overtaken by another account or a person, but not for ever: that would be a bug of ours."""


@dataclass(frozen=True, slots=True)
class Ports:
    """What a worker works with."""

    clock: Clock
    queue: Queue
    service: Service
    outputs: Outputs[Any]
    inputs: Inputs


@dataclass(slots=True)
class AccountWorker:
    """The state of one account in this process; what has to survive is in the queue as well."""

    viewpoint: Viewpoint
    limits: Limits
    day: ServiceDay
    ports: Ports
    control: RunState
    machine: HostRateLimit
    creates: SlidingWindow
    reads: SlidingWindow
    paces: DurationModels
    followed: TrackedGeneration | None = None  # the active generation, once it was looked at
    creates_held: NotBefore = field(default_factory=lambda: NotBefore(-inf))
    reads_held: NotBefore = field(default_factory=lambda: NotBefore(-inf))
    backoffs: dict[Call, Backoff] = field(default_factory=lambda: {call: Backoff() for call in Call})
    failing_quotes: dict[int, Backoff] = field(default_factory=dict)  # per recipe
    failing_uploads: dict[int, Backoff] = field(default_factory=dict)  # per input
    digest: str = ""  # of what decides how replies are understood: the program and its configuration
    last_request_at: dict[int, float] = field(default_factory=dict)  # when the last request about an attempt was over
    ready: dict[int, tuple[DownloadTask, GenerationRecord]] = field(default_factory=dict)  # just seen, with links
    seen: dict[int, Seen] = field(default_factory=dict)  # what was last recorded of the active generation
    unnamed: UnnamedResults = field(default_factory=UnnamedResults)
    refused_quotes: dict[int, tuple[str, int]] = field(default_factory=dict)  # per recipe: what, how often in a row
    gone_assets: dict[int, int] = field(default_factory=dict)  # per item: how often its uploads were found gone
    refused_keys: dict[str, float] = field(default_factory=dict)  # fingerprints: refused since when
    cut_files: TruncatedFiles = field(default_factory=TruncatedFiles)
    failed_outputs: FailedOutputs = field(default_factory=FailedOutputs)
    output_marks: dict[int, dict[int, str]] = field(default_factory=dict)  # per attempt and number: see `mark_of`
    outputs_listed: dict[int, int] = field(default_factory=dict)  # per attempt: how many outputs at most
    shared_names: dict[tuple[int, int], int] = field(default_factory=dict)  # per output: how often it met another's
    has_uploaded: bool = False  # whether this run has completed an upload: before, a file goes alone
    refused_uploads: dict[int, int] = field(default_factory=dict)  # per item: how often its images were refused
    undecided: dict[int, float] = field(default_factory=dict)  # attempts that the service does not decide: since when
    alike: tuple[str, int] = ("", 0)  # in which words creates were refused last, and how often in a row
    denied_ids: int = 0  # generations in a row of which no read knew the id
    stale_plans: int = 0
    begun: int | None = None  # the attempt that this run made last: its credits count toward --max-credits
    is_told_creates: bool = False  # whether this run itself was told how long to wait, so that it knows exactly
    is_told_reads: bool = False
    _cache: tuple[int, tuple[datetime, ...], Snapshot] | None = None
    _counted: RequestNote | None = None  # a request that was in what the record of its reply saw
    _over: int = 0  # requests
    _misunderstood: frozenset[Call] = frozenset()  # as of the last look
    _understood: set[Call] = field(default_factory=set)  # of these, what was understood since
    looking: asyncio.Lock = field(default_factory=asyncio.Lock)  # held by who looks, and by who must not be overtaken

    @property
    def account_id(self) -> int:
        """The account's id in the queue."""
        return self.viewpoint.account_id

    @property
    def has_key(self) -> bool:
        """Whether the account has an API key at all: without one it only fetches what is ready, or has it held."""
        return bool(self.ports.service.fingerprints)

    @property
    def trouble(self) -> str | None:
        """What goes wrong, for a person; None where each kind of call went right the last time."""
        return next((backoff.said for backoff in self.backoffs.values() if backoff.said is not None), None)

    @property
    def circumstances(self) -> Circumstances:
        """What decides how replies are understood."""
        return Circumstances(self.digest, self.machine.description)

    # --- looking ---

    async def snapshot(self, now: ClockReading) -> tuple[QueueView, AccountView, int]:
        """Return what the planner needs, and the version of the queue that it is true for."""
        while self._understood:
            await self.ports.queue.update_account(self.account_id, CallUnderstood(self._understood.pop()), now)
        days = day_starts(self.day, now)
        async with self.looking:  # the tracks wake together: one of them reads for all
            version = self.ports.queue.changes.version
            if self._cache is None or self._cache[:2] != (version, days):
                snapshot = await self.ports.queue.snapshot(self.viewpoint, days)
                self._keep(version, days, snapshot)
            else:
                snapshot = self._cache[2]
        return snapshot.queue, self._account_view(snapshot, now), version

    async def record(
        self, recording: Callable[[Look], Awaitable[Progress]], now: ClockReading, *, request: RequestNote | None = None
    ) -> Progress:
        """Record a reply, and keep what the queue is like then. Who calls this holds `looking`.

        `request` is what was replied to, where its places are still held.
        """
        days, over = day_starts(self.day, now), self._over
        progress = await recording(Look(self.viewpoint, days))
        if progress.seen is not None and over == self._over:  # else the day's usage may have changed meanwhile
            version, snapshot = progress.seen
            self._keep(version, days, snapshot)
            self._counted = request
        return progress

    def _keep(self, version: int, days: tuple[datetime, ...], snapshot: Snapshot) -> None:
        self._cache = (version, days, snapshot)
        known, self._misunderstood = self._misunderstood, frozenset(entry.call for entry in snapshot.misunderstood)
        for call in known - self._misunderstood:  # a person may have said so: it is asked again at once
            self.backoffs[call] = Backoff()
        self.control.outstanding = (version, snapshot.outstanding)

    def _account_view(self, snapshot: Snapshot, now: ClockReading) -> AccountView:
        unresolved = snapshot.queue.unresolved
        last_touched_at = self.last_touched(unresolved.id, snapshot.last_read_at, now) if unresolved else None
        return AccountView(
            limits=self.limits,
            creates=self.creates,
            reads=self.reads,
            machine=self.machine.log,
            today=self._today(snapshot.usages, now),
            may_start=self.control.may_start_at(now.instant),
            is_blocked=self.account_id in self.control.blocked,
            has_key=self.has_key,
            credits_left=self._credits_left(unresolved),
            creates_held=_wait_of(self.creates_held, snapshot.creates_held, now, is_told=self.is_told_creates),
            backoffs={call: backoff.held for call, backoff in self.backoffs.items()},
            quotes_held={recipe_id: backoff.held for recipe_id, backoff in self.failing_quotes.items()},
            inputs_held={input_id: backoff.held for input_id, backoff in self.failing_uploads.items()},
            misunderstood=snapshot.misunderstood,
            reads_held=_wait_of(self.reads_held, snapshot.reads_held, now, is_told=self.is_told_reads),
            machine_held=self.machine.held,
            last_touched_at=last_touched_at,
            read_worth_at=self._read_worth_at(unresolved, snapshot.active_kind, last_touched_at, now),
        )

    def _credits_left(self, unresolved: Attempt | None) -> int | None:
        """Return what --max-credits leaves for this account, what it has begun in this run included."""
        left = self.control.credits_left
        if left is None or unresolved is None or unresolved.id != self.begun:
            return left
        return left + unresolved.quote_credits

    def _read_worth_at(
        self, attempt: Attempt | None, kind: Kind | None, last_touched_at: float | None, now: ClockReading
    ) -> float:
        """Return when the active generation is best read, by what others of its kind took."""
        if attempt is None or kind is None or attempt.generation_created_at is None or last_touched_at is None:
            return -inf
        if self.followed is None or self.followed.attempt_id != attempt.id:
            began_at = min(last_touched_at, now.monotonic_of(attempt.generation_created_at))
            self.followed = track_generation(
                self.paces, attempt.id, kind, began_at=began_at, draw=self.ports.clock.draw()
            )
        return self.followed.next_read_at(last_touched_at, self.limits.poll_interval_seconds)

    def _today(self, usages: Sequence[DayUsage], now: ClockReading) -> CurrentDay:
        """Return the day's usage. What is under way counts on top, whether or not it is in the snapshot yet."""
        resets_at = now.monotonic_of(self.day.reset_after(now.instant))
        today = CurrentDay.between(usages[0], usages[-1], resets_at=resets_at)
        usage = replace(
            today.usage,
            creates=today.usage.creates + self.creates.under_way,
            reads=today.usage.reads + self.reads.under_way,
        )
        return replace(today, usage=usage)

    def last_touched(self, attempt_id: int, last_read_at: datetime | None, now: ClockReading) -> float | None:
        """Return when the last request about an attempt was over; one of an earlier run, at the latest when it ended.

        How long that request took is not known, only that this process began after it: so it counts as over
        just before this process first looked, or when it was sent, if that is longer ago than any poll interval.
        """
        if attempt_id not in self.last_request_at and last_read_at is not None:
            sent_at = now.monotonic_of(last_read_at)
            recent = now.monotonic - sent_at < 2 * self.limits.poll_interval_seconds
            self.last_request_at[attempt_id] = now.monotonic if recent else min(sent_at, now.monotonic)
        return self.last_request_at.get(attempt_id)

    def watch(
        self, attempt: Attempt, status: GenerationStatus, *, sent_at: float, seen_at: float
    ) -> Observation | None:
        """Take note of how far a generation was between two moments; return and learn what a success took."""
        followed = self.followed
        if followed is None or followed.attempt_id != attempt.id:
            return None
        if not status.is_ended:
            followed.still_goes(sent_at)
        elif status is GenerationStatus.SUCCESS and self.limits.poll_interval_seconds:
            sighting = followed.ended(seen_at)
            self.paces.of(followed.kind).add(sighting)
            return sighting
        return None

    # --- waiting ---

    async def wait(self, track: str, due: NotBefore, version: int) -> None:
        """Wait until something is due, or until the queue has news; not at all where either is already so."""
        news = self.ports.queue.changes.next()
        if self.ports.queue.changes.version != version or self.control.is_over_for(self.account_id):
            return
        self.control.rest(self.account_id, track, version, due)
        at, now = due.at, self.ports.clock.now()
        if self.control.starts_until is not None and self.control.may_start_at(now.instant):
            at = min(at, now.monotonic_of(self.control.starts_until))
        await self.ports.clock.sleep_until(at, news)
        self.control.work(self.account_id, track)

    async def wait_for_news(self, version: int) -> None:
        """Wait until the queue has news, without being at rest: something of the track is under way."""
        news = self.ports.queue.changes.next()
        if self.ports.queue.changes.version == version and not self.control.is_over_for(self.account_id):
            await news.wait()

    def count_stale_plan(self) -> None:
        """Note that a plan was overtaken. Raises `InvariantBroken` where that never ends."""
        self.stale_plans += 1
        if self.stale_plans > STALE_PLANS_IN_A_ROW:
            raise InvariantBroken(f"account {self.viewpoint.account}: every plan is out of date when carried out")

    # --- requests ---

    def new_request(self, kind: RequestKind, now: ClockReading, *, files: int = 0, size_bytes: int = 0) -> RequestNote:
        """Describe a request that is about to leave, with every service day that may count it."""
        return RequestNote(
            account_id=self.account_id,
            kind=kind,
            at=now.instant,
            days=day_starts(self.day, now),
            upload_files=files,
            upload_bytes=size_bytes,
        )

    @asynccontextmanager
    async def rate_limited(self, request: RequestNote) -> AsyncIterator[None]:
        """Hold the request's places in the minute windows from before it is written down until it is over."""
        logs = [self.machine.log]
        if request.kind.is_create:
            logs.append(self.creates)
        elif request.kind.is_read:
            logs.append(self.reads)
        for log in logs:
            log.start()
        try:
            yield
        finally:
            now = self.ports.clock.now()
            for log in logs:
                log.settle(now.monotonic)
            self._over += 1
            if self._counted is not request:
                self._cache = None  # the day's usage has changed, without news for anybody else
        further = tuple(day for day in day_starts(self.day, now) if day not in request.days)
        if further:
            further_request = replace(request, at=now.instant, days=further)
            await self.ports.queue.record_request(further_request, is_further=True)
            self._cache = None

    async def wait_for_capacity(self, call: Call) -> bool:
        """Wait until a quote or an upload may leave that was prepared meanwhile, as `wait_until_due` does."""
        return await self.wait_until_due(lambda account, now: account.call_due(call, now), is_for_new=True)

    async def wait_until_due(
        self, due_of: Callable[[AccountView, ClockReading], NotBefore], *, is_for_new: bool = False
    ) -> bool:
        """Wait until a request may leave, and return so that nothing is awaited before it takes its place.

        Others may have filled the minute meanwhile, so it is asked anew each time (Law 5). False where the run ended
        instead; or where the account begins nothing more, and what waits is for something new.
        """
        while not self.control.is_over_for(self.account_id, is_for_new=is_for_new):
            now = self.ports.clock.now()
            _, account, _ = await self.snapshot(now)
            due = due_of(account, now)
            if due.at <= now.monotonic:
                return True
            at = min(due.at, now.monotonic + self.limits.minute_seconds)
            await self.ports.clock.sleep_until(at, self.control.stopping)
        return False

    def restore_host_window(self, requests: Sequence[LoggedRequest], now: ClockReading) -> None:
        """Begin the machine's window with the last minute of an earlier run, however long ago it was.

        This happens before the service has told its time, when nobody knows how long ago: too many counted
        cost at most one minute, too few might overstep (Law 5).
        """
        if self.machine.is_taken_over or not requests:
            return
        self.machine.is_taken_over = True
        last_minute = requests[-1].sent_at - timedelta(seconds=self.limits.minute_seconds)
        for request in requests:
            if request.sent_at > last_minute:
                self.machine.log.start()
                self.machine.log.settle(now.monotonic)

    def restore_windows(self, requests: Sequence[LoggedRequest], now: ClockReading) -> None:
        """Begin with the account's requests of an earlier run; any may have been under way when it ended.

        One that was sent within two minutes counts as over only now: its reply may have been on the way. So does
        each one where the service does not tell its time, since a wrong clock may make them look old.
        """
        recent = timedelta(seconds=2 * self.limits.minute_seconds)
        for request in requests:
            if request.account_id == self.account_id and (request.kind.is_create or request.kind.is_read):
                log = self.creates if request.kind.is_create else self.reads
                is_recent = now.instant - request.sent_at < recent or not self.ports.clock.is_observed
                log.start()
                log.settle(now.monotonic if is_recent else now.monotonic_of(request.sent_at))

    async def count_across_reset(self, requests: Sequence[LoggedRequest], now: ClockReading) -> None:
        """Count requests of an earlier run in this day as well that may have arrived after its reset (Law 5)."""
        recent, today = timedelta(seconds=2 * self.limits.minute_seconds), self.day.start_of(now.instant)
        for request in requests:
            is_ours = request.account_id == self.account_id and now.instant - request.sent_at < recent
            if is_ours and self.day.start_of(request.sent_at) != today:
                note = RequestNote(request.account_id, request.kind, now.instant, (today,))
                await self.ports.queue.record_request(note, is_further=True)

    # --- troubles ---

    async def on_failure(
        self,
        trouble: TransientError,
        call: Call,
        *,
        reason: WaitReason | None = None,
        about_paid: bool = False,
        of: Sequence[Backoff] = (),
    ) -> None:
        """Wait as the service asks, and no less than after so many troubles of this call in a row.

        `about_paid`: it was met by a read of what is paid already, and not by something new. `of` are the backoffs
        of the very requests that met it, where others of the same call need not wait for them.
        """
        now, own = self.ports.clock.now(), self.backoffs[call]
        described = described_trouble(trouble)
        is_old = described == own.said or any(described == each.said for each in of)
        tell = log.debug if is_old else log.warning  # a night without network is said once
        tell("request_troubled", account=self.viewpoint.account, reason=described)
        own.said = described
        if isinstance(trouble, AccountBlocked):
            self.control.block(self.account_id, trouble, is_cut_off=about_paid)
        else:
            told = told_seconds(trouble)
            is_alone = bool(of) and all(each.fails_alone(self.machine.passed) for each in of)
            if isinstance(trouble, EdgeBlocked) and not (is_alone and is_content(of)):
                # The window may have begun with our last request, so a whole one has to pass.
                self.machine.held = NotBefore(now.monotonic + self.limits.minute_seconds, WaitReason.EDGE_FIREWALL)
            self._wait(own, of, trouble, now, reason=reason or REASONS[type(trouble)], is_alone=is_alone)
            if isinstance(trouble, NotUnderstood):
                await self._count_misunderstood(own, call, trouble, now)
            if told is not None or isinstance(trouble, Throttled):
                await self._hold_window(call, own.held, told, now)
        self.ports.queue.changes.announce()

    def _wait(
        self,
        own: Backoff,
        of: Sequence[Backoff],
        trouble: TransientError,
        now: ClockReading,
        *,
        reason: WaitReason,
        is_alone: bool,
    ) -> None:
        """Let the call wait, and the very requests longer. What fails while others pass does not hold these up."""
        told, passed, draw = told_seconds(trouble) or 0.0, self.machine.passed, self.ports.clock.draw
        is_edge = isinstance(trouble, EdgeBlocked)
        if not is_alone:
            own.count(passed=passed, is_edge=is_edge)
        does_not_mend = isinstance(trouble, Throttled | NotUnderstood)
        longest = RAREST_SECONDS if does_not_mend else LONGEST_SECONDS
        own.wait(now.monotonic, draw(), reason, told=told, longest_seconds=longest)
        for each in of:
            each.count(passed=passed, is_edge=is_edge)
            each.said = own.said
            if is_alone:
                each.wait_alone(now.monotonic, draw(), reason, told=told)
            else:
                each.wait(now.monotonic, draw(), reason, told=told, longest_seconds=longest)

    async def _count_misunderstood(self, own: Backoff, call: Call, trouble: NotUnderstood, now: ClockReading) -> None:
        """Ask ever more rarely, from a minute on; after the second time it is told, and what may rest does."""
        own.misunderstood += 1
        if call is Call.DESCRIPTION:
            return
        seconds = min(self.limits.minute_seconds * 2.0 ** min(own.misunderstood - 1, 16), RAREST_SECONDS)
        own.held = own.held.after(NotBefore(now.monotonic + seconds, own.held.reason))
        if own.misunderstood == MISUNDERSTOOD_AT_MOST:
            await self.rest(call, trouble, now)

    async def rest(self, call: Call, trouble: NotUnderstood, now: ClockReading) -> None:
        """Tell a person what is not understood; what may rest does, until something changes (Law 10)."""
        entry = Misunderstood(
            call=call,
            since=now.instant,
            lacking=trouble.lacking,
            shape=trouble.shape,
            status=trouble.status,
            remedy=trouble.remedy or "",
        )
        log.error("reply_not_understood", account=self.viewpoint.account, reason=describe_error(trouble))
        self._understood.discard(call)
        await self.ports.queue.update_account(self.account_id, CallMisunderstood(entry, self.circumstances), now)
        if call.may_rest:
            self.backoffs[call] = Backoff(said=self.backoffs[call].said)

    async def _hold_window(self, call: Call, own: NotBefore, told: float | None, now: ClockReading) -> None:
        """Hold the whole window that the call shares: as told, else for a minute of it at most (Service section 8)."""
        at = min(own.at, now.monotonic + self.limits.minute_seconds) if told is None else now.monotonic + told
        due = NotBefore(at, own.reason)
        # Known to all tracks before anything is awaited; what another track was told meanwhile may last longer.
        if call.is_create:
            self.creates_held = self.creates_held.after(due)
            self.is_told_creates |= told is not None
        else:
            self.reads_held = self.reads_held.after(due)
            self.is_told_reads |= told is not None
        if told is not None and due in {self.creates_held, self.reads_held}:
            until = now.latest + timedelta(seconds=told)
            hold = HoldImposed(is_of_creates=call.is_create, until=until, reason=due.reason)
            await self.ports.queue.update_account(self.account_id, hold, now)

    def is_of_older_key(self, attempt: Attempt, trouble: AccountBlocked) -> bool:
        """Tell whether it is only the API key of an earlier attempt that is refused, and the account has a newer one.

        A revoked key takes its generations with it, since no other may ask for them (Service rules 4.2 and 4.4); the
        account itself can go on.
        """
        is_about_key = trouble.problem in {AccountProblem.KEY_REFUSED, AccountProblem.UPGRADE_REQUIRED}
        return is_about_key and attempt.key_fingerprint != self.ports.service.newest_key

    async def retry_old_key(self, attempt: Attempt, trouble: AccountBlocked, call: Call) -> bool:
        """Wait and ask again after a refusal of an older key, unless it was refused for an hour: then it is gone."""
        now = self.ports.clock.now()
        since = self.refused_keys.setdefault(attempt.key_fingerprint, now.monotonic)
        if now.monotonic - since >= LOST_AFTER.total_seconds():
            return False
        await self.on_failure(Unavailable(None, trouble.error), call)
        return True

    def postpone_uploads(self, now: ClockReading, reason: WaitReason, *, told: float) -> None:
        """Let uploads wait for so many seconds, or longer with each trouble in a row; creates go on."""
        backoff = self.backoffs[Call.UPLOAD]
        backoff.count(passed=self.machine.passed)
        backoff.wait(now.monotonic, self.ports.clock.draw(), reason, told=told, longest_seconds=RAREST_SECONDS)
        self.ports.queue.changes.announce()

    def count_alike(self, words: str) -> int:
        """Count one more create that was refused in these words, and return how many there are in a row."""
        said = _NUMBERS.sub("#", words)
        before, times = self.alike
        self.alike = (said, times + 1 if said == before else 1)
        return self.alike[1]

    def accepted(self, attempt: Attempt) -> None:
        """Note that the service accepted a create: what went before was about single requests."""
        self.undecided.pop(attempt.id, None)
        self.gone_assets.pop(attempt.item_id, None)
        self.alike = ("", 0)

    def postpone_creates(self, now: ClockReading, seconds: float, reason: WaitReason, told: str) -> None:
        """Let creates wait for service seconds, at least; `told` says why, and is logged once."""
        own = self.backoffs[Call.CREATE]
        tell = log.debug if told == own.said else log.warning
        tell("create_undecided", account=self.viewpoint.account, reason=told, retry_after_seconds=seconds)
        own.said = told
        own.held = own.held.after(NotBefore(now.monotonic + seconds, reason))
        self.ports.queue.changes.announce()

    def avoid_failing_inputs(self) -> None:
        """Let items go first that need no image whose upload fails again and again."""
        avoided = frozenset(input_id for input_id, backoff in self.failing_uploads.items() if backoff.is_told)
        if avoided != self.viewpoint.avoided_inputs:
            self.viewpoint = replace(self.viewpoint, avoided_inputs=avoided)
            self._cache = None

    def on_success(self, call: Call, *, key: str | None = None) -> None:
        """Note a definite reply: the next trouble of this call begins with a short wait again.

        `key` is the fingerprint of the API key that the service thereby accepted, where it may be an older one.
        """
        self.machine.passed += 1
        self.backoffs[call] = Backoff()
        if call in self._misunderstood:
            self._understood.add(call)
        if key is not None:
            self.refused_keys.pop(key, None)


def _wait_of(held: NotBefore, stored: HeldUntil | None, now: ClockReading, *, is_told: bool) -> NotBefore:
    """Return this run's own wait, which is exact where it was told one; else no less than an earlier run was told."""
    if stored is None or is_told:
        return held
    return held.after(NotBefore(now.monotonic_of(stored.until), stored.reason))
