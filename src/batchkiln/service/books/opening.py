"""The books opened: the file with its schema, service time where it was left, the accounts of the configuration.

The server opens them this way, and so does the command for keys, while a server runs or none does, also before the
first. One process at a time: two that begin a folder together would both lay down its schema and its first instant.
"""

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Final

import orjson
from filelock import FileLock

from batchkiln.service.books.credits import open_account
from batchkiln.service.books.database import BUSY_SECONDS, Database, connect
from batchkiln.service.books.keys import (
    ApiKey,
    KeyHolder,
    MadeKey,
    create_key,
    digest_of,
    enter_configured,
    find_holder,
    is_revoked_for_good,
    list_keys,
    new_secret,
    revoke_key,
)
from batchkiln.service.clock import Anchor, resume
from batchkiln.service.config import AccountConfig, ServiceConfig
from batchkiln.service.rules.windows import Calendar

FILE_NAME: Final = "service.db"
LOCK_NAME: Final = "opening.lock"
_ANCHOR: Final = "anchor"


def calendar_of(config: ServiceConfig) -> Calendar:
    """Return the service's days."""
    return Calendar(day_start_ms=round(config.day_start.timestamp() * 1000), day_ms=round(config.day_seconds * 1000))


@contextmanager
def opening(folder: Path) -> Iterator[None]:
    """Keep other processes from opening the same books meanwhile."""
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / LOCK_NAME, timeout=BUSY_SECONDS):
        yield


def database_of(folder: Path) -> Database:
    """Return the database of a server; it has yet to be opened."""
    return Database(folder / FILE_NAME, _schema())


def take_up_time(connection: sqlite3.Connection, config: ServiceConfig) -> Anchor:
    """Go on with service time where the last run left it, at the speed of this one, and remember that."""
    start_at = config.start_at
    anchor = resume(
        _stored_anchor(connection),
        time_scale=config.time_scale,
        start_at_ms=None if start_at is None else round(start_at.timestamp() * 1000),
        last_seen_ms=_last_seen_ms(connection),
    )
    write_setting(connection, _ANCHOR, orjson.dumps(anchor).decode())
    return anchor


def enter_accounts(connection: sqlite3.Connection, config: ServiceConfig, *, now_ms: int) -> dict[str, str]:
    """Enter the accounts and keys of the configuration; return a key of each account in clear.

    It is the first one that works. Raises `KeyRefusedError`, and ValueError where an environment variable is not set.
    """
    _open_accounts(connection, config, now_ms=now_ms)
    keys = {account.name: _keys_of(connection, account, config.state_dir) for account in config.accounts}
    holders = [KeyHolder(name, digest_of(key), is_legacy) for name, pairs in keys.items() for key, is_legacy in pairs]
    enter_configured(connection, holders, now_ms=now_ms)
    return {name: _first_working(connection, [key for key, _ in pairs]) for name, pairs in keys.items()}


def read_setting(connection: sqlite3.Connection, name: str) -> str | None:
    """Return what was remembered under a name."""
    row = connection.execute("SELECT value FROM settings WHERE name = ?", (name,)).fetchone()
    return row["value"] if row else None


def write_setting(connection: sqlite3.Connection, name: str, value: str) -> None:
    """Remember something under a name."""
    connection.execute("INSERT OR REPLACE INTO settings VALUES (?, ?)", (name, value))


@dataclass(frozen=True, slots=True)
class KeyDesk:
    """Where a person makes, lists and revokes keys, beside a server that runs or none. All raise `KeyRefusedError`."""

    _connection: sqlite3.Connection
    _calendar: Calendar

    def create(self, account: str) -> MadeKey:
        """Make a key; the reply is the only place where it stands in clear."""
        with _transaction(self._connection) as connection:
            return create_key(connection, account, now_ms=self._now_ms(), calendar=self._calendar)

    def list(self, account: str | None = None) -> Sequence[ApiKey]:
        """Return the keys of one account, or of all."""
        return list_keys(self._connection, account)

    def revoke(self, key_id: str) -> ApiKey:
        """Revoke a key for good; a running server refuses it from its next request on."""
        with _transaction(self._connection) as connection:
            return revoke_key(connection, key_id, now_ms=self._now_ms())

    def _now_ms(self) -> int:
        """Return the instant of service time, without moving the anchor of a server that runs."""
        stored = _stored_anchor(self._connection)
        assert stored is not None, "the books were opened without taking up time"
        last_seen_ms = _last_seen_ms(self._connection)
        return resume(stored, time_scale=stored.time_scale, start_at_ms=None, last_seen_ms=last_seen_ms).service_ms


@contextmanager
def key_desk(config: ServiceConfig) -> Iterator[KeyDesk]:
    """Open the books for a person. Raises sqlite3.Error and OSError when they cannot be used.

    Books that have no account yet get those of the configuration, with their keys, which raises what
    `enter_accounts` does. Others are left as the server keeps them: `config` need not be the one that it runs with,
    and would revoke keys that are in use.
    """
    with ExitStack() as stack:
        with opening(config.state_dir):
            connection = stack.enter_context(closing(connect(config.state_dir / FILE_NAME, _schema())))
            with _transaction(connection):
                now_ms = _begun(connection, config)
                if connection.execute("SELECT 1 FROM accounts").fetchone() is None:
                    enter_accounts(connection, config, now_ms=now_ms)
        yield KeyDesk(connection, calendar_of(config))


def _begun(connection: sqlite3.Connection, config: ServiceConfig) -> int:
    """Let service time begin if it has not, and return the instant at which it was taken up last."""
    anchor = _stored_anchor(connection) or take_up_time(connection, config)
    return anchor.service_ms


def _schema() -> str:
    return resources.files(__package__).joinpath("schema.sql").read_text(encoding="utf-8")


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield connection
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _stored_anchor(connection: sqlite3.Connection) -> Anchor | None:
    stored = read_setting(connection, _ANCHOR)
    return Anchor(**orjson.loads(stored)) if stored else None


def _last_seen_ms(connection: sqlite3.Connection) -> int:
    """Return the latest instant on record; service time does not go back behind it."""
    row = connection.execute("SELECT max(arrived_at_ms) AS last FROM requests").fetchone()
    return row["last"] or 0


def _open_accounts(connection: sqlite3.Connection, config: ServiceConfig, *, now_ms: int) -> None:
    for account in config.accounts:
        open_account(
            connection,
            account.name,
            credits_bought=account.credits,
            subscription=account.subscription,
            now_ms=now_ms,
        )


def _keys_of(connection: sqlite3.Connection, account: AccountConfig, folder: Path) -> list[tuple[str, bool]]:
    """Return an account's keys in clear, and whether each is a legacy key; make one where none is given.

    A made key that a person revoked is replaced: its file would be of no use to anybody.
    """
    if account.keys:
        return [(key.reveal(), key.legacy) for key in account.key_configs]
    path = folder / f"key-{account.name}"
    if path.exists():
        made = path.read_text(encoding="ascii").strip()
        if not is_revoked_for_good(connection, digest_of(made)):
            return [(made, False)]
    made = new_secret()
    _write_private(path, f"{made}\n")
    return [(made, False)]


def _write_private(path: Path, text: str) -> None:
    """Write a file that only its owner may read, by temporary name and rename."""
    temporary = path.with_name(f"{path.name}.part")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(text)
    temporary.replace(path)


def _first_working(connection: sqlite3.Connection, keys: Sequence[str]) -> str:
    holders = ((key, find_holder(connection, digest_of(key))) for key in keys)
    return next((key for key, holder in holders if holder is not None and not holder.is_legacy), keys[0])
