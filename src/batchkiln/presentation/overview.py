"""Reads the jobs, accounts and workers that `status`, `run` and `work` show, in one snapshot."""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set as AbstractSet
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from batchkiln.config import Config, Profile
from batchkiln.core.budget import BudgetLimit
from batchkiln.core.credit_price import CreditPrice
from batchkiln.core.errors import command_arguments
from batchkiln.core.forecast import CalendarDay
from batchkiln.core.polling import RETENTION_WARNING, is_long_pending
from batchkiln.core.rate_limits import DayUsage, Limits
from batchkiln.core.shown import Shown
from batchkiln.core.states import ItemState
from batchkiln.presentation.chained_inputs import blocker_command, blocker_text
from batchkiln.presentation.ends import End, JobEnd
from batchkiln.presentation.forecasts import JobForecast, job_forecasts, only_under_way, usage_today
from batchkiln.presentation.formatting import format_minute, format_service_age, plural, sanitize, service_note
from batchkiln.presentation.shared_by import SharedBy
from batchkiln.store import AccountSummary, JobSummary, Lease, Reader

if TYPE_CHECKING:
    from batchkiln.core.responses import AccountBlocked
    from batchkiln.presentation.account_waits import Wait
    from batchkiln.store import Unselected


class JobView(Shown, Struct, frozen=True):
    """A job's summary with its forecast.

    `now` is service time. `job_end` is what the forecast knows of the end. `examples` maps each group of problem items
    to the name of one of them. `time_scale` is service seconds per real second. `is_embedded` is true for the
    local service of this program. `credit_price` is the configured price of a credit. Without `is_driven`, no process
    runs the queue, and the end is that of a run which starts now. `stale` is the number of done items that were made
    from what is no longer current, and `sufficient_budget` the `budget.credits` that would pay for what was rejected
    for the budget. Both are None in the looks of a run at work, which do not count them; the latter also where no
    budget is to blame, or its figure is not known.
    """

    summary: JobSummary
    now: datetime
    job_end: JobEnd
    examples: Mapping[tuple[ItemState, str], str]
    time_scale: float = 1.0
    is_embedded: bool = False
    credit_price: CreditPrice | None = None
    is_driven: bool = True
    stale: int | None = None
    sufficient_budget: int | None = None

    def _shown(self) -> Iterator[tuple[str, object]]:
        summary = self.summary
        yield "job", summary.name
        yield "items", [f"{number:,} {state}" for state, number in summary.items.items() if number]
        yield "credits", f"{summary.credits.spent:,} spent, {summary.credits.reserved:,} reserved"
        yield "ends", self.end
        yield "paused", summary.is_paused or None
        yield "waits", self.waits_for_person
        yield "stale", self.stale or None
        yield "service", self.service_note

    @property
    def waits_for_person(self) -> list[str]:
        """What the job waits for from a person, with the calls: choices, reviews, and items without a result."""
        from batchkiln.presentation.python_words import in_python_words  # noqa: PLC0415  no command needs it

        summary = self.summary
        review = review_line(summary)
        lines = [] if review is None else [f"{review}, then `queue.keep({summary.name!r}, [ID])`"]
        lines += [f"{blocker_text(each, summary.name)}: `{blocker_command(each)}`" for each in summary.blockers]
        return [in_python_words(line) for line in lines]

    def money(self, amount: int) -> str:
        """Return the price of an amount of credits, in parentheses; empty if no price of a credit is configured."""
        return "" if self.credit_price is None else f" ({self.credit_price.of(amount)})"

    @property
    def estimated_end_at(self) -> datetime | None:
        """The estimated end in service time; None if it is not known."""
        return self.job_end.at

    @property
    def end(self) -> End | None:
        """The estimated or earliest end; None if nothing is known of it, or if only a person can change anything."""
        if self.summary.is_finished:
            return None
        return self.job_end.seen_at(self.now, self.time_scale)

    @property
    def end_reason(self) -> str | None:
        """Why the end of a job at work is not known; None if it is known, and for all other jobs."""
        is_at_work = self.summary.total and not self.summary.is_finished and not self.summary.is_paused
        return self.job_end.reason if is_at_work else None

    @property
    def end_text(self) -> str:
        """The estimated or earliest end, or that there is none, as text."""
        if not self.summary.total:
            return "empty: its manifest has no items"
        if self.summary.has_ended:
            return "finished"
        if self.summary.is_paused:
            return "paused"
        if self.summary.is_finished:
            return "waits for a person"
        return str(self.end or "end not known yet")

    @property
    def end_line(self) -> str:
        """The text of `end_text` as it stands alone: what is before and behind a time.

        Before it, "ends" or "would end"; behind it, the reason if it is unknown, and what the budget does not pay for.
        """
        text = self.end_text
        if self.end is not None and not self.summary.is_paused:
            text = f"ends {text}" if self.is_driven else f"would end {text} if it were started now"
        if self.end_reason is not None:
            text = f"{text}: {self.end_reason}"
        notes = [note for note in (budget_note([self]), self._budget_remedy) if note is not None]
        return "; ".join([text, *notes])

    @property
    def _budget_remedy(self) -> str | None:
        """The budget that would pay for the items left, or that this is not known yet, as a clause; None if it pays."""
        summary = self.summary
        if summary.budget_credits is None or summary.is_finished:
            return None
        if unquoted := summary.queued_unquoted:
            have = "has" if unquoted == 1 else "have"
            return f"{plural(unquoted, 'item')} {have} no price yet, so whether the budget pays for all is not known"
        enough = summary.budget_for(0)
        return f"budget.credits of {enough:,} would pay for all" if enough > summary.budget_credits else None

    @property
    def beyond_budget(self) -> int:
        """How many of the items left the job's budget does not pay for, as far as their prices are known."""
        return min(self.job_end.beyond_budget, self.summary.left)

    @property
    def known_beyond_budget(self) -> int | None:
        """The number of `beyond_budget`; None if missing prices leave it open."""
        summary = self.summary
        has_budget = summary.budget_credits is not None or summary.budget_credits_per_day is not None
        return None if has_budget and summary.queued_unquoted else self.beyond_budget

    @property
    def service_note(self) -> str | None:
        """The note about the job's service if it is a local one, else None. See `formatting.service_note`."""
        return service_note(is_embedded=self.is_embedded, time_scale=self.time_scale)


