"""A rehearsal as a discrete-event model: the program's own decisions, over a queue and a service in memory.

`choose_action` and `choose_preparation` decide, under the program's own limits, poll times and clock. Requests, the
database, files and tasks are left out: a request is an event at the time of its reply. A model covers a service and a
network without faults, and jobs of prompts alone; for anything else it raises `NotModelledError`, and the whole program
has to run. Bill, states, days and requests are the same as those of the whole program, which
tests/integration/rehearsal/test_event_model.py checks.
"""

from collections import deque
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from heapq import heappop, heappush
from itertools import count
from math import inf
from typing import Final, NamedTuple

from msgspec import Struct

from batchkiln.config import Profile
from batchkiln.core.account_view import AccountView, account_view
from batchkiln.core.job import Attempt, AttemptState
from batchkiln.core.outcomes import READS, Credits, Known, settle
from batchkiln.core.planner import Poll, Submit, choose_action
from batchkiln.core.preparation import AskQuote, Reject, choose_preparation
from batchkiln.core.queue_changes import NeverFits
from batchkiln.core.queue_types import Candidate, QueueView
from batchkiln.core.rate_limits import DayUsage, HeldUntil, RateLimits, RequestKind
from batchkiln.core.responses import ErrorInfo, GenerationStatus
from batchkiln.core.states import ItemState
from batchkiln.core.timestamps import EPOCH, ClockOffset, ClockReading, from_milliseconds, to_milliseconds
from batchkiln.rehearsal.modelled_queue import ModelledItem, ModelledQueue
from batchkiln.store import never_fits_error
from batchkiln.worker.poll_timing import DurationModels, PollTiming
from batchkiln_service import ModelledGeneration, ModelledService, NotModelledError

CONNECTION_IDLE_SECONDS: Final = 75.0
"""The local service closes a connection after so long without a request."""

PROGRESS_SECONDS: Final = 1800.0


class _Stored(NamedTuple):
    """What the queue stores about an account."""

    usages: Sequence[DayUsage]
    creates_held: HeldUntil | None = None
    reads_held: HeldUntil | None = None
    misunderstood: tuple[()] = ()


class _Generation(Struct):
    """The one unresolved generation."""

    attempt: Attempt
    item: ModelledItem
    made: ModelledGeneration


class _Sent(Struct, frozen=True):
    """A request under way: its kind, when it was sent and arrives, and the service days that may count it."""

    kind: RequestKind
    sent_at: float
    arrives_at: float
    days: tuple[datetime, ...]


