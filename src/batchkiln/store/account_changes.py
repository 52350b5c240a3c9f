"""Changes of an account, stored for the next start. `now` is service time."""

import json
from typing import Final, assert_never

from batchkiln.core.calls import Outage
from batchkiln.core.job import AttemptState
from batchkiln.core.queue_changes import (
    AccountChange,
    AccountRefused,
    CallMisunderstood,
    CallUnderstood,
    CircumstancesKnown,
    HoldImposed,
    HoldsCapped,
    KeyMissing,
    KeysConfigured,
    OutageBegan,
    OutageEnded,
    TimeKnown,
)
from batchkiln.core.queue_types import Scope
from batchkiln.core.states import Event, ItemState
from batchkiln.core.timestamps import ClockReading, to_milliseconds
from batchkiln.store import misunderstood
from batchkiln.store.jobs import Jobs
from batchkiln.store.meta import read_meta, write_meta
from batchkiln.store.row_types import blocked_as_list
from batchkiln.store.session import Session
from batchkiln.store.sql import query
from batchkiln.store.transitions import Detail, log_job_event, transition
from batchkiln.store.usage import cap_holds

_RESUMED: Final = {
    AttemptState.SENT: Event.REPLAY_RESUMED,
    AttemptState.ACTIVE: Event.POLL_RESUMED,
    AttemptState.SUCCEEDED: Event.DOWNLOAD_RESUMED,
}


def account_id(connection: Session, profile: str, name: str) -> int:
    """Return the id of an account of a profile. Store the account if it is new."""
    parameters = {"profile": profile, "name": name}
    connection.execute(query("insert_account"), parameters)
    found: int = connection.execute(query("select_account"), parameters).fetchone()[0]
    return found


def service_time(connection: Session, profile: str) -> int | None:
    """Return the latest stored time of a profile's service, in milliseconds; None before the first."""
    value = read_meta(connection, f"service_time/{profile}")
    return None if value is None else int(value)


def update_account(
    connection: Session, profile: str, account_id: int, change: AccountChange, now: ClockReading
) -> None:
    """Store one fact about an account of a profile."""
    match change:
        case HoldImposed():
            _impose_hold(connection, account_id, change)
        case HoldsCapped(logged_at=logged_at):
            cap_holds(connection, account_id, now.latest, logged_at)
        case CallMisunderstood(entry=entry, circumstances=circumstances):
            misunderstood.record_misunderstood(connection, account_id, entry, circumstances)
        case CallUnderstood(call=call):
            misunderstood.forget_misunderstood(connection, account_id, call)
        case CircumstancesKnown(circumstances=circumstances):
            misunderstood.forget_other_circumstances(connection, account_id, circumstances)
        case OutageBegan() | OutageEnded():
            _change_outage(connection, profile, account_id, change, to_milliseconds(now.instant))
        case TimeKnown():
            remember_time(connection, profile, now)
        case AccountRefused():
            _refuse(connection, profile, account_id, change, to_milliseconds(now.instant))
        case KeyMissing() | KeysConfigured():
            _know_keys(connection, account_id, change, to_milliseconds(now.instant))
        case _:
            assert_never(change)


def _know_keys(connection: Session, account_id: int, change: KeyMissing | KeysConfigured, now: int) -> None:
    """Store whether an account lacks an API key, where `accounts.sql` reads it, and resume what one of them allows."""
    places = change.places if isinstance(change, KeyMissing) else None
    write_meta(connection, f"key_missing/{account_id}", places)
    if isinstance(change, KeysConfigured):
        _resume_held_for_key(connection, account_id, change.fingerprints, now)


def _refuse(connection: Session, profile: str, account_id: int, refused: AccountRefused, now: int) -> None:
    """Store why an account cannot work, where `accounts.sql` reads it, and in the history of the jobs at work."""
    blocked = refused.blocked
    write_meta(connection, f"refused/{account_id}", json.dumps(blocked_as_list(blocked)))
    detail: Detail = {
        "account": f"{profile}/{refused.account}",
        "problem": blocked.problem,
        "code": blocked.error.code,
        "message": blocked.error.message,
    }
    _log_for_jobs(connection, "account_refused", profile, now, detail)


def forget_account_problems(connection: Session) -> None:
    """Delete what earlier runs have stored of accounts without an API key, and of refused ones."""
    connection.execute(query("forget_account_problems"))


def remember_time(connection: Session, profile: str, now: ClockReading) -> None:
    """Store the service's time. The next start estimates no earlier time."""
    write_meta(connection, f"service_time/{profile}", str(to_milliseconds(now.instant)))


def _impose_hold(connection: Session, account_id: int, hold: HoldImposed) -> None:
    name = "hold_creates" if hold.is_of_creates else "hold_reads"
    parameters = {"account_id": account_id, "until": to_milliseconds(hold.until), "reason": hold.reason}
    connection.execute(query(name), parameters)


def _change_outage(
    connection: Session, profile: str, account_id: int, change: OutageBegan | OutageEnded, now: int
) -> None:
    if isinstance(change, OutageBegan):
        _begin_outage(connection, profile, account_id, change.outage, now)
    else:
        _end_outage(connection, profile, account_id, now)


def _begin_outage(connection: Session, profile: str, account_id: int, outage: Outage, now: int) -> None:
    """Store an account's outage. The first account of a profile also records it in the history of the jobs at work."""
    is_first = not _is_known_outage(connection, profile)
    since = to_milliseconds(outage.since)
    values = {"account_id": account_id, "since": since, "reason": outage.reason}
    connection.execute(query("begin_outage"), values)
    if is_first:
        detail: Detail = {"seconds": max(0, now - since) // 1000, "reason": outage.reason}
        _log_for_jobs(connection, "service_unreachable", profile, now, detail)


def _end_outage(connection: Session, profile: str, account_id: int, now: int) -> None:
    """Delete an account's outage. The last account of a profile also records the end, as above."""
    own = connection.execute(query("begun_outage"), {"account_id": account_id}).fetchone()[0]
    connection.execute(query("end_outage"), {"account_id": account_id})
    if own is not None and not _is_known_outage(connection, profile):
        _log_for_jobs(connection, "service_reachable", profile, now, {"seconds": max(0, now - own) // 1000})


def _is_known_outage(connection: Session, profile: str) -> bool:
    """Return whether any account of the profile has an outage."""
    found: int = connection.execute(query("accounts_without_service"), {"profile": profile}).fetchone()[0]
    return found > 0


def _log_for_jobs(connection: Session, kind: str, profile: str, now: int, detail: Detail) -> None:
    for job in Jobs(connection).work(Scope()).jobs:
        if job.profile == profile:
            log_job_event(connection, kind, job_id=job.id, now=now, detail=detail)


def _resume_held_for_key(connection: Session, account_id: int, fingerprints: frozenset[str], now: int) -> None:
    """Resume the items that were held for an API key that is configured again."""
    for row in connection.execute(query("held_for_key"), {"account_id": account_id}).fetchall():
        if row["key_fingerprint"] in fingerprints:
            transition(
                connection,
                item_id=row["id"],
                expected=ItemState.HELD,
                event=_RESUMED[AttemptState(row["state"])],
                now=now,
                attempt_id=row["attempt_id"],
            )
