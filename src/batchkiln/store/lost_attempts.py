"""Attempts that a restored copy of the queue has lost: found in the journal beside it, and recorded again.

The service charged for them, or may have charged. Each is recorded again for the same account, with the same key and
bytes, as an attempt in doubt, and is replayed like any other (Law 2). Until then, its item cannot begin another attempt
(`lost_item`).
"""

import json
from collections.abc import Collection, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import structlog
from msgspec import Struct
from msgspec.structs import replace

from batchkiln.core.job import Attempt
from batchkiln.core.polling import RETENTION
from batchkiln.core.queue_types import LostAttempt, NewAttempt
from batchkiln.core.request import input_urls, request_body
from batchkiln.core.states import Event, ItemState
from batchkiln.core.timestamps import from_milliseconds, to_milliseconds
from batchkiln.store import attempts, known_journals
from batchkiln.store.attempt_journal import AttemptJournal, JournalEntry
from batchkiln.store.attempts import insert_attempt
from batchkiln.store.chains import rebuild_inputs
from batchkiln.store.charges import reserve
from batchkiln.store.database import Database
from batchkiln.store.integrity import attempt_checksum
from batchkiln.store.known_journals import Machine
from batchkiln.store.meta import queue_uid, read_meta, write_meta
from batchkiln.store.preparations import asset_urls, item_request
from batchkiln.store.resolution import Decision, resolve
from batchkiln.store.row_types import recipe_of
from batchkiln.store.session import Row, Session
from batchkiln.store.sql import query
from batchkiln.store.transitions import transition
from batchkiln.store.usage import count_in_days
from batchkiln.store.versions import queue_lost

_FOUND_AT: Final = "lost_attempts_found_at"
_KEPT_MS: Final = int(RETENTION.total_seconds() * 1000)
"""The journal keeps an attempt for as long after its end as the service keeps its result."""

log = structlog.get_logger()


class _Compared(Struct, frozen=True):
    """A comparison of journal and queue: the lost attempts and sends, and the journal's new content if needed.

    `ended` names the items that have ended according to the queue, but were followed by a lost attempt.
    """

    lost: int
    ended: list[str]
    foreign: int
    replacement: list[JournalEntry] | None


async def open_journal(database: Database, journal: AttemptJournal, now: int, machine: Machine | None = None) -> None:
    """Compare the journal with the queue, record the lost attempts, and open the journal for appending.

    `now` is the machine's time in milliseconds. If several machines drive the queue, it is the database's time, and the
    journals of this machine's other processes are compared too. Raise `QueueBusy` if the disk fails, and
    `QueueUnusable` if the journal is not a file.
    """
    entries, damaged = await database.run(_read, journal)
    others = [] if machine is None else await database.run(_read_others, machine.others(journal))
    compared = await database.write(_compare, entries, now, others, machine)
    content = compared.replacement
    if content is None and (damaged or journal.is_torn):
        content = entries
    await database.run(_begin, journal, content)
    _log_findings(journal.path, compared, damaged, has_own=len(entries) > compared.foreign)


def record_lost(connection: Session, journals: Sequence[AttemptJournal], now: int) -> int:
    """Record the attempts that the queue has lost, without changing the journals; return their number.

    This is for a queue that is copied to another place, which has other journals. Call it in a write transaction.
    """
    entries = _read_others(connection, journals)
    return _compare(connection, entries, now).lost


def _read_others(connection: Session, journals: Sequence[AttemptJournal]) -> list[JournalEntry]:
    """Return the entries of journals, which other processes may be writing."""
    del connection
    return [entry for journal in journals for entry in journal.read()[0]]


def _read(connection: Session, journal: AttemptJournal) -> tuple[list[JournalEntry], int]:
    del connection
    return journal.read()


def _begin(connection: Session, journal: AttemptJournal, entries: list[JournalEntry] | None) -> None:
    del connection
    journal.begin(entries)