class EventModel:
    """A run of some jobs on one account, from `starts_at`, when the loop's time is 0.

    The slot and the preparation each send one request at a time.
    """

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
        self._account = queue.account or profile.account_names[0]
        self._rates = RateLimits.of(profile.limits, profile.day)
        self._today = EPOCH, EPOCH  # the start and the end of the service day
        self._polls = PollTiming(DurationModels(profile.limits.poll_interval_seconds))
        self._used: dict[datetime, list[int]] = {}  # creates, reads and credits by service day
        self._generation: _Generation | None = None
        self._is_sending = self._is_preparing = True  # both begin once the time is known
        self._slot_due = self._preparation_due = inf
        self._is_stale = False  # something has changed since the last decisions
        self._poll_planned_after: int | None = None  # so many requests; None if the slot did not choose to poll

    def run(self) -> datetime:
        """Run until no item can change; return the end. Raise `NotModelledError` if the service would refuse."""
        self._send(RequestKind.OTHER, self._described)
        while True:
            while self._is_stale or min(self._slot_due, self._preparation_due) <= self._time:
                self._decide()
            self._download()
            at = min(self._events[0][0] if self._events else inf, self._slot_due, self._preparation_due)
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
        """Begin what is due. The preparation decides by the look of the slot, whose start is no news to it."""
        is_stale, self._is_stale = self._is_stale, False
        if self._poll_planned_after == self._requests and not is_stale and self._preparation_due > self._time:
            self._poll()  # nothing has changed since it was chosen
            return
        now = self._now()
        queue, view = self._look(now)
        if not self._is_sending and (is_stale or self._slot_due <= self._time):
            self._slot_due = self._drive_slot(queue, view, now)
        if not self._is_preparing and (is_stale or self._preparation_due <= self._time):
            self._preparation_due = self._prepare(queue, view, now)

    def _look(self, now: ClockReading) -> tuple[QueueView, AccountView]:
        """Return what the planner decides by."""
        days, generation = self._days(now), self._generation
        attempt = touched_at = None
        worth_at = -inf
        if generation is not None:
            attempt = generation.attempt
            touched_at = self._polls.touched_at(attempt.id, None, now)
            if touched_at is not None:
                worth_at = self._polls.worth_at(attempt, generation.item.kind, touched_at, now)
        candidates = self._queue.candidates(days)
        stored = _Stored([DayUsage(*self._usage_on(day)) for day in days])
        view = account_view(stored, self._rates, now, last_touched_at=touched_at, read_worth_at=worth_at)
        return QueueView(attempt, candidates), view

    def _drive_slot(self, queue: QueueView, view: AccountView, now: ClockReading) -> float:
        """Begin the slot's next action if it is due; return when to decide again."""
        action = choose_action(queue, view, now)
        self._poll_planned_after = self._requests if isinstance(action, Poll) else None
        if action.due.at > now.monotonic:
            return action.due.at
        match action:
            case Submit(candidate=candidate):
                self._submit(candidate, now)
            case Poll():
                self._poll()
            case _:
                raise NotModelledError(type(action).__name__)
        return inf

    def _prepare(self, queue: QueueView, view: AccountView, now: ClockReading) -> float:
        """Begin the next preparation if it is due; return when to decide again."""
        choice = choose_preparation(queue, view, now)
        if isinstance(choice, Reject):
            never_fits = NeverFits(choice.obstacle, choice.limit(self._rates.limits.credits_per_day))
            self._queue.reject(choice.candidate, never_fits_error(never_fits, choice.candidate.cost or 0))
            self._is_stale = True
            return inf
        if choice.due.at > now.monotonic:
            return choice.due.at
        if not isinstance(choice, AskQuote):
            raise NotModelledError(type(choice).__name__)
        candidate = choice.candidate
        self._is_preparing = True
        self._send(RequestKind.QUOTE, lambda sent: self._quoted(sent, candidate))
        return inf

    # --- requests and replies ---

    def _poll(self) -> None:
        self._is_sending, self._slot_due = True, inf
        self._send(RequestKind.READ, self._polled)

    def _submit(self, candidate: Candidate, now: ClockReading) -> None:
        assert candidate.cost is not None, "only a quoted item is submitted"
        self._is_sending = True
        cost, day, recorded_at = candidate.cost, self._days(now)[-1], now.instant
        is_last = self._queue.is_last(candidate)
        item = self._queue.begin(candidate, cost, day)
        self._usage_on(day)[2] += cost
        self._send(RequestKind.CREATE, lambda sent: self._created(sent, item, cost, day=day, recorded_at=recorded_at))
        if is_last:
            self._is_stale = True

    def _send(self, kind: RequestKind, on_reply: Callable[[_Sent], None]) -> None:
        """Record a request and send it. Its reply is an event."""
        now = self._now()
        self._requests += 1
        self._rates.acquire(kind)
        days = self._days(now)
        self._count(kind, days)
        arrives_at = self._arrival()
        sent = _Sent(kind, self._time, arrives_at, days)
        self._at(arrives_at + self._delay, lambda: self._reply(sent, on_reply))

    def _reply(self, sent: _Sent, on_reply: Callable[[_Sent], None]) -> None:
        """Take a reply: first its date and its place in the minute, then its content."""
        self._idle.append(self._time)
        date = datetime.fromtimestamp(self._ms_of(sent.arrives_at) // 1000, UTC)
        self._offset = self._offset.observe(date, sent_at=sent.sent_at, received_at=self._time, expected=self._zero)
        now = self._reading = self._offset.now(self._time)
        self._rates.release(sent.kind, now.monotonic)
        self._count(sent.kind, [day for day in self._days(now) if day not in sent.days])
        on_reply(sent)

    def _described(self, sent: _Sent) -> None:
        self._service.describe(self._ms_of(sent.arrives_at))
        self._is_sending = self._is_preparing = False
        self._is_stale = True

    def _quoted(self, sent: _Sent, candidate: Candidate) -> None:
        item = self._queue.item(candidate.item_id)
        cost = self._service.quote(self._account, item.body(None), self._ms_of(sent.arrives_at))
        self._queue.priced(candidate, cost)
        self._is_preparing = False
        self._is_stale = True

    def _created(self, sent: _Sent, item: ModelledItem, cost: int, *, day: datetime, recorded_at: datetime) -> None:
        now = self._now()
        made = self._service.create(self._account, item.body(cost), self._ms_of(sent.arrives_at))
        attempt = Attempt(
            id=next(self._attempt_ids),
            item_id=item.request.item_id,
            account_id=1,
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
        self._polls.touch(attempt.id, now.monotonic)
        charged_on = _day_of_charge(self._rates, made, recorded_at, now)
        self._usage_on(day)[2] -= cost
        self._usage_on(charged_on)[2] += cost
        self._queue.accepted(item, cost, reserved_on=day, charged_on=charged_on)
        self._generation = _Generation(attempt, item, made)
        self._is_sending = False
        self._is_stale = True

    def _polled(self, sent: _Sent) -> None:
        now, generation = self._now(), self._generation
        assert generation is not None, "only an active generation is polled"
        attempt, item, made = generation.attempt, generation.item, generation.made
        status = GenerationStatus.of(self._service.read(made, self._ms_of(sent.arrives_at)))
        self._polls.touch(attempt.id, now.monotonic)
        self._polls.observe(attempt, status, sent_at=sent.sent_at, seen_at=now.monotonic)
        self._is_sending = False
        if not status.is_ended:
            self._slot_due = self._time  # nobody else has any news
            return
        self._polls.forget(attempt.id)
        self._generation = None
        outcome = READS[status]
        known = Known(failures=self._queue.failures(item), tries=item.recipe.attempts)
        settled = settle(outcome, known)
        if outcome.credits is Credits.REFUNDED:
            self._queue.refunded(item, made.cost_credits)
        error = self._service.error_of(made)
        assert settled.event is not None, "an end moves the item"
        state = self._queue.ended(item, settled.event, settled.attempt, error and ErrorInfo(*error))
        if state is ItemState.DOWNLOADING:
            self._finished.append(item)
        self._is_stale = True

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

    def _days(self, now: ClockReading) -> tuple[datetime, ...]:
        """Return what `RateLimits.days` does. It is computed again around a reset only."""
        began_at, resets_at = self._today
        if began_at <= now.instant and now.latest < resets_at:
            return (began_at,)
        day = self._rates.day
        self._today = day.start_of(now.instant), day.reset_after(now.instant)
        return self._rates.days(now)

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

    def _usage_on(self, day: datetime) -> list[int]:
        return self._used.setdefault(day, [0, 0, 0])

    def _count(self, kind: RequestKind, days: Sequence[datetime]) -> None:
        """Count a request in its days."""
        for day in days:
            used = self._usage_on(day)
            used[0] += kind.is_create
            used[1] += kind.is_read


def _day_of_charge(rates: RateLimits, made: ModelledGeneration, recorded_at: datetime, now: ClockReading) -> datetime:
    """Return the day that counts the price of a generation, as the queue does (`store/charges.py`)."""
    made_at = from_milliseconds(made.created_at_ms)
    day = rates.day.start_of(max(made_at, recorded_at))
    return day if made_at <= now.instant else min(day, rates.day.start_of(now.latest))
