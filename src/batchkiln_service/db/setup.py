"""Opens the database: creates the schema, continues service time and configures the accounts.

The server and the commands (`account_admin.py`) open it the same way, at any time. A lock lets only one process do so
at a time. Otherwise two processes could both create the schema and the first instant of a new folder.
"""

import logging
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Final

import msgspec
import orjson
from filelock import FileLock

from batchkiln_service.clock import Anchor, resume
from batchkiln_service.config import AccountConfig, ServiceConfig
from batchkiln_service.db.credits import bought_credits, buy_first, open_account
from batchkiln_service.db.database import BUSY_SECONDS, Database, InlineDatabase
from batchkiln_service.db.generations import count_expiring
from batchkiln_service.db.keys import (
    KeyOwner,
    digest_of,
    enter_configured,
    find_owner,
    is_revoked_for_good,
    is_secret,
    new_secret,
)
from batchkiln_service.db.sql import load_queries
from batchkiln_service.rules.windows import Calendar

_SQL: Final = load_queries("setup")

FILE_NAME: Final = "service.db"
LOCK_NAME: Final = "setup_lock.lock"
_ANCHOR: Final = "anchor"
_RULES: Final = "rules"
_log = logging.getLogger(__name__)


def calendar_of(config: ServiceConfig) -> Calendar:
    """Return the calendar of service days."""
    return Calendar(day_start_ms=round(config.day_start.timestamp() * 1000), day_ms=round(config.day_seconds * 1000))


def make_folder(folder: Path) -> None:
    """Create the state folder, readable by its owner only: it contains prompts and the key that signs links."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)


@contextmanager
def setup_lock(folder: Path) -> Iterator[None]:
    """Lock the folder against setup by other processes."""
    make_folder(folder)
    with FileLock(folder / LOCK_NAME, timeout=BUSY_SECONDS):
        yield


def database_of(folder: Path, *, is_inline: bool = False) -> Database:
    """Return the server's database, not yet open."""
    kind = InlineDatabase if is_inline else Database
    return kind(folder / FILE_NAME, schema())


def resume_clock(connection: sqlite3.Connection, config: ServiceConfig) -> Anchor:
    """Continue service time from the last run at the speed of this one, and store the new anchor."""
    start_at = config.start_at
    anchor = resume(
        stored_anchor(connection),
        time_scale=config.time_scale,
        start_at_ms=None if start_at is None else round(start_at.timestamp() * 1000),
        last_seen_ms=last_seen_ms_of(connection),
    )
    write_setting(connection, _ANCHOR, msgspec.json.encode(anchor).decode())
    return anchor


def advance_clock(connection: sqlite3.Connection, seconds: float) -> None:
    """Advance the stored service time by this many seconds, for the next start and for commands."""
    if (anchor := stored_anchor(connection)) is not None:
        write_setting(connection, _ANCHOR, msgspec.json.encode(anchor.advanced(seconds)).decode())


def save_rules(connection: sqlite3.Connection, config: ServiceConfig) -> None:
    """Store the limits and the calendar, for commands that do not know the service's configuration."""
    write_setting(connection, _RULES, config.model_dump_json(include={"limits", "day_start", "day_seconds"}))


def warn_of_clock_jump(connection: sqlite3.Connection, config: ServiceConfig, *, now_ms: int) -> None:
    """Log a warning with the number of results that expired while the service was down."""
    seen_ms, kept_ms = last_seen_ms_of(connection), round(config.media_retention_seconds * 1000)
    expired = count_expiring(connection, after_ms=seen_ms - kept_ms, until_ms=now_ms - kept_ms)
    if expired:
        _log.warning(
            "results_expired_meanwhile",
            extra={
                "items": expired,
                "duration_seconds": round((now_ms - seen_ms) / 1000),
                "reason": "so much service time has passed since the last request, and their retention with it",
                "remedy": "a longer media_retention_seconds, before the next pause",
            },
        )


