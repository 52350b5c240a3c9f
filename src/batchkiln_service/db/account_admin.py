"""Where a person asks for keys and credits: beside a server that runs, or while none does, also before the first."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import Final

from batchkiln_service.clock import resume
from batchkiln_service.config import ServiceConfig
from batchkiln_service.db.credits import CreditBalance, buy, list_balances
from batchkiln_service.db.database import connect
from batchkiln_service.db.keys import ApiKey, MadeKey, check_account, create_key, list_keys, revoke_key
from batchkiln_service.db.setup import (
    FILE_NAME,
    calendar_of,
    configure_accounts,
    last_seen_ms_of,
    opening,
    resume_clock,
    schema,
    stored_anchor,
    with_rules,
)
from batchkiln_service.db.sql import load_queries
from batchkiln_service.rules.windows import Calendar

_SQL: Final = load_queries("account_admin")


@dataclass(frozen=True, slots=True)
class AccountAdmin:
    """Keys made, listed and revoked, and credits shown and bought. All raise `KeyRefusedError`."""

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

    def balance(self, account: str) -> CreditBalance:
        """Return what an account has bought, and what has become of it."""
        check_account(self._connection, account)
        (found,) = list_balances(self._connection, account)
        return found

    def buy(self, account: str, amount: int) -> CreditBalance:
        """Buy credits; a running server has them for the account's next request."""
        with _transaction(self._connection) as connection:
            check_account(connection, account)
            buy(connection, account, amount, now_ms=self._now_ms())
        return self.balance(account)

    def _now_ms(self) -> int:
        """Return the instant of service time, without moving the anchor of a server that runs."""
        stored = stored_anchor(self._connection)
        assert stored is not None, "the books were opened without taking up time"
        last_seen_ms = last_seen_ms_of(self._connection)
        return resume(stored, time_scale=stored.time_scale, start_at_ms=None, last_seen_ms=last_seen_ms).service_ms


@contextmanager
def open_account_admin(config: ServiceConfig) -> Iterator[AccountAdmin]:
    """Open the books for a person. Raises sqlite3.Error and OSError when they cannot be used.

    Books that have no account yet get those of the configuration, with their keys, which raises what
    `configure_accounts` does; what they buy at first is bought at the first start of the server, by its configuration.
    Other books are left as the server keeps them, with its days: `config` need not be the one that it runs with, and
    would revoke keys that are in use.
    """
    with ExitStack() as stack:
        with opening(config.state_dir):
            connection = stack.enter_context(closing(connect(config.state_dir / FILE_NAME, schema())))
            with _transaction(connection):
                anchor = stored_anchor(connection) or resume_clock(connection, config)
                if connection.execute(_SQL["any_account"]).fetchone() is None:
                    configure_accounts(connection, config, now_ms=anchor.service_ms)
        yield AccountAdmin(connection, calendar_of(with_rules(connection, config)))


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield connection
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")
