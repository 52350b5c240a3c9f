"""The state of the queue at one moment, for the pages: the overview, the accounts with their limits, the headline."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Final

from msgspec import Struct, field

from batchkiln.api import JobSummary, Reader, UnderWay
from batchkiln.api.local_service import known_price
from batchkiln.config import Config
from batchkiln.core.job import AttemptState
from batchkiln.core.queue_types import Scope
from batchkiln.core.rate_limits import MIB, Limits
from batchkiln.core.states import FAILED_STATES, NOT_DELIVERED, ItemState
from batchkiln.core.waits import WaitReason
from batchkiln.dashboard.live_state import AccountLive, LiveState
from batchkiln.dashboard.rendering import items_url, review_url
from batchkiln.presentation.account_errors import blocked_text, cannot_work_text, key_missing_text, misunderstanding
from batchkiln.presentation.account_waits import AccountStatus, Wait, account_status
from batchkiln.presentation.ends import end_of_all
from batchkiln.presentation.formatting import REASONS, format_until, format_wait_end, plural
from batchkiln.presentation.outages import present_outages
from batchkiln.presentation.overview import AccountView, JobView, Overview, alerts_of, read_overview, review_line

JOBS_SHOWN: Final = 50

_RECIPES_PRICED: Final = 100
_ANY_PROMPT: Final = "any"  # the price does not depend on it

_NEARLY_FULL: Final = 0.9


class Gauge(Struct, frozen=True):
    """The usage of a limit. `window` is the limit's name in the configuration."""

    window: str
    name: str
    used: int
    limit: int
    is_bytes: bool = False

    @property
    def text(self) -> str:
        """The usage and the limit as text."""
        if self.is_bytes:
            return f"{self.used // MIB:,} / {self.limit // MIB:,} MiB"
        return f"{self.used:,} / {self.limit:,}"

    @property
    def share(self) -> float:
        """The used share, from 0 to 1."""
        return min(1.0, self.used / self.limit) if self.limit else 1.0

    @property
    def is_nearly_full(self) -> bool:
        """Whether at least 90 % is used."""
        return self.share >= _NEARLY_FULL


class Slot(Struct, frozen=True):
    """One account: its gauges, its active items, its wait, and its errors.

    `resets_at` is None if it is not known when that is: a faster clock is known only while a process asks its service.
    """

    view: AccountView
    credits: Gauge | None
    gauges: tuple[Gauge, ...]
    under_way: tuple[tuple[str, UnderWay], ...]  # each with the name of its job
    wait: Wait | None
    last_error: str | None
    blocked: str | None
    resets_at: datetime | None
    driven_by: str | None = None

    @property
    def name(self) -> str:
        """The account's name as PROFILE/ACCOUNT."""
        return f"{self.view.summary.profile}/{self.view.summary.name}"

    @property
    def is_busy(self) -> bool:
        """Whether the slot has an item that the service is still working on."""
        return any(entry.state is not ItemState.DOWNLOADING for _, entry in self.under_way)

    @property
    def waits_for(self) -> str:
        """The reason for the wait as text, or empty if it is not worth showing."""
        return REASONS[self.wait.reason] if self.wait is not None and self.wait.is_reportable else ""

    @property
    def until(self) -> str:
        """The end of the wait as text, behind a space; empty if it is not known."""
        if self.wait is None or self.wait.until is None:
            return ""
        return f" until {format_wait_end(self.wait.until, self.view.now, self.view.time_scale)}"


