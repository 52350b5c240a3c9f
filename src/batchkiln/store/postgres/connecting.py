"""Connections to a PostgreSQL server: opened, configured and checked before use.

A commit that has returned must survive (Law 1), so a server that may lose one is refused unless the person allows it.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

import psycopg
from msgspec import Struct
from psycopg import conninfo, errors

from batchkiln.core.errors import (
    BatchkilnError,
    CommitInDoubt,
    QueueBusy,
    QueueConnectionLost,
    QueueUnusable,
)
from batchkiln.store.location import DatabaseUrl
from batchkiln.store.postgres.postgres_session import CommitUnknown, PostgresSession

OLDEST_SERVER: Final = 13
"""The oldest major version that its makers still mended when this was written."""

LOCK_SECONDS: Final = 60
"""Time that a write waits for another one; an enqueue commits in much shorter portions."""

STATEMENT_SECONDS: Final = 300
IDLE_SECONDS: Final = 4
"""The longest that a process frozen inside a write can block others: less than a renewal interval of leases, 5 s."""

CONNECT_SECONDS: Final = 10
SILENCE_MILLISECONDS: Final = 15_000
"""A server that acknowledges nothing for so long is gone."""

_DEFAULTS: Final[dict[str, str | int | None]] = {
    "connect_timeout": CONNECT_SECONDS,
    "tcp_user_timeout": SILENCE_MILLISECONDS,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "application_name": "batchkiln",
}
"""For what the person's URL leaves open."""

_SETUP: Final = (
    "SET client_encoding = 'UTF8'; SET standard_conforming_strings = on; SET bytea_output = 'hex'; SET jit = off;"
    f" SET synchronous_commit = on; SET lock_timeout = '{LOCK_SECONDS}s';"
    f" SET statement_timeout = '{STATEMENT_SECONDS}s';"
    f" SET idle_in_transaction_session_timeout = '{IDLE_SECONDS}s'"
)

_FACTS: Final = """
    SELECT current_setting('server_version_num')::bigint AS version,
        pg_is_in_recovery() OR current_setting('transaction_read_only') = 'on' AS is_standby,
        current_setting('server_encoding') AS encoding,
        current_setting('fsync') AS fsync,
        current_setting('full_page_writes') AS full_page_writes,
        current_setting('synchronous_commit') AS synchronous_commit,
        current_setting('synchronous_standby_names') AS standbys,
        (SELECT count(*) FROM pg_stat_replication) AS replicas,
        current_schema() AS schema,
        hashtext(current_schema()) AS schema_key,
        current_user AS role,
        pg_backend_pid() AS backend,
        to_regclass('meta')::oid AS tables
"""


_MEANINGS: Final[tuple[tuple[tuple[type[psycopg.Error], ...], type[BatchkilnError], str], ...]] = (
    (
        (errors.TooManyConnections, errors.CannotConnectNow),
        QueueBusy,
        "nothing was sent. Run the same command again later",
    ),
    (
        (errors.LockNotAvailable,),
        QueueBusy,
        "another process kept the queue locked. Run the same command again",
    ),
    (
        (errors.QueryCanceled, errors.SerializationFailure, errors.DeadlockDetected),
        QueueBusy,
        "nothing of the change is stored. Run the same command again",
    ),
    (
        (errors.DiskFull, errors.OutOfMemory, errors.ConfigurationLimitExceeded),
        QueueBusy,
        "nothing is lost: make room on the server, and run the same command again",
    ),
    (
        (errors.InsufficientPrivilege,),
        QueueUnusable,
        "nothing was sent. Use the role that ran `batchkiln migrate`, or grant this one the same rights",
    ),
    (
        (errors.ReadOnlySqlTransaction,),
        QueueConnectionLost,
        "nothing of the change is stored; the server may be a standby now. Run the same command again",
    ),
    (
        (errors.UndefinedTable,),
        QueueConnectionLost,
        "the queue's tables are gone, as during a restore; nothing more is sent. End it, and run the command again",
    ),
    (
        (errors.DataCorrupted, errors.IndexCorrupted),
        QueueUnusable,
        "the database is damaged, and nothing more is sent: restore a backup",
    ),
    (
        (psycopg.OperationalError, psycopg.InterfaceError),
        QueueConnectionLost,
        "the connection is lost: what was not committed is not stored, and nothing more is sent. Run the command again",
    ),
)
"""The meanings of the server's errors, by class; narrower classes first."""


_QUOTED: Final = re.compile(r'"[^"]*"')


class ServerRefused(QueueUnusable):
    """The server failed a start check. During a failover, it may pass the same check soon."""


