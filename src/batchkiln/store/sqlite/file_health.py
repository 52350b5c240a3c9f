"""The state of a queue file for `doctor`, and schema updates on a person's request."""

import sqlite3
from contextlib import closing
from pathlib import Path

from batchkiln.core.errors import QueueUnusable
from batchkiln.store.health import QueueHealth, health_of
from batchkiln.store.migrating import Migration
from batchkiln.store.sqlite.file_session import (
    SCHEMA_VERSION,
    look_without_changing,
    prepare_for_reading,
    prepare_for_writing,
    translated,
)
from batchkiln.store.sqlite.preflight import check_file, make_folder, make_private


def file_health(path: Path) -> QueueHealth | None:
    """Check a queue file as a run does at its start; see `queue_health`."""
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


def migrate(path: Path, *, is_check: bool) -> Migration:
    """Update a queue file, as each writing command does; see `batchkiln.store.migrating`."""
    health = file_health(path)
    before = 0 if health is None else health.version
    if is_check or before == SCHEMA_VERSION:
        return Migration(before, before, SCHEMA_VERSION)
    try:
        make_folder(path.parent)
        make_private(path)
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            prepare_for_writing(connection, path)
    except OSError as error:
        raise QueueUnusable(f"{path}: the queue cannot be made: {error.strerror}") from error
    except sqlite3.DatabaseError as error:
        raise translated(error, path) from error
    return Migration(before, SCHEMA_VERSION, SCHEMA_VERSION)
