"""The order of all work: what an account does next, and the earliest moment to do it.

Pure. Two tracks ask here, each its own question: `choose_action` is about the one generation that may be active,
`choose_preparation` about quotes and uploads of what comes next. A track waits until its action's `due.at`, or
until there is news, and then asks again: nobody acts on a plan made before a wait.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from typing import Final

from batchkiln.core.budget import Affordable, BudgetDecision, BudgetLimit, JobCredits, check_budget
from batchkiln.core.calls import Call, Misunderstood
from batchkiln.core.job import Attempt, AttemptState, Order
from batchkiln.core.outcomes import KEY_REMEMBERED
from batchkiln.core.packing import best_next_cost
from batchkiln.core.polling import next_poll_at
from batchkiln.core.rate_limits import CurrentDay, Limits, SlidingWindow
from batchkiln.core.timestamps import ClockReading

KEPT_FOR_REPLAYS: Final = 2
"""Places of the creates' minute that uploads leave free: one for a replay, one for the next create."""

KEPT_FOR_POLLS: Final = 8
"""Places of the reads' minute that quotes leave free: a poll every ten seconds, and reads for links."""


class WaitReason(StrEnum):
    """Why something waits; shown to a person."""

    NOW = "now"
    MINUTE_WINDOW = "minute_window"
    DAY_REQUESTS = "day_requests"
    DAY_CREDITS = "day_credits"
    JOB_DAY_CREDITS = "job_day_credits"
    POLL_INTERVAL = "poll_interval"
    THROTTLED = "throttled"
    OTHER_GENERATION = "other_generation"  # somebody else's on this account
    EDGE_FIREWALL = "edge_firewall"
    UNREACHABLE = "service_unreachable"
    UNAVAILABLE = "service_unavailable"
    NOT_UNDERSTOOD = "not_understood"  # the service succeeds, without what was asked for (Law 10)
    NO_PRICE = "no_price"  # its quote fails again and again, where others pass
    NO_UPLOAD = "no_upload"  # its image's upload does
    PREPARING = "preparing"  # its quote or its images are under way
    SETTLING = "settling"  # the job's budget depends on what is under way
    ACCOUNT_BLOCKED = "account_blocked"  # the service refuses the account until a person acts
    NO_KEY = "no_key"  # the account has none, and only fetches what is ready
    UNDECIDED = "undecided"  # the service answered the create, and did not decide it
    REFUSED_ALIKE = "refused_alike"  # several creates in a row were refused in the same words
    HELD = "held"  # the slot belongs to a held item (Law 4)
    ENOUGH = "spending_limit"  # --max-credits, --until or a signal: nothing new is begun
    NOTHING = "nothing_to_do"


@dataclass(frozen=True, slots=True)
class NotBefore:
    """The earliest monotonic moment for something, and what it waits for until then."""

    at: float
    reason: WaitReason = WaitReason.NOW

    def after(self, other: "NotBefore") -> "NotBefore":
        """Return the later of the two."""
        return other if other.at > self.at else self


@dataclass(frozen=True, slots=True)
class Candidate:
    """The first queued item among those of one job that share a recipe, of which there are `queued`.

    `cost` is None until quoted. `is_ready` tells that all its images are uploaded to this account;
    `missing_inputs` are the input ids, of it and the items just behind it, that are not.
    """

    item_id: int
    job_id: int
    recipe_id: int
    priority: int
    index: int
    order: Order
    cost: int | None
    cap: int | None
    money: JobCredits
    job_is_working: bool
    is_ready: bool = True
    missing_inputs: tuple[int, ...] = ()
    queued: int = 1


@dataclass(frozen=True, slots=True)
class QueueView:
    """What the queue holds for one account."""

    unresolved: Attempt | None
    candidates: tuple[Candidate, ...]
    downloads: tuple[int, ...] = ()  # attempts whose outputs are ready, oldest first
    is_unwanted: bool = False  # the unresolved attempt would not be begun any more: by its job, cap or budgets
    is_slot_held: bool = False  # the unresolved attempt belongs to a held item: a person has to end it


