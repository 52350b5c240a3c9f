"""Notifications about conditions that last, such as a refused account; each is sent once a service day."""

from datetime import datetime
from math import inf
from typing import Final, Protocol

from batchkiln.core.calls import Misunderstood
from batchkiln.core.errors import command_arguments
from batchkiln.core.notifications import Notification, NotificationKind
from batchkiln.core.polling import RETENTION_WARNING, retention_ends_at
from batchkiln.core.queue_types import Outstanding, Scope
from batchkiln.core.responses import AccountProblem
from batchkiln.core.timestamps import from_milliseconds
from batchkiln.core.waits import NotBefore, WaitReason
from batchkiln.notifications.from_events import ITEMS_NAMED, notification_id
from batchkiln.presentation.account_errors import ACCOUNT_ADVICE, CALLS, key_missing_text, misunderstanding
from batchkiln.presentation.formatting import format_minute, plural
from batchkiln.store import ChangeNotifier, Expiring, Reader, Store
from batchkiln.worker.account_worker import AccountWorker
from batchkiln.worker.loop import next_due
from batchkiln.worker.run_state import RunState

BUDGET_SHARES: Final = (50, 80, 95)
"""The percentages of a job's budget for each of which one notification is sent."""

_DAY_IS_SPENT = frozenset({WaitReason.DAY_CREDITS, WaitReason.JOB_DAY_CREDITS})


class RunningEngine(Protocol):
    """The part of a run's engine that the notifications use."""

    store: Store
    news: ChangeNotifier
    control: RunState
    workers: list[AccountWorker]
    without_key: dict[tuple[str, str], tuple[str, datetime]]


async def status_notifications(engine: RunningEngine, reader: Store, uid: str) -> list[Notification]:
    """Return the notifications about the run's accounts and about results that will expire soon."""
    scope = engine.control.scope
    notifications = [
        _without_key(name, engine.without_key[name], uid, await reader.read(_audience, scope, name[0]))
        for name in list(engine.without_key)
    ]
    if not engine.workers:
        return notifications
    # Only the run's own connection contains its selection.
    outstanding = await engine.store.read(lambda reader: reader.jobs.outstanding(scope))
    for worker in engine.workers:
        audience = await reader.read(_audience, scope, worker.viewpoint.profile)
        misunderstood = await reader.read(_misunderstood, worker.account_id)
        notifications += [_not_understood(worker, entry, uid, audience) for entry in misunderstood]
        if worker.account_id in engine.control.blocked:
            notifications.append(_blocked(worker, uid, audience))
        elif outstanding.total and (due := await next_due(worker)).reason in _DAY_IS_SPENT:
            notifications.append(_spent(worker, due, outstanding, uid, audience))
    for profile, worker in {worker.viewpoint.profile: worker for worker in engine.workers}.items():
        now = worker.ports.clock.now().instant
        notifications += await reader.read(_expiring_notifications, profile, now, worker.rates.day.start_of(now), uid)
        notifications += await reader.read(_budget_notifications, scope, profile, now, uid)
    return notifications


def _budget_notifications(reader: Reader, scope: Scope, profile: str, now: datetime, uid: str) -> list[Notification]:
    """Return a notification for each job with work that has reached a share of its budget."""
    notifications = []
    for job in reader.jobs.work(scope).jobs:
        spent = reader.jobs.credits(job.name, now) if job.profile == profile else None
        if spent is None or not spent.budget:
            continue
        committed = spent.charged - spent.refunded + spent.reserved
        reached = [share for share in BUDGET_SHARES if committed * 100 >= share * spent.budget]
        if reached:
            notifications.append(
                Notification(
                    id=notification_id(uid, NotificationKind.BUDGET_SHARE, job.name, reached[-1], spent.budget),
                    kind=NotificationKind.BUDGET_SHARE,
                    at=now,
                    title=f"{job.name}: {reached[-1]} % of its budget is used",
                    text=(
                        f"{committed:,} of {plural(spent.budget, 'credit')} are spent or reserved. "
                        "Once the budget is used up, no new item starts."
                    ),
                    recipients=reader.notifications.audience([job.name]),
                    data={"job": job.name, "share": reached[-1], "credits": committed, "budget": spent.budget},
                )
            )
    return notifications


def _misunderstood(reader: Reader, account_id: int) -> tuple[Misunderstood, ...]:
    return reader.accounts.misunderstood(account_id)


def _audience(reader: Reader, scope: Scope, profile: str) -> frozenset[str] | None:
    """Return the notifiers named by the jobs with work on a profile; None (all) if one of the jobs names none."""
    jobs = [job.name for job in reader.jobs.work(scope).jobs if job.profile == profile]
    return reader.notifications.audience(jobs) if jobs else None