class AccountView(Struct, frozen=True):
    """An account with today's usage; `limits` is None if its profile is not configured.

    `now` is service time, and `time_scale` its seconds per real second. `wait` is known to `read_status` only.
    """

    summary: AccountSummary
    usage: DayUsage
    limits: Limits | None
    now: datetime
    time_scale: float = 1.0
    wait: "Wait | None" = None


class Overview(Shown, Struct, frozen=True):
    """The jobs and accounts of a queue, and the processes that run it.

    `lease` is that of the process that runs the queue; None if no process does. `shared_by` has the workers of a queue
    in a database; None if no worker ever shared it.
    """

    jobs: tuple[JobView, ...]
    accounts: tuple[AccountView, ...]
    lease: Lease | None
    shared_by: SharedBy | None = None

    def _shown(self) -> Iterator[tuple[str, object]]:
        for view in self.jobs:
            summary = view.summary
            done = summary.items[ItemState.DONE]
            yield summary.name, f"{done:,} of {plural(summary.total, 'item')} done, {summary.credits.spent:,} credits"
        yield "run by a process", "yes" if self.is_driven else "no"

    @property
    def is_driven(self) -> bool:
        """Whether any process runs the queue."""
        return self.lease is not None or (self.shared_by is not None and bool(self.shared_by.alive))

    def refusal_of(self, view: AccountView) -> "AccountBlocked | None":
        """Return why an account cannot work: by its worker, or by the run of a queue in a file, present or last."""
        return view.summary.refused if self.shared_by is None else self.shared_by.refusal_of(view.summary)

    def lacks_key(self, view: AccountView) -> bool:
        """Whether the one process that runs the queue found no API key of an account with work."""
        return self.lease is not None and view.summary.key_missing is not None

    @property
    def silent_profiles(self) -> frozenset[str]:
        """The profiles whose service does not answer, as far as the queue knows."""
        return frozenset(view.summary.profile for view in self.accounts if view.summary.outage is not None)


