"""Administration of keys and credits by commands, whether or not the service is running or has ever run."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager

from msgspec import Struct

from batchkiln_service.clock import resume
from batchkiln_service.config import ServiceConfig
from batchkiln_service.db.credits import CreditBalance, buy, list_balances
from batchkiln_service.db.database import connect
from batchkiln_service.db.keys import ApiKey, MadeKey, account_names, check_account, create_key, list_keys, revoke_key
from batchkiln_service.db.setup import (
    FILE_NAME,
    calendar_of,
    configure_accounts,
    last_seen_ms_of,
    resume_clock,
    schema,
    setup_lock,
    stored_anchor,
    with_rules,
)
from batchkiln_service.rules.windows import Calendar


class AccountAdmin(Struct, frozen=True):
    """Creates, lists and revokes keys; shows and buys credits. All methods raise `KeyRefusedError`."""

    _connection: sqlite3.Connection
    _calendar: Calendar

    def create(self, account: str) -> MadeKey:
        """Create a key. Its secret is in the returned value only."""
        with _transaction(self._connection) as connection:
            return create_key(connection, account, now_ms=self._now_ms(), calendar=self._calendar)

    def list(self, account: str | None = None) -> Sequence[ApiKey]:
        """Return the keys of one account, or of all accounts."""
        return list_keys(self._connection, account)

    def revoke(self, key_id: str) -> ApiKey:
        """Revoke a key permanently; a running service refuses it from its next request on."""
        with _transaction(self._connection) as connection:
            return revoke_key(connection, key_id, now_ms=self._now_ms())

    def balance(self, account: str) -> CreditBalance:
        """Return the credit balance of an account."""
        check_account(self._connection, account)
        (found,) = list_balances(self._connection, account)
        return found

    def buy(self, account: str, amount: int) -> CreditBalance:
        """Buy credits; a running service can use them from the account's next request on."""
        with _transaction(self._connection) as connection:
            check_account(connection, account)
            buy(connection, account, amount, now_ms=self._now_ms())
        return self.balance(account)

    def _now_ms(self) -> int:
        """Return the instant of service time, without changing the anchor of a running service."""
        stored = stored_anchor(self._connection)
        assert stored is not None, "the database was opened without resuming its clock"
        last_seen_ms = last_seen_ms_of(self._connection)
        return resume(stored, time_scale=stored.time_scale, start_at_ms=None, last_seen_ms=last_seen_ms).service_ms


@contextmanager
def open_account_admin(config: ServiceConfig) -> Iterator[AccountAdmin]:
    """Open the database for administration. Raise sqlite3.Error and OSError if it cannot be used.

    In a database without accounts, those of `config` are created with their keys, which raises as `configure_accounts`
    does. Their first credits are bought when the service starts. A database with accounts is not changed, because
    `config` may differ from the service's own configuration and would then revoke keys that are in use.
    """
    with ExitStack() as stack:
        with setup_lock(config.state_dir):
            connection = stack.enter_context(closing(connect(config.state_dir / FILE_NAME, schema())))
            with _transaction(connection):
                anchor = stored_anchor(connection) or resume_clock(connection, config)
                if not account_names(connection):
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
