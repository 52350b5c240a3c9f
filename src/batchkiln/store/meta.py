"""Single values about the whole queue, as texts by key."""

import json
from dataclasses import asdict, dataclass
from typing import Final

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


_SHARED_FOLDER: Final = "shared_folder"


@dataclass(frozen=True, slots=True)
class SharedMark:
    """What tells the folder that a queue's machines share from others: a token in it, and the machine that wrote it."""

    token: str
    host: str


def shared_mark(connection: Session) -> SharedMark | None:
    """Return the mark of the folder that the queue's machines share; None where none was used yet."""
    text = read_meta(connection, _SHARED_FOLDER)
    return None if text is None else SharedMark(**json.loads(text))


def mark_shared_folder(connection: Session, mark: SharedMark) -> SharedMark:
    """Record the mark unless the queue has one; return the queue's."""
    known = shared_mark(connection)
    if known is None:
        write_meta(connection, _SHARED_FOLDER, json.dumps(asdict(mark)))
    return known or mark


def queue_uid(connection: Session) -> str:
    """Return the queue's own id, which keeps ids of different queues apart."""
    uid = read_meta(connection, "queue_uid")
    assert uid is not None, "migration 1 has set it"
    return uid