def read_overview(
    reader: Reader,
    config: Config,
    names: Sequence[str] | None,
    machine_now: datetime,
    observed: Mapping[str, datetime] | None = None,
    *,
    running: Collection[str] | None = None,
    unselected: "Unselected | None" = None,
) -> Overview:
    """Read all jobs, or the named ones, the accounts, and the processes that run the queue.

    `observed` is the service time of profiles in use in this process; for other profiles it is estimated. The ends are
    those of a run of the jobs `running`; None is a run of the whole queue. Items that are `unselected` for the run are
    left out of the jobs' numbers of items and of their ends. Raise `InputError` for a job that does not exist.
    """
    wanted = list(names) if names is not None else list(reader.jobs.names())
    beside = unselected or {}
    summaries = [reader.jobs.summary(name).without(beside.get(name, {})) for name in wanted]
    profiles = {summary.profile for summary in summaries} | set(config.profiles)
    account_views, times = read_accounts(reader, config, machine_now, observed, profiles)
    ends = estimated_ends(reader, config, times, account_views, running=running, unselected=unselected)
    held = reader.lease()
    overview = Overview(
        (), account_views, held if held is not None and held.is_alive else None, _shared_by(reader, config)
    )
    silent = overview.silent_profiles if overview.is_driven else frozenset()
    idle = _without_account(reader, config, overview, summaries)
    jobs = tuple(
        JobView(
            summary=summary,
            now=times[summary.profile],
            job_end=_NO_ANSWER
            if summary.profile in silent
            else idle.get(summary.name) or ends.get(summary.name) or _without_forecast(summary, profile),
            examples=reader.jobs.problem_items(summary.name) if summary.problems else {},
            time_scale=profile.time_scale if profile else 1.0,
            is_embedded=profile is not None and profile.is_embedded,
            credit_price=profile.credit_price if profile else None,
            is_driven=overview.is_driven,
        )
        for summary, profile in ((each, config.profiles.get(each.profile)) for each in summaries)
    )
    return replace(overview, jobs=jobs)


def read_status(
    reader: Reader,
    config: Config,
    names: Sequence[str] | None,
    machine_now: datetime,
    observed: Mapping[str, datetime] | None = None,
) -> Overview:
    """Read an overview as above, with the stale items of each job.

    If everything of a queue that is run waits, its accounts have their waits as well.
    """
    overview = in_full(reader, read_overview(reader, config, names, machine_now, observed))
    at_work = [view.summary for view in overview.jobs if view.summary.left]
    if not overview.is_driven or not at_work or any(summary.under_way for summary in at_work):
        return overview
    from batchkiln.presentation.account_waits import account_status  # noqa: PLC0415  slow to import, and rarely needed

    profiles = config.profiles
    waits = {
        view.summary.id: account_status(reader, view, profiles[view.summary.profile]).wait
        for view in overview.accounts
        if view.summary.profile in {summary.profile for summary in at_work} & profiles.keys()
    }
    return replace(
        overview, accounts=tuple(replace(view, wait=waits.get(view.summary.id)) for view in overview.accounts)
    )


def in_full(reader: Reader, overview: Overview) -> Overview:
    """Return the overview with `stale` and `sufficient_budget` of each job."""
    return replace(overview, jobs=full_views(reader, overview.jobs))


def full_views(reader: Reader, views: Iterable[JobView]) -> tuple[JobView, ...]:
    """Return the jobs with `stale` and `sufficient_budget`. It takes a look at each source of the queue."""
    stale = reader.jobs.stale_counts()
    return tuple(
        replace(
            view,
            stale=stale[view.summary.name],
            sufficient_budget=_sufficient_budget(reader, view.summary),
        )
        for view in views
    )


def _sufficient_budget(reader: Reader, summary: JobSummary) -> int | None:
    """Return the budget that would pay for the items that were rejected for the job's budget; None if not known.

    The counters know the cost of all rejected items together, without those over their caps or the budget of a day.
    """
    codes = {problem.code for problem in summary.problems if problem.state is ItemState.REJECTED}
    apart = {BudgetLimit.OVER_JOB_BUDGET, BudgetLimit.OVER_CAP, BudgetLimit.OVER_JOB_DAY}
    if BudgetLimit.OVER_JOB_BUDGET not in codes or codes - apart:
        return None
    retried = reader.preview_retry(summary.name, (), (ItemState.REJECTED,))
    is_known = retried.may_cost and not retried.unquoted and not summary.queued_unquoted
    return summary.budget_for(retried.may_cost or 0) if is_known else None


