"""A rehearsal as a discrete-event model: the program's own decisions, over a queue and a service in memory.

`choose_action` and `choose_preparation` decide, under the program's own limits, poll times and clock. Requests, the
database, files and tasks are left out: a request is an event at the time of its reply. A model covers a service and a
network without faults, and jobs of prompts alone; for anything else it raises `NotModelledError`, and the whole program
has to run. Bill, states, days and requests are the same as those of the whole program, which
tests/integration/rehearsal/test_event_model.py checks.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from heapq import heappop, heappush
from itertools import count
from math import inf
from typing import Final, NamedTuple

from batchkiln.config import Profile
from batchkiln.core.account_view import AccountView, account_view
from batchkiln.core.job import Attempt, AttemptState
from batchkiln.core.outcomes import READS, Credits, Known, settle
from batchkiln.core.planner import Poll, Submit, choose_action
from batchkiln.core.preparation import AskQuote, Reject, choose_preparation
from batchkiln.core.queue_changes import NeverFits
from batchkiln.core.queue_types import Candidate, QueueView, Scope, Viewpoint
from batchkiln.core.rate_limits import DayUsage, HeldUntil, HostRateLimit, RateLimits, RequestKind
from batchkiln.core.responses import ErrorInfo, GenerationStatus
from batchkiln.core.states import ItemState
from batchkiln.core.timestamps import EPOCH, ClockOffset, ClockReading, from_milliseconds, to_milliseconds
from batchkiln.core.waits import NotBefore, WaitReason
from batchkiln.rehearsal.modelled_queue import ModelledItem, ModelledQueue
from batchkiln.store import never_fits_error
from batchkiln.worker.poll_timing import DurationModels, PollTiming
from batchkiln_service import ModelledGeneration, ModelledService, NotModelledError

CONNECTION_IDLE_SECONDS: Final = 75.0
"""The local service closes a connection after so long without a request."""

PROGRESS_SECONDS: Final = 1800.0

_NEVER: Final = NotBefore(inf, WaitReason.NOTHING)


class _Stored(NamedTuple):
    """What the queue stores about an account."""

    usages: Sequence[DayUsage]
    creates_held: HeldUntil | None = None
    reads_held: HeldUntil | None = None
    misunderstood: tuple[()] = ()


@dataclass(slots=True)
class _Generation:
    """The one unresolved generation of an account."""

    attempt: Attempt
    item: ModelledItem
    made: ModelledGeneration


@dataclass(slots=True, eq=False)
class _Account:
    """An account: its limits and what it does. Its slot and its preparation each send one request at a time."""

    viewpoint: Viewpoint
    rates: RateLimits
    polls: PollTiming
    used: dict[datetime, list[int]] = field(default_factory=dict)  # creates, reads and credits by service day
    generation: _Generation | None = None
    is_sending: bool = True  # the slot; at first it asks for the time
    is_preparing: bool = True
    slot_due: NotBefore = _NEVER
    preparation_due: NotBefore = _NEVER
    is_stale: bool = False  # something has changed since the last decisions
    poll_planned_after: int | None = None  # the number of requests before the slot chose to poll; None if it did not

    @property
    def name(self) -> str:
        return self.viewpoint.account

    def usage_on(self, day: datetime) -> list[int]:
        return self.used.setdefault(day, [0, 0, 0])

    @property
    def due_at(self) -> float:
        return min(self.slot_due.at, self.preparation_due.at)

    @property
    def awaits_place(self) -> bool:
        """Whether it awaits a place in the machine's minute, which is freed at an unknown time."""
        return any(
            due.at == inf and due.reason is WaitReason.MINUTE_WINDOW for due in (self.slot_due, self.preparation_due)
        )


@dataclass(frozen=True, slots=True)
class _Sent:
    """A request under way: its kind, when it was sent and arrives, and the service days that may count it."""

    account: _Account
    kind: RequestKind
    sent_at: float
    arrives_at: float
    days: tuple[datetime, ...]


