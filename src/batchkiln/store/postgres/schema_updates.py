"""The schema in PostgreSQL. Only `batchkiln migrate` creates and updates it, never a worker."""

import secrets
from functools import cache
from importlib.resources import files
from typing import Final

import psycopg

from batchkiln.core.errors import QueueUnusable
from batchkiln.store.location import DatabaseUrl
from batchkiln.store.meta import queue_uid, read_meta, refuse_moved, write_meta
from batchkiln.store.migrating import Migration
from batchkiln.store.postgres.connecting import connect, translated
from batchkiln.store.postgres.postgres_session import PostgresSession

VERSION_KEY: Final = "schema_version"
_IS_THERE: Final = "SELECT to_regclass('meta') IS NOT NULL AND to_regclass('attempt_unresolved') IS NOT NULL"
_IS_FREE: Final = "SELECT to_regclass('meta') IS NULL AND to_regclass('job') IS NULL AND to_regclass('item') IS NULL"


@cache
def migrations() -> tuple[tuple[int, str], ...]:
    """Return the numbered migrations in order. The numbers equal those of SQLite, whose migrations begin earlier."""
    folder = files("batchkiln.store").joinpath("migrations_postgres")
    found = (entry for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return tuple(sorted((int(entry.name.split("_")[0]), entry.read_text("utf-8")) for entry in found))


def schema_version(session: PostgresSession, url: DatabaseUrl) -> int:
    """Return the schema's version, 0 if there is no queue yet. Raise `QueueUnusable` if there are foreign tables."""
    if session.scalar(_IS_FREE):  # first: a queue that another process makes now is there as a whole afterwards
        return 0
    if not session.scalar(_IS_THERE):
        raise QueueUnusable(f"{url}: tables of another program are in this schema; choose another with search_path")
    text = read_meta(session, VERSION_KEY)
    if text is None or not text.isdecimal():
        raise QueueUnusable(f"{url}: the tables are not a queue's; choose another database or schema")
    return int(text)


def check_schema(session: PostgresSession, url: DatabaseUrl, *, may_be_moved: bool = False) -> None:
    """Raise `QueueUnusable` unless the schema is this program's, and for a queue that was moved elsewhere."""
    version, latest = schema_version(session, url), migrations()[-1][0]
    if version == 0:
        raise QueueUnusable(f"{url}: the database holds no queue yet; nothing was sent. Run `batchkiln migrate`")
    if version < latest:
        raise QueueUnusable(
            f"{url}: the queue has schema {version}, and this batchkiln needs {latest}; nothing was sent. "
            "Run `batchkiln migrate`"
        )
    if version > latest:
        raise QueueUnusable(
            f"{url}: the queue was written by a newer batchkiln (schema {version}, this one knows {latest}); nothing "
            "was sent: update batchkiln"
        )
    queue_uid(session)
    if not may_be_moved:
        refuse_moved(session, url)


def migrate(url: DatabaseUrl, *, is_check: bool = False) -> Migration:
    """Create or update the schema atomically. With `is_check`, only read the version.

    Raise `QueueUnusable` for a queue of a newer version, or for a server that the start checks refuse.
    """
    session = connect(url, is_reader=is_check)
    try:
        before = schema_version(session, url)
        latest = migrations()[-1][0]
        if before > latest:
            check_schema(session, url)
        if is_check or before == latest:
            return Migration(before, before, latest)
        return Migration(before, _apply(session, url), latest)
    except psycopg.Error as error:
        raise translated(error, url) from error
    finally:
        session.close()


def _apply(session: PostgresSession, url: DatabaseUrl) -> int:
    session.execute("BEGIN IMMEDIATE")  # one migration at a time, and no write beside it
    try:
        version = schema_version(session, url)
        for number, script in migrations():
            if number <= version:
                continue
            session.script(script)
            if version == 0:
                write_meta(session, "queue_uid", secrets.token_hex(16))
                write_meta(session, "keys_from", "names")
            version = number
        write_meta(session, VERSION_KEY, str(version))
        session.execute("COMMIT")
    except BaseException:
        if session.in_transaction:
            session.script("ROLLBACK")
        raise
    return version