class ServerCheck(Struct, frozen=True):
    """One start check. `refusal` explains why the server is refused, and the remedy; None if the check passed."""

    name: str
    finding: str
    refusal: str | None = None
    is_allowed: bool = False
    """Whether it is refused but for the person's word that commits may be lost."""


class ServerFacts(Struct, frozen=True):
    """The facts that a server reports about itself.

    `is_pooled` is true if two clients share a connection to the server. For `tables`, see `PostgresSession`.
    """

    version: int
    is_standby: bool
    encoding: str
    fsync: bool
    full_page_writes: bool
    synchronous_commit: str
    standbys: str
    replicas: int
    schema: str | None
    schema_key: int
    role: str
    is_pooled: bool = False
    tables: int | None = None


def connect(url: DatabaseUrl, *, is_reader: bool = False) -> PostgresSession:
    """Open a connection that passes the start checks. With `is_reader`, it may change only temporary tables.

    Raise `QueueUnusable` for an unsuitable URL, `ServerRefused` for an unsuitable server, and `QueueBusy` for a server
    that cannot be reached.
    """
    session, facts = connect_unchecked(url, is_reader=is_reader)
    for check in start_checks(facts, may_lose_commits=url.may_lose_commits):
        if check.refusal is not None:
            session.close()
            raise ServerRefused(f"{url}: {check.finding}: {check.refusal}. Nothing was sent")
    return session


def connect_unchecked(url: DatabaseUrl, *, is_reader: bool = False) -> tuple[PostgresSession, ServerFacts]:
    """Open a connection; return it with the facts that the server reports."""
    raw = _opened(url)
    session = PostgresSession(raw, 0)
    session.shared_dir = url.shared_dir
    try:
        session.script(_SETUP)
        facts = _facts(session, url)
        if is_reader:
            session.script("SET default_transaction_read_only = on")
    except psycopg.Error as error:
        session.close()
        raise translated(error, url) from None
    session.schema_key, session.tables = facts.schema_key, facts.tables
    return session, facts


@contextmanager
def reading_session(url: DatabaseUrl) -> Iterator[PostgresSession]:
    """Open an existing queue for reading without an event loop. Raise `QueueUnusable` or `QueueBusy` if that fails."""
    from batchkiln.store.postgres.schema_updates import check_schema  # noqa: PLC0415  it imports this module

    session = connect(url, is_reader=True)
    try:
        check_schema(session, url)
        yield session
    except psycopg.Error as error:
        raise translated(error, url) from error
    finally:
        session.close()


def start_checks(facts: ServerFacts, *, may_lose_commits: bool) -> Iterator[ServerCheck]:
    """Yield the checks of a server, in the order in which they are reported."""
    version = facts.version // 10_000
    too_old = f"version {OLDEST_SERVER} or later is needed; use a newer server" if version < OLDEST_SERVER else None
    yield ServerCheck("version", f"PostgreSQL {version}", too_old)
    standby = "nothing can be written to it; name the primary server in the URL" if facts.is_standby else None
    yield ServerCheck("primary", "a standby server" if facts.is_standby else "the primary server", standby)
    encoding = None if facts.encoding == "UTF8" else "prompts need UTF8; make the database with ENCODING 'UTF8'"
    yield ServerCheck("encoding", f"encoding {facts.encoding}", encoding)
    schema = "the search_path names no schema that exists" if facts.schema is None else None
    yield ServerCheck("schema", f"schema {facts.schema}", schema)
    pooled = "a pooler gives each transaction another connection; use session pooling, or the server's own port"
    yield ServerCheck(
        "pooling",
        "transaction pooling" if facts.is_pooled else "connections are not shared",
        pooled if facts.is_pooled else None,
    )
    for check in _durability(facts):
        is_allowed = may_lose_commits and check.refusal is not None
        yield ServerCheck(check.name, check.finding, None if is_allowed else check.refusal, is_allowed)


def _durability(facts: ServerFacts) -> Iterator[ServerCheck]:
    unless = "or set allow_lost_commits: true in the configuration: after a failure, prompts may be paid again"
    lost = f"a commit that returned may be lost; turn it on, {unless}"
    for name, is_on in (("fsync", facts.fsync), ("full_page_writes", facts.full_page_writes)):
        yield ServerCheck(name, f"{name} is {'on' if is_on else 'off'}", None if is_on else lost)
    is_synchronous = facts.synchronous_commit in {"on", "remote_apply"}
    yield ServerCheck(
        "synchronous_commit", f"synchronous_commit is {facts.synchronous_commit}", None if is_synchronous else lost
    )
    is_behind = facts.replicas > 0 and not facts.standbys
    replicas = f"a failover may lose commits; set synchronous_standby_names on the server, {unless}"
    found = f"{facts.replicas} replica{'' if facts.replicas == 1 else 's'}, " if facts.replicas else "no replica, "
    found += f"synchronous: {facts.standbys}" if facts.standbys else "none synchronous"
    yield ServerCheck("replicas", found, replicas if is_behind else None)


