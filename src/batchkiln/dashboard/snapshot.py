"""The queue at a moment, as the pages show it: the overview, each account's slot and windows, and the headline."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from batchkiln.config import Config
from batchkiln.core.queue_types import Scope
from batchkiln.core.rate_limits import MIB, Limits
from batchkiln.core.states import NOT_DELIVERED, WORKING_STATES, ItemState
from batchkiln.core.waits import WaitReason
from batchkiln.dashboard.live_state import AccountLive, LiveState
from batchkiln.presentation.account_waits import AccountStatus, Wait, account_status
from batchkiln.presentation.alerts import alerts_of
from batchkiln.presentation.formatting import REASONS, format_minute, plural
from batchkiln.presentation.overview import AccountView, JobView, Overview, read_overview
from batchkiln.presentation.unread_replies import misunderstanding
from batchkiln.store import Reader, UnderWay

JOBS_SHOWN: Final = 50

_NEARLY_FULL: Final = 0.9


@dataclass(frozen=True, slots=True)
class Gauge:
    """How much of a window is used. `window` is the limit's name in the configuration."""

    window: str
    name: str
    used: int
    limit: int
    is_bytes: bool = False

    @property
    def text(self) -> str:
        """Give the numbers as a person reads them."""
        if self.is_bytes:
            return f"{self.used // MIB:,} / {self.limit // MIB:,} MiB"
        return f"{self.used:,} / {self.limit:,}"

    @property
    def share(self) -> float:
        """From 0 to 1."""
        return min(1.0, self.used / self.limit) if self.limit else 1.0

    @property
    def is_nearly_full(self) -> bool:
        """Whether little is left."""
        return self.share >= _NEARLY_FULL


@dataclass(frozen=True, slots=True)
class Slot:
    """One account: its gauges, what has its slot or what it waits for, and what a person has to mend."""

    view: AccountView
    credits: Gauge | None
    gauges: tuple[Gauge, ...]
    under_way: tuple[tuple[str, UnderWay], ...]  # with the job of each
    wait: Wait | None
    said: str | None
    blocked: str | None
    resets_at: datetime | None

    @property
    def name(self) -> str:
        """Profile and account."""
        return f"{self.view.summary.profile}/{self.view.summary.name}"

    @property
    def is_busy(self) -> bool:
        """Whether the service is at work for it."""
        return any(entry.state is not ItemState.DOWNLOADING for _, entry in self.under_way)

    @property
    def waits_for(self) -> str:
        """Say what it waits for; empty where a person would not wonder."""
        return REASONS[self.wait.reason] if self.wait is not None and self.wait.is_worth_saying else ""


@dataclass(frozen=True, slots=True)
class PageSnapshot:
    """All that the live parts of the pages show."""

    overview: Overview
    slots: tuple[Slot, ...]
    is_all: bool  # whether every job of the queue is in it

    @property
    def is_moving(self) -> bool:
        """Whether something is under way, whose age grows."""
        return any(slot.under_way for slot in self.slots)


_NEED_A_PERSON: Final = frozenset({WaitReason.HELD, WaitReason.NOT_UNDERSTOOD})


class Level(StrEnum):
    """Whether a person is needed."""

    FINE = "fine"
    LOOK = "look"
    HELP = "help"


@dataclass(frozen=True, slots=True)
class Headline:
    """The one line that a person reads first, and what it is about."""

    level: Level
    text: str
    more: tuple[str, ...] = ()


def read_moment(
    reader: Reader, config: Config, machine_now: datetime, facts: LiveState, job: str | None = None
) -> PageSnapshot:
    """Read one job, or those at work and the newest, from one snapshot. Raises `InputError` for an unknown job."""
    names, is_all = ([job], False) if job is not None else _names(reader)
    overview = read_overview(reader, config, names, machine_now, facts.times)
    is_driven = overview.lease is not None
    slots = tuple(
        _slot(reader, view, overview.jobs, config, facts.told.get(view.summary.id), is_driven=is_driven)
        for view in overview.accounts
    )
    return PageSnapshot(overview, slots, is_all)


def _names(reader: Reader) -> tuple[list[str], bool]:
    """Return the jobs to show, the newest first: those at work, then others, as far as there is room."""
    every = list(reversed(reader.jobs.names()))
    if len(every) <= JOBS_SHOWN:
        return every, True
    at_work = {job.name for job in reader.jobs.work(Scope()).jobs}
    shown = set(sorted(every, key=lambda name: name not in at_work)[:JOBS_SHOWN])
    return [name for name in every if name in shown], False


