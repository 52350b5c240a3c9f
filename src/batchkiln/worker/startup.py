"""The first steps of a worker, before any paid request: learn the service's time, restore the rate limits."""

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Final, assert_never

import structlog
from msgspec.structs import replace

from batchkiln.core.calls import Call
from batchkiln.core.error_text import scale_remedy
from batchkiln.core.queue_changes import CircumstancesKnown, HoldsCapped, KeysConfigured, TimeKnown
from batchkiln.core.rate_limits import LoggedRequest, RequestKind
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
from batchkiln.core.waits import NotBefore, WaitReason
from batchkiln.worker.account_worker import AccountWorker

log = structlog.get_logger()

ANSWERS_ABOUT_TIME: Final = 5
"""The contradicting replies about the time after which this machine's clock is used."""


async def resume_held(worker: AccountWorker) -> None:
    """Resume the items whose API key is configured again, so that they count before the run decides on its end."""
    fingerprints, now = worker.ports.service.fingerprints, worker.ports.clock.now()
    await worker.ports.queue.update_account(worker.account_id, KeysConfigured(fingerprints), now)


async def sync_clock(worker: AccountWorker) -> None:
    """Determine the service's time, so that a wrong clock of this machine does not shift the windows (contract, 6).

    Read the public description, which counts in no account's window, and retry while the service is unreachable. If its
    time is far from this machine's, ask again until two replies agree, at most `ANSWERS_ABOUT_TIME` times. Then restore
    the requests and the waits of earlier runs. A restored queue has lost the requests of the last minute, so the
    request is sent after the quiet minute.
    """
    logged = await worker.ports.queue.logged_requests()
    worker.host.rates.restore_last_minute(logged, worker.ports.clock.now())
    answers, quiet = 0, NotBefore(worker.host.quiet_until, WaitReason.RESTORED)
    while not worker.ports.clock.is_observed and not worker.control.is_over_for(worker.account_id):
        now = worker.ports.clock.now()
        due = worker.host.rates.due(now).after(worker.backoffs.calls[Call.DESCRIPTION].not_before).after(quiet)
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
        log.warning(
            "service_time_unknown",
            account=worker.viewpoint.account,
            reason="no two replies agree on the time",
            remedy=scale_remedy(worker.ports.clock.apparent_scale),
        )
    holds = HoldsCapped(logged[-1].sent_at if logged else None)
    for change in (TimeKnown(), holds, CircumstancesKnown(worker.circumstances)):
        await worker.ports.queue.update_account(worker.account_id, change, now)
    await worker.restore_windows(logged, now)
    await worker.hold_while_quiet(now)


async def _ask_time(worker: AccountWorker, logged: Sequence[LoggedRequest]) -> bool:
    """Ask once; return whether the service answered, with or without a usable `Date`.

    The log records the request at no earlier time than its newest entry. Otherwise a wrong clock of this machine would
    make all earlier requests look old to another account's worker or to the next run.
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
            worker.host.description = _digest(document)
            return True
        case AccountBlocked() | Throttled():
            worker.on_success(Call.DESCRIPTION)
            return True
        case NotUnderstood() if worker.backoffs.is_exhausted(Call.DESCRIPTION):
            await worker.on_failure(reply, Call.DESCRIPTION)  # only the time is needed, and other replies contain it
            return True
        case Unavailable() | NoResponse() | NotUnderstood() | EdgeBlocked():
            await worker.on_failure(reply, Call.DESCRIPTION)
            return False
        case _:
            assert_never(reply)


def _digest(document: Mapping[str, object]) -> str:
    """Return a digest of the service's description, by which a later change is detected."""
    return sha256(json.dumps(document, sort_keys=True, default=str).encode()).hexdigest()