@dataclass(frozen=True, slots=True)
class AccountView:
    """One account's windows and waits; monotonic moments throughout.

    `creates_held` and `reads_held` are what the service imposed on a whole window (Service section 8).
    """

    limits: Limits
    creates: SlidingWindow
    reads: SlidingWindow
    machine: SlidingWindow
    today: CurrentDay
    may_start: bool = True
    is_blocked: bool = False  # the service refuses what is new; what is paid is fetched all the same
    has_key: bool = True
    credits_left: int | None = None  # of --max-credits, what is unresolved here included; None without it
    creates_held: NotBefore = field(default_factory=lambda: NotBefore(-inf))
    reads_held: NotBefore = field(default_factory=lambda: NotBefore(-inf))
    machine_held: NotBefore = field(default_factory=lambda: NotBefore(-inf))
    backoffs: Mapping[Call, NotBefore] = field(default_factory=dict)  # each call's own, beneath what is imposed
    quotes_held: Mapping[int, NotBefore] = field(default_factory=dict)  # by recipe
    inputs_held: Mapping[int, NotBefore] = field(default_factory=dict)  # by input
    misunderstood: tuple[Misunderstood, ...] = ()
    last_touched_at: float | None = None  # when the last request about the active generation was over
    read_worth_at: float = -inf  # when a read of it is expected to be worth most

    @property
    def starts_nothing(self) -> WaitReason | None:
        """Why nothing new is begun for this account; None where something may be."""
        if self.is_blocked:
            return WaitReason.ACCOUNT_BLOCKED
        if not self.has_key:
            return WaitReason.NO_KEY
        return None if self.may_start else WaitReason.ENOUGH

    def create_due(self, now: ClockReading, *, places: int = 1) -> NotBefore:
        """Return when a create may leave, with `places` of the minute free."""
        return self.call_due(Call.CREATE, now, places=places)

    def read_due(self, now: ClockReading, *, places: int = 1) -> NotBefore:
        """Return when a read may leave, with `places` of the minute free."""
        return self.call_due(Call.READ, now, places=places)

    def quote_due(self, candidate: Candidate, now: ClockReading) -> NotBefore:
        """Return when the price of a candidate's recipe may be asked."""
        due = self.call_due(Call.QUOTE, now, places=1 + KEPT_FOR_POLLS)
        return due.after(self.quotes_held.get(candidate.recipe_id, due))

    def upload_due(self, candidate: Candidate, now: ClockReading) -> NotBefore:
        """Return when the two requests of an upload may leave: they share the creates' window (Service section 8)."""
        due = self.call_due(Call.UPLOAD, now, places=2 + KEPT_FOR_REPLAYS)
        due = due.after(self.call_due(Call.COMPLETION, now))
        held = (self.inputs_held.get(input_id, due) for input_id in candidate.missing_inputs)
        due = due.after(min(held, key=lambda each: each.at, default=due))
        usage, limits = self.today.usage, self.limits
        is_spent = (
            usage.upload_files >= limits.upload_files_per_day or usage.upload_bytes >= limits.upload_bytes_per_day
        )
        if is_spent or usage.creates + 2 > limits.creates_per_day:
            return due.after(NotBefore(self.today.resets_at, WaitReason.DAY_REQUESTS))
        return due

    def completion_due(self, now: ClockReading) -> NotBefore:
        """Return when an upload may be completed: its backoff was waited for before the upload began."""
        return self._window_due(Call.COMPLETION, now)

    def call_due(self, call: Call, now: ClockReading, *, places: int = 1) -> NotBefore:
        """Return when a call may leave, with `places` of its minute free; never while it rests."""
        if self.rests(call):
            return NotBefore(inf, WaitReason.NOT_UNDERSTOOD)
        due = self._window_due(call, now, places=places)
        return due.after(self.backoffs.get(call, due))

    def _window_due(self, call: Call, now: ClockReading, *, places: int = 1) -> NotBefore:
        usage, limits = self.today.usage, self.limits
        if call.is_create:
            log, held, is_spent = self.creates, self.creates_held, usage.creates >= limits.creates_per_day
        else:
            log, held, is_spent = self.reads, self.reads_held, usage.reads >= limits.reads_per_day
        window = NotBefore(log.free_at(now.monotonic, places=places), WaitReason.MINUTE_WINDOW)
        machine = NotBefore(self.machine.free_at(now.monotonic), WaitReason.MINUTE_WINDOW)
        due = NotBefore(now.monotonic).after(window).after(machine).after(held).after(self.machine_held)
        return due.after(NotBefore(self.today.resets_at, WaitReason.DAY_REQUESTS)) if is_spent else due

    def rests(self, *calls: Call) -> bool:
        """Tell whether one of these calls was given up until something changes, since it is not understood."""
        return any(entry.call in calls and entry.call.may_rest for entry in self.misunderstood)