class PageSnapshot(Struct, frozen=True):
    """The content of the live parts of the pages."""

    overview: Overview
    slots: tuple[Slot, ...]
    is_all: bool  # whether it contains every job of the queue
    following: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Of each job that waits for a choice, the result of `expected_cost`."""

    @property
    def shows_ages(self) -> bool:
        """Whether the page shows the age of an active item."""
        return any(slot.under_way for slot in self.slots)

    @property
    def is_running(self) -> bool:
        """Whether a process works on something."""
        return self.overview.is_driven and any(view.summary.left for view in self.overview.jobs)

    @property
    def earlier(self) -> tuple[JobView, ...]:
        """The jobs that have ended while others run: what went wrong in them is old news."""
        return tuple(view for view in self.overview.jobs if self.is_running and _is_over(view))

    @property
    def current(self) -> tuple[JobView, ...]:
        """The jobs but those of `earlier`."""
        return tuple(view for view in self.overview.jobs if not self.is_running or not _is_over(view))

    @property
    def is_paused(self) -> bool:
        """Whether nothing is left but items of paused jobs."""
        return not _left(self) and any(_is_waiting_paused(view) for view in self.overview.jobs)

    @property
    def jobs(self) -> tuple[JobView, ...]:
        """All jobs: those with active items first, then those with items left, then those that wait for a person."""
        return tuple(sorted(self.overview.jobs, key=_rank))


def _is_over(view: JobView) -> bool:
    """Whether a job has ended, and nobody is to choose or to review in it."""
    return view.summary.has_ended and not view.summary.to_choose and not view.summary.to_review


def _is_waiting_paused(view: JobView) -> bool:
    return view.summary.is_paused and view.summary.items[ItemState.QUEUED] > 0


def _rank(view: JobView) -> int:
    summary = view.summary
    waits_for_person = summary.items[ItemState.HELD] or summary.to_review or summary.to_choose
    places = (summary.under_way, summary.left, waits_for_person, not summary.has_ended)
    return next((place for place, holds in enumerate(places) if holds), len(places))


_PERSON_WAITS: Final = frozenset({WaitReason.HELD, WaitReason.NOT_UNDERSTOOD})


class Level(StrEnum):
    """The urgency of a problem for a person."""

    FINE = "fine"
    LOOK = "look"
    HELP = "help"


class Reason(Struct, frozen=True):
    """A reason of the headline: what is wrong or waits, and what to do about it.

    `next` is a clause; it is empty if `text` ends with the remedy. `path` leads to the page on which it is done.
    """

    text: str
    next: str = ""
    path: str = ""

    def __str__(self) -> str:
        """Return the reason and the next step."""
        return f"{self.text}: {self.next}" if self.next else self.text


class Headline(Struct, frozen=True):
    """The first line of a page, the verdict, with the progress and all reasons, the most urgent first.

    `title` is the most important of it, for the tab of the browser: a problem, or while nothing runs, the verdict.
    """

    level: Level
    verdict: str
    text: str
    title: str
    reasons: tuple[Reason, ...] = ()


def read_snapshot(
    reader: Reader, config: Config, machine_now: datetime, live: LiveState, job: str | None = None
) -> PageSnapshot:
    """Read one job, or the unfinished and the newest jobs, from one snapshot. Raise `InputError` if it is unknown."""
    names, is_all = ([job], False) if job is not None else _names(reader)
    overview = read_overview(reader, config, names, machine_now, live.times)
    is_driven = overview.is_driven
    slots = tuple(
        _slot(reader, view, overview, config, live.accounts.get(view.summary.id), is_driven=is_driven)
        for view in overview.accounts
    )
    following = {
        view.summary.name: expected_cost(reader, config, view.summary)
        for view in overview.jobs
        if view.summary.to_choose and view.summary.waiting
    }
    return PageSnapshot(overview, tuple(sorted(slots, key=lambda slot: not slot.under_way)), is_all, following)


def expected_cost(reader: Reader, config: Config, summary: JobSummary) -> tuple[int, int]:
    """Return the price of a job's queued items without a quote, as far as it is known, and the number of the others.

    Items whose price exceeds their cap are rejected at no cost.
    """
    cost, unpriced = 0, summary.queued_unquoted
    for recipe, count in reader.jobs.unquoted(summary.name, limit=_RECIPES_PRICED) if unpriced else ():
        price = known_price(config, summary.profile, recipe, _ANY_PROMPT)
        if price is not None:
            unpriced -= count
            cost += 0 if recipe.max_cost_credits is not None and price > recipe.max_cost_credits else price * count
    return cost, unpriced


def _names(reader: Reader) -> tuple[list[str], bool]:
    """Return up to `JOBS_SHOWN` jobs, unfinished and new ones first, and whether the list is complete."""
    every = list(reversed(reader.jobs.names()))
    if len(every) <= JOBS_SHOWN:
        return every, True
    at_work = {job.name for job in reader.jobs.work(Scope()).jobs}
    shown = set(sorted(every, key=lambda name: name not in at_work)[:JOBS_SHOWN])
    return [name for name in every if name in shown], False


def _slot(
    reader: Reader,
    view: AccountView,
    overview: Overview,
    config: Config,
    account_live: AccountLive | None,
    *,
    is_driven: bool,
) -> Slot:
    summary = view.summary
    profile = config.profiles.get(summary.profile)
    status = account_status(reader, view, profile) if profile is not None else None
    wait = status.wait if status is not None else None
    if account_live is not None and account_live.wait is not None:
        wait = account_live.wait
    elif wait is not None and not is_driven and wait.until is None and wait.reason not in _PERSON_WAITS:
        wait = None  # without a running process, nothing waits
    blocked = account_live.blocked if account_live is not None else None
    refusal = overview.refusal_of(view)
    if blocked is None and refusal is not None:  # as another process has reported it
        blocked = blocked_text(refusal)
    if blocked is None and overview.lacks_key(view) and summary.key_missing is not None:
        blocked, wait = key_missing_text(summary.key_missing), Wait(WaitReason.NO_KEY, None)
    is_clock_known = is_driven or view.time_scale == 1
    gauges = tuple(_gauges(view, view.limits, status, is_driven=is_driven)) if view.limits and status else ()
    return Slot(
        view=view,
        credits=_credits(view),
        gauges=gauges,
        under_way=tuple(
            (job.summary.name, entry)
            for job in overview.jobs
            for entry in job.summary.under_way
            if job.summary.profile == summary.profile and entry.account == summary.name
        ),
        wait=wait,
        last_error=account_live.last_error if account_live is not None else None,
        blocked=blocked,
        resets_at=profile.day.reset_after(view.now) if profile is not None and is_clock_known else None,
        driven_by=overview.shared_by.driver_of(summary.profile, summary.name) if overview.shared_by else None,
    )


def _credits(view: AccountView) -> Gauge | None:
    if view.limits is None:
        return None
    return Gauge("credits_per_day", "Credits today", view.usage.credits, view.limits.credits_per_day)


def _gauges(view: AccountView, limits: Limits, status: AccountStatus, *, is_driven: bool) -> Iterator[Gauge]:
    """Yield the windows of an account: those of the minute only while a process sends requests."""
    usage, minute = view.usage, status.minute
    if is_driven:
        yield Gauge("creates_per_minute", "Creates this minute", minute.creates, limits.creates_per_minute)
        yield Gauge("reads_per_minute", "Reads this minute", minute.reads, limits.reads_per_minute)
        yield Gauge(
            "requests_per_minute_per_ip", "All requests this minute", minute.machine, limits.requests_per_minute_per_ip
        )
    yield Gauge("creates_per_day", "Creates today", usage.creates, limits.creates_per_day)
    yield Gauge("reads_per_day", "Reads today", usage.reads, limits.reads_per_day)
    yield Gauge("upload_files_per_day", "Files uploaded today", usage.upload_files, limits.upload_files_per_day)
    yield Gauge(
        "upload_bytes_per_day", "Uploaded today", usage.upload_bytes, limits.upload_bytes_per_day, is_bytes=True
    )


def headline(now: PageSnapshot) -> Headline:
    """Return the headline: whether a person is needed, and for what."""
    problems = tuple(_open_problems(now))
    ends, reviews = tuple(_bad_ends(now)), tuple(_reviews(now))
    earlier = tuple(_earlier_ends(now))
    text = _progress_text(now)
    outages = tuple(Reason(line) for line in present_outages(now.overview.accounts, is_driven=now.overview.is_driven))
    reasons = (*problems, *outages, *ends, *reviews, *earlier)
    if problems:
        title = problems[0].text if len(problems) == 1 else f"{len(problems)} problems need your attention"
        return Headline(Level.HELP, "Action needed", text, title, reasons)
    if outages and now.is_running:
        return Headline(Level.LOOK, "The service is not available", text, text, reasons)
    if now.is_paused:
        return Headline(Level.LOOK if ends or reviews else Level.FINE, "Paused", text, text, reasons)
    if ends or reviews:
        if not ends:
            verdict = "some items wait for a review"
        else:
            verdict = "some items failed" if _count(now.current, FAILED_STATES) else "some items were rejected"
        verdict = f"Running; {verdict}" if now.is_running else verdict.capitalize()
        return Headline(Level.LOOK, verdict, text, text if now.is_running else verdict, reasons)
    if now.overview.jobs and not any(view.summary.total for view in now.overview.jobs):
        return Headline(Level.LOOK, "Nothing to do", "no job has an item", "no job has an item")
    return Headline(Level.FINE, "No problems", text, text, reasons)


def _open_problems(now: PageSnapshot) -> Iterator[Reason]:
    """Yield the problems that only a person can solve."""
    for slot in now.slots:
        if slot.blocked is not None:
            yield Reason(cannot_work_text(slot.name, slot.blocked, is_driven=now.overview.is_driven))
        for entry in slot.view.summary.misunderstood:
            yield Reason(misunderstanding(entry, slot.name))
    for view in now.overview.jobs:
        name = view.summary.name
        if held := view.summary.items[ItemState.HELD]:
            verb, each = ("is held", "decide about it") if held == 1 else ("are held", "decide about each")
            yield Reason(f"{plural(held, 'item')} of {name} {verb}", each, items_url(name, state=ItemState.HELD))
        for warning in alerts_of(view):
            yield Reason(f"In {name}: {warning}")
    if now.overview.shared_by is not None:
        for warning in now.overview.shared_by.warnings:
            yield Reason(warning[0].upper() + warning[1:])
    left = _left(now)
    if left and not now.overview.is_driven:
        verb = "is" if left == 1 else "are"
        yield Reason(
            f"No process runs this queue, and {plural(left, 'item')} {verb} left", "`batchkiln work` starts one"
        )


_FAILURES_PATH: Final = "/failures"


def _bad_ends(now: PageSnapshot) -> Iterator[Reason]:
    """Yield the items that failed, which a retry may mend, and those that were rejected, which the manifest mends."""
    if failed := _count(now.current, FAILED_STATES):
        groups = (group for view in now.current for group in view.summary.problems)
        is_charged = any(group.attempt is AttemptState.CANCELED for group in groups)
        step = "check the account before a retry" if is_charged else "retry at any time"
        yield Reason(f"{plural(failed, 'item')} failed or expired", step, _FAILURES_PATH)
    if rejected := _count(now.current, (ItemState.REJECTED,)):
        verb = "was" if rejected == 1 else "were"
        yield Reason(
            f"{plural(rejected, 'item')} {verb} rejected, at no cost", "change the manifest, and run it", _FAILURES_PATH
        )


def _earlier_ends(now: PageSnapshot) -> Iterator[Reason]:
    """Yield the bad ends of jobs of which nothing is left, while others run."""
    if bad := _count(now.earlier, NOT_DELIVERED):
        verb = "was" if bad == 1 else "were"
        text = f"{plural(bad, 'item')} of jobs that ended earlier failed, expired or {verb} rejected"
        yield Reason(text, "look at any time", _FAILURES_PATH)


def _reviews(now: PageSnapshot) -> Iterator[Reason]:
    for view in now.overview.jobs:
        if line := review_line(view.summary):
            name = view.summary.name
            yield Reason(f"{line.partition(': `')[0]} in {name}{_following(now, view)}", "review", review_url(name))


def _following(now: PageSnapshot, view: JobView) -> str:
    """Return what waits for the choices of a job, its price if it is known, and what begins it; "" if nothing."""
    summary = view.summary
    if not (summary.to_choose and summary.waiting):
        return ""
    credit_count, unpriced = now.following.get(summary.name, (0, summary.waiting))
    is_known = summary.waiting == summary.items[ItemState.QUEUED] and not unpriced
    cost = f" (about {plural(summary.queued_cost + credit_count, 'credit')})" if is_known else ""
    verb, own = ("waits", "its input") if summary.waiting == 1 else ("wait", "their inputs")
    text = f"; {plural(summary.waiting, 'item')}{cost} {verb} for {own}"
    return text if now.overview.is_driven else f"{text}, and `batchkiln work` begins what the choices allow"


def _count(views: Iterable[JobView], states: Iterable[ItemState]) -> int:
    return sum(view.summary.items[state] for view in views for state in states)


def _left(now: PageSnapshot) -> int:
    """Return the number of items that a run would continue."""
    return sum(view.summary.left for view in now.overview.jobs)


def _progress_text(now: PageSnapshot) -> str:
    """Return the progress of the queue as text."""
    jobs = now.overview.jobs
    if not jobs:
        return "The queue is empty"
    if not _left(now):
        return _rest_text(jobs)
    if not now.overview.is_driven or (now.slots and all(slot.blocked is not None for slot in now.slots)):
        return _left_text(now)
    return _work_text(now)


def _left_text(now: PageSnapshot) -> str:
    """Return the number of items left, and of those that the budgets pay for, if these are fewer."""
    left, beyond = _left(now), sum(view.beyond_budget for view in now.overview.jobs)
    pays = "the budget pays" if len(now.overview.jobs) == 1 else "the budgets pay"
    return f"{plural(left, 'item')} left" + (f", {pays} for {left - beyond:,}" if beyond else "")


def _work_text(now: PageSnapshot) -> str:
    """Return the progress of a queue that a process runs."""
    jobs = now.overview.jobs
    if all(view.summary.profile in now.overview.silent_profiles for view in jobs if view.summary.left):
        return f"Waiting for the service: {_left_text(now)}{_next_try(now)}"
    ends = end_of_all(view.end for view in jobs if not view.summary.is_finished)
    end = "" if ends is None else f"; ends {ends}"
    waits = [(slot.wait, slot.until) for slot in now.slots if slot.wait is not None and slot.wait.is_reportable]
    if any(slot.is_busy for slot in now.slots) or not waits:
        return f"Working: {_left_text(now)}{end}"
    wait, until = min(waits, key=lambda one: (one[0].until is None, one[0].until or one[0].reason))
    if wait.reason is WaitReason.ENOUGH:
        return f"Stopping: {REASONS[wait.reason]}"
    return f"Waiting{until} for {REASONS[wait.reason]}{end}"


_NO_ANSWER: Final = frozenset({WaitReason.UNREACHABLE, WaitReason.UNAVAILABLE})


def _next_try(now: PageSnapshot) -> str:
    """Return when a service that does not answer is tried again; empty if the process that runs the queue is to say."""
    waits = [(slot.wait, slot.view) for slot in now.slots if slot.wait is not None and slot.wait.reason in _NO_ANSWER]
    tries = [(wait.until, view.time_scale) for wait, view in waits if wait.until is not None]
    return f"; next try at {format_until(*min(tries))}" if tries else ""


def _rest_text(jobs: Sequence[JobView]) -> str:
    """Return the progress of a queue of which no process can continue anything."""
    paused = sum(_is_waiting_paused(view) for view in jobs)
    if paused:
        return f"All remaining work is paused ({plural(paused, 'job')})"
    has_ended = all(view.summary.has_ended or not view.summary.total for view in jobs)
    return "Everything has ended" if has_ended else "All remaining work waits for a person"
