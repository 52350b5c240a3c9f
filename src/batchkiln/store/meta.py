"""Single values about the whole queue, as texts by key."""

from batchkiln.store.session import Session
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