def _slot(
    reader: Reader,
    view: AccountView,
    jobs: Sequence[JobView],
    config: Config,
    told: AccountLive | None,
    *,
    is_driven: bool,
) -> Slot:
    summary = view.summary
    profile = config.profiles.get(summary.profile)
    look = account_status(reader, view, profile) if profile is not None else None
    wait = look.wait if look is not None else None
    if told is not None and told.wait is not None:
        wait = told.wait
    elif wait is not None and not is_driven and wait.until is None and wait.reason not in _NEED_A_PERSON:
        wait = None  # nothing is under way that could be waited for, unless somebody drives
    gauges = tuple(_gauges(view, view.limits, look)) if view.limits and look else ()
    return Slot(
        view=view,
        credits=_credits(view),
        gauges=gauges,
        under_way=tuple(
            (job.summary.name, entry)
            for job in jobs
            for entry in job.summary.under_way
            if job.summary.profile == summary.profile and entry.account == summary.name
        ),
        wait=wait,
        said=told.said if told is not None else None,
        blocked=told.blocked if told is not None else None,
        resets_at=profile.day.reset_after(view.now) if profile is not None else None,
    )


def _credits(view: AccountView) -> Gauge | None:
    if view.limits is None:
        return None
    return Gauge("credits_per_day", "Credits, day", view.usage.credits, view.limits.credits_per_day)


def _gauges(view: AccountView, limits: Limits, look: AccountStatus) -> Iterator[Gauge]:
    usage, minute = view.usage, look.minute
    yield Gauge("creates_per_minute", "Creates, minute", minute.creates, limits.creates_per_minute)
    yield Gauge("reads_per_minute", "Reads, minute", minute.reads, limits.reads_per_minute)
    yield Gauge("requests_per_minute_per_ip", "Machine, minute", minute.machine, limits.requests_per_minute_per_ip)
    yield Gauge("creates_per_day", "Creates, day", usage.creates, limits.creates_per_day)
    yield Gauge("reads_per_day", "Reads, day", usage.reads, limits.reads_per_day)
    yield Gauge("upload_files_per_day", "Files, day", usage.upload_files, limits.upload_files_per_day)
    yield Gauge("upload_bytes_per_day", "Uploads, day", usage.upload_bytes, limits.upload_bytes_per_day, is_bytes=True)


def headline(now: PageSnapshot) -> Headline:
    """Say in one line whether a person is needed, and for what."""
    needs = tuple(_needs(now))
    if needs:
        return Headline(
            Level.HELP, needs[0] if len(needs) == 1 else f"{len(needs)} things need you", needs[1:] and needs
        )
    bad = sum(view.summary.items[state] for view in now.overview.jobs for state in NOT_DELIVERED)
    text = _course(now)
    if bad:
        more = f"{plural(bad, 'item')} failed, rejected or expired: nothing is lost by waiting"
        return Headline(Level.LOOK, text, (more,))
    return Headline(Level.FINE, text)


def _needs(now: PageSnapshot) -> Iterator[str]:
    """Give what stays as it is, or is lost, unless a person acts."""
    for slot in now.slots:
        if slot.blocked is not None:
            yield f"The account {slot.name} cannot work: {slot.blocked}"
        for entry in slot.view.summary.misunderstood:
            yield misunderstanding(entry, slot.name)
    for view in now.overview.jobs:
        if held := view.summary.items[ItemState.HELD]:
            verb = "is held and waits" if held == 1 else "are held and wait"
            yield f"{plural(held, 'item')} of {view.summary.name} {verb} for you"
        for warning in alerts_of(view):
            yield f"{view.summary.name}: {warning}"
    left = _left(now)
    if left and now.overview.lease is None:
        verb = "is" if left == 1 else "are"
        yield f"No process drives this queue, and {plural(left, 'item')} {verb} left: `batchkiln work` drives it"


def _left(now: PageSnapshot) -> int:
    """Count the items that a driver would move on."""
    return sum(
        view.summary.items[state]
        for view in now.overview.jobs
        for state in WORKING_STATES
        if state is not ItemState.QUEUED or not view.summary.is_paused
    )


def _course(now: PageSnapshot) -> str:
    """Say how it goes where nobody is needed."""
    jobs = now.overview.jobs
    if not jobs:
        return "The queue is empty"
    if not _left(now):
        paused = sum(view.summary.is_paused and view.summary.items[ItemState.QUEUED] > 0 for view in jobs)
        return f"All that is left is paused ({plural(paused, 'job')})" if paused else "Everything has ended"
    ends = [view.estimated_end_at for view in jobs if not view.summary.is_finished]
    known = [at for at in ends if at is not None]
    end = f"; ends about {format_minute(max(known))}" if known and len(known) == len(ends) else ""
    waits = [slot.wait for slot in now.slots if slot.wait is not None and slot.wait.is_worth_saying]
    if any(slot.is_busy for slot in now.slots) or not waits:
        return f"Working: {plural(_left(now), 'item')} left{end}"
    wait = min(waits, key=lambda one: (one.until is None, one.until or one.reason))
    until = f" until {format_minute(wait.until)}" if wait.until is not None else ""
    if wait.reason is WaitReason.ENOUGH:
        return f"Stopping: {REASONS[wait.reason]}"
    return f"Waiting{until} for {REASONS[wait.reason]}{end}"
