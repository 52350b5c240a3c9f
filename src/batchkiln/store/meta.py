"""Single values about the whole queue, stored as text by key."""

from batchkiln.core.request import idempotency_key, idempotency_key_by_id
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


def queue_uid(connection: Session) -> str:
    """Return the queue's unique id, which distinguishes the ids of different queues."""
    uid = read_meta(connection, "queue_uid")
    assert uid is not None, "migration 1 has set it"
    return uid


def new_key(connection: Session, row: Row, number: int) -> str:
    """Return the idempotency key of an item's new attempt; `row` has `id`, `item_name` and `job_name`.

    If a queue derives keys from ids, an item that was enqueued again may get the id of another item, and so that item's
    key. Such a key belongs to another request; this item's key is then derived from its name.
    """
    uid = queue_uid(connection)
    if read_meta(connection, "keys_from") != "names":
        key = idempotency_key_by_id(uid, item_id=row["id"], number=number)
        if not connection.execute(query("is_key_used"), {"key": key}).fetchone()[0]:
            return key
    return idempotency_key(uid, job=row["job_name"], item=row["item_name"], number=number)
