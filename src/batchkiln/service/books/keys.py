"""API keys in the books: made, listed, revoked, and looked up at each request. Service section 5.

Keys are stored as SHA-256: they hold 256 bits of chance, so that no slow hash is needed to keep them.
"""

import secrets
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final, Literal

from batchkiln.service.errors import KeyRefusedError

MAX_ACTIVE: Final = 10  # Service rule 5.3, as the next two
MAX_PER_HOUR: Final = 10
MAX_PER_DAY: Final = 20
_HOUR_MS: Final = 3_600_000
_DAY_MS: Final = 24 * _HOUR_MS
KeyOrigin = Literal["command", "configuration"]


@dataclass(frozen=True, slots=True)
class KeyHolder:
    """Whom an API key belongs to."""

    account: str
    key_sha256: str
    is_legacy: bool


@dataclass(frozen=True, slots=True)
class ApiKey:
    """What is told of a key; never the key itself."""

    id: str
    account: str
    origin: KeyOrigin
    is_legacy: bool
    created_at_ms: int
    revoked_at_ms: int | None


def digest_of(key: str) -> str:
    """Return the form in which a key is stored and looked up."""
    return sha256(key.encode(errors="surrogateescape")).hexdigest()


def find_holder(connection: sqlite3.Connection, key_sha256: str) -> KeyHolder | None:
    """Return whose key it is; None when it is unknown or revoked."""
    row = connection.execute(
        "SELECT account, is_legacy FROM api_keys WHERE key_sha256 = ? AND revoked_at_ms IS NULL", (key_sha256,)
    ).fetchone()
    return None if row is None else KeyHolder(row["account"], key_sha256, bool(row["is_legacy"]))


def create_key(connection: sqlite3.Connection, account: str, *, now_ms: int) -> str:
    """Make a key and return it in clear, for the only time. Raises `KeyRefusedError` (Service rule 5.3)."""
    _check_account(connection, account)
    _check_active(connection, account)
    for span_ms, limit, name in ((_HOUR_MS, MAX_PER_HOUR, "hour"), (_DAY_MS, MAX_PER_DAY, "day")):
        _check_pace(connection, account, now_ms, span_ms=span_ms, limit=limit, name=name)
    key = f"lk_{secrets.token_urlsafe(32)}"
    _insert(connection, account, digest_of(key), origin="command", is_legacy=False, now_ms=now_ms)
    return key


def enter_configured(connection: sqlite3.Connection, keys: Sequence[KeyHolder], *, now_ms: int) -> None:
    """Enter the keys of the configuration, and revoke those that have left it. Raises `KeyRefusedError`.

    A key that was revoked by a person stays revoked, also while the configuration still holds it.
    """
    wanted = {key.key_sha256 for key in keys}
    for row in connection.execute(
        "SELECT key_sha256 FROM api_keys WHERE origin = 'configuration' AND revoked_at_ms IS NULL"
    ).fetchall():
        if row["key_sha256"] not in wanted:
            connection.execute(
                "UPDATE api_keys SET revoked_at_ms = ? WHERE key_sha256 = ?", (now_ms, row["key_sha256"])
            )
    for key in keys:
        known = connection.execute("SELECT account FROM api_keys WHERE key_sha256 = ?", (key.key_sha256,)).fetchone()
        if known is None:
            _check_active(connection, key.account)
            _insert(
                connection,
                key.account,
                key.key_sha256,
                origin="configuration",
                is_legacy=key.is_legacy,
                now_ms=now_ms,
            )
        elif known["account"] != key.account:
            raise KeyRefusedError(f"a key of account {key.account} already belongs to account {known['account']}")


def list_keys(connection: sqlite3.Connection, account: str | None = None) -> list[ApiKey]:
    """Return the keys of an account, or of all, oldest first; revoked ones, too."""
    rows = connection.execute(
        "SELECT * FROM api_keys WHERE account = coalesce(?, account) ORDER BY account, created_at_ms, id", (account,)
    )
    return [
        ApiKey(
            id=row["id"],
            account=row["account"],
            origin=row["origin"],
            is_legacy=bool(row["is_legacy"]),
            created_at_ms=row["created_at_ms"],
            revoked_at_ms=row["revoked_at_ms"],
        )
        for row in rows
    ]


def revoke_key(connection: sqlite3.Connection, key_id: str, *, now_ms: int) -> None:
    """Revoke a key for good; one that is revoked already stays as it is. Raises `KeyRefusedError`. Service rule 5.6."""
    known = connection.execute("SELECT 1 FROM api_keys WHERE id = ?", (key_id,)).fetchone()
    if known is None:
        raise KeyRefusedError(f"there is no key {key_id}")
    connection.execute("UPDATE api_keys SET revoked_at_ms = ? WHERE id = ? AND revoked_at_ms IS NULL", (now_ms, key_id))


def _insert(
    connection: sqlite3.Connection, account: str, digest: str, *, origin: KeyOrigin, is_legacy: bool, now_ms: int
) -> None:
    connection.execute(
        "INSERT INTO api_keys (key_sha256, id, account, origin, is_legacy, created_at_ms) VALUES (?, ?, ?, ?, ?, ?)",
        (digest, f"key_{secrets.token_hex(6)}", account, origin, is_legacy, now_ms),
    )


def _check_account(connection: sqlite3.Connection, account: str) -> None:
    names = [row["name"] for row in connection.execute("SELECT name FROM accounts ORDER BY name")]
    if account not in names:
        raise KeyRefusedError(f"there is no account {account}; there are: {', '.join(names)}")


def _check_active(connection: sqlite3.Connection, account: str) -> None:
    row = connection.execute(
        "SELECT count(*) AS active FROM api_keys WHERE account = ? AND revoked_at_ms IS NULL", (account,)
    ).fetchone()
    if row["active"] >= MAX_ACTIVE:
        raise KeyRefusedError(f"account {account} has {MAX_ACTIVE} active keys; revoke one first")


def _check_pace(
    connection: sqlite3.Connection, account: str, now_ms: int, *, span_ms: int, limit: int, name: str
) -> None:
    """Only keys that people made count; those of the configuration come with every new state folder at once."""
    row = connection.execute(
        "SELECT created_at_ms FROM api_keys WHERE account = ? AND origin = 'command' AND created_at_ms > ?"
        " ORDER BY created_at_ms DESC LIMIT 1 OFFSET ?",
        (account, now_ms - span_ms, limit - 1),
    ).fetchone()
    if row is not None:
        wait_seconds = -(-(row["created_at_ms"] + span_ms - now_ms) // 1000)
        raise KeyRefusedError(
            f"account {account} made {limit} keys within this {name}; the next can be made in {wait_seconds} seconds"
        )
