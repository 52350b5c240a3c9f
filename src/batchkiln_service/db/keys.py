"""The rows of API keys: created, listed, revoked, and looked up at each request. Service section 5.

Keys have 256 random bits, so they are stored as plain SHA-256. At each start, configured keys that are no longer in the
configuration are revoked, and work again once they are configured again. A key that a person has revoked stays revoked,
whatever is configured.
"""

import re
import secrets
import sqlite3
from collections.abc import Sequence
from datetime import UTC, datetime
from hashlib import sha256
from typing import Final, Literal

from msgspec import Struct

from batchkiln_service.config import MAX_KEYS_PER_ACCOUNT
from batchkiln_service.db.sql import load_queries
from batchkiln_service.errors import KeyRefusedError
from batchkiln_service.rules.windows import Calendar

_SQL: Final = load_queries("keys")

MAX_PER_HOUR: Final = 10  # Service rule 5.3, also the next constant
MAX_PER_DAY: Final = 20
_HOUR_MS: Final = 3_600_000
_SECRET: Final = re.compile(rb"lk_[A-Za-z0-9_-]{43}")
KeyOrigin = Literal["command", "configuration"]
Revoker = Literal["person", "configuration"]


class KeyOwner(Struct, frozen=True):
    """The account of an API key."""

    account: str
    key_sha256: str
    is_legacy: bool


class ApiKey(Struct, frozen=True):
    """The public data of a key, without its secret."""

    id: str
    account: str
    origin: KeyOrigin
    is_legacy: bool
    created_at_ms: int
    revoked_at_ms: int | None
    revoked_by: Revoker | None


class MadeKey(Struct, frozen=True):
    """A new key with its `secret`, which is stored nowhere."""

    id: str
    account: str
    created_at_ms: int
    secret: str


def new_secret() -> str:
    """Return a random key in plain text."""
    return f"lk_{secrets.token_urlsafe(32)}"


def is_secret(text: bytes) -> bool:
    """Return whether a text has the form of a generated key."""
    return _SECRET.fullmatch(text) is not None


def digest_of(key: str) -> str:
    """Return the SHA-256 of a key in hexadecimal, the form in which it is stored."""
    return sha256(key.encode(errors="surrogateescape")).hexdigest()


def find_owner(connection: sqlite3.Connection, key_sha256: str) -> KeyOwner | None:
    """Return the owner of a key; None if the key is unknown or revoked."""
    row = connection.execute(_SQL["find_owner"], (key_sha256,)).fetchone()
    return None if row is None else KeyOwner(row["account"], key_sha256, bool(row["is_legacy"]))


def is_api_key(connection: sqlite3.Connection, key_sha256: str) -> bool:
    """Return whether this is the digest of a key, revoked or not."""
    return connection.execute(_SQL["key_exists"], (key_sha256,)).fetchone() is not None


def is_revoked_for_good(connection: sqlite3.Connection, key_sha256: str) -> bool:
    """Return whether a key was revoked by a person."""
    row = connection.execute(_SQL["revoked_by"], (key_sha256,)).fetchone()
    return row is not None and row["revoked_by"] == "person"


def create_key(connection: sqlite3.Connection, account: str, *, now_ms: int, calendar: Calendar) -> MadeKey:
    """Create a key. Raise `KeyRefusedError` (Service rule 5.3)."""
    check_account(connection, account)
    _check_active(connection, account)
    _check_pace(connection, account, now_ms, calendar)
    secret = new_secret()
    key_id = _insert(connection, account, digest_of(secret), origin="command", is_legacy=False, now_ms=now_ms)
    return MadeKey(key_id, account, now_ms, secret)


def enter_configured(connection: sqlite3.Connection, keys: Sequence[KeyOwner], *, now_ms: int) -> None:
    """Insert or reinstate the configured keys, and revoke those that are no longer configured.

    Raise `KeyRefusedError` if an account would have too many keys, or two accounts the same key.
    """
    wanted = {key.key_sha256 for key in keys}
    for row in connection.execute(_SQL["active_configured_keys"]).fetchall():
        if row["key_sha256"] not in wanted:
            connection.execute(_SQL["revoke_configured_key"], (now_ms, row["key_sha256"]))
    for key in keys:
        _enter(connection, key, now_ms=now_ms)


def list_keys(connection: sqlite3.Connection, account: str | None = None) -> list[ApiKey]:
    """Return the keys of an account or of all, oldest first, with revoked ones. Raise `KeyRefusedError`."""
    if account is not None:
        check_account(connection, account)
    rows = connection.execute(_SQL["list_keys"], (account,))
    return [_api_key(row) for row in rows]


