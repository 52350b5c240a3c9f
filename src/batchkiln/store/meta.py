"""Single values about the whole queue, as texts by key."""

from batchkiln.core.request import idempotency_key, idempotency_key_by_id
from batchkiln.store.session import Row, Session
from batchkiln.store.sql import query


def read_meta(connection: Session, key: str) -> str | None:
    """Return the value of a key; None where it has none."""
    row = connection.execute(query("get_meta"), {"key": key}).fetchone()
    return None if row is None else str(row["value"])


def write_meta(connection: Session, key: str, value: str | None) -> None:
    """Set the value of a key; None removes it."""
    if value is None:
        connection.execute(query("drop_meta"), {"key": key})
    else:
        connection.execute(query("set_meta"), {"key": key, "value": value})


def queue_uid(connection: Session) -> str:
    """Return the queue's own id, which keeps ids of different queues apart."""
    uid = read_meta(connection, "queue_uid")
    assert uid is not None, "migration 1 has set it"
    return uid


def new_key(connection: Session, row: Row, number: int) -> str:
    """Return the idempotency key of an item's new attempt; `row` has `id`, `item_name` and `job_name`.

    In a queue that derives keys from ids, an item that was enqueued again may have got the id of another one, and its
    key: that key belongs to another request, so that this item's is derived from its name.
    """
    uid = queue_uid(connection)
    if read_meta(connection, "keys_from") != "names":
        key = idempotency_key_by_id(uid, item_id=row["id"], number=number)
        if not connection.execute(query("is_key_used"), {"key": key}).fetchone()[0]:
            return key
    return idempotency_key(uid, job=row["job_name"], item=row["item_name"], number=number)
