"""Single values about the whole queue, stored as text by key."""

import json
from typing import Final

from msgspec import Struct
from msgspec.structs import asdict

from batchkiln.core.errors import QueueUnusable
from batchkiln.store.session import Row, Session
from batchkiln.store.sql import query


def read_meta(connection: Session, key: str) -> str | None:
    """Return the value of a key; None if there is none."""
    row = connection.execute(query("get_meta"), {"key": key}).fetchone()
    return None if row is None else str(row["value"])


def write_meta(connection: Session, key: str, value: str | None) -> None:
    """Set the value of a key; None removes it."""
    if value is None:
        connection.execute(query("drop_meta"), {"key": key})
    else:
        connection.execute(query("set_meta"), {"key": key, "value": value})


SHARED_FOLDER: Final = "shared_folder"
MOVED: Final = "moved"
"""The place that the queue was moved to, `{"to": …, "is_done": …}`: nobody drives it here any more."""


def refuse_moved(connection: Session, place: object, *, unless_to: str | None = None) -> None:
    """Raise `QueueUnusable` for a queue that was moved. An unfinished copy to `unless_to` may continue."""
    text = read_meta(connection, MOVED)
    if text is None:
        return
    mark = json.loads(text)
    if mark["is_done"]:
        raise QueueUnusable(
            f"{place}: the queue was moved to {mark['to']}; nothing was sent or changed here. Use --queue {mark['to']}"
        )
    if mark["to"] != unless_to:
        raise QueueUnusable(
            f"{place}: a copy of the queue to {mark['to']} was begun and has not ended; nothing was sent or changed "
            f"here. Run `batchkiln queue copy {place} {mark['to']}` again; if that place is lost for good, run "
            f"`batchkiln queue keep {place} {mark['to']}`"
        )


class SharedMark(Struct, frozen=True):
    """The mark by which machines recognise the folder that they share: a token in it, and the machine that wrote it."""

    token: str
    host: str


def shared_mark(connection: Session) -> SharedMark | None:
    """Return the mark of the shared folder that the queue uses; None before its first use."""
    text = read_meta(connection, SHARED_FOLDER)
    return None if text is None else SharedMark(**json.loads(text))


def mark_shared_folder(connection: Session, mark: SharedMark) -> SharedMark:
    """Record the mark of the shared folder if the queue has none; return the recorded mark."""
    known = shared_mark(connection)
    if known is None:
        write_meta(connection, SHARED_FOLDER, json.dumps(asdict(mark)))
    return known or mark


AWAITED: Final = "awaited_machines"
"""The machines whose journals a restored database waits for."""


def is_shared(connection: Session) -> bool:
    """Return whether workers share the queue, or a restored database waits for their machines."""
    return bool(connection.execute(query("is_shared"), {"awaited": AWAITED}).fetchone()[0])


def queue_uid(connection: Session) -> str:
    """Return the queue's unique id, by which the ids of different queues differ."""
    uid = read_meta(connection, "queue_uid")
    assert uid is not None, "migration 1 has set it"
    return uid


def new_key(connection: Session, row: Row, number: int) -> str:
    """Return the idempotency key of an item's new attempt.

    `row` has `id`, `item_name` and `job_name`, and `queue_uid` and `keys_from` of the queue. If a queue derives keys
    from ids, an item that was enqueued again may get the id of another item, and so that item's key. Such a key belongs
    to another request, so this item's key is then derived from its name.
    """
    from batchkiln.core.request import idempotency_key, idempotency_key_by_id  # noqa: PLC0415  readers need no keys

    uid, keys_from = row["queue_uid"], row["keys_from"]
    if keys_from != "names":
        key = idempotency_key_by_id(uid, item_id=row["id"], number=number)
        if not connection.execute(query("is_key_used"), {"key": key}).fetchone()[0]:
            return key
    return idempotency_key(uid, job=row["job_name"], item=row["item_name"], number=number)
