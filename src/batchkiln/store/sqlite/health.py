"""The state of a queue file for `doctor`."""

import sqlite3
from contextlib import closing
from pathlib import Path

from batchkiln.store.health import QueueHealth, health_of
from batchkiln.store.sqlite.database import SCHEMA_VERSION, look_without_changing, prepare_for_reading, translated
from batchkiln.store.sqlite.preflight import check_file


def file_health(path: Path) -> QueueHealth | None:
    """Look at a queue file as a run does; see `queue_health`."""
    if not check_file(path):
        return None
    try:
        look_without_changing(path)
        uri = f"{path.absolute().as_uri()}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            size_bytes = path.stat().st_size
            if version != SCHEMA_VERSION:
                return QueueHealth(version, size_bytes, is_current=False)
            prepare_for_reading(connection, path)
            return health_of(connection, version, size_bytes)
    except sqlite3.DatabaseError as error:
        raise translated(error, path) from error
