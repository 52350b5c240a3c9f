"""What a worker does before its first request about money: learn the service's time, take over the windows."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Final, assert_never

import structlog

from batchkiln.core.calls import Call
from batchkiln.core.planner import NotBefore, WaitReason
from batchkiln.core.queue_changes import CircumstancesKnown, HoldsCapped, KeysConfigured, TimeKnown
from batchkiln.core.queue_types import LoggedRequest, RequestKind
from batchkiln.core.responses import (
    AccountBlocked,
    Described,
    EdgeBlocked,
    NoResponse,
    NotUnderstood,
    Throttled,
    Unavailable,
)
from batchkiln.core.timestamps import WITNESS_GAP_SECONDS
from batchkiln.worker.account_worker import MISUNDERSTOOD_AT_MOST, AccountWorker

log = structlog.get_logger()

ANSWERS_ABOUT_TIME: Final = 5
"""So often the time is asked where each answer contradicts the one before; then this machine's clock serves."""


async def resume_held(worker: AccountWorker) -> None:
    """Take up the items whose API key came back: at once, or a run with nothing else to do would end before it."""
    fingerprints, now = worker.ports.service.fingerprints, worker.ports.clock.now()
    await worker.ports.queue.update_account(worker.account_id, KeysConfigured(fingerprints), now)


async def sync_clock(worker: AccountWorker) -> None:
    """Learn what day and hour it is for the service, so that a wrong clock here moves no window (contract, 6).

    The public description is asked, since it counts in no account's window. Keeps trying while the service is
    not there; where its time is far from this machine's, asks again until two replies agree, a few times. Then the
    requests of earlier runs are taken over, and their waits.
    """
    logged = await worker.ports.queue.logged_requests()
    worker.restore_host_window(logged, worker.ports.clock.now())
    answers = 0
    while not worker.ports.clock.is_observed and not worker.control.is_over_for(worker.account_id):
        now = worker.ports.clock.now()
        due = (
            NotBefore(worker.machine.log.free_at(now.monotonic), WaitReason.MINUTE_WINDOW)
            .after(worker.machine.held)
            .after(worker.backoffs[Call.DESCRIPTION].held)
        )
        if due.at > now.monotonic:
            await worker.wait("slot", due, worker.ports.queue.changes.version)
            continue
        answers += await _ask_time(worker, logged)
        if answers and (not worker.ports.clock.is_doubted or answers >= ANSWERS_ABOUT_TIME):
            break
        if answers:
            again_at = worker.ports.clock.now().monotonic + WITNESS_GAP_SECONDS
            await worker.ports.clock.sleep_until(again_at, worker.control.stopping)
    now = worker.ports.clock.now()
    if answers >= ANSWERS_ABOUT_TIME and not worker.ports.clock.is_observed:
        log.warning("service_time_unknown", account=worker.viewpoint.account, reason="no two replies agree on the time")
    holds = HoldsCapped(logged[-1].sent_at if logged else None)
    for change in (TimeKnown(), holds, CircumstancesKnown(worker.circumstances)):
        await worker.ports.queue.update_account(worker.account_id, change, now)
    worker.restore_windows(logged, now)
    await worker.count_across_reset(logged, now)


async def _ask_time(worker: AccountWorker, logged: Sequence[LoggedRequest]) -> bool:
    """Ask once; tell whether the service answered, with a usable `Date` or without one.

    The log takes the request for as late as its newest one: a wrong clock of this machine would make all that
    was sent before look old, to another account's worker or to the next run.
    """
    request = worker.new_request(RequestKind.OTHER, worker.ports.clock.now())
    if logged:
        request = replace(request, at=logged[-1].sent_at)
    async with worker.rate_limited(request):
        await worker.ports.queue.record_request(request)
        reply = await worker.ports.service.describe()
    match reply:
        case Described(document=document):
            worker.on_success(Call.DESCRIPTION)
            worker.machine.description = _digest(document)
            return True
        case AccountBlocked() | Throttled():
            worker.on_success(Call.DESCRIPTION)
            return True
        case NotUnderstood() if worker.backoffs[Call.DESCRIPTION].misunderstood + 1 >= MISUNDERSTOOD_AT_MOST:
            await worker.on_failure(reply, Call.DESCRIPTION)  # nothing needs it but the time, which other replies tell
            return True
        case Unavailable() | NoResponse() | NotUnderstood() | EdgeBlocked():
            await worker.on_failure(reply, Call.DESCRIPTION)
            return False
        case _:
            assert_never(reply)


def _digest(document: Mapping[str, object]) -> str:
    """Return a digest of the service's description, by which a later change of it is known."""
    return sha256(json.dumps(document, sort_keys=True, default=str).encode()).hexdigest()