class EventModel:
    """A run of some jobs, from `starts_at`, when the loop's time is 0."""

    def __init__(
        self,
        queue: ModelledQueue,
        service: ModelledService,
        profile: Profile,
        *,
        starts_at: datetime,
        delay_seconds: float,
        on_progress: Callable[[datetime, int], None],
    ) -> None:
        """Begin with a queue and a service of which nothing was asked. `delay_seconds` is that of the network."""
        self._queue = queue
        self._service = service
        self._starts_at = starts_at
        self._delay = delay_seconds
        self._on_progress = on_progress
        self._time = self._progress_at = 0.0
        self._zero = (starts_at - EPOCH).total_seconds()
        self._starts_at_ms = to_milliseconds(starts_at)
        self._offset = ClockOffset(self._zero, self._zero)
        self._reading = self._offset.now(self._time)
        self._idle: deque[float] = deque()  # since when each open connection was not used
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._finished: list[ModelledItem] = []  # with files to download
        self._attempt_ids = count(1)
        self._requests = 0
        durations, host = DurationModels(profile.limits.poll_interval_seconds), HostRateLimit.of(profile.limits)
        first = profile.account_names[0]
        self._accounts = [
            _Account(
                Viewpoint(number, profile.name, name, name == first, Scope()),
                RateLimits(profile.limits, profile.day, host),
                PollTiming(durations),
            )
            for number, name in enumerate(queue.accounts(first), 1)
        ]

    def run(self) -> datetime:
        """Run until no item can change; return the end. Raise `NotModelledError` if the service would refuse."""
        for account in self._accounts:
            self._send(account, RequestKind.OTHER, self._described)
        while True:
            self._decide()
            self._download()
            at = min(self._events[0][0] if self._events else inf, *(each.due_at for each in self._accounts))
            if not self._queue.left or at == inf:
                return self._starts_at + timedelta(seconds=self._time)
            while at >= self._progress_at:
                self._on_progress(self._starts_at + timedelta(seconds=self._progress_at), self._queue.left)
                self._progress_at += PROGRESS_SECONDS
            self._time = max(self._time, at)
            while self._events and self._events[0][0] <= self._time:
                heappop(self._events)[2]()

    # --- decisions ---

    def _decide(self) -> None:
        """Let each account decide whose state has changed, or whose wait is over."""
        is_settled = False
        while not is_settled:
            is_settled = True
            for account in self._accounts:
                if account.is_stale or account.due_at <= self._time:
                    is_settled = False
                    self._decide_for(account)

    def _decide_for(self, account: _Account) -> None:
        """Begin what is due. The preparation decides by the look of the slot, whose start is no news to its account."""
        is_stale, account.is_stale = account.is_stale, False
        if account.poll_planned_after == self._requests and not is_stale and account.preparation_due.at > self._time:
            self._poll(account)  # nothing has changed since it was chosen
            return
        now = self._now()
        queue, view = self._look(account, now)
        if not account.is_sending and (is_stale or account.slot_due.at <= self._time):
            account.slot_due = self._drive_slot(account, queue, view, now)
        if not account.is_preparing and (is_stale or account.preparation_due.at <= self._time):
            account.preparation_due = self._prepare(account, queue, view, now)

    def _look(self, account: _Account, now: ClockReading) -> tuple[QueueView, AccountView]:
        """Return what the planner decides by."""
        days, generation = account.rates.days(now), account.generation
        attempt = touched_at = None
        worth_at = -inf
        if generation is not None:
            attempt = generation.attempt
            touched_at = account.polls.touched_at(attempt.id, None, now)
            if touched_at is not None:
                worth_at = account.polls.worth_at(attempt, generation.item.kind, touched_at, now)
        candidates = self._queue.candidates(account.viewpoint, days)
        stored = _Stored([DayUsage(*account.usage_on(day)) for day in days])
        view = account_view(stored, account.rates, now, last_touched_at=touched_at, read_worth_at=worth_at)
        return QueueView(attempt, candidates), view

    def _drive_slot(self, account: _Account, queue: QueueView, view: AccountView, now: ClockReading) -> NotBefore:
        """Begin the slot's next action if it is due; return when to decide again."""
        action = choose_action(queue, view, now)
        account.poll_planned_after = self._requests if isinstance(action, Poll) else None
        if action.due.at > now.monotonic:
            return action.due
        match action:
            case Submit(candidate=candidate):
                self._submit(account, candidate, now)
            case Poll():
                self._poll(account)
            case _:
                raise NotModelledError(type(action).__name__)
        return _NEVER

    def _prepare(self, account: _Account, queue: QueueView, view: AccountView, now: ClockReading) -> NotBefore:
        """Begin the next preparation if it is due; return when to decide again."""
        choice = choose_preparation(queue, view, now)
        if isinstance(choice, Reject):
            never_fits = NeverFits(choice.obstacle, choice.limit(account.rates.limits.credits_per_day))
            self._queue.reject(choice.candidate, never_fits_error(never_fits, choice.candidate.cost or 0))
            self._changed(account, is_for_all=True)
            return _NEVER
        if choice.due.at > now.monotonic:
            return choice.due
        if not isinstance(choice, AskQuote):
            raise NotModelledError(type(choice).__name__)
        candidate = choice.candidate
        account.is_preparing = True
        self._send(account, RequestKind.QUOTE, lambda sent: self._quoted(sent, candidate))
        return _NEVER

    def _changed(self, account: _Account, *, is_for_all: bool) -> None:
        """Let accounts decide anew after a change: all if it may let others begin something."""
        for each in self._accounts if is_for_all or self._queue.is_limited else (account,):
            each.is_stale = True

    # --- requests and replies ---

    def _poll(self, account: _Account) -> None:
        account.is_sending, account.slot_due = True, _NEVER
        self._send(account, RequestKind.READ, self._polled)

    def _submit(self, account: _Account, candidate: Candidate, now: ClockReading) -> None:
        assert candidate.cost is not None, "only a quoted item is submitted"
        account.is_sending = True
        cost, day, recorded_at = candidate.cost, account.rates.days(now)[-1], now.instant
        is_last = self._queue.is_last(candidate)
        item = self._queue.begin(candidate, cost, day)
        account.usage_on(day)[2] += cost
        self._send(
            account, RequestKind.CREATE, lambda sent: self._created(sent, item, cost, day=day, recorded_at=recorded_at)
        )
        if is_last:
            self._changed(account, is_for_all=True)

    def _send(self, account: _Account, kind: RequestKind, on_reply: Callable[[_Sent], None]) -> None:
        """Record a request and send it. Its reply is an event."""
        now = self._now()
        self._requests += 1
        account.rates.acquire(kind)
        days = account.rates.days(now)
        self._count(account, kind, days)
        arrives_at = self._arrival()
        sent = _Sent(account, kind, self._time, arrives_at, days)
        self._at(arrives_at + self._delay, lambda: self._reply(sent, on_reply))

    def _reply(self, sent: _Sent, on_reply: Callable[[_Sent], None]) -> None:
        """Take a reply: first its date and its place in the minute, then its content."""
        account = sent.account
        self._idle.append(self._time)
        date = datetime.fromtimestamp(self._ms_of(sent.arrives_at) // 1000, UTC)
        self._offset = self._offset.observe(date, sent_at=sent.sent_at, received_at=self._time, expected=self._zero)
        self._reading = self._offset.now(self._time)
        now = self._now()
        account.rates.release(sent.kind, now.monotonic)
        self._count(account, sent.kind, [day for day in account.rates.days(now) if day not in sent.days])
        for each in self._accounts:
            if each.awaits_place:
                each.is_stale = True
        on_reply(sent)

    def _described(self, sent: _Sent) -> None:
        self._service.describe(self._ms_of(sent.arrives_at))
        sent.account.is_sending = sent.account.is_preparing = False
        sent.account.is_stale = True

    def _quoted(self, sent: _Sent, candidate: Candidate) -> None:
        account, item = sent.account, self._queue.item(candidate.item_id)
        cost = self._service.quote(account.name, item.body(None), self._ms_of(sent.arrives_at))
        self._queue.priced(candidate, cost)
        account.is_preparing = False
        self._changed(account, is_for_all=True)

    def _created(self, sent: _Sent, item: ModelledItem, cost: int, *, day: datetime, recorded_at: datetime) -> None:
        account, now = sent.account, self._now()
        made = self._service.create(account.name, item.body(cost), self._ms_of(sent.arrives_at))
        attempt = Attempt(
            id=next(self._attempt_ids),
            item_id=item.request.item_id,
            account_id=account.viewpoint.account_id,
            number=1,
            state=AttemptState.ACTIVE,
            is_video=item.kind.is_video,
            idempotency_key="",
            key_fingerprint="",
            body=b"",
            quote_credits=cost,
            generation_id=made.id,
            generation_created_at=from_milliseconds(made.created_at_ms),
        )
        account.polls.touch(attempt.id, now.monotonic)
        charged_on = _day_of_charge(account.rates, made, recorded_at, now)
        account.usage_on(day)[2] -= cost
        account.usage_on(charged_on)[2] += cost
        self._queue.accepted(item, cost, reserved_on=day, charged_on=charged_on)
        account.generation = _Generation(attempt, item, made)
        account.is_sending = False
        self._changed(account, is_for_all=False)

    def _polled(self, sent: _Sent) -> None:
        account, now, generation = sent.account, self._now(), sent.account.generation
        assert generation is not None, "only an active generation is polled"
        attempt, item, made = generation.attempt, generation.item, generation.made
        status = GenerationStatus.of(self._service.read(made, self._ms_of(sent.arrives_at)))
        account.polls.touch(attempt.id, now.monotonic)
        account.polls.observe(attempt, status, sent_at=sent.sent_at, seen_at=now.monotonic)
        account.is_sending = False
        if not status.is_ended:
            account.slot_due = NotBefore(self._time)  # nobody else has any news
            return
        account.polls.forget(attempt.id)
        account.generation = None
        outcome = READS[status]
        known = Known(failures=self._queue.failures(item), tries=item.recipe.attempts)
        event = settle(outcome, known).event
        if outcome.credits is Credits.REFUNDED:
            self._queue.refunded(item, made.cost_credits)
        error = self._service.error_of(made)
        assert event is not None, "an end moves the item"
        state = self._queue.ended(item, event, error and ErrorInfo(*error))
        if state is ItemState.DOWNLOADING:
            self._finished.append(item)
        self._changed(account, is_for_all=state is ItemState.QUEUED)

    def _download(self) -> None:
        """Fetch the files of generations that have just ended, after the slots have sent what they have to send."""
        for item in self._finished:
            self._at(self._arrival() + self._delay, partial(self._downloaded, item))
        self._finished.clear()

    def _downloaded(self, item: ModelledItem) -> None:
        self._idle.append(self._time)
        self._queue.saved(item)

    # --- time ---

    def _now(self) -> ClockReading:
        if self._reading.monotonic != self._time:
            self._reading = self._offset.now(self._time)
        return self._reading

    def _ms_of(self, at: float) -> int:
        """Return the service's instant at a time of the loop, in milliseconds."""
        return self._starts_at_ms + round(at * 1000)

    def _at(self, at: float, call: Callable[[], None]) -> None:
        heappush(self._events, (at, next(self._order), call))

    def _arrival(self) -> float:
        """Return when a request that is sent now arrives. Without an idle connection, one is made first."""
        while self._idle:
            if self._time - self._idle.popleft() < CONNECTION_IDLE_SECONDS:
                return self._time + self._delay
        return self._time + self._delay + self._delay

    @staticmethod
    def _count(account: _Account, kind: RequestKind, days: Sequence[datetime]) -> None:
        """Count a request in its days."""
        for day in days:
            used = account.usage_on(day)
            used[0] += kind.is_create
            used[1] += kind.is_read


def _day_of_charge(rates: RateLimits, made: ModelledGeneration, recorded_at: datetime, now: ClockReading) -> datetime:
    """Return the day that counts the price of a generation, as the queue does (`store/charges.py`)."""
    made_at = from_milliseconds(made.created_at_ms)
    day = rates.day.start_of(max(made_at, recorded_at))
    return day if made_at <= now.instant else min(day, rates.day.start_of(now.latest))