def _log_findings(path: Path, compared: _Compared, damaged: int, *, has_own: bool) -> None:
    if compared.lost:
        reason = (
            "the queue is an older copy of itself: the journal beside it has attempts or sends that it lacks. They are "
            "sent again under their own keys, which costs nothing again, after a minute and a poll interval in which "
            "nothing is sent: what the copy had used of its limits is lost as well"
        )
        log.warning("queue_restored", queue=str(path), attempts=compared.lost, reason=reason)
    if compared.ended:
        reason = (
            "the older copy has these items as ended, and they were tried or made again later: they are queued again, "
            "and what was paid is delivered. An item that is done keeps its files beside the new ones"
        )
        log.warning("restored_items_queued", items=compared.ended, reason=reason)
    if damaged:
        reason = "lines of the journal of attempts are damaged and are dropped; the queue itself has its own records"
        log.warning("attempt_journal_damaged", path=str(path), number=damaged, reason=reason)
    if compared.foreign and not has_own:
        reason = "the journal of attempts is another queue's: it is kept, and not used for this one"
        log.warning("attempt_journal_foreign", path=str(path), number=compared.foreign, reason=reason)


def _compare(
    connection: Session,
    entries: list[JournalEntry],
    now: int,
    others: Sequence[JournalEntry] = (),
    machine: Machine | None = None,
) -> _Compared:
    """Record the attempts that the queue does not know, and find the entries that the journal lacks or can drop.

    The horizon counts from the newest attempt, because the machine's clock may be wrong.
    """
    uid = queue_uid(connection)
    own = [entry for entry in entries if entry.queue_uid == uid]
    newest = connection.execute(query("newest_attempt")).fetchone()["recorded_at"] or 0
    horizon = max([newest, *(entry.recorded_at for entry in own)]) - _KEPT_MS
    beside = [entry for entry in others if entry.queue_uid == uid]
    words = json.dumps([entry.idempotency_key for entry in (*own, *beside)])
    rows = connection.execute(query("journaled_attempts"), {"keys": words}).fetchall()
    known = {row["idempotency_key"]: row["ended_at"] for row in rows}
    counted = {row["idempotency_key"]: row["sends"] for row in rows}
    certain = {row["idempotency_key"] for row in rows if row["is_certain"]}
    all_own = (*own, *beside)  # in any order: `_record_lost`
    refused = {entry.idempotency_key for entry in all_own if entry.is_refused}
    unknown = [entry for entry in all_own if entry.idempotency_key not in known]
    for entry in unknown:
        if entry.idempotency_key in refused:
            _record_refusal(connection, entry)
    lost = sum(_record_lost(connection, entry) for entry in unknown if entry.idempotency_key not in refused)
    for entry in all_own:
        key = entry.idempotency_key
        if entry.sends > counted.get(key, 1) and key not in refused:
            lost += _count_sends(connection, entry) and key in certain
    keys, kept, is_behind = set(), [entry for entry in entries if entry.queue_uid != uid], False
    for entry in own:
        ended_at = known.get(entry.idempotency_key, entry.recorded_at if entry.is_refused else None)
        if ended_at is None or ended_at >= horizon:
            sends = max(entry.sends, counted.get(entry.idempotency_key, 1))  # another machine may have sent it again
            is_behind |= sends > entry.sends
            kept.append(replace(entry, sends=sends))
            keys.add(entry.idempotency_key)
    _end_outlived(connection, refused, now)
    ended = queue_lost(connection, now)
    missing = [entry for entry in _recorded(connection, horizon) if entry.idempotency_key not in keys]
    if lost:
        write_meta(connection, _FOUND_AT, str(now))
    if machine is not None:
        known_journals.compared(connection, machine, now, has_lost=lost > 0)
    is_changed = bool(missing) or is_behind or len(kept) < len(entries)
    return _Compared(lost, ended, len(entries) - len(own), [*kept, *missing] if is_changed else None)