def revoke_key(connection: sqlite3.Connection, key_id: str, *, now_ms: int) -> ApiKey:
    """Revoke a key permanently; a revoked key keeps its instant. Raise `KeyRefusedError`.

    Service rule 5.6. A key that is no longer configured can be revoked as well, so that configuring it again has no
    effect.
    """
    connection.execute(_SQL["revoke_key"], (now_ms, key_id))
    row = connection.execute(_SQL["find_key"], (key_id,)).fetchone()
    if row is None:
        raise KeyRefusedError(f"there is no key {key_id}; `batchkiln serve keys list` shows the ids")
    return _api_key(row)


def account_names(connection: sqlite3.Connection) -> list[str]:
    """Return the names of all accounts, in order."""
    return [row["name"] for row in connection.execute(_SQL["account_names"])]


def check_account(connection: sqlite3.Connection, account: str) -> None:
    """Raise `KeyRefusedError` if the account does not exist."""
    names = account_names(connection)
    if account not in names:
        raise KeyRefusedError(f"there is no account {account}; there are: {', '.join(names)}")


def _enter(connection: sqlite3.Connection, key: KeyOwner, *, now_ms: int) -> None:
    known = connection.execute(_SQL["find_key_by_digest"], (key.key_sha256,)).fetchone()
    if known is None:
        _check_active(connection, key.account)
        _insert(connection, key.account, key.key_sha256, origin="configuration", is_legacy=key.is_legacy, now_ms=now_ms)
        return
    if known["account"] != key.account:
        raise KeyRefusedError(f"a key of account {key.account} already belongs to account {known['account']}")
    if known["revoked_by"] == "configuration":
        _check_active(connection, key.account)
        connection.execute(_SQL["reinstate_key"], (key.key_sha256,))
    connection.execute(_SQL["set_legacy"], (key.is_legacy, key.key_sha256))


def _insert(
    connection: sqlite3.Connection, account: str, digest: str, *, origin: KeyOrigin, is_legacy: bool, now_ms: int
) -> str:
    key_id = f"key_{secrets.token_hex(6)}"
    connection.execute(_SQL["insert_key"], (digest, key_id, account, origin, is_legacy, now_ms))
    return key_id


def _api_key(row: sqlite3.Row) -> ApiKey:
    fields = {name: row[name] for name in ApiKey.__struct_fields__}
    return ApiKey(**fields | {"is_legacy": bool(row["is_legacy"])})


def _check_active(connection: sqlite3.Connection, account: str) -> None:
    row = connection.execute(_SQL["count_active_keys"], (account,)).fetchone()
    if row["active"] >= MAX_KEYS_PER_ACCOUNT:
        raise KeyRefusedError(
            f"account {account} has {MAX_KEYS_PER_ACCOUNT} active keys;"
            " the next one may be made once one of them is revoked"
        )


def _check_pace(connection: sqlite3.Connection, account: str, now_ms: int, calendar: Calendar) -> None:
    """Raise `KeyRefusedError` if too many keys were created by command in the last hour or on this service day.

    Configured keys do not count, because a new state folder gets all of them at once. The hour slides; the day is the
    service's (Service section 8).
    """
    free_at_ms, limit = max(
        (_free_in_hour(connection, account, now_ms), f"{MAX_PER_HOUR} keys within an hour"),
        (_free_in_day(connection, account, now_ms, calendar), f"{MAX_PER_DAY} keys within this day"),
    )
    if now_ms < free_at_ms:
        wait_seconds = -(-(free_at_ms - now_ms) // 1000)
        instant = datetime.fromtimestamp(free_at_ms / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        raise KeyRefusedError(
            f"account {account} has made {limit}; the next one may be made in {wait_seconds} seconds of service time,"
            f" at {instant}"
        )


def _free_in_hour(connection: sqlite3.Connection, account: str, now_ms: int) -> int:
    row = connection.execute(_SQL["nth_newest_creation"], (account, MAX_PER_HOUR - 1)).fetchone()
    return now_ms if row is None else int(row["created_at_ms"]) + _HOUR_MS


def _free_in_day(connection: sqlite3.Connection, account: str, now_ms: int, calendar: Calendar) -> int:
    today = calendar.day_of(now_ms)
    row = connection.execute(_SQL["count_made_since"], (account, calendar.begin_of(today))).fetchone()
    return now_ms if row["made"] < MAX_PER_DAY else calendar.begin_of(today + 1)
