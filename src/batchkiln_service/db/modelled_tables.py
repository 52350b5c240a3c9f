"""The server's tables in memory, filled with what a model has counted, so that the server's own queries report on it.

The schema's triggers are left out, because all that they keep up to date is written in its final state; its checks
stay.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Final

import orjson
from msgspec import Struct

from batchkiln_service.config import AccountConfig
from batchkiln_service.db.credits import add_usage, open_account, transfer
from batchkiln_service.db.setup import schema
from batchkiln_service.db.sql import load_queries
from batchkiln_service.rules.lifecycle import Outcome, Status

_SQL: Final = load_queries("modelled_tables")

LogRow = tuple[str | int | bytes | None, ...]
"""The columns of a table; those of `requests` are in the order of the schema, without the id."""


class ModelledGeneration(Struct):
    """A generation of a model; instants are milliseconds since 1970."""

    id: str
    account: str
    prompt: str
    body_sha256: str
    model: str
    cost_credits: int
    created_at_ms: int
    processing_at_ms: int
    finish_at_ms: int
    outcome: Outcome = "success"
    last_polled_at_ms: int | None = None
    end_seen_at_ms: int | None = None

    def status(self, now_ms: int) -> Status:
        """Return the status that a client sees. No read comes later than the retention."""
        if now_ms >= self.finish_at_ms:
            return self.outcome
        return "processing" if now_ms >= self.processing_at_ms else "pending"


@contextmanager
def filled_tables(
    accounts: Iterable[AccountConfig],
    log: Iterable[LogRow],
    generations: Iterable[ModelledGeneration],
    used_credits: Mapping[tuple[str, int], int],
    *,
    now_ms: int,
) -> Iterator[sqlite3.Connection]:
    """Yield a database in which these accounts have sent these requests; `used_credits` is by account and day."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.row_factory = sqlite3.Row
        connection.executescript(schema())
        for (name,) in connection.execute(_SQL["triggers"]).fetchall():
            connection.execute(f"DROP TRIGGER {name}")
        connection.execute("BEGIN")
        for account in accounts:
            open_account(connection, account.name, subscription=account.subscription)
            transfer(connection, account.name, "purchase", account.credits, generation_id=None, at_ms=0)
        connection.executemany(_SQL["insert_logged"], log)
        made = list(generations)
        connection.executemany(_SQL["insert_ended_generation"], (_row_of(each, now_ms) for each in made))
        connection.executemany(
            _SQL["insert_key"], ((each.account, each.id, each.body_sha256, each.id) for each in made)
        )
        connection.executemany(_SQL["insert_reserve"], (_transfer_of(each, each.created_at_ms) for each in made))
        ended = [each for each in made if each.finish_at_ms <= now_ms]
        for is_failed, statement in ((True, _SQL["insert_refund"]), (False, _SQL["insert_charge"])):
            alike = (each for each in ended if (each.outcome == "failed") is is_failed)
            connection.executemany(statement, (_transfer_of(each, each.finish_at_ms) for each in alike))
        for (name, day), credit_count in used_credits.items():
            add_usage(connection, name, day, credits=credit_count)
        connection.execute(_SQL["fill_credit_sides"])
        connection.execute(_SQL["count_active_generations"])
        yield connection


def _row_of(each: ModelledGeneration, now_ms: int) -> LogRow:
    """Return the columns of a generation, with its end if that was before now."""
    return (
        each.id,
        each.account,
        each.model,
        each.cost_credits,
        each.created_at_ms,
        each.processing_at_ms,
        each.finish_at_ms,
        each.outcome,
        each.created_at_ms if each.outcome == "success" else None,
        each.finish_at_ms if each.finish_at_ms <= now_ms else None,
        each.end_seen_at_ms,
        each.last_polled_at_ms,
        orjson.dumps({"prompt": each.prompt}),
    )


def _transfer_of(each: ModelledGeneration, at_ms: int) -> LogRow:
    return each.account, each.cost_credits, each.id, at_ms
