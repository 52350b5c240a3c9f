"""What stands while a drive goes on, and a person may want to know: it is told once a service day, until it is over."""

from collections.abc import Iterator
from datetime import datetime
from math import inf
from sqlite3 import Connection

from batchkiln.api.engine import Driver
from batchkiln.api.notify_events import ITEMS_NAMED, notice_id
from batchkiln.core.calls import Misunderstood
from batchkiln.core.notifications import Notice, NoticeKind
from batchkiln.core.planner import Due, Reason
from batchkiln.core.polling import NEAR_THE_END, retention_ends_at
from batchkiln.core.queue_types import Outstanding
from batchkiln.core.responses import AccountProblem
from batchkiln.core.timestamps import from_milliseconds
from batchkiln.presentation.account_errors import ACCOUNT_ADVICE
from batchkiln.presentation.formatting import count, moment
from batchkiln.presentation.unread_replies import CALLS, misunderstanding
from batchkiln.store.database import Database
from batchkiln.store.misunderstood import misunderstood
from batchkiln.store.notification_cursor import Expiring, audience_of, near_expiry
from batchkiln.store.pending_work import find_work
from batchkiln.worker.account_worker import Lane
from batchkiln.worker.loop import rest_of

_DAY_IS_SPENT = frozenset({Reason.DAY_CREDITS, Reason.JOB_DAY_CREDITS})


async def standing(driver: Driver, reader: Database, uid: str) -> list[Notice]:
    """Look at each account that the drive works with, and at what its service will soon delete."""
    if not driver.lanes:
        return []
    notices: list[Notice] = []
    outstanding = await driver.outstanding(driver.control.scope)
    for lane in driver.lanes:
        audience = await reader.read(_audience, driver, lane.viewpoint.profile)
        unread = await reader.read(misunderstood, lane.account_id)
        notices += [_not_understood(lane, entry, uid, audience) for entry in unread]
        if lane.account_id in driver.control.blocked:
            notices.append(_blocked(lane, driver, uid, audience))
        elif outstanding.total and (due := await rest_of(lane)).reason in _DAY_IS_SPENT:
            notices.append(_spent(lane, due, outstanding, uid, audience))
    for profile, service in driver.services.items():
        now, day = service.clock.now().instant, service.profile.day
        found = await reader.read(near_expiry, profile, now + NEAR_THE_END)
        notices += await reader.read(_expiring_notices, found, now, day.start_of(now), uid)
    return notices


def _audience(connection: Connection, driver: Driver, profile: str) -> frozenset[str] | None:
    """Return whom the jobs name that have work for a profile's accounts; all notifiers where one does not say."""
    jobs = [job.name for job in find_work(connection, driver.control.scope).jobs if job.profile == profile]
    return audience_of(connection, jobs) if jobs else None


def _blocked(lane: Lane, driver: Driver, uid: str, audience: frozenset[str] | None) -> Notice:
    now = lane.ports.clock.now().instant
    account = f"{lane.viewpoint.profile}/{lane.viewpoint.account}"
    problem = driver.control.blocked[lane.account_id].problem
    text = (
        f"The service refuses the account {account} ({problem}) until a person acts. Nothing is lost, and what is "
        "queued stays queued; `batchkiln work` goes on once that is mended."
    )
    if problem is AccountProblem.OVERCHARGED:
        text = f"{account}: {ACCOUNT_ADVICE[problem]}. Nothing is lost, and what is queued stays queued."
    return Notice(
        id=notice_id(uid, NoticeKind.ACCOUNT_BLOCKED, account, problem, lane.day.start_of(now)),
        kind=NoticeKind.ACCOUNT_BLOCKED,
        at=now,
        title=f"{account} cannot work: {problem}",
        text=text,
        audience=audience,
        facts={"profile": lane.viewpoint.profile, "account": lane.viewpoint.account, "problem": problem.value},
    )


def _not_understood(lane: Lane, entry: Misunderstood, uid: str, audience: frozenset[str] | None) -> Notice:
    account = f"{lane.viewpoint.profile}/{lane.viewpoint.account}"
    return Notice(
        id=notice_id(uid, NoticeKind.NOT_UNDERSTOOD, account, entry.call, entry.since),
        kind=NoticeKind.NOT_UNDERSTOOD,
        at=lane.ports.clock.now().instant,
        title=f"{account}: not understood: {CALLS[entry.call]}",
        text=f"{misunderstanding(entry, account)}.",
        audience=audience,
        facts={
            "profile": lane.viewpoint.profile,
            "account": lane.viewpoint.account,
            "call": entry.call.value,
            "lacking": entry.lacking,
            "status": entry.status,
            "shape": entry.shape,
        },
    )


def _spent(lane: Lane, due: Due, outstanding: Outstanding, uid: str, audience: frozenset[str] | None) -> Notice:
    now = lane.ports.clock.now()
    account = f"{lane.viewpoint.profile}/{lane.viewpoint.account}"
    resumes_at = now.instant_of(due.at) if due.at < inf else None
    whose = "of the account" if due.reason is Reason.DAY_CREDITS else "that the job allows"
    return Notice(
        id=notice_id(uid, NoticeKind.BUDGET_SPENT, account, lane.day.start_of(now.instant)),
        kind=NoticeKind.BUDGET_SPENT,
        at=now.instant,
        title=f"{account}: today's credits are spent, {count(outstanding.total, 'item')} left",
        text=(
            f"The day's credits {whose} do not cover the next item"
            + (f"; new ones come at {moment(resumes_at)}." if resumes_at else ".")
            + " Nothing needs to be done."
        ),
        audience=audience,
        facts={
            "profile": lane.viewpoint.profile,
            "account": lane.viewpoint.account,
            "left": outstanding.total,
            "resumes_at": resumes_at,
        },
    )


def _expiring_notices(
    connection: Connection, found: list[Expiring], now: datetime, day: datetime, uid: str
) -> list[Notice]:
    jobs: dict[str, list[Expiring]] = {}
    for entry in found:
        jobs.setdefault(entry.job, []).append(entry)
    return [
        _expiring(job, entries, now, notice_id(uid, NoticeKind.RESULTS_EXPIRING, job, day), audience)
        for job, entries, audience in _with_audience(connection, jobs)
    ]


def _with_audience(
    connection: Connection, jobs: dict[str, list[Expiring]]
) -> Iterator[tuple[str, list[Expiring], frozenset[str] | None]]:
    for job, entries in jobs.items():
        yield job, entries, audience_of(connection, [job])


def _expiring(
    job: str, entries: list[Expiring], now: datetime, identity: str, audience: frozenset[str] | None
) -> Notice:
    ends_at = retention_ends_at(from_milliseconds(entries[0].created_at))
    names = [entry.item for entry in entries[:ITEMS_NAMED]]
    more = f" and {len(entries) - len(names):,} more" if len(entries) > len(names) else ""
    return Notice(
        id=identity,
        kind=NoticeKind.RESULTS_EXPIRING,
        at=now,
        title=f"{job}: {count(len(entries), 'paid result')} about to expire",
        text=(
            f"{', '.join(names)}{more}: paid, and not fetched yet. The service may delete the first from "
            f"{moment(ends_at)} on. `batchkiln status {job}` says what keeps the files from coming."
        ),
        audience=audience,
        facts={"job": job, "count": len(entries), "items": names, "first_ends_at": ends_at},
    )
