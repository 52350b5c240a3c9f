"""One account's lane: its windows in memory, its waits, and the writing down of each request before it leaves."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from math import inf
from typing import Any, Final

import structlog

from batchkiln.core.backoff import delay_seconds
from batchkiln.core.durations import Sighting
from batchkiln.core.errors import InvariantBroken
from batchkiln.core.instants import Now
from batchkiln.core.job import Attempt
from batchkiln.core.planner import AccountView, Due, QueueView, Reason
from batchkiln.core.polling import LOST_AFTER
from batchkiln.core.replies import (
    AccountBlocked,
    AccountProblem,
    EdgeBlocked,
    GenerationRecord,
    GenerationStatus,
    NoReply,
    NotUnderstood,
    Throttled,
    Trouble,
    Unavailable,
)
from batchkiln.core.troubles import describe_trouble
from batchkiln.core.views import (
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
from batchkiln.core.windows import DayUsage, Limits, ServiceDay, SlidingLog, Today, day_starts
from batchkiln.scheduler.control import Control, Machine
from batchkiln.scheduler.cut_files import CutFiles
from batchkiln.scheduler.failed_outputs import FailedOutputs
from batchkiln.scheduler.pacing import Followed, Paces, follow
from batchkiln.scheduler.ports import Clock, Inputs, Outputs, Queue, Service
from batchkiln.scheduler.unnamed import UnnamedResults

log = structlog.get_logger()

Seen = tuple[GenerationStatus, str, int | None]
"""Status, its word and the cost: what makes a record of a generation worth recording."""

_NUMBERS: Final = re.compile(r"\d+|\"[^\"]*\"|'[^']*'")  # what differs between refusals that are alike

STALE_PLANS_IN_A_ROW = 1000
"""A plan may be overtaken by another account or a person, but not for ever: that would be a bug of ours."""


@dataclass(frozen=True, slots=True)
class Ports:
    """What a lane works with."""

    clock: Clock
    queue: Queue
    service: Service
    outputs: Outputs[Any]
    inputs: Inputs


@dataclass(slots=True)
class Lane:
    """The state of one account in this process; what has to survive is in the queue as well."""

    viewpoint: Viewpoint
    limits: Limits
    day: ServiceDay
    ports: Ports
    control: Control
    machine: Machine
    creates: SlidingLog
    reads: SlidingLog
    paces: Paces
    followed: Followed | None = None  # the active generation, once it was looked at
    creates_held: Due = field(default_factory=lambda: Due(-inf))
    reads_held: Due = field(default_factory=lambda: Due(-inf))
    uploads_held: Due = field(default_factory=lambda: Due(-inf))
    create_troubles: int = 0
    read_troubles: int = 0
    upload_troubles: int = 0
    touched: dict[int, float] = field(default_factory=dict)  # when the last request about an attempt was over
    ready: dict[int, tuple[DownloadTask, GenerationRecord]] = field(default_factory=dict)  # just seen, with links
    seen: dict[int, Seen] = field(default_factory=dict)  # what was last recorded of the active generation
    unnamed: UnnamedResults = field(default_factory=UnnamedResults)
    refused_quotes: dict[int, tuple[str, int]] = field(default_factory=dict)  # per recipe: what, how often in a row
    gone_assets: dict[int, int] = field(default_factory=dict)  # per item: how often a quote found its upload gone
    refused_keys: dict[str, float] = field(default_factory=dict)  # fingerprints: refused since when
    cut_files: CutFiles = field(default_factory=CutFiles)
    failed_outputs: FailedOutputs = field(default_factory=FailedOutputs)
    output_marks: dict[int, dict[int, str]] = field(default_factory=dict)  # per attempt and number: see `mark_of`
    outputs_listed: dict[int, int] = field(default_factory=dict)  # per attempt: how many outputs at most
    shared_names: dict[tuple[int, int], int] = field(default_factory=dict)  # per output: how often it met another's
    refused_uploads: dict[int, int] = field(default_factory=dict)  # per item: how often its images were refused
    undecided: dict[int, float] = field(default_factory=dict)  # attempts that the service does not decide: since when
    alike: tuple[str, int] = ("", 0)  # in which words creates were refused last, and how often in a row
    stale_plans: int = 0
    begun: int | None = None  # the attempt that this run made last: its credits count toward --max-credits
    is_told_creates: bool = False  # whether this run itself was told how long to wait, so that it knows exactly
    is_told_reads: bool = False
    trouble: str | None = None  # what went wrong last, for a person; None once something went right
    _cache: tuple[int, tuple[datetime, ...], Snapshot] | None = None
    _counted: RequestNote | None = None  # a request that was in what the record of its reply saw
    _over: int = 0  # requests
    looking: asyncio.Lock = field(default_factory=asyncio.Lock)  # held by who looks, and by who must not be overtaken

    @property
    def account_id(self) -> int:
        """The account's id in the queue."""
        return self.viewpoint.account_id

    @property
    def has_key(self) -> bool:
        """Whether the account has an API key at all: without one it only fetches what is ready, or has it held."""
        return bool(self.ports.service.fingerprints)

    # --- looking ---

    async def look(self, now: Now) -> tuple[QueueView, AccountView, int]:
        """Return what the planner needs, and the version of the queue that it is true for."""
        days = day_starts(self.day, now)
        async with self.looking:  # the tracks wake together: one of them reads for all
            version = self.ports.queue.version
            if self._cache is None or self._cache[:2] != (version, days):
                snapshot = await self.ports.queue.snapshot(self.viewpoint, days)
                self._keep(version, days, snapshot)
            else:
                snapshot = self._cache[2]
        return snapshot.queue, self._account_view(snapshot, now), version

    async def record(
        self, recording: Callable[[Look], Awaitable[Progress]], now: Now, *, request: RequestNote | None = None
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
        self.control.outstanding = (version, snapshot.outstanding)

    def _account_view(self, snapshot: Snapshot, now: Now) -> AccountView:
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
            uploads_held=self.uploads_held,
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
        self, attempt: Attempt | None, kind: Kind | None, last_touched_at: float | None, now: Now
    ) -> float:
        """Return when the active generation is best read, by what others of its kind took."""
        if attempt is None or kind is None or attempt.generation_created_at is None or last_touched_at is None:
            return -inf
        if self.followed is None or self.followed.attempt_id != attempt.id:
            began_at = min(last_touched_at, now.steady_of(attempt.generation_created_at))
            self.followed = follow(self.paces, attempt.id, kind, began_at=began_at, draw=self.ports.clock.draw())
        return self.followed.next_read_at(last_touched_at, self.limits.poll_interval_seconds)

    def _today(self, usages: Sequence[DayUsage], now: Now) -> Today:
        """Return the day's usage. What is under way counts on top, whether or not it is in the snapshot yet."""
        resets_at = now.steady_of(self.day.reset_after(now.instant))
        today = Today.between(usages[0], usages[-1], resets_at=resets_at)
        usage = replace(
            today.usage,
            creates=today.usage.creates + self.creates.under_way,
            reads=today.usage.reads + self.reads.under_way,
        )
        return replace(today, usage=usage)

    def last_touched(self, attempt_id: int, last_read_at: datetime | None, now: Now) -> float | None:
        """Return when the last request about an attempt was over; one of an earlier run, at the latest when it ended.

        How long that request took is not known, only that this process began after it: so it counts as over
        just before this process first looked, or when it was sent, if that is longer ago than any poll interval.
        """
        if attempt_id not in self.touched and last_read_at is not None:
            sent_at = now.steady_of(last_read_at)
            recent = now.steady - sent_at < 2 * self.limits.poll_interval_seconds
            self.touched[attempt_id] = now.steady if recent else min(sent_at, now.steady)
        return self.touched.get(attempt_id)

    def watch(self, attempt: Attempt, status: GenerationStatus, *, sent_at: float, seen_at: float) -> Sighting | None:
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

    async def wait(self, track: str, due: Due, version: int) -> None:
        """Wait until something is due, or until the queue has news; not at all where either is already so."""
        news = self.ports.queue.news()
        if self.ports.queue.version != version or self.control.is_over_for(self.account_id):
            return
        self.control.rest(self.account_id, track, version, due)
        at, now = due.at, self.ports.clock.now()
        if self.control.starts_until is not None and self.control.may_start_at(now.instant):
            at = min(at, now.steady_of(self.control.starts_until))
        await self.ports.clock.sleep_until(at, news)
        self.control.work(self.account_id, track)

    async def wait_for_news(self, version: int) -> None:
        """Wait until the queue has news, without being at rest: something of the track is under way."""
        news = self.ports.queue.news()
        if self.ports.queue.version == version and not self.control.is_over_for(self.account_id):
            await news.wait()

    def count_stale_plan(self) -> None:
        """Note that a plan was overtaken. Raises `InvariantBroken` where that never ends."""
        self.stale_plans += 1
        if self.stale_plans > STALE_PLANS_IN_A_ROW:
            raise InvariantBroken(f"account {self.viewpoint.account}: every plan is out of date when carried out")

    # --- requests ---

    def note(self, kind: RequestKind, now: Now, *, files: int = 0, size_bytes: int = 0) -> RequestNote:
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
    async def sending(self, request: RequestNote) -> AsyncIterator[None]:
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
                log.settle(now.steady)
            self._over += 1
            if self._counted is not request:
                self._cache = None  # the day's usage has changed, without news for anybody else
        further = tuple(day for day in day_starts(self.day, now) if day not in request.days)
        if further:
            await self.ports.queue.count_also(replace(request, at=now.instant, days=further))
            self._cache = None

    async def place(self, *, creates: bool) -> bool:
        """Wait until a quote or an upload may leave that was prepared meanwhile, as `wait_until_due` does."""
        return await self.wait_until_due(AccountView.create_due if creates else AccountView.read_due, is_for_new=True)

    async def wait_until_due(self, due_of: Callable[[AccountView, Now], Due], *, is_for_new: bool = False) -> bool:
        """Wait until a request may leave, and return so that nothing is awaited before it takes its place.

        Others may have filled the minute meanwhile, so it is asked anew each time (Law 5). False where the run ended
        instead; or where the account begins nothing more, and what waits is for something new.
        """
        while not self.control.is_over_for(self.account_id, is_for_new=is_for_new):
            now = self.ports.clock.now()
            _, account, _ = await self.look(now)
            due = due_of(account, now)
            if due.at <= now.steady:
                return True
            at = min(due.at, now.steady + self.limits.minute_seconds)
            await self.ports.clock.sleep_until(at, self.control.stopping)
        return False

    def take_over_machine(self, requests: Sequence[LoggedRequest], now: Now) -> None:
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
                self.machine.log.settle(now.steady)

    def take_over(self, requests: Sequence[LoggedRequest], now: Now) -> None:
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
                log.settle(now.steady if is_recent else now.steady_of(request.sent_at))

    async def count_across_reset(self, requests: Sequence[LoggedRequest], now: Now) -> None:
        """Count requests of an earlier run in this day as well that may have arrived after its reset (Law 5)."""
        recent, today = timedelta(seconds=2 * self.limits.minute_seconds), self.day.start_of(now.instant)
        for request in requests:
            is_ours = request.account_id == self.account_id and now.instant - request.sent_at < recent
            if is_ours and self.day.start_of(request.sent_at) != today:
                note = RequestNote(request.account_id, request.kind, now.instant, (today,))
                await self.ports.queue.count_also(note)

    # --- troubles ---

    async def meet(
        self, trouble: Trouble, *, creates: bool, reason: Reason | None = None, about_paid: bool = False
    ) -> None:
        """Wait as the service asks, or longer with each trouble in a row where it does not say.

        `about_paid`: it was met by a read of what is paid already, and not by something new.
        """
        now = self.ports.clock.now()
        described = _described(trouble)
        tell = log.debug if described == self.trouble else log.warning  # a night without network is said once
        tell("request_troubled", account=self.viewpoint.account, reason=described)
        self.trouble = described
        match trouble:
            case Throttled(retry_after=retry_after):
                await self._hold(now, retry_after, creates=creates, reason=reason or Reason.THROTTLED)
            case Unavailable(retry_after=retry_after):
                await self._hold(now, retry_after, creates=creates, reason=Reason.UNAVAILABLE)
            case NoReply() | NotUnderstood():
                await self._hold(now, None, creates=creates, reason=Reason.UNREACHABLE)
            case EdgeBlocked():
                # The window may have begun with our last request, so a whole one has to pass.
                self.machine.held = Due(now.steady + self.limits.minute_seconds, Reason.EDGE_FIREWALL)
            case AccountBlocked():
                self.control.block(self.account_id, trouble, is_cut_off=about_paid)
        self.ports.queue.announce()

    def is_of_older_key(self, attempt: Attempt, trouble: AccountBlocked) -> bool:
        """Tell whether it is only the API key of an earlier attempt that is refused, and the account has a newer one.

        A revoked key takes its generations with it, since no other may ask for them (Service rules 4.2 and 4.4); the
        account itself can go on.
        """
        is_about_key = trouble.problem in {AccountProblem.KEY_REFUSED, AccountProblem.UPGRADE_REQUIRED}
        return is_about_key and attempt.key_fingerprint != self.ports.service.newest_key

    async def outlasts_refusal(self, attempt: Attempt, trouble: AccountBlocked, *, creates: bool) -> bool:
        """Wait and ask again after a refusal of an older key, unless it was refused for an hour: then it is gone."""
        now = self.ports.clock.now()
        since = self.refused_keys.setdefault(attempt.key_fingerprint, now.steady)
        if now.steady - since >= LOST_AFTER.total_seconds():
            return False
        await self.meet(Unavailable(None, trouble.error), creates=creates)
        return True

    async def _hold(self, now: Now, retry_after: timedelta | None, *, creates: bool, reason: Reason) -> None:
        if creates:
            self.create_troubles += 1
        else:
            self.read_troubles += 1
        if retry_after is None:
            tries = self.create_troubles if creates else self.read_troubles
            seconds = delay_seconds(tries, self.ports.clock.draw())
        else:
            seconds = retry_after.total_seconds()
        due = Due(now.steady + seconds, reason)
        # Known to all tracks before anything is awaited; what another track was told meanwhile may last longer.
        if creates:
            self.creates_held = self.creates_held.after(due)
            self.is_told_creates |= retry_after is not None
        else:
            self.reads_held = self.reads_held.after(due)
            self.is_told_reads |= retry_after is not None
        if retry_after is not None and due in {self.creates_held, self.reads_held}:
            until = now.latest + retry_after
            await self.ports.queue.hold(self.account_id, creates=creates, until=until, reason=reason)

    def postpone_creates(self, now: Now, seconds: float, reason: Reason, told: str) -> None:
        """Let creates wait for service seconds; `told` says why, and is logged once."""
        tell = log.debug if told == self.trouble else log.warning
        tell("create_undecided", account=self.viewpoint.account, reason=told, retry_after_seconds=seconds)
        self.trouble = told
        self.creates_held = self.creates_held.after(Due(now.steady + seconds, reason))
        self.ports.queue.announce()

    def count_alike(self, words: str) -> int:
        """Count one more create that was refused in these words, and return how many there are in a row."""
        said = _NUMBERS.sub("#", words)
        before, times = self.alike
        self.alike = (said, times + 1 if said == before else 1)
        return self.alike[1]

    def accepted(self, attempt_id: int) -> None:
        """Note that the service accepted a create: what went before was about single requests."""
        self.undecided.pop(attempt_id, None)
        self.alike = ("", 0)

    def postpone_uploads(self, now: Now, *, until: float | None = None, reason: Reason) -> None:
        """Let uploads wait, until a moment or longer with each trouble in a row; creates go on."""
        self.upload_troubles += 1
        at = now.steady + delay_seconds(self.upload_troubles, self.ports.clock.draw()) if until is None else until
        self.uploads_held = Due(at, reason)
        self.ports.queue.announce()

    def recovered(self, *, creates: bool, key: str | None = None) -> None:
        """Note a definite reply: the next trouble begins with a short wait again.

        `key` is the fingerprint of the API key that the service thereby accepted, where it may be an older one.
        """
        self.trouble = None
        if key is not None:
            self.refused_keys.pop(key, None)
        if creates:
            self.create_troubles = 0
        else:
            self.read_troubles = 0


def _wait_of(held: Due, stored: HeldUntil | None, now: Now, *, is_told: bool) -> Due:
    """Return this run's own wait, which is exact where it was told one; else no less than an earlier run was told."""
    if stored is None or is_told:
        return held
    return held.after(Due(now.steady_of(stored.until), stored.reason))


def _described(trouble: Trouble) -> str:
    """Say in a line what the service did, or did not do."""
    match trouble:
        case NoReply(reason=reason):
            return reason
        case NotUnderstood():
            return describe_trouble(trouble)
        case EdgeBlocked():
            return "the firewall before the API refused the request; this machine waits for a whole minute"
        case Throttled(error=error) | Unavailable(error=error) | AccountBlocked(error=error):
            return f"{error.code}: {error.message}"