def _without_account(
    reader: Reader, config: Config, overview: Overview, summaries: Sequence[JobSummary]
) -> dict[str, JobEnd]:
    """Return the ends of the jobs that cannot begin their items, because no account of theirs can work."""
    idle = {}
    for view in overview.accounts if overview.lease is not None else ():
        if view.summary.key_missing is not None:
            idle[view.summary.profile, view.summary.name] = "has no API key"
        elif view.summary.refused is not None:
            idle[view.summary.profile, view.summary.name] = "cannot work"
    found = {}
    for summary in summaries if idle else ():
        profile = config.profiles.get(summary.profile)
        if profile is not None and summary.left and not summary.under_way:
            names = json.loads(reader.jobs.account_names(summary.name)) or profile.account_names[:1]
            if all((summary.profile, name) in idle for name in names):
                reasons = (f"{sanitize(name)} {idle[summary.profile, name]}" for name in names)
                found[summary.name] = JobEnd(reason=" and ".join(reasons))
    return found


_NO_ANSWER: Final = JobEnd(reason="the service is not available")


def _without_forecast(summary: JobSummary, profile: Profile | None) -> JobEnd:
    """Return the end of a job that has no forecast, with the reason."""
    if profile is None:
        return JobEnd(reason=f"its profile {sanitize(summary.profile)} is not in the configuration")
    if files := summary.items[ItemState.DOWNLOADING]:
        return JobEnd(reason=f"the files of {plural(files, 'item')} are still to be downloaded")
    return JobEnd(reason="it has nothing to send")


def _shared_by(reader: Reader, config: Config) -> SharedBy | None:
    """Read the workers of a queue; None if no worker ever shared it, as for most queues."""
    if not reader.is_shared():
        return None
    from batchkiln.presentation.worker_views import read_shared_by  # noqa: PLC0415  slow to import

    return read_shared_by(reader, config)


def read_accounts(
    reader: Reader,
    config: Config,
    machine_now: datetime,
    observed: Mapping[str, datetime] | None = None,
    profiles: AbstractSet[str] = frozenset(),
) -> tuple[tuple[AccountView, ...], dict[str, datetime]]:
    """Read all accounts, and the service times of the profiles of the queue, the configuration and `profiles`."""
    accounts = reader.accounts.summaries()
    names = {account.profile for account in accounts} | set(config.profiles) | profiles
    times = {name: service_time(reader, config, name, machine_now) for name in names} | dict(observed or {})
    return tuple(_account(account, config, times[account.profile]) for account in accounts), times


def service_time(reader: Reader, config: Config, name: str, machine_now: datetime) -> datetime:
    """Return the best estimate of a service's time while this process does not talk to it.

    The queue has the time of the last request. A clock that runs faster has gone on since, which is no less than the
    time since the last change of the queue, as long as the same process runs it.
    """
    known, profile, held = reader.accounts.service_time(name, machine_now), config.profiles.get(name), reader.lease()
    if profile is None or profile.time_scale == 1 or held is None or not held.is_alive:
        return known
    changed_at = reader.written_at()
    if changed_at is None or not held.started_at <= changed_at <= machine_now:
        return known
    then = reader.accounts.service_time(name, changed_at)
    return max(known, then + (machine_now - changed_at) * profile.time_scale)


def _account(account: AccountSummary, config: Config, now: datetime) -> AccountView:
    profile = config.profiles.get(account.profile)
    if profile is None or account.name not in {each.name for each in profile.accounts}:
        # Nobody asks for it any more, so nobody records the end.
        account = replace(account, outage=None, key_missing=None, refused=None)
    usage = account.usage if profile is None else usage_today(account, profile, now)
    if profile is None:
        return AccountView(account, usage, None, now)
    return AccountView(account, usage, profile.limits, now, profile.time_scale)


def estimated_ends(
    reader: Reader,
    config: Config,
    times: Mapping[str, datetime],
    accounts: Sequence[AccountView],
    *,
    running: Collection[str] | None = None,
    unselected: "Unselected | None" = None,
) -> dict[str, JobEnd]:
    """Return each job's end, by name. Jobs of the same accounts run one after the other. See `read_overview`."""
    found = _forecasts(reader, config, times, accounts, running=running, unselected=unselected, has_range=True)
    return {name: end for each in found for name, end in each.ends().items()}


