"""Records one worker's calls as spans. The proxies around the worker's ports call it; it never raises.

A call does not name its purpose, but a task works on one item at a time, and the record before or after a call names
the item. Until then, a task's calls are kept in its `_Hand`.
"""

import asyncio
import re
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from functools import wraps
from types import SimpleNamespace
from typing import Concatenate, Final, ParamSpec
from weakref import WeakKeyDictionary

import aiohttp
import structlog

from batchkiln.clock import ServiceClock
from batchkiln.core.job import Attempt, AttemptState, SavedFile
from batchkiln.core.queue_changes import Committed, Facts
from batchkiln.core.responses import (
    Accepted,
    AccountBlocked,
    Busy,
    EdgeBlocked,
    ErrorInfo,
    GenerationRecord,
    IdempotencyConflict,
    LinkBarred,
    LinkRefused,
    NoResponse,
    NotContinued,
    NotFound,
    NotUnderstood,
    RecordRead,
    Refused,
    Throttled,
    TicketRefused,
    Unavailable,
)
from batchkiln.core.states import Event, ItemState
from batchkiln.core.waits import NotBefore, WaitReason
from batchkiln.tracing.span_data import (
    AttemptMayBeOver,
    Draft,
    ItemTurnedAway,
    Moment,
    Note,
    PartOfAttempt,
    nanoseconds,
)
from batchkiln.worker.loop import TRACKS

P = ParamSpec("P")

SLOT: Final = TRACKS[0]
POLLS_KEPT: Final = 128
"""Number of polls kept for one generation, the newest; an OpenTelemetry span holds as many events."""

WAITS_KEPT: Final = 64
ATTEMPTS_KEPT: Final = 256
ITEMS_PREPARED: Final = 256
PARTS_KEPT: Final = 64
_SAME_WAIT_NS: Final = 1_000_000_000
_SHORTEST_WAIT_NS: Final = 1_000_000
_WORD: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_IDLE: Final = frozenset({WaitReason.NOTHING, WaitReason.ENOUGH})

log = structlog.get_logger()


def word_of(code: str) -> str:
    """Return a service's error code if it is a single word; a longer text may contain a prompt."""
    return code if _WORD.fullmatch(code) else "other"


@dataclass(slots=True)
class Call:
    """A call in progress. `status` is the status of its last HTTP reply."""

    name: str
    start_ns: int
    reply: object = None
    status: int | None = None
    error: str | None = None


@dataclass(slots=True)
class _Hand:
    """The item of a task, and the calls made before it was known."""

    attempt_id: int | None = None
    item_id: int | None = None
    resends: int = 0
    is_fetching: bool = False
    unnamed: deque[Draft] = field(default_factory=lambda: deque(maxlen=PARTS_KEPT))


_CALL: ContextVar[Call | None] = ContextVar("batchkiln_traced_call", default=None)


def watch_statuses() -> aiohttp.TraceConfig:
    """Return a trace configuration that stores each HTTP reply's status in the call in progress."""

    async def tell(_: aiohttp.ClientSession, __: SimpleNamespace, params: aiohttp.TraceRequestEndParams) -> None:
        if (call := _CALL.get()) is not None:
            call.status = params.response.status

    watch = aiohttp.TraceConfig()
    watch.on_request_end.append(tell)
    return watch