def translated(error: psycopg.Error, url: DatabaseUrl) -> Exception:
    """Return this program's error for an error of the server or network. Programming errors are returned unchanged."""
    message = redacted(str(error), url)
    if isinstance(error, CommitUnknown):
        return CommitInDoubt(
            f"{url}: the connection was lost in a commit ({message}); the change may be stored or not. Run the same "
            "command again: it reads first, and sends nothing twice",
            reason=f"{url}: the connection was lost in a commit ({message})",
        )
    for kinds, meaning, remedy in _MEANINGS:
        if isinstance(error, kinds):
            reason = f"{url}: {message}"
            if issubclass(meaning, QueueConnectionLost):
                return meaning(f"{reason}; {remedy}", reason=reason)
            return meaning(f"{reason}; {remedy}")
    return error


def redacted(text: str, url: DatabaseUrl) -> str:
    """Return a text of the database driver without the secrets of a URL (Law 8)."""
    shown = text.replace(url.secret, str(url))
    for secret in url.secrets():
        shown = shown.replace(secret, "…")
    return " ".join(shown.split())


def _opened(url: DatabaseUrl) -> psycopg.Connection:
    """Open a connection by the URL. Its missing parts come from libpq's environment, service and password files."""
    try:
        given: dict[str, str | int | None] = {**conninfo.conninfo_to_dict(url.secret)}
    except psycopg.Error as error:
        raise QueueUnusable(
            f"{url}: this is no URL of a PostgreSQL database: {redacted(str(error), url)}. "
            "Write postgresql://USER@HOST/DATABASE"
        ) from None
    try:
        if "," in str(given.get("host", "")):  # after a failover, another one is the primary
            given.setdefault("target_session_attrs", "read-write")
        return psycopg.connect(conninfo.make_conninfo("", **(_DEFAULTS | given)), autocommit=True)
    except psycopg.Error as error:
        raise _unreachable(error, url) from None  # the driver's error may hold the whole URL


def _unreachable(error: psycopg.Error, url: DatabaseUrl) -> Exception:
    shown = redacted(str(error), url)
    if "failed to resolve host" in shown or "could not translate host name" in shown:
        return QueueBusy(
            f"{url}: the server's name cannot be resolved; nothing was sent. Check the name, and the network: a VPN "
            f"may not be up yet ({shown})"
        )
    message = _QUOTED.sub("", shown)
    # libpq gives errors of a connection no code. A host's own name, such as db.invalid, tells nothing.
    if "too many clients" in message or "remaining connection slots" in message or "too many connections" in message:
        return QueueBusy(
            f"{url}: the server has no free connection; nothing was sent. Run the same command again later, or raise "
            f"max_connections ({shown})"
        )
    if "invalid" in message:
        return QueueUnusable(f"{url}: this is no URL of a PostgreSQL database ({shown}); nothing was sent")
    if "password" in message or "authentication failed" in message or "role" in message:
        return QueueUnusable(
            f"{url}: the server did not let this role in; nothing was sent. Put the password into the file that "
            f"PGPASSFILE names, or into a service file ({shown})"
        )
    if "database" in message and "does not exist" in message:
        return QueueUnusable(
            f"{url}: the database does not exist; nothing was sent. Make it with `createdb`, then run "
            f"`batchkiln migrate` ({shown})"
        )
    return QueueBusy(f"{url}: the server cannot be reached; nothing was sent. Check host and port ({shown})")


def _facts(session: PostgresSession, url: DatabaseUrl) -> ServerFacts:
    row = session.row(_FACTS)
    backend = row["backend"]
    return ServerFacts(
        version=row["version"],
        is_standby=bool(row["is_standby"]),
        encoding=row["encoding"],
        fsync=row["fsync"] == "on",
        full_page_writes=row["full_page_writes"] == "on",
        synchronous_commit=row["synchronous_commit"],
        standbys=row["standbys"],
        replicas=row["replicas"],
        schema=row["schema"],
        schema_key=row["schema_key"],
        role=row["role"],
        is_pooled=session.connection.info.backend_pid != backend and _is_shared(backend, url),
        tables=row["tables"],
    )


def _is_shared(backend: int, url: DatabaseUrl) -> bool:
    """Return whether a second client gets the same server process while the first is connected.

    A pooler reports its own process id to its clients, so the connection alone does not reveal it.
    """
    with _opened(url) as second:
        found = PostgresSession(second, 0).scalar("SELECT pg_backend_pid()") == backend
    with suppress(psycopg.Error):
        second.close()
    return bool(found)
