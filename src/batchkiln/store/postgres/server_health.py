"""The state of a queue in PostgreSQL for `doctor`."""

from typing import Final

import psycopg

from batchkiln.store.health import QueueHealth, health_of
from batchkiln.store.location import DatabaseUrl
from batchkiln.store.postgres.connecting import ServerCheck, connect, connect_unchecked, start_checks, translated
from batchkiln.store.postgres.schema_updates import migrations, schema_version

_SIZE: Final = """
    SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint
    FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE c.relkind = 'r' AND n.nspname = current_schema()
"""


def database_health(url: DatabaseUrl) -> QueueHealth | None:
    """Check a queue as a run does at its start; see `queue_health`. Return None if the database has no queue yet."""
    session = connect(url, is_reader=True)
    try:
        version, latest = schema_version(session, url), migrations()[-1][0]
        if version == 0:
            return None
        size_bytes = session.scalar(_SIZE)
        if version != latest:
            return QueueHealth(version, size_bytes, is_current=False)
        return health_of(session, version, size_bytes)
    except psycopg.Error as error:
        raise translated(error, url) from error
    finally:
        session.close()


def server_checks(url: DatabaseUrl) -> list[ServerCheck]:
    """Return the start checks of a server, including failed ones. Raise the errors of `connect_unchecked`."""
    session, facts = connect_unchecked(url, is_reader=True)
    session.close()
    return list(start_checks(facts, may_lose_commits=url.may_lose_commits))