def harmless(
    hook: Callable[Concatenate["Recorder", P], None],
) -> Callable[Concatenate["Recorder", P], None]:
    """Catch every exception of a hook: tracing must not disturb a run that spends money."""

    @wraps(hook)
    def guarded(recorder: "Recorder", /, *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            hook(recorder, *args, **kwargs)
        except Exception as error:  # noqa: BLE001  see above
            recorder.complain(error)

    return guarded


class Recorder:
    """Records one worker's spans.

    `put` receives each span and must not block; `slot_rest` returns what the slot waits for.
    """

    def __init__(
        self,
        put: Callable[[Note], None],
        *,
        account: str,
        wall: Callable[[], datetime],
        clock: ServiceClock,
        slot_rest: Callable[[], NotBefore | None],
    ) -> None:
        """Start without any calls in progress."""
        self._put = put
        self._account = account
        self._wall = wall
        self._clock = clock
        self._slot_rest = slot_rest
        self._hands: WeakKeyDictionary[asyncio.Task[object], _Hand] = WeakKeyDictionary()
        self._prepared: OrderedDict[int, deque[Draft]] = OrderedDict()
        self._waits: deque[Draft] = deque(maxlen=WAITS_KEPT)
        self._began: OrderedDict[int, int] = OrderedDict()
        self._accepted: dict[int, int] = {}
        self._polls: dict[int, deque[Moment]] = {}
        self._poll_counts: dict[int, int] = {}
        self._has_complained = False

    def now_ns(self) -> int:
        """Return the machine's clock in nanoseconds; traces of all programs use it."""
        return nanoseconds(self._wall())

    def wall_of(self, instant: datetime) -> int:
        """Convert an instant of the service's clock to the machine's clock."""
        ago = (self._clock.now().instant - instant) / self._clock.time_scale
        return nanoseconds(self._wall() - ago)

    def complain(self, error: Exception) -> None:
        """Log an internal error once."""
        (log.debug if self._has_complained else log.warning)("trace_incomplete", error=type(error).__name__)
        self._has_complained = True

    # --- calls ---

    @contextmanager
    def call(self, name: str, *, is_request: bool = True) -> Iterator[Call]:
        """Time a call. A cancelled call is not recorded."""
        call, outer = Call(name, self.now_ns()), _CALL.get()
        _CALL.set(call)
        try:
            yield call
        except Exception as error:
            call.error = type(error).__name__
            self._ended(call, is_request=is_request)
            raise
        else:
            self._ended(call, is_request=is_request)
        finally:
            _CALL.set(outer)

    @harmless
    def _ended(self, call: Call, *, is_request: bool) -> None:
        hand, now = self._hand(), self.now_ns()
        error = call.error or _error_of(call.reply)
        draft = Draft(call.name, call.start_ns, max(now, call.start_ns), error=error, is_request=is_request)
        if call.status is not None:
            draft.attributes["http.response.status_code"] = call.status
        match call.name:
            case "create":
                if hand.resends:
                    draft.attributes["http.request.resend_count"] = hand.resends
                if isinstance(call.reply, Accepted) and hand.attempt_id is not None:
                    self._accepted[hand.attempt_id] = draft.end_ns
                self._add(hand.attempt_id, draft)
            case "read" if not hand.is_fetching:
                self._polled(hand.attempt_id, draft, call.reply)
            case "read":
                self._add(hand.attempt_id, draft)
            case "download" | "save":
                hand.unnamed.append(draft)
            case _:
                self._prepare(hand.item_id, draft)

    def _polled(self, attempt_id: int | None, draft: Draft, reply: object) -> None:
        if attempt_id is None:
            return
        facts = draft.attributes | {"batchkiln.duration_ms": round((draft.end_ns - draft.start_ns) / 1e6, 1)}
        if isinstance(reply, RecordRead):
            facts["batchkiln.status"] = reply.record.status.value
        if draft.error is not None:
            facts["error.type"] = draft.error
        kept = self._polls.setdefault(attempt_id, deque(maxlen=POLLS_KEPT))
        kept.append(Moment("poll", draft.start_ns, facts))
        self._poll_counts[attempt_id] = self._poll_counts.get(attempt_id, 0) + 1

    def _add(self, attempt_id: int | None, draft: Draft) -> None:
        if attempt_id is not None:
            self._put(PartOfAttempt(attempt_id, draft))

    def _hand(self) -> _Hand:
        task = asyncio.current_task()
        assert task is not None, "every call is made in a task"
        return self._hands.setdefault(task, _Hand())

    # --- waits ---

    def slot_due(self) -> NotBefore | None:
        """Return what the slot is about to wait for; None for any other task."""
        task = asyncio.current_task()
        return self._slot_rest() if task is not None and task.get_name() == SLOT else None

    @harmless
    def waited(self, due: NotBefore, start_ns: int) -> None:
        """Record a wait of the slot; it belongs to the next create."""
        if due.reason in _IDLE:
            self._waits.clear()
            return
        end_ns = self.now_ns()
        last = self._waits[-1] if self._waits else None
        reason = due.reason.value
        if last and last.attributes["batchkiln.reason"] == reason and start_ns - last.end_ns < _SAME_WAIT_NS:
            last.end_ns = max(last.end_ns, end_ns)
        elif end_ns - start_ns >= _SHORTEST_WAIT_NS:
            self._waits.append(Draft("wait", start_ns, end_ns, {"batchkiln.reason": reason}))

    # --- preparation ---

    @harmless
    def preparing(self, item_id: int) -> None:
        """Set the item of the next quote or upload."""
        self._hand().item_id = item_id

    def _prepare(self, item_id: int | None, draft: Draft) -> None:
        if item_id is None:
            return
        self._prepared.setdefault(item_id, deque(maxlen=PARTS_KEPT)).append(draft)
        if len(self._prepared) > ITEMS_PREPARED:
            self._prepared.popitem(last=False)

    @harmless
    def turned_away(self, item_id: int, code: str) -> None:
        """Record that an item was rejected or held before an attempt."""
        parts = tuple(self._prepared.pop(item_id, ()))
        self._put(ItemTurnedAway(item_id, self._account, self.now_ns(), word_of(code), parts))

    # --- attempts ---

    @harmless
    def recorded(self, attempt: Attempt, start_ns: int) -> None:
        """Record a new attempt; earlier calls for its item become part of it."""
        parts = (*self._prepared.pop(attempt.item_id, ()), *self._waits)
        self._began[attempt.id] = min([start_ns, *(part.start_ns for part in parts)])
        if len(self._began) > ATTEMPTS_KEPT:
            self._began.popitem(last=False)
        self._sending(attempt)
        for part in parts:
            self._add(attempt.id, part)

    @harmless
    def replaying(self, attempt: Attempt) -> None:
        """Record that an attempt is sent again."""
        waits = tuple(self._waits)
        self._sending(attempt)
        for wait in waits:
            self._add(attempt.id, wait)

    def _sending(self, attempt: Attempt) -> None:
        self._waits.clear()
        hand = self._hand()
        hand.attempt_id, hand.resends = attempt.id, max(0, attempt.sends - 1)

    @harmless
    def reading(self, attempt_id: int) -> None:
        """Set the attempt whose generation is read next.

        Waits between polls are not recorded, because each poll has its time.
        """
        hand = self._hand()
        hand.attempt_id = attempt_id
        if not hand.is_fetching:
            self._waits.clear()

    @harmless
    def committed(self, attempt: Attempt, facts: Facts, committed: Committed) -> None:
        """Note what an outcome has changed: how far a generation is, which file is here, whether it may be over."""
        event, saved = committed.outcome.event, facts.saved
        if facts.record is not None:
            self._seen(attempt, facts.record, committed.state)
        elif event is Event.GENERATION_LOST:
            self._generated(attempt, error=_code_of(facts.error))
            self._over(attempt.id, _code_of(facts.error))
        elif event is Event.KEY_MISSING:
            pass
        elif attempt.state is AttemptState.SUCCEEDED:
            if saved is not None and committed.outcome.log is not None:
                self._fetched(attempt.id, number=saved.number, saved=saved.file)
            elif event in {Event.URL_EXPIRED, Event.OUTPUTS_UNUSABLE, Event.RETENTION_ENDED}:
                self._fetched(attempt.id)
            if event not in {None, Event.URL_EXPIRED}:
                is_lost = committed.outcome.attempt is AttemptState.EXPIRED
                lost = "retention_ended" if is_lost else "output_unusable"
                self._over(attempt.id, None if event is Event.FILES_SAVED else lost)
        elif event is not None and committed.state is not ItemState.SUBMITTING:
            self._over(attempt.id, _code_of(facts.error))

    def _seen(self, attempt: Attempt, record: GenerationRecord, state: ItemState) -> None:
        if state is ItemState.ACTIVE:
            return
        is_success = state is ItemState.DOWNLOADING
        error = None if is_success else _code_of(record.error) or record.status.value
        self._generated(attempt, error=error)
        if not is_success:
            self._over(attempt.id, error)

    def _generated(self, attempt: Attempt, *, error: str | None) -> None:
        now = self.now_ns()
        start = self._accepted.pop(attempt.id, None)
        if start is None:  # an earlier process created it, and its polls are unknown
            start = now if attempt.generation_created_at is None else self.wall_of(attempt.generation_created_at)
        self._add(
            attempt.id,
            Draft(
                "generation",
                min(start, now),
                now,
                {"batchkiln.polls": self._poll_counts.pop(attempt.id, 0)},
                moments=tuple(self._polls.pop(attempt.id, ())),
                error=error,
            ),
        )

    @harmless
    def ended(self, attempt_id: int, error: ErrorInfo | None = None) -> None:
        """Record that an attempt may have ended."""
        self._over(attempt_id, _code_of(error))

    def _over(self, attempt_id: int, error: str | None) -> None:
        began = self._began.get(attempt_id)
        self._put(AttemptMayBeOver(attempt_id, began, self.now_ns(), error, self.wall_of))

    # --- downloads ---

    @harmless
    def fetching(self, attempt_id: int) -> None:
        """Set the attempt whose files the task downloads."""
        hand = self._hand()
        hand.attempt_id, hand.is_fetching = attempt_id, True

    def _fetched(self, attempt_id: int, *, number: int | None = None, saved: SavedFile | None = None) -> None:
        """Record a download, and the file that was saved."""
        unnamed = self._hand().unnamed
        while unnamed:
            draft = unnamed.popleft()
            if number is not None:
                draft.attributes["batchkiln.output"] = number
            if saved is not None and draft.name == "save":
                draft.attributes |= {"batchkiln.bytes": saved.size_bytes, "batchkiln.media_type": saved.media_type}
            self._add(attempt_id, draft)


def _code_of(error: ErrorInfo | None) -> str | None:
    return None if error is None else word_of(error.code)


def _error_of(reply: object) -> str | None:
    """Return a reply's error as one word."""
    match reply:
        case (
            Refused(error=error)
            | IdempotencyConflict(error=error)
            | Busy(error=error)
            | Throttled(error=error)
            | Unavailable(error=error)
            | AccountBlocked(error=error)
            | NotFound(error=error)
        ):
            return word_of(error.code)
        case EdgeBlocked():
            return "edge_firewall"
        case NoResponse() | NotContinued():
            return "no_reply"
        case NotUnderstood():
            return "not_understood"
        case LinkRefused() | LinkBarred() | TicketRefused():
            return "link_refused"
        case _:
            return None