def _record_lost(connection: Session, entry: JournalEntry) -> bool:
    """Record a lost attempt, and return whether it was recorded.

    If its item has a later attempt, the lost one had ended (Law 2) and is not recorded. Of several lost attempts of one
    item, the last one is recorded, and each whose files were saved before the item was made again. Their lines may be
    in the journals of several machines, which are compared in any order.
    """
    columns = _columns(entry)
    connection.execute(query("forget_followed"), columns)
    return connection.execute(query("insert_lost"), columns).rowcount == 1


def _count_sends(connection: Session, entry: JournalEntry) -> bool:
    """Count the sends of an attempt that the queue has lost; return whether it is unresolved, and now in doubt.

    What is sent again later counts on, so that no other copy has a send of the same number.
    """
    sends = {"key": entry.idempotency_key, "sends": entry.sends}
    connection.execute(query("count_sends_of_lost"), sends)
    return connection.execute(query("count_lost_sends"), sends).rowcount == 1


def _record_refusal(connection: Session, entry: JournalEntry) -> None:
    """Record that the number of a lost attempt is used up; the attempt created nothing.

    Another machine's journal may have its entry without the refusal.
    """
    columns = _columns(entry)
    connection.execute(query("insert_refusal"), columns)
    connection.execute(query("forget_lost"), columns)


def _end_outlived(connection: Session, refused: Collection[str], now: int) -> None:
    """End attempts of the restored copy that were refused, or followed by a lost attempt of the same item.

    Such an attempt had ended before the lost one began (Law 2). Resending it would create a second generation. It stays
    if its files were saved and the item was made again, because the same key then returns the paid generation.
    """
    rows = connection.execute(query("refused_since"), {"keys": json.dumps(sorted(refused))}).fetchall()
    rows += connection.execute(query("outlived_attempts")).fetchall()
    for job, item in {(row["job"], row["item"]): None for row in rows}:
        resolve(connection, job, item, Decision.NOT_CREATED, is_undriven=True, now=now, decided_by="journal")


def _columns(entry: JournalEntry) -> dict[str, str | int]:
    return {
        "job": entry.job,
        "item": entry.item,
        "profile": entry.profile,
        "account": entry.account,
        "number": entry.number,
        "key": entry.idempotency_key,
        "key_fingerprint": entry.key_fingerprint,
        "checksum": entry.checksum,
        "quote_credits": entry.quote_credits,
        "recorded_at": entry.recorded_at,
        "delivered": json.dumps(entry.delivered),
        "input_urls": json.dumps(entry.input_urls),
        "sends": entry.sends,
    }


def _recorded(connection: Session, horizon: int) -> list[JournalEntry]:
    """Return the queue's attempts since the horizon, in the order in which they were recorded."""
    rows = connection.execute(query("recorded_attempts"), {"horizon": horizon})
    return [_entry_of(row) for row in rows if row["recorded_at"] >= horizon]


def _entry_of(row: Row) -> JournalEntry:
    *others, body, delivered, is_refused, sends = row
    urls = () if body is None else tuple(input_urls(bytes(body)))
    return JournalEntry(*[*others, tuple(sorted(json.loads(delivered))), urls, bool(is_refused), sends])


def begin_attempt(connection: Session, new: NewAttempt, *, keep_seconds: float) -> tuple[Attempt, JournalEntry] | None:
    """Begin an attempt as `attempts.begin_attempt` does; return it with its journal entry."""
    begun = attempts.begin_item(connection, new, keep_seconds=keep_seconds)
    if begun is None:
        return None
    attempt, row = begun
    is_first = attempt.number == 1
    return attempt, _first_entry(attempt, row, new) if is_first else journal_entry(connection, attempt.id)