def with_rules(connection: sqlite3.Connection, config: ServiceConfig) -> ServiceConfig:
    """Return the configuration with the limits and calendar of the service's last start, if any."""
    stored = read_setting(connection, _RULES)
    if stored is None:
        return config
    return ServiceConfig.model_validate(config.model_dump(exclude_unset=True) | orjson.loads(stored))


def configure_accounts(connection: sqlite3.Connection, config: ServiceConfig, *, now_ms: int) -> dict[str, str]:
    """Create the configured accounts and keys; return a working key of each account in plain text.

    Raise `KeyRefusedError`, and ValueError if an environment variable is not set.
    """
    for account in config.accounts:
        open_account(connection, account.name, subscription=account.subscription)
    keys = {account.name: _keys_of(connection, account, config.state_dir) for account in config.accounts}
    holders = [KeyOwner(name, digest_of(key), is_legacy) for name, pairs in keys.items() for key, is_legacy in pairs]
    enter_configured(connection, holders, now_ms=now_ms)
    return {name: _first_working(connection, [key for key, _ in pairs]) for name, pairs in keys.items()}


def buy_first_credits(connection: sqlite3.Connection, config: ServiceConfig, *, now_ms: int) -> None:
    """Buy the configured credits at an account's first start; log a warning if a later change has no effect."""
    for account in config.accounts:
        first = buy_first(connection, account.name, account.credits, now_ms=now_ms)
        bought = bought_credits(connection, account.name)
        if account.credits not in {first, bought}:
            _log.warning(
                "configured_credits_unused",
                extra={
                    "account": account.name,
                    "credits": account.credits,
                    "reason": f"the account bought {first} at its first start, {bought} in all; that is final",
                    "remedy": f"batchkiln serve credits buy {account.name} N",
                },
            )


def schema() -> str:
    """Return the SQL of the schema."""
    return resources.files(__package__).joinpath("schema.sql").read_text(encoding="utf-8")


def stored_anchor(connection: sqlite3.Connection) -> Anchor | None:
    """Return the stored anchor of service time; None before the first start."""
    stored = read_setting(connection, _ANCHOR)
    return msgspec.json.decode(stored, type=Anchor) if stored else None


def last_seen_ms_of(connection: sqlite3.Connection) -> int:
    """Return the latest recorded instant; service time never goes back before it."""
    row = connection.execute(_SQL["last_arrival"]).fetchone()
    return row["last"] or 0


def read_setting(connection: sqlite3.Connection, name: str) -> str | None:
    """Return the value of a setting; None if it is not set."""
    row = connection.execute(_SQL["read_setting"], (name,)).fetchone()
    return row["value"] if row else None


def write_setting(connection: sqlite3.Connection, name: str, value: str) -> None:
    """Set the value of a setting."""
    connection.execute(_SQL["write_setting"], (name, value))


def _keys_of(connection: sqlite3.Connection, account: AccountConfig, folder: Path) -> list[tuple[str, bool]]:
    """Return an account's keys in plain text and whether each is a legacy key; create one if none is configured.

    A created key that was revoked by a person is replaced, and so is a key file without a valid key.
    """
    if account.keys:
        return [(key.reveal(), key.legacy) for key in account.key_configs]
    path = folder / f"key-{account.name}"
    if path.exists():
        found = path.read_bytes().strip()
        if is_secret(found) and not is_revoked_for_good(connection, digest_of(found.decode())):
            return [(found.decode(), False)]
    made = new_secret()
    _write_private(path, f"{made}\n")
    return [(made, False)]


def _write_private(path: Path, text: str) -> None:
    """Write a file that only its owner may read; after a power cut it is complete or unchanged."""
    temporary = path.with_name(f"{path.name}.part")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _first_working(connection: sqlite3.Connection, keys: Sequence[str]) -> str:
    holders = ((key, find_owner(connection, digest_of(key))) for key in keys)
    return next((key for key, holder in holders if holder is not None and not holder.is_legacy), keys[0])