def coming_days(
    reader: Reader,
    config: Config,
    times: Mapping[str, datetime],
    accounts: Sequence[AccountView],
    *,
    most: int,
) -> dict[str, list[CalendarDay]]:
    """Return up to `most` coming days of each profile, from the same forecast as `estimated_ends`."""
    days: dict[str, dict[datetime, CalendarDay]] = {}
    for entry in _forecasts(reader, config, times, accounts, has_range=False):
        found = days.setdefault(entry.profile, {})
        for day in entry.forecast.days[:most]:
            other = found.get(day.starts_at, CalendarDay(day.starts_at, 0, 0, timedelta()))
            found[day.starts_at] = CalendarDay(
                day.starts_at, other.items + day.items, other.credits + day.credits, other.busy + day.busy
            )
    return {name: [found[at] for at in sorted(found) if found[at].items] for name, found in days.items()}


def _forecasts(
    reader: Reader,
    config: Config,
    times: Mapping[str, datetime],
    accounts: Sequence[AccountView],
    *,
    running: Collection[str] | None = None,
    unselected: "Unselected | None" = None,
    has_range: bool,
) -> list[JobForecast]:
    profiles = config.profiles
    days = {name: profile.day.start_of(times[name]) for name, profile in profiles.items()}
    loads = reader.loads.queued({name: profile.limits for name, profile in profiles.items()}, days, unselected)
    usages = {(view.summary.profile, view.summary.name): view.usage for view in accounts}
    ours = loads if running is None else only_under_way(loads, except_of=running)
    return list(job_forecasts(ours, profiles=profiles, times=times, usages=usages, has_range=has_range))


def budget_note(views: Sequence[JobView]) -> str | None:
    """Return that the budgets do not pay for all items left, as a clause; None if they do, as far as it is known."""
    left, beyond = sum(view.summary.left for view in views), sum(view.beyond_budget for view in views)
    if not beyond:
        return None
    pays = "the budget pays" if len(views) == 1 else "the budgets pay"
    return f"{pays} for {left - beyond:,} of the {plural(left, 'item')} left, and the rest would be rejected"


def service_notes(views: Sequence[JobView]) -> list[str]:
    """Return the notes about the local services of the jobs, each once; different ones with their profiles."""
    profiles: dict[str, set[str]] = {}
    for view in views:
        if view.service_note is not None:
            profiles.setdefault(view.service_note, set()).add(view.summary.profile)
    if len(profiles) > 1:
        return [f"{sanitize(', '.join(sorted(names)))}: {note}." for note, names in sorted(profiles.items())]
    return [f"{note[0].upper()}{note[1:]}." for note in profiles]


def review_line(summary: JobSummary) -> str | None:
    """Return a sentence about the items that wait for a person's review, with the command; None if there are none."""
    parts = []
    if summary.to_choose:
        parts.append(
            f"{plural(summary.to_choose, 'group')} {'waits' if summary.to_choose == 1 else 'wait'} for a choice"
        )
    if summary.to_review:
        parts.append(
            f"{plural(summary.to_review, 'item')} {'waits' if summary.to_review == 1 else 'wait'} for a review"
        )
    return f"{' and '.join(parts)}: `batchkiln review {command_arguments(summary.name)}`" if parts else None


def alerts_of(view: JobView) -> list[str]:
    """Return the alerts of a job, one sentence each."""
    found = []
    for entry in view.summary.under_way:
        age = format_service_age(entry.since, view.now, view.time_scale)
        ends_at = entry.retention_ends_at
        if entry.state is ItemState.DOWNLOADING and ends_at is not None and ends_at - view.now < RETENTION_WARNING:
            found.append(
                f"{entry.item} is paid but not downloaded yet: the service may delete it from "
                f"{format_minute(ends_at)} on. Run `batchkiln work`"
            )
        if entry.state is ItemState.ACTIVE and is_long_pending(entry.since, view.now, view.time_scale):
            found.append(
                f"{entry.item} has been {sanitize(entry.status or 'pending')} for {age}: ask the service's "
                f"support about generation {entry.generation_id}. It is still polled, and never "
                "replaced, because it may be charged"
            )
        if entry.state is ItemState.SUBMITTING and is_long_pending(entry.since, view.now, view.time_scale):
            found.append(
                f"{entry.item} was sent {plural(entry.sends, 'time')} in {age} without "
                "a definite reply; the same request is sent again, which is never charged twice"
            )
    return found