def _first_entry(attempt: Attempt, row: Row, new: NewAttempt) -> JournalEntry:
    """Return the journal entry of an item's first attempt, as it was just recorded; nothing was delivered before."""
    identity = {name: getattr(attempt, name) for name in ("idempotency_key", "key_fingerprint", "is_video", "body")}
    return JournalEntry(
        queue_uid=row["queue_uid"],
        job=row["job_name"],
        item=row["item_name"],
        profile=new.viewpoint.profile,
        account=new.viewpoint.account,
        number=attempt.number,
        idempotency_key=attempt.idempotency_key,
        key_fingerprint=attempt.key_fingerprint,
        checksum=attempt_checksum(identity),
        quote_credits=attempt.quote_credits,
        recorded_at=to_milliseconds(new.request.at),
        input_urls=() if row["inputs"] is None else tuple(input_urls(attempt.body)),
    )


def journal_entry(connection: Session, attempt_id: int) -> JournalEntry:
    """Return the journal entry of an attempt."""
    return _entry_of(connection.execute(query("recorded_attempt"), {"attempt_id": attempt_id}).fetchone())


def found_at(connection: Session) -> datetime | None:
    """Return the machine's time at which lost attempts were last found; None if that never happened."""
    found = read_meta(connection, _FOUND_AT)
    return None if found is None else from_milliseconds(int(found))


def recover_attempt(connection: Session, wanted: LostAttempt) -> Attempt | None:
    """Record the oldest lost attempt of an account again, as one that may have been sent.

    Its checksum comes from the journal. If its image was uploaded or made again since, the body contains the image
    addresses from the journal. If the item was changed, the resend detects this by the checksum, and the item is held
    for a person. Return None if there is no lost attempt, or if the account has an unresolved one (Law 4).
    """
    viewpoint, request = wanted.viewpoint, wanted.request
    place = {"profile": viewpoint.profile, "account": viewpoint.account}
    lost = connection.execute(query("next_lost"), place).fetchone()
    if lost is None:
        return None
    row, account_id, day = item_request(connection, lost["item_id"]), viewpoint.account_id, request.days[-1]
    cost, number = lost["quote_credits"], max(lost["number"], row["last_number"] + 1)
    identity, has_other_images = _identity(row, lost, asset_urls(connection, row["inputs"], account_id) or [])
    fields = identity | {
        "checksum": lost["checksum"],
        "item_id": row["id"],
        "job_id": row["job_id"],
        "account_id": account_id,
        "number": number,
        "quote_credits": cost,
        "day": to_milliseconds(day),
        "sends": lost["sends"],
        "now": lost["recorded_at"],
    }
    attempt = insert_attempt(connection, fields)
    if attempt is None:
        return None
    connection.execute(query("forget_lost"), {"key": lost["idempotency_key"]})
    reserve(connection, job_id=row["job_id"], day=to_milliseconds(day), credit_count=cost)
    count_in_days(connection, request, credit_count=cost)  # its first send, which the copy has lost (Law 5)
    if has_other_images:  # what they were made by is not known any more
        connection.execute(query("forget_sources"), {"item_id": row["id"]})
        rebuild_inputs(connection, row["id"])
    connection.execute(query("close_lost_inputs"), {"item_id": row["id"]})  # they were there when it was sent
    transition(
        connection,
        item_id=row["id"],
        expected=ItemState.QUEUED,
        event=Event.ATTEMPT_RECORDED,
        now=to_milliseconds(request.at),
        attempt_id=attempt.id,
        detail={"number": number, "quote_credits": cost, "is_recovered": True},
    )
    return attempt


def _identity(row: Row, lost: Row, urls: list[str]) -> tuple[dict[str, Any], bool]:
    """Return the columns that the checksum of a lost attempt covers, and whether its images differ from the item's.

    The images of the journal are used if only they match the checksum.
    """
    recipe, sent = recipe_of(row), json.loads(lost["input_urls"])
    found = [
        {
            "is_video": recipe.mode.makes_video,
            "idempotency_key": lost["idempotency_key"],
            "key_fingerprint": lost["key_fingerprint"],
            "body": request_body(recipe, prompt=row["prompt"], input_urls=each, max_cost_credits=lost["quote_credits"]),
        }
        for each in (urls, sent)
    ]
    is_other = bool(sent) and [attempt_checksum(each) == lost["checksum"] for each in found] == [False, True]
    return found[is_other], is_other