@dataclass(frozen=True, slots=True)
class Replay:
    """Send the attempt's stored bytes again under its stored key (Service rule 4.2)."""

    attempt: Attempt
    due: NotBefore


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Take back an attempt of which the service said that nothing was created, and that may not be sent again."""

    attempt: Attempt
    due: NotBefore


@dataclass(frozen=True, slots=True)
class Poll:
    """Read the active generation (Service rule 4.4)."""

    attempt: Attempt
    due: NotBefore


@dataclass(frozen=True, slots=True)
class Submit:
    """Record and send a new attempt."""

    candidate: Candidate
    due: NotBefore


@dataclass(frozen=True, slots=True)
class WaitUntil:
    """Nothing to send before `due.at`, which is infinite where only news can change that."""

    due: NotBefore


@dataclass(frozen=True, slots=True)
class SetAside:
    """Hand an attempt in doubt over to a person: the service may have forgotten its key (Service rule 4.2)."""

    attempt: Attempt
    due: NotBefore


Action = Replay | Withdraw | SetAside | Poll | Submit | WaitUntil


def choose_action(queue: QueueView, account: AccountView, now: ClockReading) -> Action:
    """Choose the one next request about a generation, and the earliest moment to send it.

    The order is the rule: an attempt of unknown outcome first (Service rule 4.2), then the one active
    generation (Law 3), then new work within windows and credits (Service section 8). Never raises.
    """
    if attempt := queue.unresolved:
        is_sent = attempt.state is AttemptState.SENT
        return _choose_resend(attempt, queue, account, now) if is_sent else _poll(attempt, account, now)
    if queue.is_slot_held:
        return WaitUntil(NotBefore(inf, WaitReason.HELD))
    if account.starts_nothing:
        return WaitUntil(NotBefore(inf, account.starts_nothing))
    if any(entry.call is Call.CREATE for entry in account.misunderstood):
        return WaitUntil(
            NotBefore(inf, WaitReason.NOT_UNDERSTOOD)
        )  # the next create may be paid, and not be understood either
    return _choose_new(queue.candidates, account, now)


def _choose_resend(
    attempt: Attempt, queue: QueueView, account: AccountView, now: ClockReading
) -> Replay | Withdraw | SetAside | WaitUntil:
    """Return the same request again, at the earliest moment.

    Where every send of it was answered, nothing was created: what nobody wants any more, or nothing pays for, then
    goes back to the queue like anything that was never begun (Law 6). What is in doubt may be paid already (Law 2).
    """
    today = max(account.today.usage.credits, attempt.quote_credits)  # the day before may carry it until it is sent
    is_over_day = today > account.limits.credits_per_day
    is_over_run = account.credits_left is not None and attempt.quote_credits > account.credits_left
    is_over = queue.is_unwanted or is_over_day or is_over_run or account.starts_nothing is not None
    if is_over and not attempt.is_in_doubt:
        return Withdraw(attempt, NotBefore(now.monotonic))
    if attempt.is_in_doubt and attempt.contact_at and now.instant - attempt.contact_at >= KEY_REMEMBERED:
        return SetAside(attempt, NotBefore(now.monotonic))
    if account.is_blocked:
        return WaitUntil(NotBefore(inf, WaitReason.ACCOUNT_BLOCKED))
    return Replay(attempt, account.create_due(now))


def _poll(attempt: Attempt, account: AccountView, now: ClockReading) -> Poll:
    """Return the next read of the active generation, at the moment that is worth most."""
    poll_at = next_poll_at(
        last_settled_at=account.last_touched_at,
        interval_seconds=account.limits.poll_interval_seconds,
        now=now.monotonic,
    )
    worth_at = max(poll_at, account.read_worth_at)
    return Poll(attempt, account.read_due(now).after(NotBefore(worth_at, WaitReason.POLL_INTERVAL)))


def _choose_new(candidates: Sequence[Candidate], account: AccountView, now: ClockReading) -> Submit | WaitUntil:
    """Return the first candidate that is ready and can be paid, or what the first of them waits for.

    One that does not fit what is left of the day lets smaller ones behind it go first: it would have had to
    wait for the reset in any case (contract, section 7).
    """
    rest = NotBefore(inf, WaitReason.NOTHING)
    for candidate in in_order(candidates):
        if candidate.cost is None or not candidate.is_ready:
            wait = NotBefore(
                inf, WaitReason.NOT_UNDERSTOOD if _lacks_resting(candidate, account) else WaitReason.PREPARING
            )
        elif account.credits_left is not None and candidate.cost > account.credits_left:
            wait = NotBefore(inf, WaitReason.ENOUGH)
        else:
            verdict = judge_candidate(candidate, candidate.cost, account)
            if verdict.fit is Affordable.NOW:
                return Submit(_packed(candidate, candidates, account), account.create_due(now))
            wait = _due_of(verdict, account)
        if rest.reason is WaitReason.NOTHING or wait.at < rest.at:
            rest = wait
    return WaitUntil(rest)


def _lacks_resting(candidate: Candidate, account: AccountView) -> bool:
    """Tell whether a candidate lacks what only a call that rests could bring."""
    if not candidate.is_ready:
        return account.rests(Call.UPLOAD, Call.COMPLETION)
    return candidate.cost is None and account.rests(Call.QUOTE)


def _packed(first: Candidate, candidates: Sequence[Candidate], account: AccountView) -> Candidate:
    """Return which of a job's candidates to begin where `first`, its dearest that fits, may begin.

    With `order: pack` it is one that lets the day be filled best by what is left; see `packing`.
    """
    if first.order is not Order.PACK:
        return first
    alike = [each for each in candidates if (each.job_id, each.priority) == (first.job_id, first.priority)]
    counts = Counter[int]()
    for each in alike:
        if each.cost is not None:
            counts[each.cost] += each.queued
    price = best_next_cost(counts, _room_for(first, account))
    return next((each for each in in_order(alike) if each.cost == price and each.is_ready), first)


def _room_for(candidate: Candidate, account: AccountView) -> int:
    """Return how many credits a candidate's job may take of this day."""
    money = candidate.money
    rooms = [account.limits.credits_per_day - account.today.usage.credits]
    if money.budget is not None:
        rooms.append(money.budget - money.committed)
    if money.budget_per_day is not None:
        rooms.append(money.budget_per_day - money.today)
    if account.credits_left is not None:
        rooms.append(account.credits_left)
    return min(rooms)