def _blocked(worker: AccountWorker, uid: str, audience: frozenset[str] | None) -> Notification:
    now = worker.ports.clock.now().instant
    account = f"{worker.viewpoint.profile}/{worker.viewpoint.account}"
    problem = worker.control.blocked[worker.account_id].problem
    text = (
        f"The service refuses the account {account} ({problem}) until you fix this. Nothing is lost, and queued items "
        "stay queued; `batchkiln work` then continues."
    )
    if problem is AccountProblem.OVERCHARGED:
        text = f"{account}: {ACCOUNT_ADVICE[problem]}. Nothing is lost, and queued items stay queued."
    return Notification(
        id=notification_id(uid, NotificationKind.ACCOUNT_BLOCKED, account, problem, worker.rates.day.start_of(now)),
        kind=NotificationKind.ACCOUNT_BLOCKED,
        at=now,
        title=f"{account} cannot work: {problem}",
        text=text,
        recipients=audience,
        data={"profile": worker.viewpoint.profile, "account": worker.viewpoint.account, "problem": problem.value},
    )


def _without_key(
    account: tuple[str, str], missing: tuple[str, datetime], uid: str, audience: frozenset[str] | None
) -> Notification:
    name, (places, since) = "/".join(account), missing
    return Notification(
        id=notification_id(uid, NotificationKind.ACCOUNT_BLOCKED, name, "key_missing", since),
        kind=NotificationKind.ACCOUNT_BLOCKED,
        at=since,
        title=f"{name} cannot work: it has no API key",
        text=f"{name}: {key_missing_text(places)}. Nothing is lost, and queued items stay queued.",
        recipients=audience,
        data={"profile": account[0], "account": account[1], "problem": "key_missing"},
    )


def _not_understood(
    worker: AccountWorker, entry: Misunderstood, uid: str, audience: frozenset[str] | None
) -> Notification:
    account = f"{worker.viewpoint.profile}/{worker.viewpoint.account}"
    return Notification(
        id=notification_id(uid, NotificationKind.NOT_UNDERSTOOD, account, entry.call, entry.since),
        kind=NotificationKind.NOT_UNDERSTOOD,
        at=worker.ports.clock.now().instant,
        title=f"{account}: not understood: {CALLS[entry.call]}",
        text=f"{misunderstanding(entry, account)}.",
        recipients=audience,
        data={
            "profile": worker.viewpoint.profile,
            "account": worker.viewpoint.account,
            "call": entry.call.value,
            "lacking": entry.lacking,
            "status": entry.status,
            "shape": entry.shape,
        },
    )


def _spent(
    worker: AccountWorker, due: NotBefore, outstanding: Outstanding, uid: str, audience: frozenset[str] | None
) -> Notification:
    now = worker.ports.clock.now()
    account = f"{worker.viewpoint.profile}/{worker.viewpoint.account}"
    resumes_at = now.instant_of(due.at) if due.at < inf else None
    whose = "of the account" if due.reason is WaitReason.DAY_CREDITS else "of the job's budget"
    return Notification(
        id=notification_id(uid, NotificationKind.BUDGET_SPENT, account, worker.rates.day.start_of(now.instant)),
        kind=NotificationKind.BUDGET_SPENT,
        at=now.instant,
        title=f"{account}: today's credits are spent, {plural(outstanding.total, 'item')} left",
        text=(
            f"The day's credits {whose} do not cover the next item"
            + (f"; the next day starts at {format_minute(resumes_at)}." if resumes_at else ".")
            + " Nothing needs to be done."
        ),
        recipients=audience,
        data={
            "profile": worker.viewpoint.profile,
            "account": worker.viewpoint.account,
            "left": outstanding.total,
            "resumes_at": resumes_at,
        },
    )


def _expiring_notifications(reader: Reader, profile: str, now: datetime, day: datetime, uid: str) -> list[Notification]:
    jobs: dict[str, list[Expiring]] = {}
    for entry in reader.notifications.near_expiry(profile, now + RETENTION_WARNING):
        jobs.setdefault(entry.job, []).append(entry)
    return [
        _expiring(
            job,
            entries,
            now,
            notification_id(uid, NotificationKind.RESULTS_EXPIRING, job, day),
            reader.notifications.audience([job]),
        )
        for job, entries in jobs.items()
    ]


def _expiring(
    job: str, entries: list[Expiring], now: datetime, identity: str, audience: frozenset[str] | None
) -> Notification:
    ends_at = retention_ends_at(from_milliseconds(entries[0].created_at))
    names = [entry.item for entry in entries[:ITEMS_NAMED]]
    more = f" and {len(entries) - len(names):,} more" if len(entries) > len(names) else ""
    return Notification(
        id=identity,
        kind=NotificationKind.RESULTS_EXPIRING,
        at=now,
        title=f"{job}: {plural(len(entries), 'paid result')} about to expire",
        text=(
            f"{', '.join(names)}{more}: paid but not downloaded yet. The service may delete the first from "
            f"{format_minute(ends_at)} on. `batchkiln status {command_arguments(job)}` shows what blocks the downloads."
        ),
        recipients=audience,
        data={"job": job, "count": len(entries), "items": names, "first_ends_at": ends_at},
    )
