"""An empty queue that is copied: to make one, with each migration synced to the disk, takes longer than most tests."""

import secrets
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing
from functools import cache
from pathlib import Path

Prepare = Callable[[sqlite3.Connection, Path], None]
"""What opens a queue's file for writing, and makes a queue of an empty one."""

_UID = "SELECT value FROM meta WHERE key = 'queue_uid'"


def place_empty_queue(path: Path, prepare: Prepare) -> None:
    """Write an empty queue with an id of its own, where there is no file yet."""
    if not path.exists():
        content, uid = _template(prepare)
        path.write_bytes(content.replace(uid, secrets.token_hex(len(uid) // 2).encode()))


@cache
def _template(prepare: Prepare) -> tuple[bytes, bytes]:
    """Make a queue; return its content and its id. Once in each process."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "queue.db")
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("PRAGMA synchronous = OFF")
            prepare(connection, path)
            (uid,) = connection.execute(_UID).fetchone()
        return path.read_bytes(), uid.encode()