def judge_candidate(candidate: Candidate, cost: int, account: AccountView) -> BudgetDecision:
    """Hold a candidate's quote against its cap, its job and the account's day."""
    return check_budget(
        cost,
        cap=candidate.cap,
        money=candidate.money,
        credits_today=account.today.usage.credits,
        credits_per_day=account.limits.credits_per_day,
        job_is_working=candidate.job_is_working,
    )


def _due_of(verdict: BudgetDecision, account: AccountView) -> NotBefore:
    if verdict.fit is Affordable.AFTER_RESET:
        is_job = verdict.obstacle is BudgetLimit.OVER_JOB_DAY
        return NotBefore(account.today.resets_at, WaitReason.JOB_DAY_CREDITS if is_job else WaitReason.DAY_CREDITS)
    return NotBefore(inf, WaitReason.SETTLING)


def in_order(candidates: Sequence[Candidate]) -> Iterator[Candidate]:
    """Give candidates as they should be tried: priority, then job, then its own order (contract, section 7).

    `pack` looks at the dearest first: what fits a day worst is placed while the day is still empty.
    """

    def preference(candidate: Candidate) -> tuple[int, int, int, int]:
        dearest = -(candidate.cost or 0) if candidate.order is Order.PACK else 0
        return (-candidate.priority, candidate.job_id, dearest, candidate.index)

    return iter(sorted(candidates, key=preference))


@dataclass(frozen=True, slots=True)
class AskQuote:
    """Ask the price of a candidate's recipe (Service rule 4.6)."""

    candidate: Candidate
    due: NotBefore


@dataclass(frozen=True, slots=True)
class Upload:
    """Upload images that are needed soon: up to five in one request (Service section 4, upload flow)."""

    candidate: Candidate
    due: NotBefore


@dataclass(frozen=True, slots=True)
class Reject:
    """End the items of a recipe that can never be paid; nothing was sent (contract, section 7)."""

    candidate: Candidate
    obstacle: BudgetLimit


Preparation = AskQuote | Upload | Reject | WaitUntil


def choose_preparation(queue: QueueView, account: AccountView, now: ClockReading) -> Preparation:
    """Choose what to make ready while the slot is busy, in the order in which it will be needed.

    What has to wait, as uploads do once the day's are used up, lets what may leave now go first.
    """
    if account.starts_nothing:
        return WaitUntil(NotBefore(inf, account.starts_nothing))
    ordered = tuple(in_order(queue.candidates))
    for candidate in ordered:
        if candidate.cost is not None:
            verdict = judge_candidate(candidate, candidate.cost, account)
            if verdict.fit is Affordable.NEVER and verdict.obstacle is not None:
                return Reject(candidate, verdict.obstacle)
    soonest: AskQuote | Upload | WaitUntil = WaitUntil(NotBefore(inf, WaitReason.NOTHING))
    for choice in _requests_for(ordered, account, now):
        if choice.due.at <= now.monotonic:
            return choice
        if choice.due.at < soonest.due.at or soonest.due.reason is WaitReason.NOTHING:
            soonest = choice
    return soonest


def _requests_for(ordered: Sequence[Candidate], account: AccountView, now: ClockReading) -> Iterator[AskQuote | Upload]:
    """Give the requests that candidates lack, the most urgent first; a quote needs the uploads (Service rule 4.6).

    Where the service fails to price a recipe, the others go first.
    """
    for candidate in sorted(ordered, key=lambda each: each.recipe_id in account.quotes_held):
        if not candidate.is_ready:
            yield Upload(candidate, account.upload_due(candidate, now))
        elif candidate.cost is None:
            yield AskQuote(candidate, account.quote_due(candidate, now))
    for candidate in ordered:
        if candidate.is_ready and candidate.missing_inputs:
            yield Upload(candidate, account.upload_due(candidate, now))
